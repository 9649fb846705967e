/*
 * Shared by the programs that count and time the hot path: a cache on the sim driver, whose calls only keep books, and
 * random choices made before the measurement. A failure ends the program.
 */
#ifndef VMM_TEST_COST_H
#define VMM_TEST_COST_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define COST_MIB (UINT64_C(1) << 20)
#define COST_GIB (UINT64_C(1) << 30)

struct cost_block {
    void *address;
    size_t bytes;
};

/* The live block to replace, and the size of its replacement. */
struct cost_draw {
    size_t index;
    size_t bytes;
};

static inline void cost_require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "error: %s: %s\n", what, vmm_last_error());
    exit(2);
}

/* The device is larger than any heap that is measured. */
static inline vmm_cache *cost_cache_create(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    config.driver = VMM_DRIVER_SIM;
    config.device_bytes = 192 * COST_GIB;
    cost_require(vmm_create(&config, &cache) == VMM_OK, "vmm_create");
    return cache;
}

static inline void *cost_alloc(vmm_cache *cache, size_t bytes)
{
    void *address = NULL;
    cost_require(vmm_alloc(cache, bytes, NULL, &address) == VMM_OK, "vmm_alloc");
    return address;
}

static inline void cost_free(vmm_cache *cache, void *address)
{
    cost_require(vmm_free(cache, address) == VMM_OK, "vmm_free");
}

static inline void cost_replace(vmm_cache *cache, struct cost_block *live,
                                const struct cost_draw *draw)
{
    struct cost_block *block = &live[draw->index];
    cost_free(cache, block->address);
    block->address = cost_alloc(cache, draw->bytes);
    block->bytes = draw->bytes;
}

/* Runs of a measurement that misses its bar: other load on the machine only makes times longer. */
enum { COST_RUNS_MOST = 5 };

static inline bool cost_bar_meets(bool (*measure)(void))
{
    bool is_met = false;
    for (int run = 0; run < COST_RUNS_MOST && !is_met; run++)
        is_met = measure();
    return is_met;
}

/* xorshift64 */
static inline uint64_t cost_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Requires that the statistics show no live block, and destroys the cache. */
static inline void cost_cache_end(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;
    cost_require(vmm_stats_get(cache, &stats) == VMM_OK, "vmm_stats_get");
    cost_require(stats.allocations.current == 0, "live blocks are left");
    cost_require(vmm_destroy(cache) == VMM_OK, "vmm_destroy");
}

#endif
