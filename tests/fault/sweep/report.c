/* Calls of the workload that only look, and those that set something: see run.h. */
#include "run.h"

#include "base/arith.h"
#include "point.h"

static void change_noted(void *context, const vmm_change *change)
{
    struct run *run = context;
    run->changes += change->bytes > 0;
}

static void watch_turned(struct run *run)
{
    bool watches = run_dice(run, 2);
    (void)CALL(run, 0, vmm_watch(run->cache, watches ? change_noted : NULL, run));
}

static void block_found(struct run *run)
{
    const struct holding *block = block_any(run);
    vmm_item item = VMM_ITEM_INIT;
    if (block == NULL)
        return;
    if (CALL(run, 0, vmm_find(run->cache, block->address, &item)) &&
        (item.address != (uintptr_t)block->address || item.requested_bytes != block->bytes))
        sweep_broken("operation %llu: vmm_find found another block", (unsigned long long)run->done);
}

static int item_passed(void *context, const vmm_item *item)
{
    uint64_t *bytes = context;
    *bytes += item->requested_bytes;
    return 0;
}

static void cache_walked(struct run *run)
{
    uint64_t bytes = 0;
    if (CALL(run, 0, vmm_walk(run->cache, item_passed, &bytes)) && bytes != run->live_bytes)
        sweep_broken("operation %llu: a walk finds %llu live bytes, not %llu",
                     (unsigned long long)run->done, (unsigned long long)bytes,
                     (unsigned long long)run->live_bytes);
}

static void stats_read(struct run *run)
{
    vmm_stats stats = VMM_STATS_INIT;
    if (!CALL(run, 0, vmm_stats_get(run->cache, &stats)))
        return;
    run->kept_bytes = vmm__max(run->kept_bytes, stats.kept_bytes);
    run->unmovable_bytes = vmm__max(run->unmovable_bytes, stats.unmovable_bytes);
    run->waiting_bytes =
        vmm__max(run->waiting_bytes, stats.active_bytes.current - stats.allocated_bytes.current);
    struct guarded guarded = guarded_by(run->cache);
    uint64_t bytes = run->live_bytes + guarded.canary_bytes + guarded.kept_bytes;
    if (stats.requested_bytes.current != bytes)
        sweep_broken("operation %llu: %llu bytes are requested, not %llu",
                     (unsigned long long)run->done,
                     (unsigned long long)stats.requested_bytes.current, (unsigned long long)bytes);
}

static void device_asked(struct run *run)
{
    uint64_t free_bytes = UINT64_MAX;
    uint64_t total_bytes = UINT64_MAX;
    bool told =
        CALL(run, DRIVER_STATUSES, vmm_device_memory(run->cache, &free_bytes, &total_bytes));
    if (told != (total_bytes != UINT64_MAX))
        sweep_broken("vmm_device_memory writes results only on success");
}

static void limit_moved(struct run *run)
{
    uint64_t limit = run->chapter->limit_bytes;
    run->limit_bytes = run_dice(run, 2) ? limit : run_dice(run, 2) ? limit / 4 * 3 : limit * 2;
    if (!run->chapter->moves_limit)
        return;
    run->limits++;
    (void)CALL(run, 0, vmm_limit_set(run->cache, run->limit_bytes));
}

void report_operation(struct run *run)
{
    switch (random_next(&run->random) % 8) {
    case 0:
        watch_turned(run);
        return;
    case 1:
        block_found(run);
        return;
    case 2:
        cache_walked(run);
        return;
    case 3:
        stats_read(run);
        return;
    case 4:
        device_asked(run);
        return;
    case 5:
        (void)CALL(run, 0, vmm_stats_reset_peak(run->cache));
        return;
    default:
        limit_moved(run);
    }
}
