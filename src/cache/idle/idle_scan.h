/*
 * Finds idle memory: runs of whole chunks inside a free block that another heap or the driver may have. Moves a run to
 * another heap in place, or releases it. Trim, transfer and plan share it.
 * Owns: nothing. May be called by: cache, api. Locks: the caller holds the grow lock and the locks of the lanes
 * involved.
 */
#ifndef VMM_CACHE_IDLE_IDLE_SCAN_H
#define VMM_CACHE_IDLE_IDLE_SCAN_H

#include "cache/cache.h"

/* A run of idle chunks in a heap's free block. */
struct idle_run {
    struct heap *heap;
    struct block *block;
    uint64_t address;
    uint64_t bytes;
};

/* The free blocks of a heap. */
struct idle_sum {
    uint64_t idle_bytes;    /* whole chunks */
    uint64_t pinned_bytes;  /* the rest: it lies in chunks that live blocks share */
    uint64_t granule_bytes; /* part of pinned_bytes: whole granules, which compaction can release */
    uint64_t largest_bytes;
};

struct idle_sum vmm__idle_sum(const struct vm *memory, const struct heap *heap);

/* When another stream, or the driver, may have idle memory. */
enum idle_when {
    IDLE_FINISHED, /* after the work on it has finished; the stream's own memory: at once */
    IDLE_FOLLOW,   /* at once: the receiving stream waits, on the device, for the work on it */
    IDLE_ANY /* at once, also from a retained pool: the caller does not use it before its epoch has passed */
};

/* Returns the rule for a lane while memory has not run out. A retained pool gets only memory whose work has finished: a
 * wait would not repeat at each launch of a graph. */
static inline enum idle_when vmm__idle_usual(const struct vmm_cache *cache, const struct lane *to)
{
    bool follows = cache->reuse == VMM_REUSE_STREAM_WAIT && !vmm__lane_is_retained(to);
    return follows ? IDLE_FOLLOW : IDLE_FINISHED;
}

/* A search of one heap. */
struct idle_scan {
    struct heap *from;
    const struct lane *to; /* NULL: the driver */
    enum idle_when when;
    bool leaves_room;      /* skip the room of `from`: see heap.h */
    uint64_t latest_epoch; /* skip memory that was freed later */
    uint64_t clear_epoch;  /* what was freed until then has finished, or can be waited for */
    uint64_t stuck_epoch;  /* result: what was freed from then on has not, or cannot */
    vmm_status failed;     /* result: the first error of a query, or VMM_OK */
};

static inline struct idle_scan vmm__idle_scan(struct heap *from, const struct lane *to,
                                              enum idle_when when)
{
    return (struct idle_scan){
        .from = from, .to = to, .when = when, .latest_epoch = UINT64_MAX, .stuck_epoch = UINT64_MAX
    };
}

/*
 * Finds the first run of whole chunks in a free block that starts at `address` or above and that the scan may have, up
 * to `bytes` rounded up to a chunk. False if there is none.
 */
bool vmm__idle_next(struct vmm_cache *cache, struct idle_scan *scan, struct block *block,
                    uint64_t address, uint64_t bytes, struct idle_run *run);

/* Calls visit() for each run of idle chunks that a heap may take from the lanes that its request has locked
 * (vmm__request_lanes_lock()): from their small heaps if it is small, else from their large ones. Stops, and returns
 * false, when visit() returns false. */
typedef bool (*idle_visit)(void *context, const struct idle_run *run);
bool vmm__idle_visit(struct vmm_cache *cache, const struct heap *heap, enum idle_when when,
                     bool leaves_room, idle_visit visit, void *context);

/* The same for one heap, which the scan names. */
bool vmm__idle_visit_heap(struct vmm_cache *cache, struct idle_scan *scan, idle_visit visit,
                          void *context);

/* A list of runs that a visit makes. Begins as zeros. */
struct idle_runs {
    struct idle_run *items;
    uint64_t count;
    uint64_t capacity;
};

/* An idle_visit that adds the run to a list, its context. False without host memory. */
bool vmm__idle_runs_add(void *context, const struct idle_run *run);
void vmm__idle_runs_free(struct idle_runs *runs);

/* Records that nothing is available from an epoch on, and the reason: VMM__PENDING, or an error. */
void vmm__idle_stick(struct idle_scan *scan, uint64_t epoch, vmm_status status);

/* Shortens a run to whole chunks of at most most_bytes. False if no chunk is left. */
bool vmm__idle_cut(const struct vm *memory, uint64_t most_bytes, struct idle_run *run);

/* Returns the free block of the run's heap that starts where the run ended, after the run was cut out; or NULL. */
struct block *vmm__idle_behind(const struct vmm_cache *cache, const struct idle_run *run);

/* Returns the bytes of a heap's idle chunks whose work has finished. */
uint64_t vmm__idle_finished(struct vmm_cache *cache, struct heap *heap);

/* Returns the latest epoch at which a part of a run was freed. */
uint64_t vmm__idle_epoch(const struct vmm_cache *cache, const struct idle_run *run);

/* Cuts a run out of its heap and puts it into limbo, which releases it after its work has finished. ERR_HOST_OOM:
 * nothing has changed. */
vmm_status vmm__idle_discard(struct vmm_cache *cache, const struct idle_run *run);

/* Does so with the first run of each free block, as IDLE_ANY allows. Without host memory a run stays. */
void vmm__idle_discard_heap(struct vmm_cache *cache, struct heap *heap);

/* Moves a run to heap `to` of another lane, in place, if later work of that lane's stream may use it: with IDLE_FOLLOW
 * the stream waits for the work on the run. found->block may be out of date, because another run was cut out of it.
 * VMM__PENDING: the work is unfinished, or a capture has begun on its stream. VMM__NO_FIT: the limit of the pool does
 * not allow it. ERR_HOST_OOM: if `to` is small, the run may be in limbo. ERR_DRIVER. */
vmm_status vmm__idle_take(struct vmm_cache *cache, const struct idle_run *found, struct heap *to,
                          enum idle_when when);

#endif
