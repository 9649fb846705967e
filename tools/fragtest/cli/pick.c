/* Chooses the driver of a run: see pick.h. */
#include "fragtest/cli/pick.h"

#include <stdio.h>

static vmm_status driver_open(vmm_driver_kind kind, struct driver **out)
{
    struct driver_options options = { 0 };
    return vmm__driver_open(kind, &options, out);
}

static vmm_status driver_choose(struct driver **out, char *choice, size_t capacity)
{
    vmm_status status = driver_open(VMM_DRIVER_CUDA, out);

    if (status == VMM_OK) {
        (void)snprintf(choice, capacity, "using the cuda driver: there is a GPU");
        return VMM_OK;
    }
    if (status != VMM_ERR_NO_DEVICE && status != VMM_ERR_UNSUPPORTED)
        return status;
    (void)snprintf(choice, capacity, "using the host driver (ordinary memory): %s",
                   vmm_last_error());
    return driver_open(VMM_DRIVER_HOST, out);
}

vmm_status pick_driver(vmm_driver_kind wanted, struct driver **out, char *choice, size_t capacity)
{
    choice[0] = '\0';
    if (wanted != VMM_DRIVER_DEFAULT)
        return driver_open(wanted, out);
    return driver_choose(out, choice, capacity);
}
