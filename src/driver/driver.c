/* Dispatches driver calls through the table, and counts and times them. See driver.h. */
#define _GNU_SOURCE
#include "driver/driver.h"
#include "base/error.h"
#include "base/time.h"

#include <string.h>

struct stopwatch {
    uint64_t clock_ns;
    uint64_t host_ns;
};

static struct stopwatch stopwatch_start(struct driver *driver)
{
    uint64_t host = vmm__time_ns();
    uint64_t clock = driver->ops->clock == NULL ? host : driver->ops->clock(driver);
    return (struct stopwatch){ .clock_ns = clock, .host_ns = host };
}

static void counter_subtract(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_sub_explicit(counter, amount, memory_order_relaxed);
}

/* Enforces D5. Only calls that ask for memory may report DEVICE_OOM, and only reserve may report ADDRESS_SPACE: from
 * any other call, freeing memory would not help the caller, so the status becomes ERR_DRIVER. An open device exists, so
 * NO_DEVICE becomes ERR_DRIVER as well. */
static vmm_status status_normalize(enum driver_call call, vmm_status status)
{
    if (status == VMM_ERR_NO_DEVICE)
        return VMM_ERR_DRIVER;
    bool asks_for_memory = call == DRIVER_CALL_create || call == DRIVER_CALL_map ||
                           call == DRIVER_CALL_access || call == DRIVER_CALL_share_import ||
                           call == DRIVER_CALL_fabric_check || call == DRIVER_CALL_fabric_import;
    if ((status == VMM_ERR_DEVICE_OOM && !asks_for_memory) ||
        (status == VMM_ERR_ADDRESS_SPACE && call != DRIVER_CALL_reserve))
        return VMM_ERR_DRIVER;
    return status;
}

/* On a lost device calls that release something still reach the driver, until it refuses one. */
static bool lost_accepts(const struct driver *driver, enum driver_call call)
{
    bool releases = call == DRIVER_CALL_unmap || call == DRIVER_CALL_release ||
                    call == DRIVER_CALL_share_release || call == DRIVER_CALL_address_free;
    return releases && atomic_load_explicit(&driver->accepts_release, memory_order_relaxed);
}

/* Calls that wait for the device. */
static bool call_stalls(enum driver_call call)
{
    return call == DRIVER_CALL_event_wait || call == DRIVER_CALL_device_wait ||
           call == DRIVER_CALL_read;
}

static vmm_status call_end(struct driver *driver, enum driver_call call, struct stopwatch start,
                           bool was_lost, vmm_status status)
{
    struct stopwatch end = stopwatch_start(driver);
    struct driver_tally *tally = &driver->tally[call];
    vmm__count(&driver->counts.driver_calls, 1);
    vmm__count(&driver->counts.driver_ns, end.clock_ns - start.clock_ns);
    vmm__count(&tally->calls, 1);
    vmm__count(&tally->host_ns, end.host_ns - start.host_ns);
    if (call_stalls(call))
        vmm__count(&driver->counts.stalls, 1);
    if (status != VMM_OK && status != VMM__PENDING)
        vmm__count(&tally->failures, 1);
    if (status == VMM_ERR_LOST)
        vmm__lost_note(&driver->lost);
    if (!was_lost || status == VMM_OK)
        return status_normalize(call, status);
    atomic_store_explicit(&driver->accepts_release, false, memory_order_relaxed);
    return vmm__lost_refuse(&driver->lost);
}

/* What each call changes when it succeeds. */
#define AFTER_reserve      vmm__count(&driver->reservations, 1)
#define AFTER_address_free counter_subtract(&driver->reservations, 1)
#define AFTER_create       (vmm__count(&driver->handles, 1), vmm__count(&driver->created_bytes, bytes))
#define AFTER_release                                                                              \
    (counter_subtract(&driver->handles, 1), counter_subtract(&driver->created_bytes, bytes))
#define AFTER_share_export ((void)0)
#define AFTER_share_import                                                                         \
    (vmm__count(&driver->imports, 1), vmm__count(&driver->imported_bytes, bytes))
#define AFTER_fabric_check  ((void)0)
#define AFTER_fabric_export ((void)0)
#define AFTER_fabric_import AFTER_share_import
#define AFTER_dmabuf_export ((void)0)
#define AFTER_share_release                                                                        \
    (counter_subtract(&driver->imports, 1), counter_subtract(&driver->imported_bytes, bytes))
#define AFTER_pin            vmm__count(&driver->pinned_bytes, bytes)
#define AFTER_unpin          counter_subtract(&driver->pinned_bytes, bytes)
#define AFTER_map            vmm__count(&driver->mapped_bytes, bytes)
#define AFTER_unmap          counter_subtract(&driver->mapped_bytes, bytes)
#define AFTER_access         ((void)0)
#define AFTER_memory_info    ((void)0)
#define AFTER_peers_check    ((void)0)
#define AFTER_event_create   vmm__count(&driver->events, 1)
#define AFTER_event_destroy  counter_subtract(&driver->events, 1)
#define AFTER_event_record   ((void)0)
#define AFTER_clock_record   ((void)0)
#define AFTER_event_query    ((void)0)
#define AFTER_event_wait     ((void)0)
#define AFTER_stream_wait    ((void)0)
#define AFTER_device_wait    ((void)0)
#define AFTER_capturing      ((void)0)
#define AFTER_stream_create  vmm__count(&driver->streams, 1)
#define AFTER_stream_destroy counter_subtract(&driver->streams, 1)
#define AFTER_copy           ((void)0)
#define AFTER_clear          ((void)0)
#define AFTER_read           ((void)0)
#define AFTER_save           ((void)0)
#define AFTER_load           ((void)0)

#define DRIVER_CALL(name, parameters, arguments)                                                   \
    vmm_status vmm__driver_##name parameters                                                       \
    {                                                                                              \
        bool was_lost = vmm__driver_is_lost(driver);                                               \
        if (was_lost && !lost_accepts(driver, DRIVER_CALL_##name))                                 \
            return vmm__lost_refuse(&driver->lost);                                                \
        struct stopwatch start = stopwatch_start(driver);                                          \
        vmm_status status = driver->ops->name arguments;                                           \
        status = call_end(driver, DRIVER_CALL_##name, start, was_lost, status);                    \
        if (status == VMM_OK)                                                                      \
            AFTER_##name;                                                                          \
        return status;                                                                             \
    }
VMM_DRIVER_CALL_MAP(DRIVER_CALL, struct driver *driver, driver)

/* Calls that are neither counted nor timed. */
#define DRIVER_TEST_CALL(name, parameters, arguments)                                              \
    vmm_status vmm__driver_##name parameters                                                       \
    {                                                                                              \
        if (vmm__driver_is_lost(driver))                                                           \
            return vmm__lost_refuse(&driver->lost);                                                \
        vmm_status status = driver->ops->name arguments;                                           \
        if (status == VMM_ERR_LOST)                                                                \
            vmm__lost_note(&driver->lost);                                                         \
        return status;                                                                             \
    }
VMM_DRIVER_TEST_MAP(DRIVER_TEST_CALL, struct driver *driver, driver)

vmm_status vmm__driver_stream_end(struct driver *driver, vmm_stream stream)
{
    vmm_status status = vmm__driver_stream_destroy(driver, stream);
    return status == VMM_OK ? VMM_OK : vmm__driver_stream_destroy(driver, stream);
}

vmm_status vmm__driver_stream_check(struct driver *driver, vmm_stream stream)
{
    if (driver->ops->stream_check == NULL || vmm__driver_is_lost(driver))
        return VMM_OK;
    return driver->ops->stream_check(driver, stream);
}

uint64_t vmm__driver_clock(struct driver *driver)
{
    return driver->ops->clock == NULL ? vmm__time_ns() : driver->ops->clock(driver);
}

uint64_t vmm__driver_calls(const struct driver *driver, enum driver_call call)
{
    return atomic_load_explicit(&driver->tally[call].calls, memory_order_relaxed);
}

uint64_t vmm__driver_clock_ns(const struct driver *driver)
{
    return vmm__count_read(&driver->counts.driver_ns);
}

uint64_t vmm__driver_host_ns(const struct driver *driver)
{
    uint64_t sum = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        sum += atomic_load_explicit(&driver->tally[call].host_ns, memory_order_relaxed);
    return sum;
}

#ifdef VMM_WITH_CUDA
enum { CUDA_IS_BUILT = 1 };
#else
enum { CUDA_IS_BUILT = 0 };

vmm_status vmm__driver_cuda_open(const struct driver_options *options, struct driver **out)
{
    (void)options;
    (void)out;
    return vmm__error(VMM_ERR_UNSUPPORTED,
                      "this build has no CUDA driver: the CUDA toolkit headers were missing");
}
#endif

/* Never falls back to another driver: kernels that receive host addresses would corrupt the program. Only an explicit
 * choice selects host or sim. */
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
        return CUDA_IS_BUILT;
    return (int)driver >= VMM_DRIVER_DEFAULT && (int)driver <= VMM_DRIVER_SIM;
}

void vmm__driver_init(struct driver *driver, const struct driver_ops *ops)
{
    driver->ops = ops;
    driver->has_aliases = true;
    driver->has_clock = true;
    driver->has_sharing = true;
    memcpy(driver->uuid, ops->name, strlen(ops->name));
    vmm__lost_init(&driver->lost);
}

void vmm__driver_fini(struct driver *driver)
{
    vmm__lost_fini(&driver->lost);
}

vmm_status vmm__driver_sharing_check(const struct driver *driver, const char *function)
{
    if (driver->has_sharing)
        return VMM_OK;
    return vmm__error(VMM_ERR_UNSUPPORTED,
                      "%s: shareable: %s cannot share memory between processes: %.280s", function,
                      driver->device_name, driver->sharing_failure);
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
