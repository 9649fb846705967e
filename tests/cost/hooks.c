/*
 * The cost of PyTorch's hooks beside the calls that they make: the same pairs of an allocation and a free through both,
 * on the sim driver.
 *
 * usage: hooks BYTES|recorded|class COUNT   makes COUNT pairs through the hooks, for callgrind to count; recorded:
 *                                           pairs of 512 bytes while a history is recorded; class: of 512 bytes, as
 *                                           PyTorch's allocator class makes them
 *        hooks times                        prints the best round of each
 */
#define _POSIX_C_SOURCE 200809L
#include "cost.h"

#include "vmmcache/torch_provider.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

#define ROUNDS  15
#define PAIRS   100000
#define ENTRIES 100000

static void hooks_open(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    config.device_bytes = 192 * COST_GIB;
    cost_require(vmm_torch_configure(&config) == VMM_OK, "vmm_torch_configure");
    cost_require(vmm_torch_try_alloc(0, 0, NULL) == NULL, "vmm_torch_try_alloc");
}

static void hooks_run(size_t bytes, unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        vmm_torch_free(vmm_torch_alloc(bytes, 0, NULL), bytes, 0, NULL);
}

static void calls_run(size_t bytes, unsigned long count)
{
    vmm_cache *cache = vmm_torch_cache(0);
    for (unsigned long i = 0; i < count; i++)
        cost_free(cache, cost_alloc(cache, bytes));
}

/* A free passes the address alone. */
static void class_run(size_t bytes, unsigned long count)
{
    const vmm_torch_functions *functions = vmm_torch_provider();
    for (unsigned long i = 0; i < count; i++) {
        void *block = NULL;
        vmm_torch_freed freed;
        cost_require(functions->allocate(bytes, 0, NULL, &block) == VMM_OK, "allocate");
        cost_require(functions->release(block, &freed) == VMM_OK, "release");
    }
}

static void recording_begin(void)
{
    cost_require(vmm_torch_history_start(ENTRIES, NULL, 0) == VMM_OK, "vmm_torch_history_start");
}

static double round_ns(void (*pairs_run)(size_t bytes, unsigned long count), size_t bytes)
{
    struct timespec start;
    struct timespec end;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    pairs_run(bytes, PAIRS);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) /
           PAIRS;
}

static void times_report(const char *what, void (*pairs_run)(size_t bytes, unsigned long count),
                         size_t bytes)
{
    double calls = round_ns(calls_run, bytes), hooks = round_ns(pairs_run, bytes);
    for (unsigned i = 0; i < ROUNDS; i++) {
        double call = round_ns(calls_run, bytes), hook = round_ns(pairs_run, bytes);
        calls = call < calls ? call : calls;
        hooks = hook < hooks ? hook : hooks;
    }
    printf("%-24s calls %7.1f ns, hooks %7.1f ns, difference %6.1f ns\n", what, calls, hooks,
           hooks - calls);
}

int main(int argc, char **argv)
{
    hooks_open();
    hooks_run(512, 1);
    if (argc == 2 && strcmp(argv[1], "times") == 0) {
        times_report("pair of 512 B", hooks_run, 512);
        times_report("pair of 2.5 MiB", hooks_run, 2621440);
        times_report("pair of 512 B, class", class_run, 512);
        recording_begin();
        times_report("pair of 512 B, recorded", hooks_run, 512);
        return 0;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: hooks BYTES|recorded|class COUNT, or hooks times\n");
        return 2;
    }
    unsigned long count = strtoul(argv[2], NULL, 10);
    bool is_recorded = strcmp(argv[1], "recorded") == 0;
    if (is_recorded)
        recording_begin();
    if (strcmp(argv[1], "class") == 0)
        class_run(512, count);
    else
        hooks_run(is_recorded ? 512 : strtoul(argv[1], NULL, 10), count);
    return 0;
}
