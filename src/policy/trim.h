/*
 * Giving idle memory back to the driver: when it is asked for, when a request needs the room, and in
 * time.
 *
 * A chunk is idle when free blocks cover it. Its last work may still be running. A request that
 * failed takes it all the same: it goes to limbo with the moment from which it may be unmapped. All
 * else leaves it in its heap, where its own stream can use it, and remembers it as overdue:
 *
 * * a trim is a standing order: what was idle then, and has not been used since, goes back until at
 *   most keep_bytes stay reserved, now or as soon as its work has finished. The order ends when
 *   nothing of it is left, or with the next one;
 * * decay makes overdue what was idle for a period (decay.h).
 *
 * May be called by: ladder, supply, entry. Locks: the grow lock; pools' locks are taken inside.
 */
#ifndef VMM_POLICY_TRIM_H
#define VMM_POLICY_TRIM_H

#include "policy/idle.h"

enum trim_what {
    TRIM_ALL = 0,
    TRIM_ORDERED, /* what is overdue by the standing order */
    TRIM_DECAYED  /* what is overdue by decay */
};

struct trim_order {
    uint64_t bytes;           /* stop once this much was put into limbo */
    bool is_most;             /* never put more; else whole chunks may make it more */
    enum trim_what what;      /* what is overdue goes only once its work has finished */
    enum idle_when when;      /* IDLE_FINISHED or IDLE_ANY */
    const struct block *keep; /* a block to leave alone; NULL: none */
    struct pool *held;        /* a pool that the caller has locked; NULL: none */
    bool is_stuck;            /* found on the way: something was left because its work still runs */
    vmm_status failed;        /* found on the way: the first error of asking, or VMM_OK */
};

/* Puts idle chunks of all pools into limbo. Returns the bytes put there. */
uint64_t vmm__trim_idle(struct vmm_cache *cache, struct trim_order *order);

/* The whole of vmm_trim(), without its argument checks. Takes the grow lock. */
vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released);

/* The whole of vmm_tick(), without its argument checks. Takes the grow lock, but never waits for it:
 * whoever has it may be waiting for the device. Then it is done at the next occasion. */
vmm_status vmm__tick(struct vmm_cache *cache);

/* The same for a caller that holds the grow lock and no pool's. */
vmm_status vmm__trim_due_locked(struct vmm_cache *cache);

/* Whether the last may have anything to do. */
static inline bool vmm__trim_may_be_due(const struct vmm_cache *cache)
{
    return cache->order_stands || cache->decay.period_ns != 0;
}

#endif
