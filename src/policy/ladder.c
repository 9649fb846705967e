/* What is tried when memory runs out: see ladder.h. */
#include "policy/ladder.h"
#include "base/arith.h"
#include "policy/compact.h"
#include "policy/cross.h"
#include "policy/pressure.h"
#include "policy/ring.h"
#include "policy/shortage.h"
#include "policy/streams.h"
#include "policy/trim.h"

/* Each step returns VMM_OK if it gave something, VMM_NOT_READY if it has nothing to give. */
typedef vmm_status (*ladder_step)(struct vmm_cache *cache, struct request *request);

static vmm_status gave(bool something)
{
    return something ? VMM_OK : VMM_NOT_READY;
}

static vmm_status step_passed(struct vmm_cache *cache, struct request *request)
{
    uint64_t released_bytes = 0;
    bool any = false;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        vmm__pool_lock_beside(pool, request->pool);
        any = vmm__pool_poll_locked(pool, UINT32_MAX) == VMM_OK || any;
        any = vmm__slabs_purge(&pool->slabs, vmm__timeline_now(&pool->timeline)) || any;
        vmm__account_post(&pool->account, &cache->ledger);
        vmm__pool_unlock_beside(pool, request->pool);
    }
    uint32_t twins = cache->memory.twins;
    vmm__rings_part(cache, request->pool);
    (void)vmm__limbo_drain(&cache->memory, &released_bytes);
    return gave(any || released_bytes > 0 || cache->memory.twins < twins);
}

/* How much has to go back so that the driver, or the limit, lets the request grow. */
static uint64_t missing_bytes(struct vmm_cache *cache, const struct request *request,
                              const struct block **beside)
{
    const struct memory *memory = &cache->memory;
    uint64_t grow_bytes = vmm__grow_bytes(cache, request->heap, request->block_bytes, beside);
    uint64_t reserved_bytes = vmm__figure_now(&memory->reserved_bytes);
    if (memory->limit_bytes == 0 || reserved_bytes + grow_bytes <= memory->limit_bytes)
        return grow_bytes; /* it is the driver that refuses, and does not say what it lacks */
    return reserved_bytes + grow_bytes - memory->limit_bytes;
}

/* Idle memory into limbo: first from places that the request would not build on. */
static uint64_t idle_put(struct vmm_cache *cache, const struct request *request,
                         enum idle_when when)
{
    const struct block *beside;
    struct trim_order order = { .when = when, .held = request->pool };
    order.bytes = missing_bytes(cache, request, &beside);
    order.keep = beside;
    uint64_t put_bytes = vmm__trim_idle(cache, &order);
    if (put_bytes < order.bytes && beside != NULL) {
        order.bytes -= put_bytes;
        order.keep = NULL;
        put_bytes += vmm__trim_idle(cache, &order);
    }
    return put_bytes;
}

static vmm_status step_idle_finished(struct vmm_cache *cache, struct request *request)
{
    uint64_t released_bytes = 0;
    if (idle_put(cache, request, IDLE_FINISHED) > 0)
        (void)vmm__limbo_drain(&cache->memory, &released_bytes);
    return gave(released_bytes > 0);
}

/* From here on free blocks are searched for without a bound on the effort. */
static vmm_status step_steal(struct vmm_cache *cache, struct request *request)
{
    (void)cache;
    request->heap->index.search_all = true;
    bool further = request->from < GROW_STEAL;
    request->from = further ? GROW_STEAL : request->from;
    return gave(further);
}

/* Memory of other streams that lies in one piece needs no mapping; the rest is stolen. */
static vmm_status step_follow(struct vmm_cache *cache, struct request *request)
{
    if (request->pool->is_held) /* see vmm__idle_usual() */
        return VMM_NOT_READY;
    bool further = request->from < GROW_FOLLOW;
    request->from = GROW_FOLLOW;
    vmm_status status = vmm__cross(cache, request->heap, request->block_bytes, IDLE_FOLLOW);
    return status == VMM_NOT_READY ? gave(further) : status;
}

/* Gives nothing yet, but fills limbo for the steps that follow. */
static vmm_status step_idle(struct vmm_cache *cache, struct request *request)
{
    const struct block *beside;
    if (missing_bytes(cache, request, &beside) <= cache->memory.limbo_bytes)
        return VMM_NOT_READY;
    uint64_t released_bytes = 0;
    if (idle_put(cache, request, IDLE_ANY) > 0)
        (void)vmm__limbo_drain(&cache->memory, &released_bytes);
    return gave(released_bytes > 0);
}

/* More waits than this a request does not make: each may let it move chunks, which leaves new stale
 * mappings to wait for. */
enum { WAITS_MOST = 1024 };

/* What a guard keeps, or has just let others have. Others may have changed everything meanwhile, see step_pressure(). */
static vmm_status step_quarantine(struct vmm_cache *cache, struct request *request)
{
    bool has_given = request->waits < WAITS_MOST &&
                     vmm__pressure_quarantine(cache, request->pool, &request->given);
    request->heap->index.search_all = true;
    if (!has_given)
        return VMM_NOT_READY;
    request->waits++;
    request->from = GROW_TARGET;
    return VMM_OK;
}

/*
 * The oldest of limbo may be a stale mapping, which gives addresses but no memory: the waiting goes on
 * to the first chunk. The pool's lock is dropped meanwhile, so that frees never wait for the device.
 */
static vmm_status step_wait_limbo(struct vmm_cache *cache, struct request *request)
{
    uint64_t released_bytes = 0;
    bool any = false;
    vmm_status status = VMM_OK;
    vmm__pool_unlock(request->pool);
    while (status == VMM_OK && released_bytes == 0 && request->waits < WAITS_MOST) {
        request->waits++;
        status = vmm__limbo_wait(&cache->memory, &released_bytes);
        any = any || status == VMM_OK;
    }
    vmm__pool_lock(request->pool);
    return status == VMM_OK || status == VMM_NOT_READY ? gave(any) : status;
}

/* The first thing that any pool's oldest block waits for. */
static bool oldest_use(struct vmm_cache *cache, const struct request *request,
                       struct timeline **timeline, uint64_t *epoch)
{
    bool found = false;
    for (struct pool *pool = cache->pools.first; pool != NULL && !found; pool = pool->next) {
        vmm__pool_lock_beside(pool, request->pool);
        found = vmm__uses_oldest(&pool->uses, timeline, epoch);
        vmm__pool_unlock_beside(pool, request->pool);
    }
    return found;
}

static vmm_status step_wait_uses(struct vmm_cache *cache, struct request *request)
{
    struct timeline *timeline;
    uint64_t epoch;
    if (request->waits >= WAITS_MOST || !oldest_use(cache, request, &timeline, &epoch))
        return VMM_NOT_READY;
    request->waits++;
    vmm__pool_unlock(request->pool);
    vmm_status status = vmm__timeline_wait(timeline, epoch);
    vmm__pool_lock(request->pool);
    if (status == VMM_OK)
        (void)step_passed(cache, request);
    return status;
}

/* What released private pools hold, which a capture had kept from going. */
static vmm_status step_wait_privates(struct vmm_cache *cache, struct request *request)
{
    vmm__pool_unlock(request->pool);
    vmm_status status = vmm__privates_leave_locked(cache);
    vmm__pool_lock(request->pool);
    return status == VMM_OK ? VMM_OK : VMM_NOT_READY;
}

/* What streams hold that were destroyed without a word: only a wait for the device tells that it is free. */
static vmm_status step_wait_gone(struct vmm_cache *cache, struct request *request)
{
    if (request->waits >= WAITS_MOST)
        return VMM_NOT_READY;
    request->waits++;
    vmm__pool_unlock(request->pool);
    vmm_status status = vmm__streams_outwait_locked(cache);
    vmm__pool_lock(request->pool);
    return status == VMM_OK ? VMM_OK : VMM_NOT_READY;
}

/* All that is idle, wherever it is: the driver does not say what it lacks. */
static vmm_status step_all_idle(struct vmm_cache *cache, struct request *request)
{
    struct trim_order order = { .bytes = UINT64_MAX, .when = IDLE_ANY, .held = request->pool };
    uint64_t released_bytes = 0;
    if (vmm__trim_idle(cache, &order) > 0)
        (void)vmm__limbo_drain(&cache->memory, &released_bytes);
    return gave(released_bytes > 0);
}

/* How much less there is than the request needs, under the limit and on the device. */
static uint64_t lacking_bytes(struct vmm_cache *cache, const struct request *request)
{
    const struct block *beside;
    uint64_t limit_bytes = cache->memory.limit_bytes;
    uint64_t grow_bytes = vmm__grow_bytes(cache, request->heap, request->block_bytes, &beside);
    uint64_t total_bytes = vmm__figure_now(&cache->memory.reserved_bytes) + grow_bytes;
    uint64_t device_bytes = vmm__shortage_device_bytes(cache);
    uint64_t bytes = grow_bytes - vmm__min(grow_bytes, device_bytes);
    if (limit_bytes != 0 && total_bytes > limit_bytes)
        bytes = vmm__max(bytes, total_bytes - limit_bytes);
    return bytes != 0 ? bytes : grow_bytes; /* the driver refuses, and does not say why */
}

/*
 * Live bytes move together, unless even all that is pinned would not do. When it cannot be done (the
 * driver refuses to wait for the device, say), memory is what the request fails for; but live bytes
 * that have lost their place are told.
 */
static vmm_status step_compact(struct vmm_cache *cache, struct request *request)
{
    if (!vmm__compact_may(cache))
        return VMM_NOT_READY;
    vmm__cache_post(cache, request->pool);
    uint64_t bytes = lacking_bytes(cache, request);
    uint64_t reserved_bytes = vmm__figure_now(&cache->memory.reserved_bytes);
    uint64_t live_bytes = vmm__figure_now(&cache->ledger.allocated_bytes);
    if (reserved_bytes < live_bytes + bytes || request->waits >= WAITS_MOST)
        return VMM_NOT_READY;
    request->waits++;
    vmm_status status = vmm__compact(cache, request->pool, bytes);
    if (status == VMM_NOT_READY && cache->memory.twins > 0 && !request->was_compacted) {
        request->was_compacted = true; /* nothing went back, but in rings it lies elsewhere now */
        return VMM_OK;
    }
    bool is_told = status == VMM_OK || status == VMM_ERR_LOST || cache->memory.astray > 0;
    return is_told ? status : VMM_NOT_READY;
}

enum { QUESTIONS_MOST = 64 };

/* Others may have changed everything meanwhile: what the request had learned on its way is void. What the program did
 * may also have sent memory back that it does not speak of: its trim moves live bytes together, too. */
static vmm_status step_pressure(struct vmm_cache *cache, struct request *request)
{
    const struct block *beside;
    if (request->questions >= QUESTIONS_MOST)
        return VMM_NOT_READY;
    request->questions++;
    uint64_t bytes = missing_bytes(cache, request, &beside);
    uint64_t reserved_bytes = vmm__figure_now(&cache->memory.reserved_bytes);
    if (!vmm__pressure_ask(cache, request->pool, bytes) &&
        vmm__figure_now(&cache->memory.reserved_bytes) >= reserved_bytes)
        return VMM_NOT_READY;
    request->from = GROW_TARGET;
    return VMM_OK;
}

static const ladder_step ladder_steps[] = { step_passed,        step_steal,     step_follow,
                                            step_idle_finished, step_idle,      step_quarantine,
                                            step_wait_limbo,    step_wait_uses, step_wait_privates,
                                            step_wait_gone,     step_all_idle,  step_wait_limbo,
                                            step_pressure,      step_compact };

enum { LADDER_STEPS = sizeof ladder_steps / sizeof ladder_steps[0] };

vmm_status vmm__ladder_climb(struct vmm_cache *cache, struct request *request,
                             struct ladder *ladder)
{
    while (ladder->step < LADDER_STEPS) {
        ladder_step step = ladder_steps[ladder->step];
        vmm_status status = step(cache, request);
        if (status == VMM_OK &&
            (step == step_quarantine || step == step_wait_uses || step == step_wait_privates ||
             step == step_wait_gone || step == step_pressure))
            ladder->step = 0; /* blocks came free: everything before may give again */
        if (status != VMM_NOT_READY)
            return status;
        ladder->step++;
    }
    return VMM_NOT_READY;
}

vmm_status vmm__ladder_report(struct vmm_cache *cache, const struct request *request,
                              vmm_status status)
{
    const struct block *beside;
    struct shortage shortage = { .status = status, .pool = request->pool, .bytes = request->bytes };
    shortage.grow_bytes = vmm__grow_bytes(cache, request->heap, request->block_bytes, &beside);
    return vmm__shortage_tell(cache, &shortage);
}
