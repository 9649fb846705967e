/* Caches on a GPU that give each other memory, on the fake libcuda: test_life_claims.c and test_life_offers.c have
 * the rest, and test_life_gpu_neighbours.c has what a GPU does. */
#define _GNU_SOURCE
#include "life/cuda_neighbours.h"

#include "cache/cache.h"
#include "driver/driver.h"

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
        calls_succeed();
}

static void device_refuse(void)
{
    fault_set("cuMemCreate", 2, 1, false);
}

/* Its contents go to pinned memory, and come back. */
static void an_offered_pool_sleeps(void)
{
    enum { BYTES = 8 * MIB, WORD = 4711 };
    struct vmm_cache *holder = neighbour_create(0, fault_end);
    vmm_cache *claimant = neighbour_create(0, NULL);
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
    device_refuse();
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
    const char *folder = neighbours_folder_make();
    vmm_cache *first = neighbour_create(0, NULL);
    vmm_cache *second = neighbour_create(0, NULL);
    vmm_cache *other = neighbour_create(1, NULL);
    CHILD_REQUIRES(count(first) == 2 && count(second) == 2 && count(other) == 1);
    CHILD_REQUIRES(vmm_destroy(first) == VMM_OK && vmm_destroy(second) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(other) == VMM_OK);
    idle_memory_moves(neighbour_create(0, fault_end), neighbour_create(0, NULL), device_refuse);
    an_offered_pool_sleeps();
    CHILD_REQUIRES(rmdir(folder) == 0);
}

static void leaves_at_exit(void *context)
{
    (void)context;
    fake_open();
    CHILD_REQUIRES(count(neighbour_create(0, NULL)) == 1);
    exit(0);
}

/* The threads of such caches make no call after the end of CUDA, which would end the process: see fake_cuda.h. */
TEST(caches_may_be_left_at_exit)
{
    const char *folder = neighbours_folder_make();
    for (int i = 0; i < 20; i++)
        child_runs(leaves_at_exit, NULL);
    assert_int_equal(rmdir(folder), 0);
}
