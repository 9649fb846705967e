/*
 * The ways to lose the device under a cache (gpu_scene.h), and the calls that detect the loss.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_GPU_LOSS_H
#define VMM_LIFE_GPU_LOSS_H

#include "life/gpu_scene.h"
#include "support/pool_calls.h"

enum fault { FREED, BEYOND, TRAP, ASSERT, MISALIGNED, RESET };
enum finder { BY_WAIT, BY_MEMORY, BY_ALLOC, BY_TRIM, BY_TICK, BY_POOL, BY_FREE };

static const char *const finder_names[] = { "vmm_wait",
                                            "vmm_device_memory",
                                            "vmm_alloc",
                                            "vmm_trim",
                                            "vmm_poll",
                                            "vmm_alloc after vmm_pool_begin",
                                            "vmm_alloc after vmm_free" };

struct loss {
    enum fault fault;
    enum finder finder;
    bool is_silent; /* the program makes no CUDA call between the fault and the cache's call */
    bool is_anew;   /* reset: the program makes a new context before the cache detects the loss */
};

/* ---- Faults -------------------------------------------------------------------------------------- */

/* The address of a block whose memory is unmapped. A trim keeps what unfinished work uses, and may need several
 * calls. */
static inline CUdeviceptr address_unmapped(struct scene *scene)
{
    enum { LARGE_MIB = 128, TRIES = 10000 };
    void *block;
    struct vmm_stats stats = { .struct_size = sizeof stats, .idle_bytes = 1 };
    CHILD_REQUIRES(
        vmm_alloc(scene->cache, LARGE_MIB * MIB, scene->streams[BLOCK_STREAMS], &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(scene->cache, block) == VMM_OK);
    for (int i = 0; i < TRIES && stats.idle_bytes != 0; i++) {
        CHILD_REQUIRES(vmm_trim(scene->cache, 0, NULL) == VMM_OK);
        CHILD_REQUIRES(vmm_stats_get(scene->cache, &stats) == VMM_OK);
        if (stats.idle_bytes != 0)
            (void)usleep(1000);
    }
    CHILD_REQUIRES(stats.idle_bytes == 0);
    return (CUdeviceptr)(uintptr_t)block;
}

/* An address that is not reserved, and in no cache's arena. */
static inline CUdeviceptr address_beyond(void)
{
    CUdeviceptr address = 0;
    CUDA_REQUIRES(cuda.cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    CUDA_REQUIRES(cuda.cuMemAddressFree(address, 2 * MIB));
    return address;
}

static inline CUresult kernel_launch_failing(struct scene *scene, const char *name,
                                             CUdeviceptr address)
{
    void *parameters[] = { &address };
    return libcuda_launch(kernel_of(scene, name), scene->streams[BLOCK_STREAMS], parameters);
}

static inline CUresult context_break(struct scene *scene, enum fault fault)
{
    CUstream stream = scene->streams[BLOCK_STREAMS];
    switch (fault) {
    case FREED:
        return libcuda_write(scene->write, (void *)(uintptr_t)address_unmapped(scene), 1, 7,
                             stream);
    case BEYOND:
        return libcuda_write(scene->write, (void *)(uintptr_t)address_beyond(), 1, 7, stream);
    case TRAP:
        return kernel_launch_failing(scene, "test_trap", 0);
    case ASSERT:
        return kernel_launch_failing(scene, "test_assert", 0);
    case MISALIGNED:
        return kernel_launch_failing(scene, "test_misaligned",
                                     (CUdeviceptr)(uintptr_t)scene->blocks[1]);
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

static inline void device_lose(struct scene *scene, const struct loss *loss)
{
    CUDA_REQUIRES(context_break(scene, loss->fault));
    if (loss->fault == RESET) {
        if (loss->is_anew)
            device_retain(scene);
        return;
    }
    (void)usleep(20000);
    if (loss->is_silent)
        return;
    CUresult result = cuda.cuCtxSynchronize();
    (void)printf("  the program gets result %d\n", (int)result);
    CHILD_REQUIRES(is_sticky(result));
}

/* ---- Detection ----------------------------------------------------------------------------------- */

/* A free and the start of a pool may not call the driver, and succeed then; so an allocation follows them. */
static inline vmm_status finder_call(struct scene *scene, enum finder finder)
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
        return vmm_poll(scene->cache);
    case BY_POOL:
        CHILD_REQUIRES(graph_pool_begin(scene->cache, (vmm_pool_id){ 3, 0 }, NULL, NULL) == VMM_OK);
        return vmm_alloc(scene->cache, 700, scene->streams[0], &out);
    default:
        CHILD_REQUIRES(vmm_free(scene->cache, scene->blocks[3]) == VMM_OK);
        scene->blocks[3] = NULL;
        return vmm_alloc(scene->cache, 700, scene->streams[0], &out);
    }
}

/*
 * Makes the next call that needs the driver. CUDA documents that waits and cuMemGetInfo return a kernel's fault. It
 * does not for the calls that create and map memory, which belong to no context. If those succeed on a GPU, a wait must
 * detect the loss.
 */
static inline void loss_detect(struct scene *scene, enum finder finder)
{
    vmm_status status = finder_call(scene, finder);
    const char *by = finder_names[finder];
    bool may_pass = scene->fake == NULL && finder != BY_WAIT && finder != BY_MEMORY;
    if (status == VMM_OK && may_pass) {
        (void)printf("  not detected by %s: CUDA carried out the call\n", by);
        status = vmm_wait(scene->cache);
        by = finder_names[BY_WAIT];
    }
    (void)printf("  detected by %s: %s: %s\n", by, vmm_status_name(status), vmm_last_error());
    CHILD_REQUIRES(status == VMM_ERR_LOST && vmm_last_error()[0] != '\0');
    (void)snprintf(scene->line, sizeof scene->line, "%s", vmm_last_error());
    threads_join_refused(scene);
}

#endif
