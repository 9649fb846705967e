/*
 * life_exit DRIVER WAY STATE: a program that ends in one of many ways while a cache is in some state. Exits with 7 if
 * every call succeeded, with 77 if there is no such device; any other status, or a signal, is a failure. exit_matrix.py
 * runs all combinations.
 */
#define _GNU_SOURCE
#include "../support/pool_calls.h"
#include "second_stream.h"
#include "vmmcache/vmmcache.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_EXPECTED = 7, EXIT_FAILED = 3, NO_DEVICE = 77, BLOCKS = 32, TICK_MS = 1 };

static vmm_cache *cache;
static void *blocks[BLOCKS];
static bool ends_with_cache; /* the destructor below frees the blocks and destroys the cache */
static bool may_be_lost;     /* exit() may have ended CUDA before vmm_destroy() */
static sem_t first_ends;

static void fail(const char *what)
{
    (void)fprintf(stderr, "life_exit: %s; last error: %s\n", what, vmm_last_error());
    _exit(EXIT_FAILED);
}

static void pause_ms(long ms)
{
    struct timespec pause = { .tv_nsec = ms * 1000000 };
    (void)nanosleep(&pause, NULL);
}

static vmm_stream second_stream;

/* ---- States ------------------------------------------------------------------------------------- */

static vmm_stream stream_of(unsigned number)
{
    return number % 2 == 0 ? NULL : second_stream;
}

static void blocks_allocate(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 2 == 0 ? 900 : (size_t)2 << 20;
        if (vmm_alloc(cache, bytes, stream_of(i / 2), &blocks[i]) != VMM_OK)
            fail("vmm_alloc failed");
    }
}

static void block_free(unsigned i)
{
    if (vmm_free(cache, blocks[i]) != VMM_OK)
        fail("vmm_free failed");
    blocks[i] = NULL;
}

/* Frees blocks that another stream used: they wait until a call polls that stream. */
static void free_pending(void)
{
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        if (vmm_record_stream(cache, blocks[i], stream_of(i / 2 + 1)) != VMM_OK)
            fail("vmm_record_stream failed");
        block_free(i);
    }
}

static void decay_start(void)
{
    for (unsigned i = 1; i < BLOCKS; i += 2)
        block_free(i);
    pause_ms(2 * TICK_MS); /* the background thread releases memory meanwhile */
}

static void state_enter(const char *state)
{
    blocks_allocate();
    if (strcmp(state, "pending") == 0)
        free_pending();
    else if (strcmp(state, "decay") == 0)
        decay_start();
    else if (strcmp(state, "capture") == 0 &&
             graph_pool_begin(cache, (vmm_pool_id){ 1, 1 }, NULL, NULL) != VMM_OK)
        fail("vmm_pool_begin failed");
}

/* ---- Ends --------------------------------------------------------------------------------------- */

static void cache_destroy(void)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        block_free(i);
    vmm_status status = vmm_destroy(cache);
    if (status != VMM_OK && !(may_be_lost && status == VMM_ERR_LOST))
        fail("vmm_destroy failed");
}

__attribute__((destructor)) static void destructor_run(void)
{
    if (ends_with_cache)
        cache_destroy();
}

static void *thread_exit(void *context)
{
    (void)context;
    exit(EXIT_EXPECTED);
}

static void first_thread_notify(void *ends)
{
    (void)sem_post(ends);
}

/* Continues the process after its first thread has ended. */
static void *thread_outlive(void *context)
{
    (void)context;
    while (sem_wait(&first_ends) != 0)
        continue;
    pause_ms(5);
    if (vmm_trim(cache, 0, NULL) != VMM_OK)
        fail("vmm_trim failed");
    exit(EXIT_EXPECTED);
}

static void thread_start(void *(*function)(void *context))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) != 0)
        fail("pthread_create failed");
}

static void first_thread_leave(void)
{
    pthread_key_t key;
    if (sem_init(&first_ends, 0, 0) != 0 || pthread_key_create(&key, first_thread_notify) != 0 ||
        pthread_setspecific(key, &first_ends) != 0)
        fail("sem_init or pthread_key_create failed");
    thread_start(thread_outlive);
    pthread_exit(NULL);
}

static void signal_exit(int signal)
{
    (void)signal;
    exit(EXIT_EXPECTED);
}

/* SIGALRM arrives while blocks are allocated and freed. */
static void signal_await(void)
{
    struct itimerval soon = { .it_value = { .tv_usec = 3000 } };
    (void)signal(SIGALRM, signal_exit);
    (void)signal(SIGTERM, signal_exit);
    (void)setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) {
        void *block;
        if (vmm_alloc(cache, (size_t)4 << 20, stream_of(0), &block) != VMM_OK ||
            vmm_free(cache, block) != VMM_OK || vmm_trim(cache, 0, NULL) != VMM_OK)
            fail("a call failed");
    }
}

static void way_take(const char *way)
{
    if (strcmp(way, "thread") == 0) {
        thread_start(thread_exit);
        (void)pause();
    } else if (strcmp(way, "first_thread") == 0) {
        first_thread_leave();
    } else if (strcmp(way, "signal") == 0) {
        signal_await();
    } else if (strcmp(way, "_exit") == 0) {
        _exit(EXIT_EXPECTED);
    } else if (strcmp(way, "destructor") == 0) {
        ends_with_cache = true;
    } else if (strcmp(way, "destroy") == 0) {
        may_be_lost = false;
        cache_destroy();
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
    config.decay_thread = strcmp(argv[3], "decay") == 0 ? VMM_ON : VMM_OFF;
    may_be_lost = config.driver == VMM_DRIVER_CUDA;
    if (strcmp(way, "atexit_before") == 0 && atexit(cache_destroy) != 0)
        fail("atexit failed");
    vmm_status status = vmm_create(&config, &cache);
    if (status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED) {
        (void)fprintf(stderr, "life_exit: %s\n", vmm_last_error());
        _exit(NO_DEVICE);
    }
    if (status != VMM_OK)
        fail("vmm_create failed");
    second_stream = second_stream_create(config.driver);
    if (second_stream == NULL)
        fail("no second stream");
    if (strcmp(way, "atexit_after") == 0 && atexit(cache_destroy) != 0)
        fail("atexit failed");
    state_enter(argv[3]);
    way_take(way);
    return EXIT_EXPECTED;
}
