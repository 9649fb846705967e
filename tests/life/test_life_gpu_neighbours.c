/*
 * test_life_gpu_neighbours host|cuda: two processes on a device that is full. One has offered a pool, which sleeps when
 * the other claims its memory; its wake claims in turn, and finds every byte. On a GPU the contents go through pinned
 * memory, and both processes have a context. Prints how long the claim and the wake took.
 */
#define _GNU_SOURCE
#include "life/child.h"

#include "base/time.h"
#include "cache/cache.h"
#include "support/driver_choice.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CLAIM_MS = IS_SLOW_BUILD ? 12000 : 4000, WORD = 4711, BALLAST_WORD = 99, POOL_UNITS = 2 };

/* The units of the device of host fill a file; the pool has more than the device has left. */
static uint64_t unit_bytes(void)
{
    return (driver_choice_kind() == VMM_DRIVER_CUDA ? 1024 : 16) * MIB;
}

static struct shared {
    _Atomic bool is_offered;
    _Atomic bool is_taken;
    _Atomic bool is_awake;
} * shared;

static void flag_wait(const _Atomic bool *flag)
{
    while (!atomic_load(flag))
        (void)usleep(1000);
}

static vmm_cache *cache_make(void)
{
    vmm_config config =
        CONFIG(.driver = driver_choice_kind(), .device_bytes = 16 * unit_bytes(),
               .neighbours = VMM_ON, .neighbours_wait_ms = CLAIM_MS, .footprint_permille = 1);
    vmm_cache *cache = NULL;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static void fill(struct vmm_cache *cache, void *block, uint64_t bytes, uint32_t word)
{
    CHILD_REQUIRES(vmm__driver_fill(cache->driver, (uintptr_t)block, bytes, word, NULL) == VMM_OK);
}

/* Every byte. */
static void check(struct vmm_cache *cache, void *block, uint64_t bytes, uint32_t word)
{
    uint64_t places = 1;
    CHILD_REQUIRES(vmm__driver_check(cache->driver, (uintptr_t)block, bytes, word, NULL) == VMM_OK);
    CHILD_REQUIRES(vmm_wait(cache) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_mismatches(cache->driver, &places) == VMM_OK && places == 0);
}

static uint64_t ms_since(uint64_t begin_ns)
{
    return (vmm__time_ns() - begin_ns) / 1000000;
}

static vmm_stats stats_of(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;
    CHILD_REQUIRES(vmm_stats_get(cache, &stats) == VMM_OK);
    return stats;
}

static void holds(void *context)
{
    uint64_t bytes = POOL_UNITS * unit_bytes();
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    vmm_cache *cache = cache_make();
    vmm_pool *pool;
    void *kept;
    (void)context;
    options.on_claim = 1;
    CHILD_REQUIRES(vmm_pool_create(cache, NULL, &pool) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc_from(pool, bytes, NULL, &kept) == VMM_OK);
    fill(cache, kept, bytes, WORD); /* may still run at the offer */
    CHILD_REQUIRES(vmm_pool_sleep(&pool, 1, &options, NULL) == VMM_OK);
    atomic_store(&shared->is_offered, true);
    flag_wait(&shared->is_taken);
    CHILD_REQUIRES(stats_of(cache).neighbour_sleeps == 1);
    CHILD_REQUIRES(stats_of(cache).neighbour_given_bytes >= bytes);
    uint64_t begin_ns = vmm__time_ns();
    CHILD_REQUIRES(vmm_pool_wake(&pool, 1, NULL, NULL) == VMM_OK);
    (void)printf("wake: %" PRIu64 " ms, %" PRIu64 " claims\n", ms_since(begin_ns),
                 stats_of(cache).neighbour_claims);
    (void)fflush(stdout);
    check(cache, kept, bytes, WORD);
    CHILD_REQUIRES(stats_of(cache).neighbour_claims > 0);
    atomic_store(&shared->is_awake, true);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

/* Takes all of the device but a unit. */
static void *ballast(vmm_cache *cache, uint64_t *bytes)
{
    uint64_t total_bytes;
    void *block;
    CHILD_REQUIRES(vmm_device_memory(cache, bytes, &total_bytes) == VMM_OK);
    *bytes -= unit_bytes();
    CHILD_REQUIRES(vmm_alloc(cache, *bytes, NULL, &block) == VMM_OK);
    fill(cache, block, *bytes, BALLAST_WORD);
    return block;
}

static void claims(void *context)
{
    uint64_t bytes = POOL_UNITS * unit_bytes();
    uint64_t ballast_bytes;
    vmm_cache *cache = cache_make();
    void *block;
    (void)context;
    flag_wait(&shared->is_offered);
    void *most = ballast(cache, &ballast_bytes);
    uint64_t begin_ns = vmm__time_ns();
    CHILD_REQUIRES(vmm_alloc(cache, bytes, NULL, &block) == VMM_OK);
    (void)printf("claim: %" PRIu64 " ms; the first %d are for what is cheaper\n",
                 ms_since(begin_ns), CLAIM_MS * 3 / 4);
    (void)fflush(stdout);
    CHILD_REQUIRES(stats_of(cache).neighbour_claims == 1);
    fill(cache, block, bytes, WORD + 1);
    check(cache, block, bytes, WORD + 1);
    check(cache, most, ballast_bytes, BALLAST_WORD);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK);
    CHILD_REQUIRES(vmm_wait(cache) == VMM_OK);
    atomic_store(&shared->is_taken, true);
    flag_wait(&shared->is_awake);
    check(cache, most, ballast_bytes, BALLAST_WORD);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

/* Opens the driver in a child, because a process that has CUDA cannot fork others that use it. */
static int driver_try(int argc, char **argv)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        driver_choice_read(argc, argv);
        exit(0);
    }
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/test_life_gpu_neighbours.XXXXXX";
    char device[sizeof folder + 8];
    driver_choice_parse(argc, argv);
    int refused = driver_try(argc, argv);
    if (refused != 0)
        return refused;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || mkdtemp(folder) == NULL)
        return 1;
    (void)snprintf(device, sizeof device, "%s.device", folder);
    (void)setenv("VMM_NEIGHBOURS_DIR", folder, 1);
    (void)setenv("VMM_HOST_DEVICE", device, 1);
    pid_t holder = child_begun(holds, NULL);
    pid_t claimant = child_begun(claims, NULL);
    bool is_right = child_ended(claimant, 0);
    is_right = child_ended(holder, 0) && is_right;
    (void)unlink(device);
    return rmdir(folder) == 0 && is_right ? 0 : 1;
}
