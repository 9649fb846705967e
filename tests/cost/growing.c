/*
 * The time of the host in vmm_commit(), outside of driver calls, on the sim driver: at most 3 microseconds for 16 MiB
 * of a block of 64 GiB. The best of several rounds counts, because other load only makes rounds longer.
 *
 * Exits with 1 if the bar is not met.
 */
#define _POSIX_C_SOURCE 200809L
#include "cache/cache.h"
#include "cost.h"

#include <time.h>

enum { ROUNDS = 5, COMMITS = 1000 };
#define UNIT_BYTES (16 * COST_MIB)
#define NS_MOST    3000.0

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The host's nanoseconds a commit, without the driver's. */
static double commits_time(void)
{
    void *block = NULL;
    vmm_cache *cache = cost_cache_create();
    cost_require(vmm_reserve(vmm_cache_pool(cache), 64 * COST_GIB, UNIT_BYTES, NULL, &block) ==
                     VMM_OK,
                 "vmm_reserve");
    double driver_ns = (double)vmm__driver_host_ns(cache->driver);
    double start_ns = now_ns();
    for (size_t i = 0; i < COMMITS; i++)
        cost_require(vmm_commit(cache, block, i * UNIT_BYTES, UNIT_BYTES) == VMM_OK, "vmm_commit");
    double ns = now_ns() - start_ns - ((double)vmm__driver_host_ns(cache->driver) - driver_ns);
    cost_free(cache, block);
    cost_cache_end(cache);
    return ns / COMMITS;
}

static bool commit_bar(void)
{
    double least_ns = commits_time();
    for (int i = 1; i < ROUNDS; i++) {
        double ns = commits_time();
        least_ns = ns < least_ns ? ns : least_ns;
    }
    bool met = least_ns <= NS_MOST;
    printf("commit of 16 MiB of 64 GiB         %8.1f ns of the host, at most %.0f ns: %s\n",
           least_ns, NS_MOST, met ? "met" : "NOT MET");
    return met;
}

int main(void)
{
    return cost_bar_meets(commit_bar) ? EXIT_SUCCESS : EXIT_FAILURE;
}
