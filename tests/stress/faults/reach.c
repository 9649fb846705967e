/*
 * Which features the scenarios reach when nothing fails: a sweep is worth as much as that. Decisions of
 * policy are counted where they are made; the linker leads their calls through here (--wrap).
 */
#include "run.h"

#include "base/arith.h"
#include "cache/cache.h"
#include "cache/compact/compact.h"
#include "cache/compact/relocate.h"
#include "cache/grow/grow.h"
#include "cache/grow/plan.h"
#include "cache/grow/split.h"
#include "cache/grow/stitch.h"
#include "cache/idle/borrow.h"
#include "cache/idle/gather.h"
#include "cache/idle/transfer.h"
#include "cache/reclaim/pressure.h"
#include "debug/debug_mode.h"
#include "lane/views.h"
#include "point.h"

#include <inttypes.h>
#include <string.h>

/* X(name): each must come up. */
#define REACH_MAP(X)                                                                               \
    X(growth)                                                                                      \
    X(gather)                                                                                      \
    X(transfer)                                                                                    \
    X(plan)                                                                                        \
    X(view)                                                                                        \
    X(view_new)                                                                                    \
    X(view_longer)                                                                                 \
    X(view_hit)                                                                                    \
    X(view_miss)                                                                                   \
    X(unmap)                                                                                       \
    X(borrow)                                                                                      \
    X(limbo)                                                                                       \
    X(expired)                                                                                     \
    X(decay)                                                                                       \
    X(split)                                                                                       \
    X(relocations)                                                                                 \
    X(relocations_view)                                                                            \
    X(compaction)                                                                                  \
    X(pressure)                                                                                    \
    X(captures)                                                                                    \
    X(kept)                                                                                        \
    X(retries)                                                                                     \
    X(ooms)                                                                                        \
    X(stalls)                                                                                      \
    X(stream_waits)                                                                                \
    X(limits)                                                                                      \
    X(waiting)                                                                                     \
    X(commits)                                                                                     \
    X(resizes)                                                                                     \
    X(moves)                                                                                       \
    X(copied)                                                                                      \
    X(imports)                                                                                     \
    X(fabrics)                                                                                     \
    X(pinned)                                                                                      \
    X(watched)                                                                                     \
    X(apart)                                                                                       \
    X(quarantine)                                                                                  \
    X(quarantine_given_up)

static struct {
#define REACH_FIELD(name) uint64_t name;
    REACH_MAP(REACH_FIELD)
#undef REACH_FIELD
} reach;

static bool has_relocated; /* since reach_relocated() was asked */

#define REACHED(counter, success, type, function, parameters, ...)                                 \
    __typeof__(function) __real_##function;                                                        \
    __typeof__(function) __wrap_##function;                                                        \
    type __wrap_##function parameters                                                              \
    {                                                                                              \
        type result = __real_##function(__VA_ARGS__);                                              \
        reach.counter += sweep_counts() && success(result);                                        \
        return result;                                                                             \
    }

static bool is_done(vmm_status status)
{
    return status == VMM_OK;
}

static bool is_some(uint64_t count)
{
    return count > 0;
}

REACHED(growth, is_done, vmm_status, vmm__grow,
        (struct vmm_cache * cache, const struct request *request), cache, request)
REACHED(growth, is_done, vmm_status, vmm__grow_new,
        (struct vmm_cache * cache, const struct request *request, bool is_within), cache, request,
        is_within)
REACHED(gather, is_some, bool, vmm__gather,
        (struct vmm_cache * cache, const struct request *request, uint64_t chunk_bytes), cache,
        request, chunk_bytes)
REACHED(transfer, is_done, vmm_status, vmm__transfer,
        (struct vmm_cache * cache, const struct request *request, enum idle_when when), cache,
        request, when)
REACHED(borrow, is_done, vmm_status, vmm__borrow,
        (struct vmm_cache * cache, struct lane *to, uint64_t bytes, bool waits, void **out), cache,
        to, bytes, waits, out)
REACHED(decay, is_some, bool, vmm__decay_period_end, (struct decay * decay, struct lanes *lanes),
        decay, lanes)
REACHED(moves, is_done, vmm_status, vmm__move_begin,
        (struct vm * vm, const struct memory_part *parts, uint32_t count, uint32_t *aliases), vm,
        parts, count, aliases)
REACHED(split, is_some, bool, vmm__split,
        (struct vmm_cache * cache, struct heap *heap, uint64_t bytes), cache, heap, bytes)
REACHED(pressure, is_some, bool, vmm__pressure_ask,
        (struct vmm_cache * cache, struct lane *held, uint64_t bytes), cache, held, bytes)

__typeof__(vmm__relocate) __real_vmm__relocate;
__typeof__(vmm__relocate) __wrap_vmm__relocate;
vmm_status __wrap_vmm__relocate(struct vmm_cache *cache, const struct partly *partly)
{
    vmm_status status = __real_vmm__relocate(cache, partly);
    reach.relocations += sweep_counts() && status == VMM_OK;
    has_relocated = true;
    return status;
}

bool reach_relocated(void)
{
    bool was_relocated = has_relocated;
    has_relocated = false;
    return was_relocated;
}

__typeof__(vmm__plan) __real_vmm__plan;
__typeof__(vmm__plan) __wrap_vmm__plan;
struct plan __wrap_vmm__plan(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                             uint64_t allowed_bytes, enum idle_when when)
{
    reach.plan += sweep_counts();
    return __real_vmm__plan(cache, heap, bytes, allowed_bytes, when);
}

__typeof__(vmm__stitch) __real_vmm__stitch;
__typeof__(vmm__stitch) __wrap_vmm__stitch;
vmm_status __wrap_vmm__stitch(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                              const struct plan *plan)
{
    vmm_status status = __real_vmm__stitch(cache, heap, bytes, plan);
    bool is_counted = sweep_counts() && status == VMM_OK;
    reach.view += is_counted;
    reach.view_new += is_counted && plan->new_bytes > 0;
    reach.view_longer += is_counted && plan->end != NO_GRANULE;
    return status;
}

__typeof__(vmm__vm_swap) __real_vmm__vm_swap;
__typeof__(vmm__vm_swap) __wrap_vmm__vm_swap;
vmm_status __wrap_vmm__vm_swap(struct vm *vm, struct chunk *chunk, const struct memory_part *parts,
                               uint32_t homes, uint32_t places)
{
    vmm_status status = __real_vmm__vm_swap(vm, chunk, parts, homes, places);
    reach.relocations_view += sweep_counts() && status == VMM_OK && places > 0;
    return status;
}

__typeof__(vmm__views_take) __real_vmm__views_take;
__typeof__(vmm__views_take) __wrap_vmm__views_take;
vmm_status __wrap_vmm__views_take(struct heap *heap, uint64_t bytes, enum search_depth search,
                                  struct block **out)
{
    vmm_status status = __real_vmm__views_take(heap, bytes, search, out);
    reach.view_hit += sweep_counts() && status == VMM_OK;
    reach.view_miss += sweep_counts() && status == VMM__NO_FIT;
    return status;
}

__typeof__(vmm__debug_flush) __real_vmm__debug_flush;
__typeof__(vmm__debug_flush) __wrap_vmm__debug_flush;
/* By an allocation; trims do it, too. */
vmm_status __wrap_vmm__debug_flush(const struct api_call *call)
{
    reach.quarantine_given_up += sweep_counts() && strcmp(call->function, "vmm_alloc") == 0;
    return __real_vmm__debug_flush(call);
}

/* Of the cache's own statistics, at their most. */
static void stats_note(struct stress *stress)
{
    vmm_stats stats = stress_stats(stress);
    reach.compaction = vmm__max(reach.compaction, stats.compactions);
    reach.kept = vmm__max(reach.kept, stats.retained_bytes);
    reach.retries = vmm__max(reach.retries, stats.retries);
    reach.ooms = vmm__max(reach.ooms, stats.ooms);
    reach.stalls = vmm__max(reach.stalls, stats.stalls);
    if (stress->config.reuse == VMM_REUSE_STREAM_WAIT)
        reach.stream_waits = vmm__max(reach.stream_waits, stats.stream_waits);
    reach.waiting =
        vmm__max(reach.waiting, stats.active_bytes.current - stats.allocated_bytes.current);
    reach.copied = vmm__max(reach.copied, stats.resize_copied_bytes);
    reach.pinned = vmm__max(reach.pinned, stats.unmovable_bytes);
}

void reach_note(struct stress *stress, const struct operation *operation)
{
    static uint64_t places; /* after the operation before */
    const struct vmm_cache *cache = stress->cache;
    if (!sweep_counts() || cache == NULL)
        return;
    stats_note(stress);
    reach.captures += operation->code == OPERATION_graph_begin && stress->captured != 0;
    reach.commits = vmm__max(reach.commits, stress->sums.commits);
    reach.resizes = vmm__max(reach.resizes, stress->sums.resizes);
    reach.imports = vmm__max(reach.imports, vmm__stat_now(&cache->imports.account.reserved_bytes));
    reach.fabrics =
        vmm__max(reach.fabrics, vmm__driver_calls(cache->driver, DRIVER_CALL_fabric_import));
    reach.limits += operation->code == OPERATION_limit;
    reach.unmap += cache->vm.counts.places < places;
    places = cache->vm.counts.places;
    reach.watched += stress->watch.is_on && stress->watch.mapped.count > 0;
    reach.limbo += cache->vm.counts.limbo_bytes > 0;
    reach.expired += cache->has_trim_target || cache->decay.is_stuck;
    reach.apart += cache->guard_page_next > 0;
    reach.quarantine += cache->debug != NULL && cache->debug->records.kept.count > 0;
}

bool reach_write(FILE *out)
{
    bool all = true;
    (void)fprintf(out, "stress_faults: reached");
#define REACH_WRITE(name)                                                                          \
    (void)fprintf(out, " " #name " %" PRIu64 "%s", reach.name, reach.name == 0 ? " (never)" : ""); \
    all = all && reach.name > 0;
    REACH_MAP(REACH_WRITE)
#undef REACH_WRITE
    (void)fprintf(out, "\n");
    return all;
}
