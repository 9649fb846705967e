/* Caches on a GPU that give each other memory, on the fake libcuda: test_life_claims.c and test_life_offers.c have
 * the rest, and test_life_gpu_neighbours.c has what a GPU does. */
#define _GNU_SOURCE
#include "life/cuda_support.h"

#include "cache/cache.h"
#include "driver/driver.h"

static char folder[] = "/dev/shm/test_life_cuda_neighbours.XXXXXX";

static vmm_cache *cache_on(int device, vmm_log_fn log)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    config.driver = VMM_DRIVER_CUDA;
    config.device = device;
    config.neighbours = VMM_ON;
    config.neighbours_wait_ms = 5000;
    config.log = log;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static int neighbour_count(void *context, const vmm_neighbour *neighbour)
{
    (void)neighbour;
    ++*(unsigned *)context;
    return 0;
}

static unsigned count(vmm_cache *cache)
{
    unsigned counted = 0;
    CHILD_REQUIRES(vmm_neighbours_walk(cache, neighbour_count, &counted) == VMM_OK);
    return counted;
}

/* Of the holder: once it has given, the device refuses no longer. */
static void fault_end(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "neighbours: gave") != NULL || strstr(line, "neighbours: pool") != NULL)
        fault_set("", 0, 0, false);
}

/* The fake is as large as the machine, so here it refuses, until the holder has released something. */
static void idle_memory_moves(void)
{
    vmm_cache *holder = cache_on(0, fault_end);
    vmm_cache *claimant = cache_on(0, NULL);
    vmm_stats stats = VMM_STATS_INIT;
    void *block = NULL;
    CHILD_REQUIRES(vmm_alloc(holder, 64 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(holder, block) == VMM_OK);
    fault_set("cuMemCreate", 2, 1, false);
    CHILD_REQUIRES(vmm_alloc(claimant, 16 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_stats_get(claimant, &stats) == VMM_OK && stats.neighbour_claims == 1);
    CHILD_REQUIRES(vmm_stats_get(holder, &stats) == VMM_OK && stats.neighbour_given_bytes > 0);
    CHILD_REQUIRES(vmm_destroy(claimant) == VMM_OK && vmm_destroy(holder) == VMM_OK);
}

/* Its contents go to pinned memory, and come back. */
static void an_offered_pool_sleeps(void)
{
    enum { BYTES = 8 * MIB, WORD = 4711 };
    struct vmm_cache *holder = cache_on(0, fault_end);
    vmm_cache *claimant = cache_on(0, NULL);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    vmm_stats stats = VMM_STATS_INIT;
    vmm_pool *pool = NULL;
    void *kept = NULL;
    void *block = NULL;
    uint64_t places = 1;
    options.on_claim = 1;
    CHILD_REQUIRES(vmm_pool_create(holder, NULL, &pool) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc_from(pool, BYTES, NULL, &kept) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_fill(holder->driver, (uintptr_t)kept, BYTES, WORD, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_pool_sleep(&pool, 1, &options, NULL) == VMM_OK);
    fault_set("cuMemCreate", 2, 1, false);
    CHILD_REQUIRES(vmm_alloc(claimant, 16 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_stats_get(holder, &stats) == VMM_OK && stats.neighbour_sleeps == 1);
    CHILD_REQUIRES(vmm_pool_wake(&pool, 1, NULL, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_check(holder->driver, (uintptr_t)kept, BYTES, WORD, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_wait(holder) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_mismatches(holder->driver, &places) == VMM_OK && places == 0);
    CHILD_REQUIRES(vmm_destroy(claimant) == VMM_OK && vmm_destroy(holder) == VMM_OK);
}

FAKE_TEST(caches_of_a_gpu_are_neighbours)
{
    CHILD_REQUIRES(mkdtemp(folder) != NULL && setenv("VMM_NEIGHBOURS_DIR", folder, 1) == 0);
    vmm_cache *first = cache_on(0, NULL);
    vmm_cache *second = cache_on(0, NULL);
    vmm_cache *other = cache_on(1, NULL);
    CHILD_REQUIRES(count(first) == 2 && count(second) == 2 && count(other) == 1);
    CHILD_REQUIRES(vmm_destroy(first) == VMM_OK && vmm_destroy(second) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(other) == VMM_OK);
    idle_memory_moves();
    an_offered_pool_sleeps();
    CHILD_REQUIRES(rmdir(folder) == 0);
    fake_check_misuses();
}

static void leaves_at_exit(void *context)
{
    (void)context;
    fake_open();
    CHILD_REQUIRES(count(cache_on(0, NULL)) == 1);
    exit(0);
}

/* The threads of such caches make no call after the end of CUDA, which would end the process: see fake_cuda.h. */
TEST(caches_may_be_left_at_exit)
{
    assert_true(mkdtemp(folder) != NULL && setenv("VMM_NEIGHBOURS_DIR", folder, 1) == 0);
    for (int i = 0; i < 20; i++)
        child_runs(leaves_at_exit, NULL);
    assert_int_equal(rmdir(folder), 0);
}
