/*
 * The state of one thread's operations: its cache, its model, what waits to happen. See stress.h.
 */
#ifndef STRESS_STATE_H
#define STRESS_STATE_H

#include "control.h"
#include "model.h"

#include "api/create_on.h"
#include "support/order_support.h"
#include "support/ranges.h"

#include <stdatomic.h>

/* The default stream, which never ends nor is captured, comes after the work of those that have ended. */
enum { STRESS_HEIR = 0 };
enum {
    STRESS_PUSHES = 8,
    STRESS_STREAMS = 8,
    STRESS_STRANGERS = 2, /* streams that the cache never sees */
    STRESS_GRAPHS = 4,
    STRESS_STEPS = 64,
    STRESS_GRAPH_POOLS = 3,
    STRESS_SHARES = 4,
    STRESS_ENDS_MOST = 200 /* of streams: the sim driver keeps the work of so many apart */
};
enum { STRESS_OPEN_POOL = MODEL_POOLS - 1 }; /* it takes the requests of every stream */

/* Of an error; of a trouble. */
enum { LINE_BYTES = 512, TROUBLE_BYTES = 640 };

/* Sets of statuses. */
#define STATUS_BIT(name) (1U << VMM_##name)
#define STATUS_OOM       (STATUS_BIT(ERR_DEVICE_OOM) | STATUS_BIT(ERR_ADDRESS_SPACE))
#define STATUS_FAULTS    (STATUS_BIT(ERR_DRIVER) | STATUS_BIT(ERR_HOST_OOM) | STATUS_BIT(ERR_LOST))
#define STATUS_LAST      VMM_ERR_ASLEEP

enum stress_graph_state { GRAPH_NONE = 0, GRAPH_CAPTURED, GRAPH_READY };

/* What a launch does: it fills a block, or checks one that is given back. */
struct stress_step {
    uint64_t address;
    uint64_t bytes;
    uint32_t word;
    unsigned slot;
    bool is_check;
    bool is_live; /* a fill of a block that has not been given back */
};

/* What the filter of a graph pool lets pass. */
struct stress_filter {
    const vmm_stream *handles;
    unsigned count;
    uint64_t streams; /* a bit for each */
};

struct stress_graph {
    enum stress_graph_state state;
    unsigned pool;
    unsigned stream; /* that was captured */
    unsigned count;
    struct stress_step steps[STRESS_STEPS];
};

/* An exported block. */
struct stress_share {
    vmm_share *handle; /* NULL: there is none */
    bool has_fabric;   /* it can go through any stream socket */
    bool was_sent;
    bool was_tried; /* to send */
    uint64_t requested_bytes;
    uint64_t block_bytes;
    bool
        is_whole; /* it has chunks of its own; otherwise an import reaches to the end of its last chunk */
    uint32_t word; /* that it is filled with; 0: nothing */
};

/* A region of the driver, from which pools with a source have their segments. */
struct stress_source {
    uint64_t address;
    uint64_t handle;
    uint64_t region_bytes; /* 0: there is none */
    uint64_t taken;        /* a bit for each granule */
    uint64_t bytes;        /* of segments */
    unsigned segments;
    unsigned calls;
};

/* Pointers that named no live block, where the cache keeps records. */
struct stress_misuse {
    unsigned told;         /* calls of the misuse callback */
    bool is_known;         /* there was one */
    char line[LINE_BYTES]; /* of the last */
};

/* Faults that wait to happen, counted in calls that the library makes. 0: none. */
struct stress_faults {
    uint64_t driver_call;
    vmm_status status;
    bool for_ever;
    uint64_t host_call;
    unsigned fired; /* statuses of those that happened during the call under way */
    bool has_fired; /* during the operation under way */
    unsigned depth; /* of calls: the program may be asked for memory within one */
};

/* Addresses in order, each with a number of bytes. */
struct address_list {
    struct address_entry *entries;
    size_t count;
    size_t capacity;
};

/* What the listener has heard of since it was set. */
struct stress_watch {
    bool is_on;
    struct ranges mapped;
    struct address_list waiting;
    const char *trouble;
};

/* Over all runs. */
struct stress_sums {
    uint64_t operations;
    uint64_t caches;
    uint64_t allocations;
    uint64_t refused; /* allocations that failed with out of memory */
    uint64_t faults;  /* that happened */
    uint64_t misuses;
    uint64_t launches;
    uint64_t moves; /* chunks mapped without being created */
    uint64_t compactions;
    uint64_t walks;
    uint64_t stream_waits;
    uint64_t stalls;
    uint64_t ends; /* of streams */
    uint64_t passes;
    uint64_t shares;
    uint64_t undeclared; /* uses */
    uint64_t commits;
    uint64_t resizes;
};

/*
 * A front end that makes calls fail itself. `begin` and `end` stand around each call of the library, and around work of
 * the tests' own if covers_work. `end` returns a bit for each status that a fault has put in meanwhile.
 */
struct stress_points {
    void (*begin)(void);
    unsigned (*end)(bool *for_ever);
    bool (*may_fire)(void);
    void (*heal)(void);                  /* no more faults */
    void (*open)(struct driver *driver); /* called for each driver that was opened */
    bool covers_work;
};

struct stress {
    vmm_driver_kind kind; /* of the driver */
    struct driver *driver;
    vmm_cache *cache;
    vmm_config config;
    void *event;
    unsigned stream_count;
    vmm_stream streams
        [MODEL_STREAMS]; /* by handle; a worker's last one is its own, the others are shared; then the strangers */
    uint64_t
        freed_under[MODEL_STREAMS]; /* for each stream: those that use, undeclared, what it freed */
    struct model model;
    struct stress_faults faults;
    const struct stress_points *points; /* NULL: only operations make calls fail */
    struct stress_shared *shared;       /* NULL: one thread uses the cache */
    unsigned worker;
    _Atomic(const char *) doing; /* the operation under way */
    bool has_picture;            /* of the cache before the call under way: see stress.c */
    struct stress_graph graphs[STRESS_GRAPHS];
    struct stress_filter filters[MODEL_POOLS];
    struct stress_share share_records[STRESS_SHARES];
    unsigned pushed[STRESS_PUSHES]; /* numbers of general pools, the last one pushed last */
    unsigned push_count;
    struct stress_watch watch;
    struct stress_source source;
    struct stress_misuse misuse;
    struct order order; /* in which work finishes, unless it is by lag */
    uint64_t gone;      /* a bit for each stream that has ended, and was not made anew */
    bool has_abandoned; /* a stream has ended without a word: the heir comes after its work */
    unsigned ended;     /* how many have, since the cache was made */
    bool
        has_strays; /* one has gone without a word, and a trim may give its pool more memory back */
    uint64_t known; /* a bit for each stream that the cache has seen */
    uint64_t captured;    /* a bit for each stream that is being captured: it takes no work */
    uint64_t graph_bound; /* those of them that are captured for a graph */
    uint64_t clock_ns;
    uint64_t clock_step_ns; /* that an operation takes */
    uint64_t device_bytes;
    uint64_t live_most;    /* requests beyond are left out; 0: memory may run out */
    uint64_t checks_every; /* operations; 0: only when an operation says so */
    uint64_t done;         /* operations, since the cache was made */
    uint64_t copies;       /* of the driver, and its waits that failed, before the call under way */
    uint64_t failed_waits;
    uint32_t words;
    unsigned opens; /* graph pools that took every stream's requests for a graph */
    unsigned pressure_turn;
    unsigned taking;     /* the slot of the request under way; OPERATION_SLOTS: there is none */
    bool has_waited;     /* the operation before was a wait, which nothing hindered */
    bool may_stall;      /* the cache may have waited for the device */
    bool is_lost;        /* the driver said so: the cache owes no more than its end */
    bool has_resized;    /* a block, or tried to, since the cache was made */
    bool has_launched;   /* graphs, since the cache was made */
    bool has_undeclared; /* uses, since the cache was made */
    bool was_hurt;       /* faults have happened since the cache was made */
    struct control control;
    FILE *listing; /* receives each operation and what its calls returned; NULL: none */
    struct stress_sums sums;
    char trouble[TROUBLE_BYTES]; /* the first; empty: none */
};

#endif
