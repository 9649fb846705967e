/* A server that shares its GPU, and sizes its key-value cache when it starts. The second cache stands for another
 * process. */
#define _GNU_SOURCE
#include "gpu.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* [create] */
static vmm_cache *create_server(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.neighbours = VMM_ON;
    config.neighbours_name = "server";
    config.neighbours_priority = 1;           /* processes with 0 give first */
    config.neighbours_floor_bytes = 16 * MIB; /* what others leave to it */
    check(vmm_create(&config, &cache));
    return cache;
}
/* [end] */

/* [size] */
/* As much as the cache could get now, but for a quarter: for activations, and for the headroom. */
static size_t kv_bytes(vmm_cache *cache)
{
    uint64_t available;
    check(vmm_available_get(cache, &available));
    return (size_t)(available / 4 * 3);
}
/* [end] */

/* [show] */
static int neighbour_print(void *context, const vmm_neighbour *neighbour)
{
    (void)context;
    printf("%-10s reserved %llu, idle %llu, has given %llu\n", neighbour->name,
           (unsigned long long)neighbour->reserved_bytes, (unsigned long long)neighbour->idle_bytes,
           (unsigned long long)neighbour->given_bytes);
    return 0; /* the next one */
}
/* [end] */

static void device_make(char *path)
{
    int file = mkstemp(path);
    EXPECT(file >= 0 && close(file) == 0 && unlink(path) == 0);
    EXPECT(setenv("VMM_HOST_DEVICE", path, 1) == 0);
}

/* Has 192 MiB idle. */
static vmm_cache *create_trainer(vmm_stream stream, size_t device_bytes)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    void *block;
    config.neighbours = VMM_ON;
    config.neighbours_name = "trainer";
    config.device_bytes = device_bytes; /* of the host driver */
    check(vmm_create(&config, &cache));
    check(vmm_alloc(cache, 192 * MIB, stream, &block));
    check(vmm_free(cache, block));
    return cache;
}

static int idle_find(void *context, const vmm_neighbour *neighbour)
{
    *(int *)context |= !neighbour->is_self && neighbour->idle_bytes >= 192 * MIB;
    return 0;
}

/* Caches show what they have twice a second. */
static void idle_wait(vmm_cache *server)
{
    int is_shown = 0;
    for (int tries = 0; tries < 100 && !is_shown; tries++) {
        check(vmm_neighbours_walk(server, idle_find, &is_shown));
        (void)nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    EXPECT(is_shown);
}

int main(void)
{
    char path[] = "/tmp/vmmcache-guide-XXXXXX";
    const char *driver = getenv("VMM_DRIVER");
    int is_host = driver != NULL && strcmp(driver, "host") == 0;
    if (is_host)
        device_make(path);
    vmm_stream stream = gpu_stream_create();
    vmm_cache *trainer = create_trainer(stream, is_host ? 256 * MIB : 0);
    vmm_cache *server = create_server();
    idle_wait(server);
    uint64_t free_bytes, total_bytes;
    void *keys;
    check(vmm_device_memory(server, &free_bytes, &total_bytes));
    size_t bytes = kv_bytes(server);
    EXPECT(!is_host || bytes > free_bytes);
    check(vmm_alloc(server, bytes, stream, &keys));
    gpu_fill(keys, 7, MIB, stream);
    EXPECT(gpu_byte(keys, stream) == 7);
    check(vmm_neighbours_walk(server, neighbour_print, NULL));
    check(vmm_free(server, keys));
    vmm_destroy(server);
    vmm_destroy(trainer);
    gpu_stream_destroy(stream);
    if (is_host)
        (void)unlink(path);
    return 0;
}
