/*
 * Claims: a request that the device refuses asks the other processes on it (neighbour/record.h) for the memory that is
 * missing, and waits for a while. It shows how much free memory it wants the device to have; the others give until the
 * device has it (answer.h). The device decides who gets it: a claim gives no right to memory, and what the record says
 * can make a request slower, but never wrong.
 *
 * Owns: the cache's slot in the record. Invariants:
 *  1. a thread claims and waits with no lock of the cache, so its other threads go on, and two caches that claim from
 *     each other do not wait for each other;
 *  2. while any thread claims, the slot shows the sum of what they want, and the time of the claim that began first;
 *  3. a request claims until the end that its first claim set, no longer;
 *  4. no request waits for headroom;
 *  5. a request tries again at least each CLAIM_TRY_NS: its own process may have freed memory.
 * The wake of a pool claims as a request does.
 * May be called by: cache, api. Locks: the neighbours' lock guards the slot.
 */
#ifndef VMM_CACHE_CLAIM_H
#define VMM_CACHE_CLAIM_H

#include "cache/cache.h"
#include "neighbour/record.h"

/*
 * Headroom is the part of the device that stays free, while caches have idle memory, for what allocates without a
 * cache: contexts, code that CUDA loads lazily, handles of cuBLAS and cuDNN. A process that has taken the last byte
 * cannot call such a library for the first time. Each cache with neighbours gives idle memory for it (answer.h).
 */
#define HEADROOM_SHIFT 7 /* a 128th: 640 MiB of 80 GiB; the libraries under PyTorch took 320 */

/* A claimant rings again after this time, so that the others look again for work that has finished. Each cache also
 * begins to give this much later than the one before it (answer.h). A look costs a few µs. */
#define CLAIM_SLICE_NS UINT64_C(5000000)

/* A claimant withdraws its claim after this time and tries again, which makes the others wait. 8 GiB are claimed and
 * given in 33 to 40 ms, so most claims are served before. As long, a cache waits for another one that releases a part
 * before it. */
#define CLAIM_TRY_NS (10 * CLAIM_SLICE_NS)

/* A longer claim is not believed. */
#define CLAIM_MOST_NS UINT64_C(60000000000)

/* What a request, or the wake of pools, has claimed so far. Zeros: nothing. */
struct claim {
    uint64_t end_ns;    /* it claims until then; 0: it has not yet */
    bool is_tried;      /* the last call returned VMM_OK because the device had enough */
    bool gives_way;     /* a wake, which could keep memory that an earlier claim waits for */
    bool is_behind;     /* it has to: another claim began before, and goes on */
    struct claim *next; /* of those that the cache shows */
};

struct neighbours {
    struct neighbour_record record;
    struct mutex lock; /* guards the next two */
    struct neighbour_slot slot;
    struct claim *claims; /* of threads that claim now */
    uint64_t wait_ns;     /* how long a claim lasts; constant, as the next */
    bool asks_program;    /* its pressure function may serve others' claims */
    pthread_t thread;     /* see answer.h */
    _Atomic bool stops;
    uint64_t shown_ns; /* only the thread uses this and the next three */
    /* When half of the time was over of the last claim that the pressure function was called for, and how often it may
     * still be called for that. */
    uint64_t asked_ns;
    unsigned questions_left;
    uint64_t tight_ns;         /* since when headroom is not free; 0: it is */
    _Atomic uint64_t given_ns; /* when the cache gave for a claim last; 0: never */
};

/* Asks others for grow_bytes of memory. VMM_OK: try again, and come back if the device still refuses; VMM__NOTHING: the
 * end has come, or the cache has no neighbours. held: the caller holds the grow lock and the lock of this lane, which
 * are dropped meanwhile; NULL: it holds none. */
vmm_status vmm__claim(struct vmm_cache *cache, struct claim *claim, struct lane *held,
                      uint64_t grow_bytes);

/* For a claim that is behind: tells the others that memory is free, and waits until it is no longer behind. */
void vmm__claim_give_way(struct vmm_cache *cache, struct claim *claim);

/* Whether a slot shows a claim whose time is not over. */
static inline bool vmm__claim_is_shown(const struct neighbour_slot *slot, uint64_t now_ns)
{
    return slot->want_bytes > 0 && slot->begin_ns <= now_ns && slot->end_ns > now_ns &&
           slot->end_ns <= now_ns + CLAIM_MOST_NS;
}

/* How much of the headroom is not free, with so much free on the device. */
uint64_t vmm__headroom_missing_bytes(const struct vmm_cache *cache, uint64_t free_bytes);

/* After the cache has grown: if headroom is not free, wakes those who could give it. */
void vmm__headroom_look(struct vmm_cache *cache);

/* What the cache shows now. */
static inline struct neighbour_slot vmm__claim_own_slot(struct neighbours *own)
{
    VMM_HOLD(&own->lock);
    return own->slot;
}

/* What the cache that shows this could give: idle memory above its floor. */
static inline uint64_t vmm__claim_spare_bytes(const struct neighbour_slot *slot)
{
    uint64_t floor_bytes = vmm__min(slot->floor_bytes, slot->reserved_bytes);
    return vmm__min(slot->idle_bytes, slot->reserved_bytes - floor_bytes);
}

#endif
