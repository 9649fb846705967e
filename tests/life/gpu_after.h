/*
 * After the loss, for test_life_gpu_lost: what the end of the cache leaves, and whether there can be another one.
 */
#ifndef VMM_LIFE_GPU_AFTER_H
#define VMM_LIFE_GPU_AFTER_H

#include "life/gpu_loss.h"

static inline void nothing_left(const struct scene *scene)
{
    CHILD_REQUIRES(vmm__host_outstanding() == 0);
    if (scene->fake != NULL && scene->fake->misuses != 0)
        (void)fprintf(stderr, "misuse: %s\n", scene->fake->misuse);
    CHILD_REQUIRES(scene->fake == NULL || scene->fake->misuses == 0);
    CHILD_REQUIRES(scene->fake == NULL || scene->fake->taken(scene->device) == 0);
}

/* Nobody has a cache any more, and the program has a context. */
static inline void memory_is_back(const struct scene *scene)
{
    uint64_t free_bytes = device_free();
    (void)printf("  free memory of the device: %llu MiB, and %llu MiB before\n",
                 (unsigned long long)(free_bytes / MIB),
                 (unsigned long long)(scene->free_bytes / MIB));
    CHILD_REQUIRES(free_bytes + CONTEXT_MIB * MIB > scene->free_bytes);
}

static inline void scene_ended(struct scene *scene)
{
    uint64_t took = lost_cache_ended(scene);
    (void)printf("  vmm_destroy took %llu us\n", (unsigned long long)(took / 1000));
    nothing_left(scene);
}

/* A cache that can be made works. */
static inline void new_cache_works(struct scene *scene, vmm_cache *cache)
{
    device_held(scene);
    cache_works(scene, cache);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    memory_is_back(scene);
    nothing_left(scene);
}

/* As long as somebody holds the broken context there is no other; whether there is one afterwards, or after a reset, is
 * CUDA's to say. */
static inline void new_cache_tried(struct scene *scene)
{
    vmm_cache *cache = NULL;
    vmm_status status = cache_wanted(scene, &cache);
    (void)printf("  a new cache: %s: %s\n", vmm_status_name(status), vmm_last_error());
    CHILD_REQUIRES(status == VMM_ERR_LOST && cache == NULL);
    nothing_left(scene);
    CUresult result = cuda.cuDevicePrimaryCtxRelease(scene->device);
    status = cache_wanted(scene, &cache);
    (void)printf("  once the program has let go (%d): %s: %s\n", (int)result,
                 vmm_status_name(status), status == VMM_OK ? "well" : vmm_last_error());
    CHILD_REQUIRES(status == VMM_OK || (status == VMM_ERR_LOST && scene->fake == NULL));
    if (status != VMM_OK) {
        result = cuda.cuDevicePrimaryCtxReset(scene->device);
        status = cache_wanted(scene, &cache);
        (void)printf("  after a reset (%d): %s: %s\n", (int)result, vmm_status_name(status),
                     status == VMM_OK ? "well" : vmm_last_error());
    }
    if (status == VMM_OK)
        new_cache_works(scene, cache);
    nothing_left(scene);
}

#endif
