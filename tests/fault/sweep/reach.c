/*
 * Which features the workload reaches when nothing fails: a sweep is worth as much as that. Decisions of
 * policy are counted where they are made; the linker leads their calls through here (--wrap).
 */
#include "run.h"

#include "guard/guard.h"
#include "point.h"
#include "policy/cache.h"
#include "policy/compact.h"
#include "policy/cross.h"
#include "policy/grow.h"
#include "policy/mesh.h"
#include "policy/pressure.h"
#include "policy/reback.h"
#include "policy/span.h"
#include "policy/split.h"
#include "policy/steal.h"

#include <inttypes.h>
#include <string.h>

/* X(name): each must come up. */
#define REACH_MAP(X)                                                                               \
    X(growth)                                                                                      \
    X(cross)                                                                                       \
    X(span)                                                                                        \
    X(steal)                                                                                       \
    X(hand_over)                                                                                   \
    X(split)                                                                                       \
    X(limbo)                                                                                       \
    X(overdue)                                                                                     \
    X(decay)                                                                                       \
    X(re_back)                                                                                     \
    X(mesh)                                                                                        \
    X(twins)                                                                                       \
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

#define REACHED(counter, success, type, function, parameters, ...)                                 \
    type __real_##function parameters;                                                             \
    type __wrap_##function parameters;                                                             \
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
        (struct vmm_cache * cache, struct heap *heap, uint64_t bytes, enum grow_from from,
         struct block **out),
        cache, heap, bytes, from, out)
REACHED(cross, is_done, vmm_status, vmm__cross,
        (struct vmm_cache * cache, struct heap *heap, uint64_t bytes, enum idle_when when), cache,
        heap, bytes, when)
REACHED(span, is_done, vmm_status, vmm__span_join,
        (struct vmm_cache * cache, struct heap *heap, uint64_t bytes, uint64_t most_bytes,
         enum idle_when when),
        cache, heap, bytes, most_bytes, when)
REACHED(steal, is_some, uint64_t, vmm__steal,
        (struct vmm_cache * cache, struct heap *heap, const struct site *site, uint64_t bytes,
         uint64_t count, enum idle_when when),
        cache, heap, site, bytes, count, when)
REACHED(split, is_some, uint64_t, vmm__split,
        (struct vmm_cache * cache, const struct pool *held, const struct site *site, uint64_t want,
         uint32_t most),
        cache, held, site, want, most)
REACHED(decay, is_some, bool, vmm__decay_turn, (struct decay * decay, struct pools *pools), decay,
        pools)
REACHED(re_back, is_done, vmm_status, vmm__reback,
        (struct vmm_cache * cache, const struct partly *partly), cache, partly)
REACHED(mesh, is_done, vmm_status, vmm__mesh,
        (struct vmm_cache * cache, const struct survey *survey, uint64_t bytes), cache, survey,
        bytes)
REACHED(pressure, is_some, bool, vmm__pressure_ask,
        (struct vmm_cache * cache, struct pool *held, uint64_t bytes), cache, held, bytes)

vmm_status __real_vmm__guard_flush(const struct guard_call *call);
vmm_status __wrap_vmm__guard_flush(const struct guard_call *call);
/* By an allocation; trims do it, too. */
vmm_status __wrap_vmm__guard_flush(const struct guard_call *call)
{
    reach.quarantine_given_up += sweep_counts() && strcmp(call->function, "vmm_alloc") == 0;
    return __real_vmm__guard_flush(call);
}

/* A chunk has two addresses while work goes on at the old one. */
void reach_note(const struct run *run)
{
    const struct memory *memory = &run->cache->memory;
    if (!sweep_counts())
        return;
    reach.hand_over += run->driver->mapped_bytes > run->driver->created_bytes;
    reach.limbo += memory->limbo_bytes > 0;
    reach.overdue += run->cache->order_stands || run->cache->decay.is_stuck;
    reach.twins += memory->twins > 0;
    reach.apart += run->cache->fence_next > 0;
    reach.quarantine += run->cache->guard != NULL && run->cache->guard->records.kept.count > 0;
}

void reach_add(const struct run *run, const vmm_stats *stats)
{
    if (!sweep_counts())
        return;
    reach.compaction += stats->compactions;
    reach.captures += run->captures;
    reach.kept += run->kept_bytes;
    reach.retries += stats->retries;
    reach.ooms += stats->ooms;
    reach.stalls += stats->stalls;
    reach.stream_waits += run->chapter->sharing == VMM_SHARING_WAIT ? stats->stream_waits : 0;
    reach.limits += run->limits;
    reach.waiting += run->waiting_bytes;
    reach.pinned += run->unmovable_bytes;
    reach.watched += run->changes;
}

bool reach_write(FILE *out)
{
    bool all = true;
    (void)fprintf(out, "fault_sweep: reached");
#define REACH_WRITE(name)                                                                          \
    (void)fprintf(out, " " #name " %" PRIu64 "%s", reach.name, reach.name == 0 ? " (never)" : ""); \
    all = all && reach.name > 0;
    REACH_MAP(REACH_WRITE)
#undef REACH_WRITE
    (void)fprintf(out, "\n");
    return all;
}
