/*
 * Functions of a lane that need its lock, for tests that lay a lane out by hand: each takes the lock for one call.
 * Unlike vmm__lane_lock(), it changes nothing else: the last freed block, for example, stays as it is.
 */
#ifndef VMM_LANE_SUPPORT_H
#define VMM_LANE_SUPPORT_H

#include "lane/lane.h"

/* Moves a lane's clock on to an epoch, which later frees get as their stamp. */
static inline void lane_epoch(struct lane *lane, uint64_t epoch)
{
    while (vmm__clock_now(lane->clock) < epoch)
        (void)vmm__clock_advance(lane->clock);
}

/* Unlocks a lane after a call that returned `status`. */
static inline vmm_status lane_unlock(struct lane *lane, vmm_status status)
{
    vmm__biased_unlock(&lane->lock);
    return status;
}

static inline vmm_status lane_take(struct lane *lane, uint64_t bytes, void **out)
{
    vmm__biased_lock(&lane->lock);
    return lane_unlock(lane, vmm__lane_take_locked(lane, bytes, out));
}

static inline vmm_status lane_give(struct lane *lane, struct heap *heap, uint64_t address)
{
    vmm__biased_lock(&lane->lock);
    return lane_unlock(lane, vmm__lane_give_locked(lane, heap, address));
}

static inline vmm_status lane_use(struct lane *lane, struct heap *heap, uint64_t address,
                                  const struct lane *other)
{
    vmm__biased_lock(&lane->lock);
    return lane_unlock(lane, vmm__lane_use_locked(lane, heap, address, other));
}

static inline vmm_status lane_pin(struct heap *heap, uint64_t address, bool pinned)
{
    vmm__biased_lock(&heap->lane->lock);
    return lane_unlock(heap->lane, vmm__lane_pin_locked(heap, address, pinned));
}

static inline vmm_status lane_check(struct lane *lane)
{
    vmm__biased_lock(&lane->lock);
    return lane_unlock(lane, vmm__lane_check_locked(lane));
}

#endif
