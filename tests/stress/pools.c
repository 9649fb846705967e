/* General pools: created, destroyed, pushed, limited, retained. Graph pools are in graphs.c. See stress.h. */
#include "stress.h"

#include "base/arith.h"

#include <inttypes.h>

/* A result that no call may write when it fails. */
#define UNTOUCHED ((vmm_pool *)(uintptr_t)0x5a5a5a5a5a5a5a58)

static struct model_tenant *operand_tenant(struct stress *stress, uint8_t value)
{
    return &stress->model.tenants[value % MODEL_TENANTS];
}

struct model_tenant *stress_pushed(struct stress *stress)
{
    unsigned count = stress->push_count;
    return count == 0 ? NULL : &stress->model.tenants[stress->pushed[count - 1]];
}

static vmm_stats tenant_stats(struct stress *stress, const struct model_tenant *tenant)
{
    vmm_stats stats = VMM_STATS_INIT;
    stress_enter(stress);
    vmm_status status = vmm_pool_stats_get(tenant->handle, &stats);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_pool_stats_get", status, STATUS_BIT(OK), 0);
    return stats;
}

/* ---- Life ---------------------------------------------------------------------------------- */

/* One in four has a limit, one in four a promise, both of up to an eighth of the device; one in four shares, half of
 * these with fabric handles, or has no_split; one in two lends; one in eight of those that do not share has a
 * source. */
static vmm_pool_options options_draw(struct stress *stress, uint64_t bits)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    uint64_t bytes = (bits >> 4) % (stress->device_bytes / 8) + 1;
    options.limit_bytes = bits % 4 == 1 ? bytes : 0;
    options.reserve_bytes = bits % 4 == 2 ? bytes : 0;
    options.shareable = bits % 8 >= 6 && stress->driver->has_sharing && !stress_is_padded(stress);
    if (options.shareable && bits >> 4 & 1 && stress->kind != VMM_DRIVER_CUDA)
        options.shareable = VMM_SHARE_FABRIC;
    options.no_split = (bits % 8 == 4 || bits % 8 == 6) && !stress_is_padded(stress);
    options.use_on_oom = bits % 16 >= 8;
    bool has_source = bits >> 29 == 7 && !options.shareable && !stress_is_padded(stress) &&
                      stress->shared == NULL && !stress_has_own_driver(stress);
    if (has_source && stress_source_open(stress))
        options.source = stress_source(stress, bits >> 27);
    return options;
}

void operation_pool_create(struct stress *stress, const struct operation *operation)
{
    struct model *model = &stress->model;
    struct model_tenant *tenant = operand_tenant(stress, operation->a);
    vmm_pool_options options = options_draw(stress, operation->number);
    vmm_pool *handle = UNTOUCHED;
    if (tenant->handle != NULL)
        return;
    stress_enter(stress);
    vmm_status status = vmm_pool_create(stress->cache, &options, &handle);
    stress_leave(stress);
    unsigned legal = STATUS_BIT(OK);
    legal |= options.reserve_bytes != 0 ? STATUS_BIT(ERR_DEVICE_OOM) : 0;
    unsigned faulty = STATUS_BIT(ERR_HOST_OOM);
    if (options.shareable == VMM_SHARE_FABRIC) /* it asks the driver */
        faulty |= STATUS_FAULTS | STATUS_BIT(ERR_UNSUPPORTED);
    bool is_ok = stress_expect(stress, "vmm_pool_create", status, legal, faulty);
    if (is_ok == (handle == UNTOUCHED))
        stress_trouble(stress, "vmm_pool_create: its result was %s",
                       is_ok ? "not written" : "written");
    if (!is_ok)
        return;
    *tenant = (struct model_tenant){ .handle = handle,
                                     .limit_bytes = options.limit_bytes,
                                     .ceiling_bytes = options.limit_bytes };
    tenant->least_bytes = options.reserve_bytes;
    tenant->is_shareable = options.shareable != 0;
    tenant->has_fabric = options.shareable == VMM_SHARE_FABRIC;
    tenant->lends = options.use_on_oom != 0;
    tenant->has_own_chunks = options.shareable != 0 || options.no_split != 0;
    tenant->has_source = options.source.alloc != NULL;
    model->was_divided = model->was_divided || model_is_divided(model);
}

/* Its blocks, which stay live, are of the default pool. */
static void tenant_end(struct stress *stress, struct model_tenant *tenant)
{
    for (unsigned i = 0; i < OPERATION_SLOTS; i++) {
        struct model_block *block = &stress->model.blocks[i];
        block->tenant = block->tenant == stress_tenant_number(stress, tenant) ? 0 : block->tenant;
    }
    *tenant = (struct model_tenant){ .handle = NULL };
}

/* A pool that leaves waits for the device; it is destroyed even if that fails. */
void stress_pool_destroy(struct stress *stress, struct model_tenant *tenant, bool adopts)
{
    vmm_pool *handle = tenant->handle;
    bool is_in_use = tenant->uses > 0 || tenant->pushes > 0;
    bool is_refused = is_in_use || ((!adopts || tenant->has_source) && tenant->live > 0);
    bool may_refuse = tenant->has_source && (stress->captured != 0 || stress->model.begins != 0);
    unsigned legal = is_refused ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    legal |= may_refuse ? STATUS_BIT(ERR_INVALID_ARGUMENT) : 0; /* it cannot wait */
    stress_enter(stress);
    vmm_status status = vmm_pool_destroy(handle, adopts);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_pool_destroy", status, legal, is_refused ? 0 : STATUS_FAULTS);
    bool stays = tenant->has_source && status != VMM_OK;
    if (is_refused || status == VMM_ERR_INVALID_ARGUMENT || stays)
        return;
    tenant_end(stress, tenant);
    stress_enter(stress);
    status = vmm_pool_retain(handle);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_pool_retain of a destroyed pool", status,
                        STATUS_BIT(ERR_INVALID_ARGUMENT), 0);
}

void operation_pool_destroy(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = operand_tenant(stress, operation->a);
    if (tenant->handle != NULL)
        stress_pool_destroy(stress, tenant, operation->b % 2 != 0);
}

/* ---- Requests ------------------------------------------------------------------------------ */

void operation_alloc_from(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = operand_tenant(stress, operation->c);
    if (tenant->handle != NULL)
        stress_alloc(stress, operation, tenant, true);
}

void operation_pool_push(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = operand_tenant(stress, operation->a);
    if (tenant->handle == NULL || stress->push_count == STRESS_PUSHES)
        return;
    stress_enter(stress);
    vmm_status status = vmm_pool_push(tenant->handle);
    stress_leave(stress);
    if (!stress_expect(stress, "vmm_pool_push", status, STATUS_BIT(OK), STATUS_BIT(ERR_HOST_OOM)))
        return;
    stress->pushed[stress->push_count++] = stress_tenant_number(stress, tenant) - 1;
    tenant->pushes++;
}

static void pushed_pop(struct stress *stress)
{
    struct model_tenant *tenant = stress_pushed(stress);
    stress_expect_ok(stress, "vmm_pool_pop", vmm_pool_pop(tenant->handle));
    stress->push_count--;
    tenant->pushes--;
}

/* Also of a pool that was not pushed last. */
void operation_pool_pop(struct stress *stress, const struct operation *operation)
{
    const struct model_tenant *tenant = operand_tenant(stress, operation->a);
    const struct model_tenant *pushed = stress_pushed(stress);
    if (tenant->handle != NULL && tenant != pushed) {
        stress_enter(stress);
        vmm_status status = vmm_pool_pop(tenant->handle);
        stress_leave(stress);
        (void)stress_expect(stress, "vmm_pool_pop of another pool", status,
                            STATUS_BIT(ERR_INVALID_ARGUMENT), 0);
    }
    if (pushed != NULL)
        pushed_pop(stress);
}

/* ---- Memory -------------------------------------------------------------------------------- */

/* None, or up to twice of what is reserved. */
void operation_pool_limit(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = operand_tenant(stress, operation->a);
    if (tenant->handle == NULL)
        return;
    uint64_t reserved = tenant_stats(stress, tenant).reserved_bytes.current;
    uint64_t limit = operation->number % 4 == 0 ? 0 : 1 + operation->number % (1 + 2 * reserved);
    stress->may_stall = true;
    stress_enter(stress);
    vmm_status status = vmm_pool_limit_set(tenant->handle, limit);
    stress_leave(stress);
    bool is_refused = limit != 0 && limit < tenant->least_bytes;
    unsigned legal = is_refused ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    if (!stress_expect(stress, "vmm_pool_limit_set", status, legal, 0))
        return;
    stress->model.was_divided = true;
    tenant->limit_bytes = limit;
    tenant->ceiling_bytes = limit == 0 ? 0 : vmm__max(limit, reserved);
}

void operation_pool_trim(struct stress *stress, const struct operation *operation)
{
    const struct model_tenant *tenant = operand_tenant(stress, operation->a);
    size_t released = SIZE_MAX;
    if (tenant->handle == NULL)
        return;
    uint64_t before = tenant_stats(stress, tenant).reserved_bytes.current;
    stress_enter(stress);
    vmm_status status = vmm_pool_trim(tenant->handle, operation->number, &released);
    stress_leave(stress);
    bool is_ok = stress_expect(stress, "vmm_pool_trim", status, STATUS_BIT(OK), STATUS_FAULTS);
    uint64_t after = tenant_stats(stress, tenant).reserved_bytes.current;
    if (is_ok == (released == SIZE_MAX) || (is_ok && before - after != released))
        stress_trouble(
            stress, "pool trim: said %zu bytes were released, of %" PRIu64 " %" PRIu64 " are left",
            released, before, after);
}

void operation_pool_retain(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = operand_tenant(stress, operation->a);
    if (tenant->handle == NULL)
        return;
    stress_enter(stress);
    vmm_status status = vmm_pool_retain(tenant->handle);
    stress_leave(stress);
    stress->may_stall = true; /* the last drop waits for the device */
    stress->model.was_divided = true;
    stress->model.was_retained = true;
    tenant->uses += stress_expect(stress, "vmm_pool_retain", status, STATUS_BIT(OK), 0) ? 1 : 0;
}

/* The use ends even if the wait for the device fails. */
static void tenant_drop(struct stress *stress, struct model_tenant *tenant)
{
    unsigned legal = tenant->uses > 0 ? STATUS_BIT(OK) : STATUS_BIT(ERR_INVALID_ARGUMENT);
    stress_enter(stress);
    vmm_status status = vmm_pool_drop(tenant->handle);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_pool_drop", status, legal,
                        tenant->uses > 0 ? STATUS_FAULTS : 0);
    tenant->uses -= tenant->uses > 0 ? 1 : 0;
    if (vmm_pool_uses(tenant->handle) != tenant->uses)
        stress_trouble(stress, "pool: it has %" PRIu64 " uses, not %u",
                       vmm_pool_uses(tenant->handle), tenant->uses);
}

void operation_pool_drop(struct stress *stress, const struct operation *operation)
{
    struct model_tenant *tenant = operand_tenant(stress, operation->a);
    if (tenant->handle != NULL)
        tenant_drop(stress, tenant);
}

/* ---- Against the model ----------------------------------------------------------------------- */

/* Sums over the live blocks of a pool. */
static void tenant_verify(struct stress *stress, struct model_tenant *tenant)
{
    uint64_t requested = 0;
    for (unsigned i = 0; i < stress->model.live; i++) {
        const struct model_block *block = &stress->model.blocks[stress->model.order[i]];
        requested += block->tenant == stress_tenant_number(stress, tenant)
                         ? model_requested_bytes(block)
                         : 0;
    }
    vmm_stats stats = tenant_stats(stress, tenant);
    uint64_t reserved = stats.reserved_bytes.current;
    bool is_right =
        stats.allocations.current == tenant->live && stats.requested_bytes.current == requested;
    if (!is_right)
        stress_trouble(
            stress, "pool: %" PRIu64 " bytes in %" PRIu64 " blocks, not %" PRIu64 " in %u",
            stats.requested_bytes.current, stats.allocations.current, requested, tenant->live);
    if (tenant->ceiling_bytes != 0 && reserved > tenant->ceiling_bytes)
        stress_trouble(stress, "pool: %" PRIu64 " bytes are reserved, of %" PRIu64 " at most",
                       reserved, tenant->ceiling_bytes);
    if (tenant->limit_bytes != 0)
        tenant->ceiling_bytes = vmm__max(tenant->limit_bytes, reserved);
}

void stress_tenants_verify(struct stress *stress)
{
    for (unsigned i = 0; i < MODEL_TENANTS; i++) {
        if (stress->model.tenants[i].handle != NULL)
            tenant_verify(stress, &stress->model.tenants[i]);
    }
}

void stress_pushes_end(struct stress *stress)
{
    while (stress->push_count > 0)
        pushed_pop(stress);
}

void stress_tenants_end(struct stress *stress)
{
    stress_pushes_end(stress);
    for (unsigned i = 0; i < MODEL_TENANTS; i++) {
        struct model_tenant *tenant = &stress->model.tenants[i];
        while (tenant->handle != NULL && tenant->uses > 0 && !stress_is_troubled(stress))
            tenant_drop(stress, tenant);
        if (tenant->handle != NULL && !stress_is_troubled(stress))
            stress_pool_destroy(stress, tenant, true);
    }
}
