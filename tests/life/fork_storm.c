/*
 * fork_storm FORKS: eight threads allocate, fill, check and free blocks of host memory, and fork, FORKS times together.
 * Each child's calls on the cache are refused at once, whatever locks the other threads held, and the child exits.
 * Exits with 0 if nothing failed.
 */
#define _GNU_SOURCE
#include "life/child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, SLOTS = 12, ROUNDS = 40, CALL_NS = 1000000 };

struct block {
    unsigned char *address;
    size_t bytes;
    unsigned char byte;
};

static vmm_cache *cache;
static atomic_long forks_left;
static atomic_ulong forked;
static atomic_ulong operations;
static atomic_bool has_failed;

static void report_failure(const char *what)
{
    (void)fprintf(stderr, "fork_storm: %s; last error: %s\n", what, vmm_last_error());
    atomic_store(&has_failed, true);
}

/* ---- Children ----------------------------------------------------------------------------------- */

static void child_calls(const struct block *block)
{
    void *out = NULL;
    size_t released;
    vmm_stats stats = VMM_STATS_INIT;
    CHILD_REQUIRES(vmm_alloc(cache, 4096, NULL, &out) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_free(cache, block->address) ==
                   (block->address == NULL ? VMM_OK : VMM_ERR_FORKED));
    CHILD_REQUIRES(vmm_trim(cache, 0, &released) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_stats_get(cache, &stats) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_ERR_FORKED);
}

/* A busy machine may make calls slow, but not three times. */
static void child_try_calls(void *context)
{
    uint64_t took = UINT64_MAX;
    for (int tried = 0; tried < 3 && took >= 5 * CALL_NS; tried++) {
        uint64_t begin = thread_ns();
        child_calls(context);
        took = thread_ns() - begin;
    }
    CHILD_REQUIRES(took < 5 * CALL_NS);
}

static void fork_once(struct block *block)
{
    if (!child_ended(child_begun(child_try_calls, block), 0))
        report_failure("a child failed");
    atomic_fetch_add(&forked, 1);
}

/* ---- The parent ----------------------------------------------------------------------------------- */

static bool is_filled(const struct block *block)
{
    return block->address[0] == block->byte && block->address[block->bytes - 1] == block->byte &&
           memcmp(block->address, block->address + 1, block->bytes - 1) == 0;
}

static void block_toggle(struct block *block, unsigned *seed, vmm_stream stream)
{
    if (block->address != NULL) {
        if (!is_filled(block))
            report_failure("the contents of a block changed");
        if (vmm_free(cache, block->address) != VMM_OK)
            report_failure("vmm_free failed");
        block->address = NULL;
        return;
    }
    void *address;
    block->bytes = 2 + (size_t)rand_r(seed) % (rand_r(seed) % 8 == 0 ? 1500000 : 9000);
    block->byte = (unsigned char)rand_r(seed);
    if (vmm_alloc(cache, block->bytes, stream, &address) != VMM_OK) {
        report_failure("vmm_alloc failed");
        return;
    }
    block->address = address;
    memset(address, block->byte, block->bytes);
}

static void *thread_main(void *context)
{
    unsigned number = *(const unsigned *)context;
    unsigned seed = number;
    struct block blocks[SLOTS] = { { .address = NULL } };
    vmm_stream stream = (vmm_stream)(uintptr_t)(number % 3 * 16); /* threads share lanes */
    while (!atomic_load(&has_failed) && atomic_fetch_sub(&forks_left, 1) > 0) {
        for (int i = 0; i < ROUNDS; i++)
            block_toggle(&blocks[(unsigned)rand_r(&seed) % SLOTS], &seed, stream);
        if (rand_r(&seed) % 4 == 0 && vmm_trim(cache, 0, NULL) != VMM_OK)
            report_failure("vmm_trim failed");
        atomic_fetch_add(&operations, ROUNDS);
        fork_once(&blocks[0]);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (blocks[i].address != NULL)
            block_toggle(&blocks[i], &seed, stream);
    }
    return NULL;
}

static bool storm_run(void)
{
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i + 1;
        if (pthread_create(&threads[i], NULL, thread_main, &numbers[i]) != 0)
            return false;
    }
    for (unsigned i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    return !atomic_load(&has_failed);
}

int main(int argc, char **argv)
{
    long forks = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (forks <= 0) {
        (void)fprintf(stderr, "usage: fork_storm FORKS\n");
        return 2;
    }
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_HOST;
    config.device_bytes = 512 * MIB;
    config.decay_ms = 5;
    config.decay_thread = 1;
    atomic_store(&forks_left, forks);
    if (vmm_create(&config, &cache) != VMM_OK) {
        report_failure("vmm_create failed");
        return 1;
    }
    bool is_well = storm_run();
    is_well = vmm_destroy(cache) == VMM_OK && is_well;
    (void)printf("%lu forks of %d threads, %lu operations of the parent: %s\n",
                 atomic_load(&forked), THREADS, atomic_load(&operations),
                 is_well ? "ok" : "FAILED");
    return is_well ? 0 : 1;
}
