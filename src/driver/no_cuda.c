/*
 * Replaces the cuda driver in builds without the CUDA toolkit's headers.
 *
 * Called by: driver.c, any thread.
 */
#include "base/error.h"
#include "driver/driver.h"

#ifndef VMM_WITH_CUDA

bool vmm__driver_cuda_is_built(void)
{
    return false;
}

vmm_status vmm__driver_cuda_open(const struct driver_options *options, struct driver **out)
{
    (void)options;
    (void)out;
    return vmm__error(VMM_ERR_UNSUPPORTED,
                      "this build has no CUDA driver: the CUDA toolkit headers were missing");
}

#endif
