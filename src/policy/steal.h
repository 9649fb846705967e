/*
 * Stealing: idle chunks move to where a heap grows, instead of new memory from the driver.
 *
 * A chunk of the same stream moves at once, whatever its old work does: later work of the stream is
 * ordered after it, and the old mapping stays until that work has ended (hand-over). A chunk of
 * another stream moves once its work has finished or, with IDLE_FOLLOW, after a wait that is put into
 * the receiving stream. The host never waits.
 *
 * Taken first: chunks of other streams, because the stream can use its own free memory where it is;
 * in either, from the smallest free blocks up, because a small hole is of the least use.
 *
 * May be called by: grow. Locks: the grow lock and the receiving heap's pool lock; other pools'
 * locks are taken inside.
 */
#ifndef VMM_POLICY_STEAL_H
#define VMM_POLICY_STEAL_H

#include "policy/idle.h"
#include "policy/site.h"

/*
 * Moves idle chunks to the site's granules, which are taken, from its low end on, until at least
 * `count` granules are filled or nothing more can be stolen. A request of `bytes` will take what lies
 * beside the site; what it leaves of the free block beyond is stolen last. Fills at most the site's room. Returns
 * the granules filled; they have no access yet.
 */
uint64_t vmm__steal(struct vmm_cache *cache, struct heap *heap, const struct site *site,
                    uint64_t bytes, uint64_t count, enum idle_when when);

#endif
