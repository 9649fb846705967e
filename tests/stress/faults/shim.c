/* A driver that fails at a chosen call: see point.h. */

#include "base/error.h"
#include "driver/sim/sim.h"
#include "point.h"

static const struct driver_ops *real;
static struct driver_ops table;

static bool fails(enum driver_call call, vmm_status *status)
{
    int code;
    if (!sweep_point(call, &code))
        return false;
    *status = (vmm_status)code;
    if (code != VMM__PENDING)
        (void)vmm__error(*status, "%s: made to fail", sweep_call_name(call));
    return true;
}

/* Work is submitted also if its call fails: see vmm__sim_fail_at(). Of other calls nothing is done. */
static bool submits(enum driver_call call)
{
    return call == DRIVER_CALL_clear || call == DRIVER_CALL_read;
}

#define SHIM(name, parameters, ...)                                                                \
    static vmm_status shim_##name parameters                                                       \
    {                                                                                              \
        vmm_status status;                                                                         \
        bool is_failing = fails(DRIVER_CALL_##name, &status);                                      \
        if (is_failing && !submits(DRIVER_CALL_##name))                                            \
            return status;                                                                         \
        sweep_sleep();                                                                             \
        if (is_failing)                                                                            \
            vmm__sim_fail_at(driver, 1, status, false);                                            \
        status = real->name(__VA_ARGS__);                                                          \
        if (is_failing)                                                                            \
            vmm__sim_fail_at(driver, 0, VMM_OK, false);                                            \
        sweep_wake();                                                                              \
        return status;                                                                             \
    }

SHIM(reserve, (struct driver * driver, uint64_t bytes, uint64_t hint, uint64_t *address), driver,
     bytes, hint, address)
SHIM(address_free, (struct driver * driver, uint64_t address, uint64_t bytes), driver, address,
     bytes)
SHIM(create, (struct driver * driver, uint64_t bytes, uint64_t *handle), driver, bytes, handle)
SHIM(release, (struct driver * driver, uint64_t handle, uint64_t bytes), driver, handle, bytes)
SHIM(map, (struct driver * driver, uint64_t address, uint64_t bytes, uint64_t handle), driver,
     address, bytes, handle)
SHIM(unmap, (struct driver * driver, uint64_t address, uint64_t bytes), driver, address, bytes)
SHIM(access, (struct driver * driver, uint64_t address, uint64_t bytes), driver, address, bytes)
SHIM(memory_info, (struct driver * driver, uint64_t *free_bytes, uint64_t *total_bytes), driver,
     free_bytes, total_bytes)
SHIM(event_create, (struct driver * driver, void **event), driver, event)
SHIM(event_destroy, (struct driver * driver, void *event), driver, event)
SHIM(event_record, (struct driver * driver, void *event, vmm_stream stream), driver, event, stream)
SHIM(event_query, (struct driver * driver, void *event), driver, event)
SHIM(event_wait, (struct driver * driver, void *event), driver, event)
SHIM(stream_wait, (struct driver * driver, vmm_stream stream, void *event), driver, stream, event)
SHIM(device_wait, (struct driver * driver), driver)
SHIM(capturing, (struct driver * driver, vmm_stream stream, bool *is_capturing), driver, stream,
     is_capturing)
SHIM(copy, (struct driver * driver, uint64_t to, uint64_t from, uint64_t bytes, vmm_stream stream),
     driver, to, from, bytes, stream)

SHIM(clear,
     (struct driver * driver, uint64_t address, uint64_t bytes, uint8_t value, vmm_stream stream),
     driver, address, bytes, value, stream)
SHIM(read,
     (struct driver * driver, const struct driver_piece *pieces, unsigned count, vmm_stream stream),
     driver, pieces, count, stream)

void sweep_shim(struct driver *driver)
{
    real = driver->ops;
    table = *real;
#define SHIM_SET(name) table.name = shim_##name;
    VMM_DRIVER_CALL_MAP(SHIM_SET)
#undef SHIM_SET
    driver->ops = &table;
}
