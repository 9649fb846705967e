/*
 * The sim driver: no memory, only CUDA's rules and costs. See internal.h for its parts.
 *
 * Owns: the driver object, the table, injected faults, violations and the census. Every entry point
 * locks the mutex, numbers the call, and either injects a fault or passes the call on to its part.
 * Called by: the driver table, tests and tools; any thread.
 */
#include "driver/sim/internal.h"

#include "base/error.h"
#include "base/hostmem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define SIM_GRANULE_BYTES (UINT64_C(2) << 20)
#define SIM_TOTAL_BYTES   (UINT64_C(139) << 30)

/* ---- Shared by the parts --------------------------------------------------------------------- */

void vmm__sim_report_add(struct sim_report *report, uint64_t count, const char *format, ...)
{
    if (report->count == 0) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(report->first, sizeof report->first, format, arguments);
        va_end(arguments);
    }
    report->count += count;
}

bool vmm__sim_array_grow(void **items, uint32_t *capacity, uint32_t count, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity == 0 ? 4 : *capacity * 2;
    void *grown = vmm__host_resize(*items, *capacity * item_bytes, wanted * item_bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* ---- Entry and exit -------------------------------------------------------------------------- */

static struct sim *sim_of(struct driver *driver)
{
    return (struct sim *)driver;
}

static struct sim *sim_lock(struct driver *driver)
{
    (void)pthread_mutex_lock(&sim_of(driver)->mutex);
    vmm__sim_order_settle(sim_of(driver)); /* the clock may have advanced */
    return sim_of(driver);
}

static void sim_unlock(struct sim *sim)
{
    (void)pthread_mutex_unlock(&sim->mutex);
}

static vmm_status fault_due(struct sim_faults *faults, const char *call)
{
    uint64_t number = ++faults->calls;
    bool due = faults->for_ever ? number >= faults->number : number == faults->number;
    if (faults->number == 0 || !due)
        return VMM_OK;
    faults->fired++;
    return vmm__error(faults->status, "sim: %s: made to fail as call %" PRIu64, call, number);
}

/* Body of a numbered call: evaluates `part` with the mutex held, or injects a fault. */
#define SIM_CALL(call, part)                                                                       \
    struct sim *sim = sim_lock(driver);                                                            \
    vmm_status status = fault_due(&sim->faults, call);                                             \
    if (status == VMM_OK)                                                                          \
        status = (part);                                                                           \
    sim_unlock(sim);                                                                               \
    return status

/* The same for calls that submit work: the work is submitted even if a fault is injected. */
#define SIM_WORK_CALL(call, part)                                                                  \
    struct sim *sim = sim_lock(driver);                                                            \
    vmm_status fault = fault_due(&sim->faults, call);                                              \
    vmm_status status = (part);                                                                    \
    sim_unlock(sim);                                                                               \
    return status == VMM_OK ? fault : status

/* The same without a number: no fault is injected. */
#define SIM_PLAIN_CALL(part)                                                                       \
    struct sim *sim = sim_lock(driver);                                                            \
    vmm_status status = (part);                                                                    \
    sim_unlock(sim);                                                                               \
    return status

/* ---- The table ------------------------------------------------------------------------------- */

static void sim_close(struct driver *driver)
{
    struct sim *sim = sim_of(driver);
    vmm__sim_memory_free(sim);
    vmm__sim_space_free(sim);
    vmm__sim_order_free(sim);
    vmm__host_free(sim->runs.items, sim->runs.capacity * sizeof *sim->runs.items);
    (void)pthread_mutex_destroy(&sim->mutex);
    vmm__driver_fini(driver);
    vmm__host_free(sim, sizeof *sim);
}

static vmm_status sim_reserve(struct driver *driver, uint64_t bytes, uint64_t hint,
                              uint64_t *address)
{
    SIM_CALL("reserve", vmm__sim_reserve(sim, bytes, hint, address));
}

static vmm_status sim_address_free(struct driver *driver, uint64_t address, uint64_t bytes)
{
    SIM_CALL("address free", vmm__sim_address_free(sim, address, bytes));
}

static vmm_status sim_create(struct driver *driver, uint64_t bytes, uint64_t *handle)
{
    SIM_CALL("create", vmm__sim_create(sim, bytes, handle));
}

static vmm_status sim_release(struct driver *driver, uint64_t handle, uint64_t bytes)
{
    SIM_CALL("release", vmm__sim_release(sim, handle, bytes));
}

static vmm_status sim_map(struct driver *driver, uint64_t address, uint64_t bytes, uint64_t handle)
{
    SIM_CALL("map", vmm__sim_map(sim, address, bytes, handle));
}

static vmm_status sim_unmap(struct driver *driver, uint64_t address, uint64_t bytes)
{
    SIM_CALL("unmap", vmm__sim_unmap(sim, address, bytes));
}

static vmm_status sim_access(struct driver *driver, uint64_t address, uint64_t bytes)
{
    SIM_CALL("access", vmm__sim_access(sim, address, bytes));
}

static vmm_status sim_memory_info(struct driver *driver, uint64_t *free_bytes,
                                  uint64_t *total_bytes)
{
    SIM_CALL("memory info", vmm__sim_memory_info(sim, free_bytes, total_bytes));
}

static vmm_status sim_event_create(struct driver *driver, void **event)
{
    SIM_CALL("event create", vmm__sim_event_create(sim, event));
}

static vmm_status sim_event_destroy(struct driver *driver, void *event)
{
    SIM_CALL("event destroy", vmm__sim_event_destroy(sim, event));
}

static vmm_status sim_event_record(struct driver *driver, void *event, vmm_stream stream)
{
    SIM_CALL("event record", vmm__sim_event_record(sim, event, stream));
}

static vmm_status sim_event_query(struct driver *driver, void *event)
{
    SIM_CALL("event query", vmm__sim_event_query(sim, event));
}

static vmm_status sim_event_wait(struct driver *driver, void *event)
{
    SIM_CALL("event wait", vmm__sim_event_wait(sim, event));
}

static vmm_status sim_stream_wait(struct driver *driver, vmm_stream stream, void *event)
{
    SIM_CALL("stream wait", vmm__sim_stream_wait(sim, stream, event));
}

static vmm_status sim_device_wait(struct driver *driver)
{
    SIM_CALL("device wait", vmm__sim_device_wait(sim));
}

static vmm_status sim_capturing(struct driver *driver, vmm_stream stream, bool *is_capturing)
{
    SIM_CALL("capturing", vmm__sim_capturing(sim, stream, is_capturing));
}

static vmm_status sim_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                           vmm_stream stream)
{
    SIM_CALL("copy", vmm__sim_copy(sim, to, from, bytes, stream));
}

static vmm_status sim_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                            vmm_stream stream)
{
    SIM_WORK_CALL("clear", vmm__sim_clear(sim, address, bytes, value, stream));
}

static vmm_status sim_read(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                           vmm_stream stream)
{
    SIM_WORK_CALL("read", vmm__sim_read(sim, pieces, count, stream, fault == VMM_OK));
}

static uint64_t sim_clock(struct driver *driver)
{
    return atomic_load_explicit(&sim_of(driver)->clock_ns, memory_order_relaxed);
}

static vmm_status sim_fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                           vmm_stream stream)
{
    SIM_PLAIN_CALL(vmm__sim_fill(sim, address, bytes, word, stream));
}

static vmm_status sim_check(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                            vmm_stream stream)
{
    SIM_PLAIN_CALL(vmm__sim_check(sim, address, bytes, word, stream));
}

static vmm_status sim_delay(struct driver *driver, uint64_t ns, vmm_stream stream)
{
    SIM_PLAIN_CALL(vmm__sim_delay(sim, ns, stream));
}

static vmm_status sim_mismatches(struct driver *driver, uint64_t *places)
{
    struct sim *sim = sim_lock(driver);
    vmm__sim_order_finish(sim);
    *places = sim->mismatches.count;
    sim_unlock(sim);
    return VMM_OK;
}

static vmm_status sim_stream_create(struct driver *driver, vmm_stream *stream)
{
    SIM_PLAIN_CALL(vmm__sim_stream_create(sim, stream));
}

static vmm_status sim_stream_destroy(struct driver *driver, vmm_stream stream)
{
    SIM_PLAIN_CALL(vmm__sim_stream_destroy(sim, stream));
}

static vmm_status sim_capture_begin(struct driver *driver, vmm_stream stream)
{
    SIM_PLAIN_CALL(vmm__sim_capture_begin(sim, stream));
}

static vmm_status sim_capture_end(struct driver *driver, vmm_stream stream)
{
    SIM_PLAIN_CALL(vmm__sim_capture_end(sim, stream));
}

static const struct driver_ops sim_ops = {
    .name = "sim",
    .close = sim_close,
    .reserve = sim_reserve,
    .address_free = sim_address_free,
    .create = sim_create,
    .release = sim_release,
    .map = sim_map,
    .unmap = sim_unmap,
    .access = sim_access,
    .memory_info = sim_memory_info,
    .event_create = sim_event_create,
    .event_destroy = sim_event_destroy,
    .event_record = sim_event_record,
    .event_query = sim_event_query,
    .event_wait = sim_event_wait,
    .stream_wait = sim_stream_wait,
    .device_wait = sim_device_wait,
    .capturing = sim_capturing,
    .stream_check = vmm__driver_any_stream,
    .copy = sim_copy,
    .clear = sim_clear,
    .read = sim_read,
    .clock = sim_clock,
    .fill = sim_fill,
    .check = sim_check,
    .delay = sim_delay,
    .mismatches = sim_mismatches,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .capture_begin = sim_capture_begin,
    .capture_end = sim_capture_end,
};

vmm_status vmm__driver_sim_open(const struct driver_options *options, struct driver **out)
{
    uint64_t total = options->device_bytes != 0 ? options->device_bytes : SIM_TOTAL_BYTES;
    if (total < SIM_GRANULE_BYTES || total > INT64_MAX / 2)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "sim: device_bytes %" PRIu64
                          " is less than one granule or more than any device has",
                          total);
    struct sim *sim = vmm__host_alloc(1, sizeof *sim);
    if (sim == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sim: open: out of host memory");
    if (pthread_mutex_init(&sim->mutex, NULL) != 0) {
        vmm__host_free(sim, sizeof *sim);
        return vmm__error(VMM_ERR_HOST_OOM, "sim: open: cannot create a mutex");
    }
    vmm__driver_init(&sim->driver, &sim_ops);
    sim->driver.granule_bytes = SIM_GRANULE_BYTES;
    sim->driver.total_bytes = total;
    sim->driver.clock_is_simulated = true;
    (void)snprintf(sim->driver.device_name, sizeof sim->driver.device_name, "simulated H200");
    *out = &sim->driver;
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

uint64_t vmm__sim_calls(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    uint64_t calls = sim->faults.calls;
    sim_unlock(sim);
    return calls;
}

uint64_t vmm__sim_faults_fired(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    uint64_t fired = sim->faults.fired;
    sim_unlock(sim);
    return fired;
}

uint64_t vmm__sim_violations(struct driver *driver, const char **text)
{
    struct sim *sim = sim_lock(driver);
    uint64_t count = sim->violations.count;
    if (text != NULL)
        *text = sim->violations.first;
    sim_unlock(sim);
    return count;
}

const char *vmm__sim_mismatch(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    const char *text = sim->mismatches.first;
    sim_unlock(sim);
    return text;
}

struct sim_census vmm__sim_census(struct driver *driver)
{
    struct sim *sim = sim_lock(driver);
    struct sim_census census = sim->census;
    sim_unlock(sim);
    return census;
}
