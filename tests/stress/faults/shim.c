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
    return call == DRIVER_CALL_clear || call == DRIVER_CALL_read || call == DRIVER_CALL_save ||
           call == DRIVER_CALL_load;
}

#define SHIM(name, parameters, arguments)                                                          \
    static vmm_status shim_##name parameters                                                       \
    {                                                                                              \
        vmm_status status;                                                                         \
        bool is_failing = fails(DRIVER_CALL_##name, &status);                                      \
        if (is_failing && !submits(DRIVER_CALL_##name))                                            \
            return status;                                                                         \
        sweep_sleep();                                                                             \
        if (is_failing)                                                                            \
            vmm__sim_fail_at(driver, 1, status, false);                                            \
        status = real->name arguments;                                                             \
        if (is_failing)                                                                            \
            vmm__sim_fail_at(driver, 0, VMM_OK, false);                                            \
        sweep_wake();                                                                              \
        return status;                                                                             \
    }
VMM_DRIVER_CALL_MAP(SHIM, struct driver *driver, driver)

void sweep_shim(struct driver *driver)
{
    real = driver->ops;
    table = *real;
#define SHIM_SET(name, parameters, arguments) table.name = shim_##name;
    VMM_DRIVER_CALL_MAP(SHIM_SET, , )
#undef SHIM_SET
    driver->ops = &table;
}
