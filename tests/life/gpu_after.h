/*
 * For test_life_gpu_lost: what a lost cache leaves after vmm_destroy(), and whether a new cache can be created.
 */
#ifndef VMM_LIFE_GPU_AFTER_H
#define VMM_LIFE_GPU_AFTER_H

#include "life/gpu_loss.h"

static inline void check_nothing_left(const struct scene *scene)
{
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    if (scene->fake != NULL && scene->fake->misuses != 0)
        (void)fprintf(stderr, "misuse: %s\n", scene->fake->misuse);
    CHILD_REQUIRES(scene->fake == NULL || scene->fake->misuses == 0);
    CHILD_REQUIRES(scene->fake == NULL || scene->fake->taken(scene->device) == 0);
}

/* Requires that the device's memory is free again, except for the program's own context. */
static inline void check_memory_released(const struct scene *scene)
{
    uint64_t free_bytes = device_free();
    (void)printf("  free memory of the device: %llu MiB, and %llu MiB before\n",
                 (unsigned long long)(free_bytes / MIB),
                 (unsigned long long)(scene->free_bytes / MIB));
    CHILD_REQUIRES(free_bytes + CONTEXT_MIB * MIB > scene->free_bytes);
}

static inline void scene_end(struct scene *scene)
{
    uint64_t took = lost_cache_destroy(scene);
    (void)printf("  vmm_destroy took %llu us\n", (unsigned long long)(took / 1000));
    check_nothing_left(scene);
}

/* Requires that a newly created cache works. */
static inline void new_cache_check(struct scene *scene, vmm_cache *cache)
{
    device_retain(scene);
    cache_check_works(scene, cache);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    check_memory_released(scene);
    check_nothing_left(scene);
}

/* While any reference to the broken context exists, vmm_create() fails. Whether it succeeds afterwards, or after a
 * reset, depends on CUDA. */
static inline void new_cache_try(struct scene *scene)
{
    vmm_cache *cache = NULL;
    vmm_status status = cache_try_create(scene, &cache);
    (void)printf("  a new cache: %s: %s\n", vmm_status_name(status), vmm_last_error());
    CHILD_REQUIRES(status == VMM_ERR_LOST && cache == NULL);
    check_nothing_left(scene);
    CUresult result = cuda.cuDevicePrimaryCtxRelease(scene->device);
    status = cache_try_create(scene, &cache);
    (void)printf("  after the program released its context (%d): %s: %s\n", (int)result,
                 vmm_status_name(status), status == VMM_OK ? "ok" : vmm_last_error());
    CHILD_REQUIRES(status == VMM_OK || (status == VMM_ERR_LOST && scene->fake == NULL));
    if (status != VMM_OK) {
        result = cuda.cuDevicePrimaryCtxReset(scene->device);
        status = cache_try_create(scene, &cache);
        (void)printf("  after a reset (%d): %s: %s\n", (int)result, vmm_status_name(status),
                     status == VMM_OK ? "ok" : vmm_last_error());
    }
    if (status == VMM_OK)
        new_cache_check(scene, cache);
    check_nothing_left(scene);
}

#endif
