/*
 * Caches with neighbours on the fake libcuda. It is as large as the machine, so a test makes it refuse, until the
 * holder has given.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_CUDA_NEIGHBOURS_H
#define VMM_LIFE_CUDA_NEIGHBOURS_H

#include "life/cuda_support.h"

/* For the records; returns its path. */
static inline const char *neighbours_folder_make(void)
{
    static char folder[] = "/dev/shm/test_life_cuda_neighbours.XXXXXX";
    CHILD_REQUIRES(mkdtemp(folder) != NULL && setenv("VMM_NEIGHBOURS_DIR", folder, 1) == 0);
    return folder;
}

static inline vmm_cache *neighbour_create(int device, vmm_log_fn log)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    config.driver = VMM_DRIVER_CUDA;
    config.device = device;
    config.arena_bytes = GIB;
    config.neighbours = VMM_ON;
    config.neighbours_wait_ms = 5000;
    config.log = log;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

/* The holder has idle memory when the device begins to refuse; the claimant gets it. Ends both. */
static inline void idle_memory_moves(vmm_cache *holder, vmm_cache *claimant,
                                     void (*device_refuse)(void))
{
    vmm_stats stats = VMM_STATS_INIT;
    void *block = NULL;
    CHILD_REQUIRES(vmm_alloc(holder, 64 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(holder, block) == VMM_OK);
    device_refuse();
    CHILD_REQUIRES(vmm_alloc(claimant, 16 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_stats_get(claimant, &stats) == VMM_OK && stats.neighbour_claims == 1);
    CHILD_REQUIRES(vmm_stats_get(holder, &stats) == VMM_OK && stats.neighbour_given_bytes > 0);
    CHILD_REQUIRES(vmm_destroy(claimant) == VMM_OK && vmm_destroy(holder) == VMM_OK);
}

#endif
