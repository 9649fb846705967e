/*
 * The sim driver: no memory, only CUDA's rules and costs. See internal.h for its parts.
 *
 * Owns: the driver object, the table, injected faults, violations and the census. Every entry point locks the mutex,
 * numbers the call, and either injects a fault or passes the call on to its part.
 * Called by: the driver table, tests and tools; any thread.
 */
#include "driver/sim/internal.h"

#include "base/error.h"
#include "base/hostmem.h"
#include "driver/system_memory.h"

#include <inttypes.h>

#define SIM_TOTAL_BYTES (UINT64_C(139) << 30)

/* ---- Shared by the parts --------------------------------------------------------------------- */

void vmm__sim_report_work(struct sim *sim, const char *call, uint64_t epoch, uint64_t address,
                          uint64_t bytes)
{
    if (epoch == 0)
        return;
    const struct sim_stream *stream = sim->order.streams[sim_epoch_stream(epoch)];
    vmm__soft_report_add(&sim->soft.violations, 1,
                         "%s of %" PRIu64 " bytes at %#" PRIx64 " during work %" PRIu64
                         " of stream %p, whose end the host has not observed",
                         call, bytes, address, sim_epoch_sequence(epoch),
                         soft_stream_name(&stream->soft));
}

/* ---- Entry and exit -------------------------------------------------------------------------- */

static struct sim *sim_of(struct driver *driver)
{
    return (struct sim *)driver;
}

static struct sim *sim_lock(struct driver *driver)
{
    vmm__mutex_lock(&sim_of(driver)->mutex);
    if (sim_of(driver)->is_sharing)
        vmm__sim_share_lock();
    vmm__sim_order_settle(sim_of(driver)); /* the clock may have advanced */
    return sim_of(driver);
}

static void sim_unlock(struct sim *sim)
{
    if (sim->is_sharing)
        vmm__sim_share_unlock();
    vmm__mutex_unlock(&sim->mutex);
}

static vmm_status fault_due(struct sim_faults *faults, const char *call)
{
    uint64_t number = ++faults->calls;
    bool is_reached = faults->for_ever ? number >= faults->number : number == faults->number;
    faults->is_due = faults->number != 0 && is_reached;
    if (!faults->is_due)
        return VMM_OK;
    faults->fired++;
    return vmm__error(faults->status, "sim: %s: made to fail as call %" PRIu64, call, number);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void sim_close(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    vmm__soft_close(&sim->soft);
    vmm__sim_shares_leave(sim);
    sim_unlock(sim);
    vmm__sim_space_give(sim);
    vmm__sim_order_free(sim);
    vmm__host_free(sim->runs.items, sim->runs.capacity * sizeof *sim->runs.items);
    vmm__mutex_fini(&sim->mutex);
    vmm__driver_fini(driver);
    vmm__host_free(sim, sizeof *sim);
}

static uint64_t sim_clock(struct driver *driver)
{
    return atomic_load_explicit(&sim_of(driver)->clock_ns, memory_order_relaxed);
}

/* Passes a call on with the mutex held. If it is numbered, it may be made to fail: after it has submitted its work
 * (D1), or before it changes anything. */
#define SIM_CALL_OF(name, parameters, is_numbered, submits, call)                                  \
    static vmm_status sim_##name parameters                                                        \
    {                                                                                              \
        struct sim *sim = sim_lock(driver);                                                        \
        vmm_status fault = (is_numbered) ? fault_due(&sim->faults, #name) : VMM_OK;                \
        vmm_status status = fault == VMM_OK || (submits) ? (call) : fault;                         \
        sim_unlock(sim);                                                                           \
        return status == VMM_OK ? fault : status;                                                  \
    }
#define SIM_SOFT_CALL(name, parameters, arguments)                                                 \
    SIM_CALL_OF(name, parameters, true, false, vmm__soft_##name arguments)
#define SIM_CONTENTS_CALL(name, parameters, arguments)                                             \
    SIM_CALL_OF(name, parameters, true, DRIVER_CALL_##name != DRIVER_CALL_copy,                    \
                vmm__sim_##name arguments)
#define SIM_WORK_CALL(name, parameters, arguments)                                                 \
    SIM_CALL_OF(name, parameters, false, false, vmm__sim_##name arguments)
#define SIM_CAPTURE_CALL(name, parameters, arguments)                                              \
    SIM_CALL_OF(name, parameters, false, false, vmm__soft_##name arguments)
VMM_DRIVER_MEMORY_MAP(SIM_SOFT_CALL, struct driver *driver, &sim->soft)
VMM_DRIVER_SHARE_MAP(SIM_SOFT_CALL, struct driver *driver, &sim->soft)
VMM_DRIVER_EVENT_MAP(SIM_SOFT_CALL, struct driver *driver, &sim->soft)
VMM_DRIVER_CONTENTS_MAP(SIM_CONTENTS_CALL, struct driver *driver, sim)
VMM_DRIVER_WORK_MAP(SIM_WORK_CALL, struct driver *driver, sim)
VMM_DRIVER_CAPTURE_MAP(SIM_CAPTURE_CALL, struct driver *driver, &sim->soft)

#define SIM_OP(name, parameters, arguments) .name = sim_##name,
/* clang-format off */
static const struct driver_ops sim_ops = {
    .name = "sim",
    .close = sim_close,
    .clock = sim_clock,
    VMM_DRIVER_MAP(SIM_OP, , )
};
/* clang-format on */

vmm_status vmm__driver_sim_open(const struct driver_options *options, struct driver **out)
{
    uint64_t total = options->device_bytes != 0 ? options->device_bytes : SIM_TOTAL_BYTES;
    if (total < SOFT_GRANULE_BYTES || total > INT64_MAX / 2)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "sim: device_bytes %" PRIu64
                          " is less than one granule or more than any device has",
                          total);
    struct sim *sim = vmm__host_alloc(1, sizeof *sim);
    if (sim == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sim: open: out of host memory");
    if (!vmm__sim_space_take(sim)) {
        vmm__host_free(sim, sizeof *sim);
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "sim: open: too many drivers are open");
    }
    sim->mutex = (struct mutex)VMM_MUTEX_INIT;
    sim->system_bytes = UINT64_MAX;
    vmm__soft_open(&sim->soft, &sim_ops, &vmm__sim_backing, options, total, "simulated H200");
    *out = &sim->soft.driver;
    return VMM_OK;
}

/* ---- Controls and reports for tests: see sim.h ----------------------------------------------- */

void vmm__sim_lag_set(struct driver *driver, uint64_t operations)
{
    struct sim *sim = sim_lock(driver);
    sim->order.lag = operations;
    vmm__sim_order_settle(sim);
    sim_unlock(sim);
}

void vmm__sim_order_set(struct driver *driver, sim_order_fn choose, void *context)
{
    struct sim *sim = sim_lock(driver);
    sim->order.choose = choose;
    sim->order.choose_context = context;
    vmm__sim_order_settle(sim);
    sim_unlock(sim);
}

void vmm__sim_fail_at(struct driver *driver, uint64_t number, vmm_status status, bool for_ever)
{
    struct sim *sim = sim_lock(driver);
    sim->faults = (struct sim_faults){ .number = number, .status = status, .for_ever = for_ever };
    sim_unlock(sim);
}

bool vmm__sim_system_memory_set(struct driver *driver, const char *meminfo)
{
    uint64_t bytes;
    if (!vmm__system_memory_parse(meminfo, &bytes))
        return false;
    struct sim *sim = sim_lock(driver);
    sim->system_bytes = bytes + sim->soft.physical_bytes;
    sim_unlock(sim);
    return true;
}

#define SIM_READ(type, name, member)                                                               \
    type vmm__sim_##name(struct driver *driver)                                                    \
    {                                                                                              \
        struct sim *sim = sim_lock(driver);                                                        \
        type found = sim->member;                                                                  \
        sim_unlock(sim);                                                                           \
        return found;                                                                              \
    }
SIM_READ(uint64_t, calls, faults.calls)
SIM_READ(uint64_t, faults_fired, faults.fired)
SIM_READ(const char *, mismatch, soft.mismatches.first)

struct sim_census vmm__sim_census(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    const struct soft *soft = &sim->soft;
    struct sim_census census = { .reservations = soft->space.count,
                                 .handles = soft->handles.count,
                                 .physical_bytes = soft->physical_bytes,
                                 .events = soft->events.count };
    for (uint32_t index = 0; index < soft->space.count; index++)
        census.mappings += soft->space.items[index].mappings;
    for (const struct soft_pin *pin = soft->pins; pin != NULL; pin = pin->next)
        census.pinned_bytes += pin->bytes;
    sim_unlock(sim);
    return census;
}

uint64_t vmm__sim_peerless(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    uint64_t count = vmm__sim_peerless_count(sim);
    sim_unlock(sim);
    return count;
}
