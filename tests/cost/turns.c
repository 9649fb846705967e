/*
 * What a pair of calls costs while streams take turns: one thread allocates 2 MiB and frees them on one of 4 streams
 * after the other, then on 64, on the sim driver. Once they have taken the memory from each other often enough, each
 * stream keeps a block of its own: a pair costs at most 20 times as much as on one stream, and the cache has reserved a
 * block for each at most. If each pair takes another stream's memory, it costs 60 to 100 times as much. The best of
 * some rounds counts.
 *
 * Ends with 1 if a bar is not met.
 */
#define _POSIX_C_SOURCE 200809L
#include "cost.h"

#include <time.h>

#define FIRST_STREAM 0x1000
#define BLOCK_BYTES  (2 * COST_MIB)
#define PAIRS        4096
#define ROUNDS       30
#define RATIO_MOST   20.0

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double pair_ns(vmm_cache *cache, uintptr_t streams)
{
    double start = now_ns();
    for (uintptr_t i = 0; i < PAIRS; i++) {
        void *block;
        vmm_stream stream = (vmm_stream)(FIRST_STREAM + i % streams);
        cost_require(vmm_alloc(cache, BLOCK_BYTES, stream, &block) == VMM_OK, "vmm_alloc");
        cost_free(cache, block);
    }
    return (now_ns() - start) / PAIRS;
}

static double best_ns(vmm_cache *cache, uintptr_t streams)
{
    double best = pair_ns(cache, streams);
    for (int i = 1; i < ROUNDS; i++) {
        double ns = pair_ns(cache, streams);
        best = ns < best ? ns : best;
    }
    return best;
}

static bool turns_bar_of(uintptr_t streams)
{
    vmm_cache *cache = cost_cache_create();
    vmm_stats stats = VMM_STATS_INIT;
    double one = best_ns(cache, 1);
    double turns = best_ns(cache, streams);
    cost_require(vmm_stats_get(cache, &stats) == VMM_OK, "vmm_stats_get");
    cost_cache_end(cache);
    bool is_met =
        turns <= RATIO_MOST * one && stats.reserved_bytes.current <= streams * BLOCK_BYTES;
    printf("ns a pair: %.0f on one stream, %.0f on %u in turn: %.1f times, at most %.0f; reserved "
           "%llu blocks: %s\n",
           one, turns, (unsigned)streams, turns / one, RATIO_MOST,
           (unsigned long long)(stats.reserved_bytes.current / BLOCK_BYTES),
           is_met ? "met" : "NOT MET");
    return is_met;
}

static bool turns_bar(void)
{
    bool is_met = turns_bar_of(4);
    return turns_bar_of(64) && is_met;
}

int main(void)
{
    return cost_bar_meets(turns_bar) ? 0 : 1;
}
