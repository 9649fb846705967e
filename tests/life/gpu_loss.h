/*
 * The ways in which a device is lost under a cache (gpu_scene.h), and the calls that notice.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_GPU_LOSS_H
#define VMM_LIFE_GPU_LOSS_H

#include "life/gpu_scene.h"

enum fault { FREED, BEYOND, TRAP, ASSERT, MISALIGNED, RESET };
enum finder { BY_WAIT, BY_MEMORY, BY_ALLOC, BY_TRIM, BY_TICK, BY_POOL, BY_FREE };

static const char *const finder_names[] = { "vmm_wait",
                                            "vmm_device_memory",
                                            "vmm_alloc",
                                            "vmm_trim",
                                            "vmm_tick",
                                            "vmm_alloc after vmm_pool_begin",
                                            "vmm_alloc after vmm_free" };

struct loss {
    enum fault fault;
    enum finder finder;
    bool is_silent; /* the program does not look itself before the cache does */
    bool is_anew;   /* reset: the program has a new context before the cache notices */
};

/* ---- What breaks --------------------------------------------------------------------------------- */

/* Where a block was whose memory has gone back; nothing else that is free is as large. */
static inline CUdeviceptr address_freed(struct scene *scene)
{
    enum { LARGE_MIB = 128 };
    void *block;
    size_t released = 0;
    CHILD_REQUIRES(
        vmm_alloc(scene->cache, LARGE_MIB * MIB, scene->streams[BLOCK_STREAMS], &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(scene->cache, block) == VMM_OK);
    for (int i = 0; i < 1000 && released < LARGE_MIB * MIB; i++) {
        CHILD_REQUIRES(vmm_trim(scene->cache, 0, &released) == VMM_OK);
        (void)usleep(1000);
    }
    CHILD_REQUIRES(released >= LARGE_MIB * MIB);
    return (CUdeviceptr)(uintptr_t)block;
}

/* Addresses that nothing else is at, nor within anybody's arena. */
static inline CUdeviceptr address_beyond(void)
{
    CUdeviceptr address = 0;
    CUDA_REQUIRES(cuda.cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    CUDA_REQUIRES(cuda.cuMemAddressFree(address, 2 * MIB));
    return address;
}

static inline CUresult kernel_fails(struct scene *scene, const char *name, CUdeviceptr address)
{
    void *parameters[] = { &address };
    return libcuda_launched(kernel_of(scene, name), scene->streams[BLOCK_STREAMS], parameters);
}

static inline CUresult context_breaks(struct scene *scene, enum fault fault)
{
    CUstream stream = scene->streams[BLOCK_STREAMS];
    switch (fault) {
    case FREED:
        return libcuda_written(scene->write, (void *)(uintptr_t)address_freed(scene), 1, 7, stream);
    case BEYOND:
        return libcuda_written(scene->write, (void *)(uintptr_t)address_beyond(), 1, 7, stream);
    case TRAP:
        return kernel_fails(scene, "test_trap", 0);
    case ASSERT:
        return kernel_fails(scene, "test_assert", 0);
    case MISALIGNED:
        return kernel_fails(scene, "test_misaligned", (CUdeviceptr)(uintptr_t)scene->blocks[1]);
    default:
        return cuda.cuDevicePrimaryCtxReset(scene->device);
    }
}

static inline bool is_sticky(CUresult result)
{
    return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED ||
           result == CUDA_ERROR_ILLEGAL_INSTRUCTION || result == CUDA_ERROR_ASSERT ||
           result == CUDA_ERROR_MISALIGNED_ADDRESS;
}

static inline void device_lost(struct scene *scene, const struct loss *loss)
{
    CUDA_REQUIRES(context_breaks(scene, loss->fault));
    if (loss->fault == RESET) {
        if (loss->is_anew)
            device_held(scene);
        return;
    }
    (void)usleep(20000);
    if (loss->is_silent)
        return;
    CUresult result = cuda.cuCtxSynchronize();
    (void)printf("  the program is told %d\n", (int)result);
    CHILD_REQUIRES(is_sticky(result));
}

/* ---- Who notices --------------------------------------------------------------------------------- */

/* What a free and the beginning of a pool ask the driver may be left out: they succeed, and the next call is refused. */
static inline vmm_status finder_called(struct scene *scene, enum finder finder)
{
    void *out;
    uint64_t bytes;
    switch (finder) {
    case BY_WAIT:
        return vmm_wait(scene->cache);
    case BY_MEMORY:
        return vmm_device_memory(scene->cache, &bytes, &bytes);
    case BY_ALLOC:
        return vmm_alloc(scene->cache, 48 * MIB, scene->streams[0], &out);
    case BY_TRIM:
        return vmm_trim(scene->cache, 0, NULL);
    case BY_TICK:
        return vmm_tick(scene->cache);
    case BY_POOL:
        CHILD_REQUIRES(vmm_pool_begin(scene->cache, (vmm_pool_id){ 3, 0 }, NULL, NULL) == VMM_OK);
        return vmm_alloc(scene->cache, 700, scene->streams[0], &out);
    default:
        CHILD_REQUIRES(vmm_free(scene->cache, scene->blocks[3]) == VMM_OK);
        scene->blocks[3] = NULL;
        return vmm_alloc(scene->cache, 700, scene->streams[0], &out);
    }
}

/*
 * The next call that needs the driver. CUDA documents of waits and of cuMemGetInfo that they tell what a kernel did;
 * not so of the calls that make and map memory, which belong to no context. Where those are well on a GPU, a wait must
 * find it.
 */
static inline void loss_noticed(struct scene *scene, enum finder finder)
{
    vmm_status status = finder_called(scene, finder);
    const char *by = finder_names[finder];
    bool may_pass = scene->fake == NULL && finder != BY_WAIT && finder != BY_MEMORY;
    if (status == VMM_OK && may_pass) {
        (void)printf("  not noticed by %s: CUDA did what it asked for\n", by);
        status = vmm_wait(scene->cache);
        by = finder_names[BY_WAIT];
    }
    (void)printf("  noticed by %s: %s: %s\n", by, vmm_status_name(status), vmm_last_error());
    CHILD_REQUIRES(status == VMM_ERR_LOST && vmm_last_error()[0] != '\0');
    (void)snprintf(scene->line, sizeof scene->line, "%s", vmm_last_error());
    threads_refused(scene);
}

#endif
