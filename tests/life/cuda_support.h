/*
 * The fake libcuda (fake/fake_cuda.h) and caches on it. Each test runs in a child (child.h), because a process starts
 * CUDA only once.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_CUDA_SUPPORT_H
#define VMM_LIFE_CUDA_SUPPORT_H

#include "base/hostmem.h"
#include "driver/driver.h"
#include "life/child.h"
#include "life/fake/fake_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 12 };

/* What calls return that fail. */
enum {
    CUDA_INVALID_VALUE = 1,
    CUDA_OOM = 2,
    CUDA_INVALID_DEVICE = 101, /* also if it cannot access the memory */
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_DESTROYED = 709,
    CUDA_NOT_PERMITTED = 800,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_UNKNOWN = 999
};

/* ---- The fake ----------------------------------------------------------------------------------- */

typedef int (*device_call)(int device);

static void *library;
static struct fake_cuda *fake;

static inline void fake_open(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHILD_REQUIRES(library != NULL);
    fake = dlsym(library, "fake_cuda");
    CHILD_REQUIRES(fake != NULL);
}

static inline void fake_check_misuses(void)
{
    if (fake->misuses != 0)
        (void)fprintf(stderr, "misuse: %s\n", fake->misuse);
    CHILD_REQUIRES(fake->misuses == 0);
}

/* A test that runs in a child which has opened the fake. Its end fails if a call misused the fake. */
#define FAKE_TEST(name)                                                                            \
    static void name##_on_fake(void);                                                              \
    CHILD_TEST(name)                                                                               \
    {                                                                                              \
        fake_open();                                                                               \
        name##_on_fake();                                                                          \
        fake_check_misuses();                                                                      \
    }                                                                                              \
    static void name##_on_fake(void)

/* Calls a function of libcuda as the program itself would. */
static inline int device_call_by_name(const char *name, int device)
{
    device_call call;
    void *found = dlsym(library, name);
    CHILD_REQUIRES(found != NULL);
    memcpy(&call, &found, sizeof call);
    return call(device);
}

static inline void context_retain(int device)
{
    int (*retain)(void **context, int device);
    void *found = dlsym(library, "cuDevicePrimaryCtxRetain");
    void *context;
    memcpy(&retain, &found, sizeof retain);
    CHILD_REQUIRES(retain(&context, device) == 0);
}

static inline void fault_set(const char *call, int result, uint64_t from, bool once)
{
    fake->fail_call[0] = '\0';
    fake->fail_result = result;
    fake->fail_from = from;
    fake->fails_once = once;
    fake->fail_count = 0;
    (void)snprintf(fake->fail_call, sizeof fake->fail_call, "%s", call);
}

/* After the end of all drivers, caches and tests of a device. */
static inline void nothing_is_left(uint64_t host_bytes)
{
    CHILD_REQUIRES(fake->taken(0) == 0 && fake->holds[0] == 0);
    CHILD_REQUIRES(vmm__host_outstanding() == host_bytes);
}

/* ---- Calls of a self-test that fail -------------------------------------------------------------- */

struct test_call {
    const char *call;
    uint64_t number;  /* of the calls of that name */
    const char *step; /* that the line names */
};

static inline struct driver *driver_open(void)
{
    struct driver_options options = { .device = 0 };
    struct driver *driver = NULL;
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    return driver;
}

static inline void call_fail(const struct test_call *call, int result)
{
    fault_set(call->call, result, call->number, true);
}

static inline void calls_succeed(void)
{
    fault_set("", 0, 1, false);
}

/* Requires that a line names the step, after these words. */
static inline void step_is_told(const struct test_call *call, const char *words, const char *line)
{
    char told[64];
    (void)snprintf(told, sizeof told, "%s'%s': ", words, call->step);
    if (strstr(line, told) == NULL)
        (void)fprintf(stderr, "%s %llu: '%s' is not told in: %s\n", call->call,
                      (unsigned long long)call->number, call->step, line);
    CHILD_REQUIRES(strstr(line, told) != NULL);
}

/* ---- Caches ------------------------------------------------------------------------------------- */

static inline vmm_status cache_try_create(vmm_driver_kind driver, int device, vmm_cache **out)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver;
    config.device = device;
    config.arena_bytes = GIB;
    config.peer_devices = UINT64_MAX;
    return vmm_create(&config, out);
}

static inline vmm_cache *cache_create(int device)
{
    vmm_cache *cache = NULL;
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, device, &cache) == VMM_OK);
    return cache;
}

/* Allocates as much as possible on three streams, records another stream for each block, and frees every other one. */
static inline void blocks_allocate(vmm_cache *cache, void *blocks[BLOCKS])
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        vmm_stream stream = (vmm_stream)(uintptr_t)(i % 3 * 16);
        blocks[i] = NULL;
        if (vmm_alloc(cache, i % 2 == 0 ? 700 : 3 * MIB, stream, &blocks[i]) != VMM_OK)
            continue;
        CHILD_REQUIRES(vmm_record_stream(cache, blocks[i], (vmm_stream)48) == VMM_OK);
        if (i % 4 < 2 && vmm_free(cache, blocks[i]) == VMM_OK)
            blocks[i] = NULL;
    }
}

static inline void blocks_free(vmm_cache *cache, void *blocks[BLOCKS])
{
    for (unsigned i = 0; i < BLOCKS; i++)
        CHILD_REQUIRES(vmm_free(cache, blocks[i]) == VMM_OK);
}

static inline void cache_check_works(int device)
{
    void *blocks[BLOCKS];
    vmm_cache *cache = cache_create(device);
    blocks_allocate(cache, blocks);
    CHILD_REQUIRES(vmm_trim(cache, 0, NULL) == VMM_OK && vmm_wait(cache) == VMM_OK);
    blocks_free(cache, blocks);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

#endif
