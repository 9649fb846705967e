/*
 * Giving idle memory back to the driver.
 *
 * A chunk is idle when free blocks cover it. Its last work may still be running, so it goes to
 * limbo with the moment from which it may be unmapped, and from there to the driver.
 *
 * May be called by: ladder, supply, entry. Locks: the grow lock; pools' locks are taken inside.
 */
#ifndef VMM_POLICY_TRIM_H
#define VMM_POLICY_TRIM_H

#include "policy/idle.h"

struct trim_order {
    uint64_t bytes;           /* stop once this much was put into limbo */
    enum idle_when when;      /* IDLE_FINISHED or IDLE_ANY */
    const struct block *keep; /* a block to leave alone; NULL: none */
    struct pool *held;        /* a pool that the caller has locked; NULL: none */
};

/* Puts idle chunks of all pools into limbo. Returns the bytes put there. */
uint64_t vmm__trim_idle(struct vmm_cache *cache, const struct trim_order *order);

/* The whole of vmm_trim(), without its argument checks. Takes the grow lock. */
vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released);

#endif
