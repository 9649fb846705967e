/*
 * The soak: random operations of eight streams on the strict sim driver, for as long as one likes.
 *
 * The run is a row of chapters, each with an order of its own in which work finishes (order_support.h), or by lag, each on a driver and a cache of its own with settings drawn from the
 * seed. Every use of a block is legal: what one stream does to it is ordered after what the others
 * did, or told to the cache. Whatever the sim driver then objects to is the cache's fault. The same
 * seed gives the same run; the first trouble ends it.
 *
 *   soak.c           arguments, the row of chapters, the line in the end
 *   soak_chapter.c   one chapter: its settings, its operations, what must hold when it ends
 *   soak_block.c     blocks: allocated, used in legal order, checked, given back
 *   soak_graph.c     graphs: captured, launched, released
 *   soak_stream.c    streams: ended, destroyed, and others under their handles
 *   soak_lie.c       lies that the soak must find
 */
#ifndef VMM_SOAK_H
#define VMM_SOAK_H

#include "cache_on.h"
#include "support/order_support.h"

#include "random.h"

enum { SOAK_STREAMS = 8, SOAK_BLOCKS = 1024, SOAK_GRAPHS = 4, SOAK_STEPS = 64, SOAK_NAMES = 3 };

/* A live block; address NULL: the slot is empty. */
struct soak_block {
    void *address;
    uint64_t bytes;
    uint32_t word; /* that it is filled with */
    unsigned owner;
    unsigned users; /* a bit for each stream that the cache knows of */
    bool is_pinned;
};

enum soak_graph_state { GRAPH_NONE = 0, GRAPH_CAPTURED, GRAPH_READY };

/* What a launch does: it fills a block, or checks one that is given back then. */
struct soak_step {
    void *address;
    uint64_t bytes;
    uint32_t word;
    bool is_check;
    bool is_live; /* a fill of a block that the graph has not given back */
};

/* What is kept from the cache, to show that the soak would find it. */
enum soak_lie {
    LIE_NONE,
    LIE_QUERY,  /* every event has passed, whoever asks */
    LIE_FOLLOW, /* streams that the cache makes wait do not */
    LIE_DEVICE, /* waits for the device end at once */
    LIE_RECORD, /* every other event is not recorded */
    LIE_USE,    /* the cache is not told of vmm_use() */
    LIE_END     /* nor of vmm_stream_end() */
};

struct soak_graph {
    enum soak_graph_state state;
    vmm_pool_id id;
    unsigned stream; /* that was captured */
    unsigned count;
    struct soak_step steps[SOAK_STEPS];
};

/* Drawn from the seed for each chapter. */
struct soak_settings {
    vmm_config config;
    uint64_t device_bytes;
    uint64_t live_bytes; /* about as many are live at most */
    unsigned streams;
    unsigned slots;
    uint64_t operations;
    bool has_graphs;
    bool has_order; /* streams' work finishes in an order of its own, not by lag */
    bool may_fail;  /* memory may run out */
    bool may_stall; /* the host may wait for the device */
};

/* Over all chapters. */
struct soak_sums {
    uint64_t chapters;
    uint64_t allocations;
    uint64_t uses;
    uint64_t moves; /* chunks mapped without being created */
    uint64_t stream_waits;
    uint64_t stalls;
    uint64_t ooms;
    uint64_t pressure_calls;
    uint64_t compactions;
    uint64_t captures;
    uint64_t launches;
    uint64_t ends; /* of streams */
    uint64_t violations;
    uint64_t mismatches;
};

struct soak {
    uint64_t random; /* state */
    uint64_t done;   /* operations */
    bool is_short;   /* chapters are: little memory, so that much happens in each */
    struct soak_settings settings;
    enum soak_lie lie;
    struct driver *driver;
    const struct driver_ops *ops; /* the driver's true ones: the soak's own calls are not counted */
    vmm_cache *cache;
    struct order order; /* in which work finishes, in chapters that have one */
    void *event;
    vmm_stream streams[SOAK_STREAMS];
    struct soak_block blocks[SOAK_BLOCKS];
    struct soak_graph graphs[SOAK_GRAPHS];
    unsigned captured; /* a bit for each stream that takes no work: it is being captured, or gone */
    unsigned gone;     /* the stream that was destroyed without a word; 0: none */
    unsigned launched[SOAK_NAMES + 1]; /* by private pool: the stream of the last launch */
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint32_t words;
    struct soak_sums sums;
    char trouble[640]; /* the first; empty: none */
};

/* Notes the first trouble. */
void soak_trouble(struct soak *soak, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Notes a call that failed. */
void soak_expect(struct soak *soak, const char *call, vmm_status status);

static inline bool soak_is_troubled(const struct soak *soak)
{
    return soak->trouble[0] != '\0';
}

/* True once in `times`. */
static inline bool soak_dice(struct soak *soak, uint64_t times)
{
    return random_next(&soak->random) % times == 0;
}

/* A number in low..high whose logarithm is evenly spread. */
uint64_t soak_log_between(struct soak *soak, uint64_t low, uint64_t high);

static inline bool soak_is_captured(const struct soak *soak, unsigned streams)
{
    return (soak->captured & streams) != 0;
}

/* ---- soak_block.c ---------------------------------------------------------------------------- */

void soak_block_take(struct soak *soak, struct soak_block *block);
void soak_block_give(struct soak *soak, struct soak_block *block);

/* Work of another stream. */
void soak_block_use(struct soak *soak, struct soak_block *block);

/* Work of its own stream. */
void soak_block_touch(struct soak *soak, struct soak_block *block);

void soak_block_pin(struct soak *soak, struct soak_block *block);

/* A random live block; NULL if there is none in reach. */
struct soak_block *soak_block_any(struct soak *soak);

/* Lets later work of one stream come after all earlier work of another; neither is captured. */
void soak_stream_follows(struct soak *soak, unsigned later, unsigned earlier);

/* Tells the cache that a stream uses a block. */
void soak_use_told(struct soak *soak, void *address, unsigned user);

uint64_t soak_bytes_drawn(struct soak *soak);

/* ---- soak_graph.c ---------------------------------------------------------------------------- */

/* Begins or goes on with a capture, launches a graph, or releases one. */
void soak_graph_operation(struct soak *soak);

/* Ends all captures, and releases all graphs. */
void soak_graphs_end(struct soak *soak);

/* ---- soak_stream.c --------------------------------------------------------------------------- */

/* Ends a stream or two, which come back as others; or lets one go without a word, or come back. */
void soak_stream_turn(struct soak *soak);

/* Has the one that is gone come back. */
void soak_stream_renew(struct soak *soak);

/* ---- soak_lie.c ------------------------------------------------------------------------------ */

bool soak_lie_read(const char *text, enum soak_lie *out);

/* Has the chapter's driver lie. */
void soak_lie_begin(struct soak *soak);

/* ---- soak_chapter.c -------------------------------------------------------------------------- */

/* Runs one chapter of at most `most` operations. `step`, called now and then, may be NULL. */
void soak_chapter(struct soak *soak, uint64_t most, void (*step)(void *context, uint64_t done),
                  void *context);

#endif
