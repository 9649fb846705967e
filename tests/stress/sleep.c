/*
 * General pools that sleep and wake within one operation: nothing else sees a pool that sleeps, but calls on it in
 * between. See stress.h.
 */
#include "stress.h"

#include "cache/pool/offer.h"

#include <inttypes.h>

/* A result that no call may write when it fails. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a5a5a5a5a)

enum { WAKES = 64 }; /* attempts while faults are due */

/* Or offered, in which case it serves no request either. */
static bool is_asleep(struct stress *stress, const struct model_tenant *tenant)
{
    vmm_pool_phase phase = VMM_POOL_SLEEPING;
    stress_expect_ok(stress, "vmm_pool_state", vmm_pool_state(tenant->handle, &phase));
    if (phase == VMM_POOL_SLEEPING || phase == VMM_POOL_WAKING)
        stress_trouble(stress, "sleep: no call is under way, and the phase is %d", (int)phase);
    return phase != VMM_POOL_AWAKE;
}

static uint64_t reserved_bytes(const struct model_tenant *tenant)
{
    vmm_stats stats = VMM_STATS_INIT;
    return vmm_pool_stats_get(tenant->handle, &stats) == VMM_OK ? stats.reserved_bytes.current
                                                                : UINT64_MAX;
}

/* What other pools have been promised and do not have. */
static uint64_t promised_bytes(const struct stress *stress, const struct model_tenant *tenant)
{
    uint64_t promised = 0;
    for (unsigned i = 0; i < MODEL_TENANTS; i++) {
        const struct model_tenant *other = &stress->model.tenants[i];
        if (other == tenant || other->handle == NULL || other->least_bytes == 0)
            continue;
        uint64_t reserved = reserved_bytes(other);
        promised += other->least_bytes > reserved ? other->least_bytes - reserved : 0;
    }
    return promised;
}

/* What is reserved, and promised to others, may leave no room for a wake. */
static bool has_room(struct stress *stress, const struct model_tenant *tenant)
{
    vmm_stats stats = VMM_STATS_INIT;
    uint64_t limit = stress->model.limit_bytes;
    uint64_t most = limit != 0 ? limit : stress->device_bytes;
    if (vmm_stats_get(stress->cache, &stats) != VMM_OK)
        return false;
    return (most == 0 || stats.reserved_bytes.current + promised_bytes(stress, tenant) <= most) &&
           (tenant->limit_bytes == 0 || reserved_bytes(tenant) <= tenant->limit_bytes);
}

/* Exports keep their memory also after the free of the block. */
static bool may_be_exported(const struct stress *stress)
{
    for (unsigned i = 0; i < STRESS_SHARES; i++) {
        if (stress->share_records[i].handle != NULL)
            return true;
    }
    return false;
}

/* Whether graphs write to blocks of the pool whenever they are launched. */
static bool has_graph(const struct stress *stress, const struct model_tenant *tenant)
{
    for (unsigned i = 0; i < stress->model.live; i++) {
        const struct model_block *block = &stress->model.blocks[stress->model.order[i]];
        if (block->tenant == stress_tenant_number(stress, tenant) && block->graph != 0)
            return true;
    }
    return false;
}

/* The contents of its blocks are lost. */
static void contents_forget(struct stress *stress, const struct model_tenant *tenant)
{
    for (unsigned i = 0; i < stress->model.live; i++) {
        struct model_block *block = &stress->model.blocks[stress->model.order[i]];
        if (block->tenant != stress_tenant_number(stress, tenant))
            continue;
        block->word = 0;
        block->filled = 0;
    }
}

/* Pinned blocks have other memory after a sleep, at the same addresses. */
static void pins_note(struct stress *stress, const struct model_tenant *tenant)
{
    for (unsigned i = 0; i < stress->model.live; i++) {
        struct model_block *block = &stress->model.blocks[stress->model.order[i]];
        if (block->tenant == stress_tenant_number(stress, tenant))
            stress_pin_note(stress, block);
    }
}

/* A pool that sleeps serves no request, and has no memory; after a fault it may have what the driver did not
 * release. */
static void asleep_verify(struct stress *stress, const struct model_tenant *tenant, bool has_failed)
{
    void *out = UNTOUCHED;
    stress_enter(stress);
    vmm_status status = vmm_alloc_from(tenant->handle, 4096, stress->streams[0], &out);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_alloc_from a pool that sleeps", status, STATUS_BIT(ERR_ASLEEP),
                        STATUS_FAULTS);
    if (out != UNTOUCHED)
        stress_trouble(stress, "vmm_alloc_from a pool that sleeps: its result was written");
    uint64_t reserved = reserved_bytes(tenant);
    if (reserved != 0 && !has_failed)
        stress_trouble(stress, "sleep: %" PRIu64 " bytes of the pool are reserved", reserved);
}

/* What a call that failed may leave: memory without a block is gone, and what slept may sleep on. */
static bool sleep_call(struct stress *stress, const char *name, struct model_tenant *tenant,
                       vmm_status (*call)(vmm_pool *const *, size_t, const vmm_sleep_options *,
                                          vmm_ticket **),
                       const vmm_sleep_options *options, unsigned legal, unsigned faulty)
{
    stress->may_stall = true;
    stress_enter(stress);
    vmm_status status = call(&tenant->handle, 1, options, NULL);
    stress_leave(stress);
    stress->has_picture = false;
    return stress_expect(stress, name, status, legal, faulty);
}

/* Faults end before the last attempt, which must succeed. */
static bool pool_wake(struct stress *stress, struct model_tenant *tenant)
{
    const unsigned faulty = STATUS_FAULTS | STATUS_OOM;
    bool is_awake = false;
    for (unsigned i = 0; i < WAKES && !is_awake && !stress_is_troubled(stress); i++) {
        if (i == WAKES - 1 || stress->faults.for_ever)
            operation_fault_end(stress, NULL);
        if (stress->points != NULL && i > 0)
            stress->points->heal();
        is_awake = sleep_call(stress, "vmm_pool_wake", tenant, vmm_pool_wake, NULL, STATUS_BIT(OK),
                              faulty);
        if (is_awake == is_asleep(stress, tenant))
            stress_trouble(stress, "wake: it %s, and the pool %s",
                           is_awake ? "succeeded" : "failed", is_awake ? "sleeps" : "is awake");
        if (stress->is_lost)
            return false;
    }
    if (!is_awake)
        stress_trouble(stress, "wake: it fails without a fault");
    return is_awake;
}

/* A claim of another process, which may find that work has not ended. Returns whether the pool sleeps. */
static bool offer_claim(struct stress *stress)
{
    struct offer_taken taken = { .has_failed = true };
    stress_enter(stress);
    bool is_taken = vmm__offer_take(stress->cache, 1, 0, &taken);
    stress_leave(stress);
    stress->has_picture = false;
    if (is_taken && taken.has_failed && stress->faults.fired == 0)
        stress_trouble(stress, "a claim: the sleep of pool %s fails without a fault", taken.name);
    return is_taken && !taken.has_failed;
}

/* Whether the pool is awake again. Checks it while it sleeps. */
static bool sleep_and_wake(struct stress *stress, struct model_tenant *tenant,
                           const vmm_sleep_options *options, unsigned legal)
{
    bool slept = sleep_call(stress, "vmm_pool_sleep", tenant, vmm_pool_sleep, options, legal,
                            STATUS_FAULTS | STATUS_OOM);
    if (slept && options->on_claim != 0 && !stress->is_lost)
        slept = offer_claim(stress);
    bool has_failed = stress->faults.fired != 0;
    if (stress->is_lost || stress_is_troubled(stress))
        return false;
    if (options->on_sleep == VMM_ON_SLEEP_DISCARD && (slept || has_failed))
        contents_forget(stress, tenant);
    if (!is_asleep(stress, tenant))
        return true;
    if (slept)
        asleep_verify(stress, tenant, has_failed);
    return pool_wake(stress, tenant);
}

void operation_pool_sleep(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = &stress->model.tenants[operation->a % MODEL_TENANTS];
    bool discards = operation->b % 4 == 0;
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_sleep = discards ? VMM_ON_SLEEP_DISCARD : VMM_ON_SLEEP_KEEP;
    options.staging_bytes = operation->b % 4 == 1 ? stress->driver->granule_bytes : 0;
    options.on_claim = operation->b / 4 % 2 != 0;
    bool is_unknown = stress->captured != 0 && stress->model.begins == 0; /* as for vmm_compact() */
    if (tenant->handle == NULL || is_unknown || stress_is_unusable(stress) ||
        !has_room(stress, tenant) || (discards && has_graph(stress, tenant)))
        return;
    bool may_refuse = stress->model.begins != 0 || may_be_exported(stress);
    unsigned legal = tenant->has_source ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    legal |= may_refuse ? STATUS_BIT(ERR_INVALID_ARGUMENT) : 0;
    if (stress_is_padded(stress))
        legal = STATUS_BIT(ERR_UNSUPPORTED) | STATUS_BIT(ERR_INVALID_ARGUMENT);
    if (!sleep_and_wake(stress, tenant, &options, legal))
        return;
    pins_note(stress, tenant);
    stress_blocks_verify(stress);
}
