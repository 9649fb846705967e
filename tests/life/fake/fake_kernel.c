/*
 * Kernels of the fake libcuda, found by name: those of the cuda driver and those of the tests (gpu/libcuda.h).
 * See fake_internal.h.
 */
#define _GNU_SOURCE
#include "fake_internal.h"

#include <string.h>

enum kernel {
    KERNEL_FILL,
    KERNEL_CHECK,
    KERNEL_DELAY,
    KERNEL_WRITE,
    KERNEL_SPIN,
    KERNEL_TRAP,
    KERNEL_ASSERT,
    KERNEL_MISALIGNED,
    KERNELS
};

static const char *const kernels[KERNELS] = {
    "vmm_fill",  "vmm_check", "vmm_delay",   "test_write",
    "test_spin", "test_trap", "test_assert", "test_misaligned",
};

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    if (strstr(image, kernels[KERNEL_FILL]) == NULL && strstr(image, kernels[KERNEL_WRITE]) == NULL)
        return fake_misuse(__func__, "unknown kernels", CUDA_ERROR_INVALID_IMAGE);
    *module = (CUmodule)context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    CONTEXT_CALL_BEGIN();
    (void)memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    CALL_BEGIN();
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(name, kernels[i]) == 0) {
            *function = (CUfunction)(void *)&kernels[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* A launch that breaks its context succeeds, as on a GPU; later calls fail. */
static CUresult context_break(struct context *context, CUresult result)
{
    context->broken = result;
    return CUDA_SUCCESS;
}

static CUresult bytes_write(struct context *context, void **parameters, CUstream stream)
{
    uint64_t address = *(const CUdeviceptr *)parameters[0];
    uint64_t bytes = *(const uint64_t *)parameters[1];
    uint32_t value = *(const uint32_t *)parameters[2];
    vmm_status status = vmm__driver_clear(context->memory, address, bytes, (uint8_t)value, stream);
    return status == VMM_OK ? CUDA_SUCCESS : context_break(context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static CUresult pattern_launch(struct driver *memory, enum kernel kernel, void **parameters,
                               CUstream stream)
{
    uint64_t address = *(const CUdeviceptr *)parameters[0];
    uint64_t bytes = *(const uint64_t *)parameters[1] * 4 + *(const uint32_t *)parameters[2];
    uint32_t seed = *(const uint32_t *)parameters[3];
    return fake_result("cuLaunchKernel",
                       kernel == KERNEL_FILL
                           ? vmm__driver_fill(memory, address, bytes, seed, stream)
                           : vmm__driver_check(memory, address, bytes, seed, stream));
}

static CUresult kernel_launch(struct context *context, enum kernel kernel, void **parameters,
                              CUstream stream)
{
    switch (kernel) {
    case KERNEL_TRAP:
        return context_break(context, CUDA_ERROR_LAUNCH_FAILED);
    case KERNEL_ASSERT:
        return context_break(context, CUDA_ERROR_ASSERT);
    case KERNEL_MISALIGNED:
        return context_break(context, CUDA_ERROR_MISALIGNED_ADDRESS);
    case KERNEL_WRITE:
        return bytes_write(context, parameters, stream);
    case KERNEL_DELAY:
    case KERNEL_SPIN:
        return fake_result(
            "cuLaunchKernel",
            vmm__driver_delay(context->memory, *(const uint64_t *)parameters[0], stream));
    default:
        return pattern_launch(context->memory, kernel, parameters, stream);
    }
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CUstream stream,
                               void **parameters, void **extra)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    if (grid_x == 0 || grid_y * grid_z * block_y * block_z != 1 || block_x == 0 ||
        shared_bytes != 0 || extra != NULL)
        return fake_misuse(__func__, "shape", CUDA_ERROR_INVALID_VALUE);
    size_t kernel = (size_t)((const char *const *)(void *)function - kernels);
    return kernel_launch(context, (enum kernel)kernel, parameters, stream);
}
