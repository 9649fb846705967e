/*
 * Splitting: idle chunks that are larger than chunks are to be go back to the driver, which makes smaller ones of
 * that memory. Moving them on would let them be pinned anew, by as little as one live block.
 *
 * May be called by: grow. Locks: the grow lock; the caller holds the lock of pool `held`, other
 * pools' are taken inside.
 */
#ifndef VMM_POLICY_SPLIT_H
#define VMM_POLICY_SPLIT_H

#include "policy/site.h"

/* Gives back idle chunks of more than `most` granules whose work has finished, until `want` granules are
 * or there are no more; not from where the site's request will lie. Returns the granules given back. */
uint64_t vmm__split(struct vmm_cache *cache, const struct pool *held, const struct site *site,
                    uint64_t want, uint32_t most);

#endif
