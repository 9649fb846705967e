/*
 * The engine: runs operations on a cache on the strict sim driver, and looks at everything the cache says.
 *
 * Every use of a block is legal: what one stream does to it is ordered after what the others did, or told to the
 * cache. So whatever the sim driver objects to, and whatever differs from the model, is the library's fault. The
 * first trouble ends a run.
 *
 *   engine.c          runs, calls under faults, what a call may return, plain settings
 *   engine_life.c     caches: created with drawn settings, emptied, destroyed
 *   engine_block.c    blocks: allocated, used in legal order, given back
 *   engine_stream.c   streams: they end, and their handles come back
 *   engine_pool.c     private pools, captures, graphs and their launches
 *   engine_report.c   statistics, blocks found by address, the smaller reports
 *   engine_walk.c     walks and watches, against each other and the model
 *   engine_guard.c    zeros, records, guards
 *   engine_misuse.c   wrong pointers, missing arguments, wrong settings
 *   plant.c           planted bugs, which show that bugs are found
 *
 * May be called by: fuzz_cache, fuzz_target. Locks: none (one thread).
 */
#ifndef FUZZ_ENGINE_H
#define FUZZ_ENGINE_H

#include "model.h"
#include "plant.h"

#include "cache_on.h"
#include "support/order_support.h"

/* The default stream, which never ends nor is captured, comes after the work of those that have ended. */
enum { ENGINE_HEIR = 0 };

enum { ENGINE_GRAPHS = 4, ENGINE_STEPS = 64, ENGINE_GRAPH_POOLS = 3 };

/* Of an error. */
enum { LINE_BYTES = 512 };

/* Sets of statuses. */
#define STATUS_BIT(name) (1U << VMM_##name)
#define STATUS_SHORTAGE  (STATUS_BIT(ERR_DEVICE_OOM) | STATUS_BIT(ERR_ADDRESS_SPACE))
#define STATUS_FAULTS    (STATUS_BIT(ERR_DRIVER) | STATUS_BIT(ERR_HOST_OOM) | STATUS_BIT(ERR_LOST))

enum engine_graph_state { GRAPH_NONE = 0, GRAPH_CAPTURED, GRAPH_READY };

/* What a launch does: it fills a block, or checks one that is given back then. */
struct engine_step {
    uint64_t address;
    uint64_t bytes;
    uint32_t word;
    unsigned slot;
    bool is_check;
    bool is_live; /* a fill of a block that has not been given back */
};

/* What the filter of a private pool lets pass. */
struct engine_filter {
    const vmm_stream *handles;
    unsigned streams; /* a bit for each */
};

struct engine_graph {
    enum engine_graph_state state;
    unsigned pool;
    unsigned stream; /* that was captured */
    unsigned count;
    struct engine_step steps[ENGINE_STEPS];
};

/* Pointers that named no live block, where the cache keeps records. */
struct engine_misuse {
    unsigned told;         /* how often the program was told of one */
    bool is_known;         /* there was one */
    char line[LINE_BYTES]; /* of the last */
};

/* Faults that wait to happen, counted in calls that the library makes. 0: none. */
struct engine_faults {
    uint64_t driver_call;
    vmm_status status;
    bool for_ever;
    uint64_t host_call;
    unsigned fired; /* statuses of those that happened during the call under way */
    unsigned depth; /* of calls: the program may be asked for memory within one */
};

/* A sorted list of addresses, each with a number of bytes. */
struct address_list {
    struct address_entry {
        uint64_t address;
        uint64_t bytes;
    } * entries;
    size_t count;
    size_t capacity;
};

/* What changes have told since the cache is watched. */
struct engine_watch {
    bool is_on;
    struct address_list granules;
    struct address_list waiting;
    const char *trouble;
};

/* Over all runs. */
struct engine_sums {
    uint64_t operations;
    uint64_t caches;
    uint64_t allocations;
    uint64_t refused; /* allocations, for want of memory */
    uint64_t faults;  /* that happened */
    uint64_t misuses;
    uint64_t launches;
    uint64_t moves; /* chunks mapped without being created */
    uint64_t compactions;
    uint64_t walks;
};

enum { TROUBLE_BYTES = 512 };

struct engine {
    struct driver *driver;
    vmm_cache *cache;
    vmm_config config;
    void *event;
    vmm_stream streams[MODEL_STREAMS]; /* by handle */
    struct model model;
    struct engine_faults faults;
    struct engine_graph graphs[ENGINE_GRAPHS];
    struct engine_filter filters[MODEL_POOLS];
    struct engine_watch watch;
    struct engine_misuse misuse;
    struct order order; /* in which work finishes, unless it is by lag */
    unsigned gone;      /* a bit for each stream that has ended, and was not made anew */
    unsigned ended;     /* how many have, since the cache was made */
    bool
        has_strays; /* one has gone without a word, where a trim may give its pool more memory back */
    unsigned known;       /* a bit for each stream that the cache has seen */
    unsigned captured;    /* a bit for each stream that is being captured: it takes no work */
    unsigned graph_bound; /* those of them that are captured for a graph */
    uint64_t clock_ns;
    uint64_t device_bytes;
    uint64_t live_most;    /* requests beyond are left out; 0: memory may run out */
    uint64_t checks_every; /* operations; 0: only when an operation says so */
    uint64_t done;         /* operations, since the cache was made */
    uint32_t words;
    unsigned pressure_turn;
    unsigned taking;   /* the slot of the request under way; OPERATION_SLOTS: there is none */
    bool has_waited;   /* the operation before was a wait, which nothing hindered */
    bool is_lost;      /* the driver said so: the cache owes no more than its end */
    bool has_launched; /* graphs, since the cache was made */
    bool was_hurt;     /* faults have happened since the cache was made */
    struct plant plant;
    FILE *listing; /* gets each operation, and what its calls returned; NULL: nobody does */
    struct engine_sums sums;
    char trouble[TROUBLE_BYTES]; /* the first; empty: none */
};

/* Runs operations from a state without a cache to one without any. False: engine->trouble says what was wrong, and
 * *failed_at (may be NULL) which operation; the count: what came after the last. */
bool engine_run(struct engine *engine, const struct operation *operations, size_t count,
                size_t *failed_at);

/* Called before each operation of a run; NULL: nobody is. */
typedef void (*engine_step_fn)(void *context, size_t index);
void engine_on_step(engine_step_fn step, void *context);

void engine_trouble(struct engine *engine, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of the listing: a comment below the operation that it belongs to. */
void engine_list(struct engine *engine, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool engine_is_troubled(const struct engine *engine)
{
    return engine->trouble[0] != '\0';
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Every call of the library stands between these two: faults happen in there, and nowhere else. */
void engine_enter(struct engine *engine);
void engine_leave(struct engine *engine);

/*
 * What a call returned: one of `legal`, or, where a fault has happened meanwhile, of `faulty` and that fault's own
 * status. Returns whether it succeeded.
 */
bool engine_expect(struct engine *engine, const char *call, vmm_status status, unsigned legal,
                   unsigned faulty);

/* Makes a call that has no argument but the cache, and expects it to succeed unless a fault happens. Returns whether
 * it did. */
bool engine_call(struct engine *engine, const char *name, vmm_status (*call)(vmm_cache *cache));

/* A call of the tests' own on the driver. */
void engine_expect_ok(struct engine *engine, const char *call, vmm_status status);

static inline bool engine_is_captured(const struct engine *engine, unsigned streams)
{
    return (engine->captured & streams) != 0;
}

/* ---- engine_life.c --------------------------------------------------------------------------- */

/* A cache with settings drawn from an operation, after the one before has ended. */
void engine_open(struct engine *engine, const struct operation *operation);

/* Gives everything back; then nothing may be left. */
void engine_empty(struct engine *engine);
void engine_close(struct engine *engine);

/* ---- engine_block.c -------------------------------------------------------------------------- */

void engine_block_give(struct engine *engine, struct model_block *block);

/* Lets later work of one stream come after all earlier work of another; neither is captured. */
void engine_stream_follows(struct engine *engine, unsigned later, unsigned earlier);

/* The stream that comes after all work of the block's own stream that other streams must follow. */
static inline unsigned engine_block_keeper(const struct model_block *block)
{
    return block->stream == MODEL_STREAMS ? ENGINE_HEIR : block->stream;
}

/* Waits for all work; every check must have found what it should. No stream may be captured. */
void engine_work_verify(struct engine *engine);

/* The program is asked for memory. */
int engine_pressure(void *context, size_t bytes);

/* ---- engine_stream.c ------------------------------------------------------------------------- */

/* The handle of a stream that has none: no stream's. */
#define ENGINE_NO_STREAM ((vmm_stream)(uintptr_t)UINT64_MAX)

/* Makes a stream anew if it has ended: the handle that was given back last is its. */
void engine_stream_renew(struct engine *engine, unsigned stream);

/* ---- engine_guard.c -------------------------------------------------------------------------- */

/* Draws zero and guard from the upper five bits of memory. */
void engine_guard_draw(struct engine *engine, unsigned drawn);

/* Whether the cache's own statistics and chunks count canaries and quarantine, too. */
static inline bool engine_is_padded(const struct engine *engine)
{
    return engine->config.guard >= VMM_GUARD_ON;
}

/* A new block must read as zeros if the cache promises that. */
void engine_zeros_verify(struct engine *engine, const struct model_block *block);

/* A call has found that a pointer names no live block: the program must have been told of the first one. */
void engine_misuse_noted(struct engine *engine);

/* Unless there was one, the program has been told of none. */
void engine_misuse_none(struct engine *engine);

/* ---- engine_pool.c --------------------------------------------------------------------------- */

/* A block of a captured stream was handed out for a graph, or is given back. */
void engine_graph_take(struct engine *engine, unsigned slot, struct model_block *block);
void engine_graph_give(struct engine *engine, const struct model_block *block);

/* Ends all captures; and then the rest, and releases everything. */
void engine_captures_end(struct engine *engine);
void engine_pools_end(struct engine *engine);

/* ---- engine_report.c, engine_walk.c ---------------------------------------------------------- */

vmm_stats engine_stats(struct engine *engine);
void engine_stats_verify(struct engine *engine);

/* Walk, statistics, watch, invariants. */
void engine_verify(struct engine *engine);

/* What was found at an address must be what the model has there; NULL: nothing. */
void engine_item_verify(struct engine *engine, const char *call, const vmm_item *item,
                        const struct model_block *block);

void engine_watch_set(struct engine *engine, bool is_on);
void engine_watch_end(struct engine *engine);

/* ---- Operations ------------------------------------------------------------------------------ */

#define OPERATION_DECLARED(name, weight, a, b, c, number, operand)                                 \
    void operation_##name(struct engine *engine, const struct operation *operation);
OPERATION_MAP(OPERATION_DECLARED)
#undef OPERATION_DECLARED

static inline unsigned operand_stream(struct engine *engine, uint8_t value)
{
    engine_stream_renew(engine, value % MODEL_STREAMS);
    return value % MODEL_STREAMS;
}

/* The default stream is not captured, nor does it end. */
static inline unsigned operand_made_stream(struct engine *engine, uint8_t value)
{
    unsigned stream = 1 + value % (MODEL_STREAMS - 1);
    engine_stream_renew(engine, stream);
    return stream;
}

/* The live block of a slot; NULL: there is none. */
static inline struct model_block *operand_block(struct engine *engine, uint8_t slot)
{
    struct model_block *block = &engine->model.blocks[slot];
    return block->is_live ? block : NULL;
}

#endif
