/*
 * Caches with neighbours, on a device that is a file: each test has a device and a folder of records of its own.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_NEIGHBOUR_SUPPORT_H
#define VMM_LIFE_NEIGHBOUR_SUPPORT_H

#include "life/child.h"
#include "support/made_support.h"

#include "base/time.h"
#include "cache/cache.h"
#include "cache/registry.h"
#include "driver/driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE (64 * MIB)
/* Of claims that end in time; and of those that nothing serves. */
enum { LONG_MS = 5000, WAIT_MS = 300 };
/* What a busy machine may add to a wait. */
#define SLACK_MS 2000

static char neighbours_folder[] = "/dev/shm/test_neighbours.XXXXXX";
static char neighbours_device[128];

/* What processes of a test tell each other. */
static struct shared {
    _Atomic unsigned ready;
    _Atomic unsigned go;
    _Atomic unsigned served;
} * shared;

static inline int neighbours_setup(void **state)
{
    (void)state;
    (void)strcpy(neighbours_folder + sizeof neighbours_folder - 7, "XXXXXX");
    if (mkdtemp(neighbours_folder) == NULL)
        return -1;
    (void)snprintf(neighbours_device, sizeof neighbours_device, "%s.device", neighbours_folder);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return setenv("VMM_HOST_DEVICE", neighbours_device, 1) |
           setenv("VMM_NEIGHBOURS_DIR", neighbours_folder, 1);
}

/* What cache_make() has made; some have ended. */
enum { MOST_CACHES = 64 };
static vmm_cache *caches_made[MOST_CACHES];
static unsigned caches_count;

/* Destroys the caches that the test left, the latest first. Nothing is left in the folder after the last one. */
static inline int neighbours_teardown(void **state)
{
    (void)state;
    for (; caches_count > 0; caches_count--) {
        if (vmm__registry_has(caches_made[caches_count - 1]))
            assert_ok(vmm_destroy(caches_made[caches_count - 1]));
    }
    return rmdir(neighbours_folder) | unlink(neighbours_device) | munmap(shared, sizeof *shared);
}

#define NEIGHBOURS_TEST(name) TEST_BETWEEN(name, neighbours_setup, neighbours_teardown)

#define CACHE_CONFIG(...) CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = DEVICE, __VA_ARGS__)

/* A cache with neighbours; made with a config of further fields. */
static inline vmm_cache *cache_make(const vmm_config *config)
{
    vmm_config settings = *config;
    if (settings.neighbours_wait_ms == 0)
        settings.neighbours_wait_ms = LONG_MS;
    vmm_cache *cache = cache_with_config(&settings);
    assert_true(caches_count < MOST_CACHES);
    caches_made[caches_count++] = cache;
    return cache;
}
#define CACHE(...) cache_make(&CACHE_CONFIG(.neighbours = VMM_ON, __VA_ARGS__))

/* Writes a byte of each page, and the last one: those that a test reads again. */
static inline void pages_write(unsigned char *block, unsigned char byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        block[i] = byte;
    block[bytes - 1] = byte;
}

static inline void *block(vmm_cache *cache, size_t bytes)
{
    void *made = block_in(cache, bytes, NULL);
    pages_write(made, 0x5A, bytes);
    return made;
}

/* Blocks of a granule, so that chunks are small. All but `live` of them are free. */
static inline void idle_make(vmm_cache *cache, unsigned granules, unsigned live)
{
    void *blocks[DEVICE / (2 * MIB)];
    for (unsigned i = 0; i < granules; i++)
        blocks[i] = block(cache, 2 * MIB);
    for (unsigned i = live; i < granules; i++)
        assert_ok(vmm_free(cache, blocks[i]));
}

static inline uint64_t reserved(vmm_cache *cache)
{
    return stats_of(cache).reserved_bytes.current;
}

static inline uint64_t ms_since(uint64_t begin_ns)
{
    return (vmm__time_ns() - begin_ns) / 1000000;
}

static inline void in_vain(vmm_cache *cache, size_t bytes)
{
    void *none;
    assert_status(vmm_alloc(cache, bytes, NULL, &none), VMM_ERR_DEVICE_OOM);
}

static inline uint64_t device_free_bytes(struct vmm_cache *cache)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    assert_ok(vmm__driver_memory_info(cache->driver, &free_bytes, &total_bytes));
    return free_bytes;
}

/* Fails if the other process does not set the flag: it may have ended. */
static inline void flag_wait(const _Atomic unsigned *flag, unsigned wanted)
{
    uint64_t begin_ns = vmm__time_ns();
    while (atomic_load(flag) < wanted) {
        assert_true(ms_since(begin_ns) < 12 * (uint64_t)LONG_MS);
        (void)usleep(500);
    }
}

#endif
