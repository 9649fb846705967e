/* Dispatches driver calls through the table, and counts and times them. See driver.h. */
#define _GNU_SOURCE
#include "driver/driver.h"
#include "base/clock.h"
#include "base/error.h"

#include <string.h>

struct stopwatch {
    uint64_t clock_ns;
    uint64_t host_ns;
};

static struct stopwatch stopwatch_start(struct driver *driver)
{
    uint64_t host = vmm__clock_ns();
    uint64_t clock = driver->clock_is_simulated ? driver->ops->clock(driver) : host;
    return (struct stopwatch){ .clock_ns = clock, .host_ns = host };
}

static void counter_add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static void counter_subtract(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_sub_explicit(counter, amount, memory_order_relaxed);
}

/*
 * Enforces D5. Only create, map and access may report DEVICE_OOM, and only reserve may report
 * ADDRESS_SPACE: from any other call, freeing memory would not help the caller, so the status
 * becomes ERR_DRIVER. An open device exists, so NO_DEVICE becomes ERR_DRIVER as well.
 */
static vmm_status status_normalize(enum driver_call call, vmm_status status)
{
    if (status == VMM_ERR_NO_DEVICE)
        return VMM_ERR_DRIVER;
    bool asks_for_memory =
        call == DRIVER_CALL_create || call == DRIVER_CALL_map || call == DRIVER_CALL_access;
    if ((status == VMM_ERR_DEVICE_OOM && !asks_for_memory) ||
        (status == VMM_ERR_ADDRESS_SPACE && call != DRIVER_CALL_reserve))
        return VMM_ERR_DRIVER;
    return status;
}

static vmm_status call_end(struct driver *driver, enum driver_call call, struct stopwatch start,
                           vmm_status status)
{
    struct stopwatch end = stopwatch_start(driver);
    struct driver_tally *tally = &driver->tally[call];
    counter_add(&tally->calls, 1);
    counter_add(&tally->clock_ns, end.clock_ns - start.clock_ns);
    counter_add(&tally->host_ns, end.host_ns - start.host_ns);
    if (status != VMM_OK && status != VMM__PENDING)
        counter_add(&tally->failures, 1);
    if (status == VMM_ERR_LOST)
        vmm__lost_note(&driver->lost);
    return status_normalize(call, status);
}

/* Makes one counted and timed call and declares `status` with its result. */
#define DRIVER_CALL_TIMED(driver, name, ...)                                                       \
    struct stopwatch start = stopwatch_start(driver);                                              \
    vmm_status status = (driver)->ops->name(__VA_ARGS__);                                          \
    status = call_end((driver), DRIVER_CALL_##name, start, status)

#define DRIVER_CALL(driver, name, ...)                                                             \
    if (vmm__driver_is_lost(driver))                                                               \
        return vmm__lost_refuse(&(driver)->lost);                                                  \
    DRIVER_CALL_TIMED(driver, name, __VA_ARGS__)

/*
 * Like DRIVER_CALL, for calls that release something. After the first refusal on a lost device, no
 * further release is attempted.
 */
#define DRIVER_RELEASE(driver, name, ...)                                                          \
    bool was_lost = vmm__driver_is_lost(driver);                                                   \
    if (was_lost && !atomic_load_explicit(&(driver)->accepts_release, memory_order_relaxed))       \
        return vmm__lost_refuse(&(driver)->lost);                                                  \
    DRIVER_CALL_TIMED(driver, name, __VA_ARGS__);                                                  \
    if (was_lost && status != VMM_OK) {                                                            \
        atomic_store_explicit(&(driver)->accepts_release, false, memory_order_relaxed);            \
        return vmm__lost_refuse(&(driver)->lost);                                                  \
    }

vmm_status vmm__driver_reserve(struct driver *driver, uint64_t bytes, uint64_t *address)
{
    return vmm__driver_reserve_at(driver, bytes, 0, address);
}

vmm_status vmm__driver_reserve_at(struct driver *driver, uint64_t bytes, uint64_t hint,
                                  uint64_t *address)
{
    DRIVER_CALL(driver, reserve, driver, bytes, hint, address);
    if (status == VMM_OK)
        counter_add(&driver->reservations, 1);
    return status;
}

vmm_status vmm__driver_address_free(struct driver *driver, uint64_t address, uint64_t bytes)
{
    DRIVER_RELEASE(driver, address_free, driver, address, bytes);
    if (status == VMM_OK)
        counter_subtract(&driver->reservations, 1);
    return status;
}

vmm_status vmm__driver_create(struct driver *driver, uint64_t bytes, uint64_t *handle)
{
    DRIVER_CALL(driver, create, driver, bytes, handle);
    if (status == VMM_OK) {
        counter_add(&driver->handles, 1);
        counter_add(&driver->created_bytes, bytes);
    }
    return status;
}

vmm_status vmm__driver_release(struct driver *driver, uint64_t handle, uint64_t bytes)
{
    DRIVER_RELEASE(driver, release, driver, handle, bytes);
    if (status == VMM_OK) {
        counter_subtract(&driver->handles, 1);
        counter_subtract(&driver->created_bytes, bytes);
    }
    return status;
}

vmm_status vmm__driver_map(struct driver *driver, uint64_t address, uint64_t bytes, uint64_t handle)
{
    DRIVER_CALL(driver, map, driver, address, bytes, handle);
    if (status == VMM_OK)
        counter_add(&driver->mapped_bytes, bytes);
    return status;
}

vmm_status vmm__driver_unmap(struct driver *driver, uint64_t address, uint64_t bytes)
{
    DRIVER_RELEASE(driver, unmap, driver, address, bytes);
    if (status == VMM_OK)
        counter_subtract(&driver->mapped_bytes, bytes);
    return status;
}

vmm_status vmm__driver_access(struct driver *driver, uint64_t address, uint64_t bytes)
{
    DRIVER_CALL(driver, access, driver, address, bytes);
    return status;
}

vmm_status vmm__driver_memory_info(struct driver *driver, uint64_t *free_bytes,
                                   uint64_t *total_bytes)
{
    DRIVER_CALL(driver, memory_info, driver, free_bytes, total_bytes);
    return status;
}

vmm_status vmm__driver_event_create(struct driver *driver, void **event)
{
    DRIVER_CALL(driver, event_create, driver, event);
    if (status == VMM_OK)
        counter_add(&driver->events, 1);
    return status;
}

vmm_status vmm__driver_event_destroy(struct driver *driver, void *event)
{
    DRIVER_CALL(driver, event_destroy, driver, event);
    if (status == VMM_OK)
        counter_subtract(&driver->events, 1);
    return status;
}

vmm_status vmm__driver_event_record(struct driver *driver, void *event, vmm_stream stream)
{
    DRIVER_CALL(driver, event_record, driver, event, stream);
    return status;
}

vmm_status vmm__driver_event_query(struct driver *driver, void *event)
{
    DRIVER_CALL(driver, event_query, driver, event);
    return status;
}

vmm_status vmm__driver_event_wait(struct driver *driver, void *event)
{
    DRIVER_CALL(driver, event_wait, driver, event);
    counter_add(&driver->stalls, 1);
    return status;
}

vmm_status vmm__driver_stream_wait(struct driver *driver, vmm_stream stream, void *event)
{
    DRIVER_CALL(driver, stream_wait, driver, stream, event);
    return status;
}

vmm_status vmm__driver_device_wait(struct driver *driver)
{
    DRIVER_CALL(driver, device_wait, driver);
    counter_add(&driver->stalls, 1);
    return status;
}

vmm_status vmm__driver_capturing(struct driver *driver, vmm_stream stream, bool *is_capturing)
{
    DRIVER_CALL(driver, capturing, driver, stream, is_capturing);
    return status;
}

vmm_status vmm__driver_any_stream(struct driver *driver, vmm_stream stream)
{
    (void)driver;
    (void)stream;
    return VMM_OK;
}

vmm_status vmm__driver_stream_check(struct driver *driver, vmm_stream stream)
{
    return driver->ops->stream_check(driver, stream);
}

vmm_status vmm__driver_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                            vmm_stream stream)
{
    DRIVER_CALL(driver, copy, driver, to, from, bytes, stream);
    return status;
}

vmm_status vmm__driver_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                             vmm_stream stream)
{
    DRIVER_CALL(driver, clear, driver, address, bytes, value, stream);
    return status;
}

vmm_status vmm__driver_read(struct driver *driver, const struct driver_piece *pieces,
                            unsigned count, vmm_stream stream)
{
    counter_add(&driver->stalls, 1);
    DRIVER_CALL(driver, read, driver, pieces, count, stream);
    return status;
}

uint64_t vmm__driver_clock(struct driver *driver)
{
    return driver->ops->clock(driver);
}

/* Makes one call that is neither counted nor timed. */
#define DRIVER_CALL_UNCOUNTED(driver, name, ...)                                                   \
    if (vmm__driver_is_lost(driver))                                                               \
        return vmm__lost_refuse(&(driver)->lost);                                                  \
    vmm_status status = (driver)->ops->name(__VA_ARGS__);                                          \
    if (status == VMM_ERR_LOST)                                                                    \
        vmm__lost_note(&(driver)->lost);                                                           \
    return status

vmm_status vmm__driver_fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                            vmm_stream stream)
{
    DRIVER_CALL_UNCOUNTED(driver, fill, driver, address, bytes, word, stream);
}

vmm_status vmm__driver_check(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                             vmm_stream stream)
{
    DRIVER_CALL_UNCOUNTED(driver, check, driver, address, bytes, word, stream);
}

vmm_status vmm__driver_delay(struct driver *driver, uint64_t ns, vmm_stream stream)
{
    DRIVER_CALL_UNCOUNTED(driver, delay, driver, ns, stream);
}

vmm_status vmm__driver_mismatches(struct driver *driver, uint64_t *places)
{
    DRIVER_CALL_UNCOUNTED(driver, mismatches, driver, places);
}

vmm_status vmm__driver_stream_create(struct driver *driver, vmm_stream *stream)
{
    DRIVER_CALL_UNCOUNTED(driver, stream_create, driver, stream);
}

vmm_status vmm__driver_stream_destroy(struct driver *driver, vmm_stream stream)
{
    DRIVER_CALL_UNCOUNTED(driver, stream_destroy, driver, stream);
}

vmm_status vmm__driver_capture_begin(struct driver *driver, vmm_stream stream)
{
    DRIVER_CALL_UNCOUNTED(driver, capture_begin, driver, stream);
}

vmm_status vmm__driver_capture_end(struct driver *driver, vmm_stream stream)
{
    DRIVER_CALL_UNCOUNTED(driver, capture_end, driver, stream);
}

uint64_t vmm__driver_calls(const struct driver *driver, enum driver_call call)
{
    return atomic_load_explicit(&driver->tally[call].calls, memory_order_relaxed);
}

uint64_t vmm__driver_clock_ns(const struct driver *driver)
{
    uint64_t sum = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        sum += atomic_load_explicit(&driver->tally[call].clock_ns, memory_order_relaxed);
    return sum;
}

uint64_t vmm__driver_host_ns(const struct driver *driver)
{
    uint64_t sum = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        sum += atomic_load_explicit(&driver->tally[call].host_ns, memory_order_relaxed);
    return sum;
}

/*
 * Never falls back to another driver: kernels that receive host addresses would corrupt the
 * program. Only an explicit choice selects host or sim.
 */
static vmm_status driver_open_default(const struct driver_options *options, struct driver **out)
{
    struct error_line reason;
    vmm_status status = vmm__driver_cuda_open(options, out);
    if (status != VMM_ERR_NO_DEVICE && status != VMM_ERR_UNSUPPORTED)
        return status;
    vmm__error_save(&reason);
    return vmm__error(VMM_ERR_NO_DEVICE,
                      "%.280s; to run without a GPU, select host memory (VMM_DRIVER_HOST or "
                      "VMM_DRIVER=host) or the simulator (VMM_DRIVER_SIM or VMM_DRIVER=sim)",
                      reason.text);
}

vmm_status vmm__driver_open(vmm_driver_kind kind, const struct driver_options *options,
                            struct driver **out)
{
    switch (kind) {
    case VMM_DRIVER_DEFAULT:
        return driver_open_default(options, out);
    case VMM_DRIVER_CUDA:
        return vmm__driver_cuda_open(options, out);
    case VMM_DRIVER_HOST:
        return vmm__driver_host_open(options, out);
    case VMM_DRIVER_SIM:
        return vmm__driver_sim_open(options, out);
    }
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "driver: %d is not a driver kind", (int)kind);
}

int vmm_has_driver(vmm_driver_kind driver)
{
    if (driver == VMM_DRIVER_CUDA)
        return vmm__driver_cuda_is_built();
    return (int)driver >= VMM_DRIVER_DEFAULT && (int)driver <= VMM_DRIVER_SIM;
}

void vmm__driver_init(struct driver *driver, const struct driver_ops *ops)
{
    driver->ops = ops;
    driver->has_aliases = true;
    vmm__lost_init(&driver->lost);
}

void vmm__driver_fini(struct driver *driver)
{
    vmm__lost_fini(&driver->lost);
}

void vmm__driver_close(struct driver *driver)
{
    if (driver != NULL)
        driver->ops->close(driver);
}

bool vmm__driver_kind_parse(const char *text, vmm_driver_kind *out)
{
    static const char *const names[] = {
        [VMM_DRIVER_CUDA] = "cuda", [VMM_DRIVER_HOST] = "host", [VMM_DRIVER_SIM] = "sim"
    };
    for (int kind = VMM_DRIVER_CUDA; kind <= VMM_DRIVER_SIM; kind++) {
        if (strcmp(text, names[kind]) == 0) {
            *out = (vmm_driver_kind)kind;
            return true;
        }
    }
    return false;
}
