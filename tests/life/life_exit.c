/*
 * life_exit DRIVER WAY STATE: a program that ends in one of many ways while a cache is in some state. It ends
 * with 7 if all went well, with 77 if there is no such device, and by a signal or with another status if
 * something went wrong. What ends it is below; test_life_exit runs all of it.
 */
#define _GNU_SOURCE
#include "vmmcache/vmmcache.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WELL = 7, WRONG = 3, NO_DEVICE = 77, BLOCKS = 32, TICK_MS = 1 };

static vmm_cache *cache;
static void *blocks[BLOCKS];
static bool ends_with_cache; /* the destructor below frees the blocks and destroys the cache */
static bool may_be_lost;     /* on cuda, once exit() has begun */
static sem_t first_ends;

static void wrong(const char *what)
{
    (void)fprintf(stderr, "life_exit: %s; last error: %s\n", what, vmm_last_error());
    _exit(WRONG);
}

static void pause_ms(long ms)
{
    struct timespec pause = { .tv_nsec = ms * 1000000 };
    (void)nanosleep(&pause, NULL);
}

/* ---- States ------------------------------------------------------------------------------------- */

static vmm_stream stream_of(unsigned number)
{
    return (vmm_stream)(uintptr_t)(number %
                                   2); /* 0 and 1: the legacy default stream, by both names */
}

static void blocks_had(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 2 == 0 ? 900 : (size_t)2 << 20;
        if (vmm_alloc(cache, bytes, stream_of(i / 2), &blocks[i]) != VMM_OK)
            wrong("vmm_alloc failed");
    }
}

static void block_left(unsigned i)
{
    if (vmm_free(cache, blocks[i]) != VMM_OK)
        wrong("vmm_free failed");
    blocks[i] = NULL;
}

/* Freed, and used by another stream: they wait until somebody looks. */
static void frees_pend(void)
{
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        if (vmm_use(cache, blocks[i], stream_of(i / 2 + 1)) != VMM_OK)
            wrong("vmm_use failed");
        block_left(i);
    }
}

static void decay_runs(void)
{
    for (unsigned i = 1; i < BLOCKS; i += 2)
        block_left(i);
    pause_ms(2 * TICK_MS); /* the thread gives memory back about now */
}

static void state_entered(const char *state)
{
    blocks_had();
    if (strcmp(state, "pending") == 0)
        frees_pend();
    else if (strcmp(state, "decay") == 0)
        decay_runs();
    else if (strcmp(state, "capture") == 0 &&
             vmm_pool_begin(cache, (vmm_pool_id){ 1, 1 }, NULL, NULL) != VMM_OK)
        wrong("vmm_pool_begin failed");
}

/* ---- Ends --------------------------------------------------------------------------------------- */

static void cache_ended(void)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        block_left(i);
    vmm_status status = vmm_destroy(cache);
    if (status != VMM_OK && !(may_be_lost && status == VMM_ERR_LOST))
        wrong("vmm_destroy failed");
}

__attribute__((destructor)) static void destructor_runs(void)
{
    if (ends_with_cache)
        cache_ended();
}

static void *thread_exits(void *context)
{
    (void)context;
    exit(WELL);
}

static void first_thread_ends(void *ends)
{
    (void)sem_post(ends);
}

/* The process goes on without its first thread, which is about to be gone. */
static void *thread_outlives(void *context)
{
    (void)context;
    while (sem_wait(&first_ends) != 0)
        continue;
    pause_ms(5);
    if (vmm_trim(cache, 0, NULL) != VMM_OK)
        wrong("vmm_trim failed");
    exit(WELL);
}

static void thread_begun(void *(*function)(void *context))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) != 0)
        wrong("no thread");
}

static void first_thread_left(void)
{
    pthread_key_t key;
    if (sem_init(&first_ends, 0, 0) != 0 || pthread_key_create(&key, first_thread_ends) != 0 ||
        pthread_setspecific(key, &first_ends) != 0)
        wrong("no key");
    thread_begun(thread_outlives);
    pthread_exit(NULL);
}

static void signal_exits(int signal)
{
    (void)signal;
    exit(WELL);
}

/* SIGTERM comes while blocks are taken and given back. */
static void signal_awaited(void)
{
    struct itimerval soon = { .it_value = { .tv_usec = 3000 } };
    (void)signal(SIGALRM, signal_exits);
    (void)signal(SIGTERM, signal_exits);
    (void)setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) {
        void *block;
        if (vmm_alloc(cache, (size_t)4 << 20, stream_of(0), &block) != VMM_OK ||
            vmm_free(cache, block) != VMM_OK || vmm_trim(cache, 0, NULL) != VMM_OK)
            wrong("a call failed");
    }
}

static void way_taken(const char *way)
{
    if (strcmp(way, "thread") == 0) {
        thread_begun(thread_exits);
        (void)pause();
    } else if (strcmp(way, "first_thread") == 0) {
        first_thread_left();
    } else if (strcmp(way, "signal") == 0) {
        signal_awaited();
    } else if (strcmp(way, "_exit") == 0) {
        _exit(WELL);
    } else if (strcmp(way, "destructor") == 0) {
        ends_with_cache = true;
    } else if (strcmp(way, "destroy") == 0) {
        may_be_lost = false;
        cache_ended();
    }
}

static vmm_driver_kind driver_of(const char *name)
{
    return strcmp(name, "cuda") == 0   ? VMM_DRIVER_CUDA
           : strcmp(name, "host") == 0 ? VMM_DRIVER_HOST
                                       : VMM_DRIVER_SIM;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *way = argv[2];
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver_of(argv[1]);
    config.decay_ms = TICK_MS;
    config.decay_thread = strcmp(argv[3], "decay") == 0;
    may_be_lost = config.driver == VMM_DRIVER_CUDA;
    if (strcmp(way, "atexit_before") == 0 && atexit(cache_ended) != 0)
        wrong("no atexit");
    vmm_status status = vmm_create(&config, &cache);
    if (status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED) {
        (void)fprintf(stderr, "life_exit: %s\n", vmm_last_error());
        _exit(NO_DEVICE);
    }
    if (status != VMM_OK)
        wrong("vmm_create failed");
    if (strcmp(way, "atexit_after") == 0 && atexit(cache_ended) != 0)
        wrong("no atexit");
    state_entered(argv[3]);
    way_taken(way);
    return WELL;
}
