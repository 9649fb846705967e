/*
 * life_dlclose LIBRARY DRIVER STATE: a program that closes the library while a cache is live, continues and exits. The
 * library must stay loaded, for its threads and its registered handlers. Statuses as in life_exit.
 */
#define _GNU_SOURCE
#include "second_stream.h"
#include "vmmcache/vmmcache.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_EXPECTED = 7, EXIT_FAILED = 3, NO_DEVICE = 77 };

static __typeof__(vmm_create) *create;
static __typeof__(vmm_alloc) *alloc;
static __typeof__(vmm_free) *release;
static __typeof__(vmm_record_stream) *use;
static __typeof__(vmm_cache_pool) *cache_pool;
static __typeof__(vmm_pool_route) *pool_route;

static void fail(const char *what)
{
    (void)fprintf(stderr, "life_dlclose: %s\n", what);
    _exit(EXIT_FAILED);
}

static void symbol_find(void *library, const char *name, void *call)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        fail(name);
    memcpy(call, &found, sizeof found);
}

static void *library_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(dlerror());
    symbol_find(library, "vmm_create", &create);
    symbol_find(library, "vmm_alloc", &alloc);
    symbol_find(library, "vmm_free", &release);
    symbol_find(library, "vmm_record_stream", &use);
    symbol_find(library, "vmm_cache_pool", &cache_pool);
    symbol_find(library, "vmm_pool_route", &pool_route);
    return library;
}

static void state_enter(vmm_cache *cache, const char *state, vmm_stream second)
{
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        if (alloc(cache, (size_t)1 << 20, NULL, &blocks[i]) != VMM_OK)
            fail("vmm_alloc failed");
    }
    if (strcmp(state, "live") == 0)
        return;
    if (strcmp(state, "capture") == 0 && pool_route(cache_pool(cache), NULL, NULL) != VMM_OK)
        fail("vmm_pool_route failed");
    for (int i = 0; i < 8; i++) {
        bool is_pending = strcmp(state, "pending") == 0;
        if ((is_pending && use(cache, blocks[i], second) != VMM_OK) ||
            release(cache, blocks[i]) != VMM_OK)
            fail("vmm_record_stream or vmm_free failed");
    }
}

/* A fork calls the library's handlers, which must still be loaded. */
static void fork_once(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("fork() failed");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *library = library_open(argv[1]);
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = strcmp(argv[2], "cuda") == 0   ? VMM_DRIVER_CUDA
                    : strcmp(argv[2], "host") == 0 ? VMM_DRIVER_HOST
                                                   : VMM_DRIVER_SIM;
    config.decay_ms = 1;
    config.decay_thread = strcmp(argv[3], "decay") == 0 ? VMM_ON : VMM_OFF;
    vmm_cache *cache = NULL;
    vmm_status status = create(&config, &cache);
    if (status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED)
        return NO_DEVICE;
    if (status != VMM_OK)
        fail("vmm_create failed");
    vmm_stream second = second_stream_create(config.driver);
    if (second == NULL)
        fail("no second stream");
    state_enter(cache, argv[3], second);
    if (dlclose(library) != 0)
        fail("dlclose failed");
    struct timespec pause = { .tv_nsec = 5000000 };
    (void)nanosleep(&pause, NULL); /* the library's background thread runs meanwhile */
    fork_once();
    return EXIT_EXPECTED;
}
