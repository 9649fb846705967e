/*
 * The workload that faults are injected into: a row of chapters, each on a driver and a cache of its own.
 *
 * Every use of a block is legal, as in the soak: what one stream does to it is ordered after what the
 * others did, or told to the cache. Nothing that the workload draws depends on time or addresses, so
 * the same seed gives the same calls until something fails. Whatever fails, each public call is looked
 * at (see call.c), and the run goes on.
 *
 *   chapters.c  their settings
 *   chapter.c   one of them: begin, operations, end
 *   block.c     blocks: allocated, used in legal order, checked, given back
 *   graph.c     graphs: captured, launched, released
 *   report.c    calls that only look
 *   call.c      what each public call must have done, and not done
 *   picture.c   what the program can see of a cache
 *   reach.c     which features the workload has reached
 */
#ifndef SWEEP_RUN_H
#define SWEEP_RUN_H

#include "cache_on.h"
#include "picture.h"
#include "random.h"

#define MIB UINT64_C(1048576)

enum {
    RUN_STREAMS = 6,
    RUN_BLOCKS = 160,
    RUN_GRAPHS = 3,
    RUN_STEPS = 24,
    RUN_NAMES = 2,
    RUN_FURTHER = 1000, /* operations that must work after a fault */
    RUN_FAILING = 250   /* operations under faults that go on for ever */
};

#define STATUS_BIT(status) (1U << (status))
#define DRIVER_STATUSES                                                                            \
    (STATUS_BIT(VMM_ERR_DRIVER) | STATUS_BIT(VMM_ERR_LOST) | STATUS_BIT(VMM_ERR_HOST_OOM))
#define ALLOC_STATUSES                                                                             \
    (DRIVER_STATUSES | STATUS_BIT(VMM_ERR_DEVICE_OOM) | STATUS_BIT(VMM_ERR_ADDRESS_SPACE))

struct chapter {
    const char *name;
    uint64_t lag; /* of the sim driver's work */
    uint64_t device_bytes;
    uint64_t limit_bytes;
    uint64_t arena_bytes;
    uint64_t live_bytes; /* about as many are live at most */
    uint64_t scale;      /* of sizes */
    unsigned streams;
    unsigned slots;
    uint64_t operations;
    uint32_t decay_ms; /* an operation takes a tenth of a millisecond */
    uint64_t decay_keep_bytes;
    uint32_t footprint_permille;
    vmm_sharing sharing;
    vmm_compaction compaction;
    bool no_caching;
    vmm_guard guard;
    bool zero;
    bool has_pressure;
    bool has_graphs;
    bool moves_limit; /* vmm_limit_set() */
    bool is_host;     /* on the host driver, through vmm_create() */
};

extern const struct chapter sweep_chapters[];
extern const unsigned sweep_chapter_count;

struct holding {
    void *address; /* NULL: the slot is empty */
    uint64_t bytes;
    uint32_t word; /* that it is filled with; 0: nobody knows what it holds */
    unsigned owner;
    unsigned users; /* a bit for each stream that the cache knows of */
    bool is_pinned;
};

enum graph_state { GRAPH_NONE = 0, GRAPH_CAPTURED, GRAPH_READY, GRAPH_RELEASED };

struct step {
    void *address;
    uint64_t bytes;
    uint32_t word;
    bool is_check;
    bool is_live; /* a fill of a block that the graph has not given back */
};

struct graph {
    enum graph_state state;
    vmm_pool_id id;
    unsigned stream;
    unsigned count;
    struct step steps[RUN_STEPS];
};

/* What is known before a public call. */
struct call {
    uint64_t fired;
    uint64_t copies;
    uint64_t failed_waits;
    bool has_picture;
    struct picture picture;
};

struct run {
    const struct chapter *chapter;
    uint64_t random;
    uint64_t done; /* operations */
    uint64_t end;  /* when so many are done */
    struct driver *driver;
    vmm_cache *cache;
    void *event;
    uint64_t limit_bytes; /* now */
    uint64_t fault_at;    /* operation */
    vmm_stream streams[RUN_STREAMS];
    struct holding blocks[RUN_BLOCKS];
    struct graph graphs[RUN_GRAPHS];
    const struct holding *leaving; /* the one that a free under way gives back */
    unsigned captured;             /* a bit for each stream that is being captured */
    unsigned launched[RUN_NAMES + 1];
    uint64_t captures;
    uint64_t live_bytes;
    uint64_t changes;    /* that vmm_watch() told */
    uint64_t limits;     /* that were set */
    uint64_t kept_bytes; /* these three: the most that was seen */
    uint64_t waiting_bytes;
    uint64_t unmovable_bytes;
    uint32_t words;
    bool is_latched;     /* the driver layer has noted that the device is lost */
    uint64_t host_bytes; /* outstanding before */
    struct call call;
};

/* ---- chapter.c --------------------------------------------------------------------------------- */

/* Runs a chapter, counted from 1, to its end; in a child it does not return. */
void run_chapter(unsigned chapter);

static inline bool run_dice(struct run *run, uint64_t times)
{
    return random_next(&run->random) % times == 0;
}

/* ---- call.c ------------------------------------------------------------------------------------ */

/* Around each public call; true if it succeeded. `documented` has a bit for each status that the
 * header names for it. */
void call_begin(struct run *run);
bool call_end(struct run *run, const char *call, unsigned documented, vmm_status status);
#define CALL(run, documented, call) (call_begin(run), call_end((run), #call, (documented), (call)))

/* A callback of the cache changed something by public calls of its own: the call around it begins anew. */
void call_again(struct run *run, uint64_t fired);

/* Whether the driver layer refuses everything, as it may from the first LOST on. */
bool run_lost(struct run *run);

/* What must work whatever has failed: calls of the test's own. */
void run_expect(struct run *run, const char *what, vmm_status status);

/* ---- block.c ----------------------------------------------------------------------------------- */

/* Live blocks may not be touched now: the driver would not map again what it had mapped, or is lost. */
bool run_is_unusable(const struct run *run);

static inline bool run_is_captured(const struct run *run, unsigned streams)
{
    return (run->captured & streams) != 0;
}

uint64_t run_bytes_drawn(struct run *run);
void run_follow(struct run *run, unsigned later, unsigned earlier);
void run_fill(struct run *run, const void *address, uint64_t bytes, uint32_t *word,
              unsigned stream);
void run_check(struct run *run, const void *address, uint64_t bytes, uint32_t word,
               unsigned stream);

void block_take(struct run *run, struct holding *block);
void block_give(struct run *run, struct holding *block);
void block_use(struct run *run, struct holding *block);
void block_touch(struct run *run, struct holding *block);
void block_pin(struct run *run, struct holding *block);
struct holding *block_any(struct run *run);

/* All live blocks of streams that take work hold what they were filled with. */
void blocks_verify(struct run *run);

/* ---- graph.c ----------------------------------------------------------------------------------- */

void graph_operation(struct run *run);
void graphs_end(struct run *run);

/* ---- report.c ---------------------------------------------------------------------------------- */

/* One of the calls that only look. */
void report_operation(struct run *run);

/* ---- reach.c ----------------------------------------------------------------------------------- */

/* After each operation. */
void reach_note(const struct run *run);
/* At the end of a chapter, before its cache ends. */
void reach_add(const struct run *run, const vmm_stats *stats);
/* Writes what was reached; false if something was not. */
bool reach_write(FILE *out);

#endif
