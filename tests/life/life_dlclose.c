/*
 * life_dlclose LIBRARY DRIVER STATE: a program that closes the library while a cache lives, and goes on and ends.
 * The library stays where it is, for its threads and for what it left with the system. As life_exit.
 */
#define _GNU_SOURCE
#include "vmmcache/vmmcache.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WELL = 7, WRONG = 3, NO_DEVICE = 77 };

static __typeof__(vmm_create) *create;
static __typeof__(vmm_alloc) *alloc;
static __typeof__(vmm_free) *give;
static __typeof__(vmm_use) *use;
static __typeof__(vmm_pool_begin) *pool_begin;

static void wrong(const char *what)
{
    (void)fprintf(stderr, "life_dlclose: %s\n", what);
    _exit(WRONG);
}

static void symbol_found(void *library, const char *name, void *call)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        wrong(name);
    memcpy(call, &found, sizeof found);
}

static void *library_opened(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        wrong(dlerror());
    symbol_found(library, "vmm_create", &create);
    symbol_found(library, "vmm_alloc", &alloc);
    symbol_found(library, "vmm_free", &give);
    symbol_found(library, "vmm_use", &use);
    symbol_found(library, "vmm_pool_begin", &pool_begin);
    return library;
}

static void state_entered(vmm_cache *cache, const char *state)
{
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        if (alloc(cache, (size_t)1 << 20, NULL, &blocks[i]) != VMM_OK)
            wrong("vmm_alloc failed");
    }
    if (strcmp(state, "live") == 0)
        return;
    if (strcmp(state, "capture") == 0 &&
        pool_begin(cache, (vmm_pool_id){ 1, 1 }, NULL, NULL) != VMM_OK)
        wrong("vmm_pool_begin failed");
    for (int i = 0; i < 8; i++) {
        bool pends = strcmp(state, "pending") == 0;
        if ((pends && use(cache, blocks[i], (vmm_stream)1) != VMM_OK) ||
            give(cache, blocks[i]) != VMM_OK)
            wrong("a block did not go");
    }
}

/* Handlers of the library must not be called where it is no more. */
static void child_had(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0)
        wrong("fork() failed");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *library = library_opened(argv[1]);
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = strcmp(argv[2], "cuda") == 0   ? VMM_DRIVER_CUDA
                    : strcmp(argv[2], "host") == 0 ? VMM_DRIVER_HOST
                                                   : VMM_DRIVER_SIM;
    config.decay_ms = 1;
    config.decay_thread = strcmp(argv[3], "decay") == 0;
    vmm_cache *cache = NULL;
    vmm_status status = create(&config, &cache);
    if (status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED)
        return NO_DEVICE;
    if (status != VMM_OK)
        wrong("vmm_create failed");
    state_entered(cache, argv[3]);
    if (dlclose(library) != 0)
        wrong("dlclose failed");
    struct timespec pause = { .tv_nsec = 5000000 };
    (void)nanosleep(&pause, NULL); /* the library's thread ticks meanwhile */
    child_had();
    return WELL;
}
