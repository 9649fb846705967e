/* Small blocks from other streams' memory: see share.h. */
#include "cache/reuse/share.h"
#include "base/error.h"

/* Whether a lane, which is locked, may have free memory for a small block: its free bytes may also lie apart. */
static bool may_give(const struct lane *from, uint64_t bytes)
{
    return !vmm__lane_is_retained(from) &&
           (bytes <= SLAB_LARGEST_BYTES ? from->small.bytes > 0 : from->small.free_bytes >= bytes);
}

/* Returns a block that was just allocated; its memory was free before for the lane's own stream. */
static void block_return(struct lane *from, void *block, uint64_t bytes)
{
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__lane_give_locked(from, &from->small, (uint64_t)(uintptr_t)block);
    vmm__counters_undo(&from->counters, bytes, vmm__lane_block_bytes(bytes));
    vmm__error_restore(&line);
}

static vmm_status lane_share(struct lane *from, struct lane *to, uint64_t bytes, void **out)
{
    void *block;
    if (!may_give(from, bytes))
        return VMM__NO_FIT;
    (void)vmm__lane_poll_locked(from, UINT32_MAX);
    vmm__lane_counters_flush(from);
    vmm_status status = vmm__lane_take_locked(from, bytes, &block);
    if (status != VMM_OK)
        return status;
    struct timeline *timeline = &from->timeline;
    status = vmm__timeline_follow(timeline, vmm__timeline_now(timeline), to->stream);
    if (status == VMM_OK)
        status =
            vmm__lane_use_locked(from, &from->small, (uint64_t)(uintptr_t)block, &to->timeline);
    if (status != VMM_OK) {
        block_return(from, block, bytes);
    } else {
        vmm__uses_lend(&from->uses, (uint64_t)(uintptr_t)block, &to->timeline);
        *out = block;
    }
    vmm__lane_counters_flush(from);
    return status;
}

/* Skips lanes that fail for any reason. */
vmm_status vmm__share(struct vmm_cache *cache, struct lane *to, uint64_t bytes, void **out)
{
    vmm_status status = VMM__NO_FIT;
    if (bytes > LANE_SMALL_LARGEST_BYTES || vmm__lane_is_retained(to) || cache->debug != NULL)
        return VMM__NO_FIT;
    vmm__lane_counters_flush(to);
    for (struct lane *from = cache->lanes.stocked.first; from != NULL && status != VMM_OK;
         from = from->list_next) {
        if (from == to || from->pool != to->pool)
            continue;
        vmm__lane_lock_second(from);
        status = lane_share(from, to, bytes, out);
        vmm__lane_unlock(from);
    }
    return status == VMM_OK ? VMM_OK : VMM__NO_FIT;
}
