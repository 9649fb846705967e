/*
 * Idle memory: runs of whole chunks inside a free block, who else may use them, and how they change
 * hands where they lie. What trim, steal, cross and span have in common; it decides nothing.
 *
 * May be called by: policy, report. Locks: the grow lock and the locks of the pools concerned.
 */
#ifndef VMM_POLICY_IDLE_H
#define VMM_POLICY_IDLE_H

#include "policy/cache.h"

/* A run of idle chunks in a heap's free block. */
struct idle_run {
    struct heap *heap;
    struct block *block;
    uint64_t address;
    uint64_t bytes;
};

/* The run of whole chunks inside a block, from its low end on, of at most about `bytes` (rounded up
 * to chunks). False if it holds no whole chunk. */
bool vmm__whole_chunks(const struct memory *memory, const struct block *block, uint64_t bytes,
                       uint64_t *address, uint64_t *run_bytes);

/* Bytes of whole chunks inside a block. */
uint64_t vmm__idle_bytes(const struct memory *memory, const struct block *block);

/* When idle memory may be had. */
enum idle_when {
    IDLE_FINISHED, /* once the work on it has finished, unless it is the stream's own */
    IDLE_FOLLOW,   /* at once: later work of the stream that gets it is made to wait for the rest */
    IDLE_ANY       /* at once: it is not to be used before its epoch has passed */
};

/* How streams share with a pool unless memory has run out. A graph would not wait again each time that it is
 * launched, so what a private pool gets must have finished. */
static inline enum idle_when vmm__idle_usual(const struct vmm_cache *cache, const struct pool *to)
{
    bool follows = cache->sharing == VMM_SHARING_WAIT && !to->is_held;
    return follows ? IDLE_FOLLOW : IDLE_FINISHED;
}

/* What is looked for in a heap. */
struct idle_quest {
    struct heap *from;
    const struct pool *to; /* NULL: the driver */
    enum idle_when when;
    uint64_t latest_epoch; /* what was given back later is left alone */
    uint64_t stuck_epoch;  /* from here on nothing has finished: found on the way */
    vmm_status failed;     /* the first error of asking, or VMM_OK: found on the way */
};

static inline struct idle_quest vmm__idle_quest(struct heap *from, const struct pool *to,
                                                enum idle_when when)
{
    return (struct idle_quest){
        .from = from, .to = to, .when = when, .latest_epoch = UINT64_MAX, .stuck_epoch = UINT64_MAX
    };
}

/*
 * The first run of whole idle chunks in a free block that start at an address or behind it and that
 * the quest may have, of at most about `bytes` (rounded up to chunks). False if there is none.
 */
bool vmm__idle_next(struct vmm_cache *cache, struct idle_quest *quest, struct block *block,
                    uint64_t address, uint64_t bytes, struct idle_run *run);

/* Notes that from an epoch on nothing can be had, and why: VMM_NOT_READY, or an error. */
void vmm__idle_stick(struct idle_quest *quest, uint64_t epoch, vmm_status status);

/* Cuts a run down to whole chunks of at most most_bytes. False if not even one is left. */
bool vmm__idle_cut(const struct memory *memory, uint64_t most_bytes, struct idle_run *run);

/* The free block of a run's heap that starts where the run, which was cut out, ended; or NULL. */
struct block *vmm__idle_behind(const struct vmm_cache *cache, const struct idle_run *run);

/*
 * Whether work that pool `to` submits from now on may use a run: VMM_OK, VMM_NOT_READY. With
 * IDLE_FOLLOW it always may, and its stream is made to wait if need be.
 */
vmm_status vmm__idle_clear(struct vmm_cache *cache, const struct idle_run *run,
                           const struct pool *to, enum idle_when when);

/* Bytes of a heap's idle chunks whose work has not finished. */
uint64_t vmm__idle_unfinished(struct vmm_cache *cache, struct heap *heap);

/* The latest epoch at which anything of a run was given back. */
uint64_t vmm__idle_epoch(const struct vmm_cache *cache, const struct idle_run *run);

/* Cuts a run out of its heap and puts it on its way back to the driver, which takes it once its work has
 * finished. ERR_HOST_OOM: nothing has changed. */
vmm_status vmm__idle_discard(struct vmm_cache *cache, const struct idle_run *run);

/* Moves a run that is clear from its heap to another, where it lies. When the other cannot take it
 * for want of host memory, the run is on its way back to the driver. */
vmm_status vmm__idle_hand(struct vmm_cache *cache, const struct idle_run *run, struct heap *to);

#endif
