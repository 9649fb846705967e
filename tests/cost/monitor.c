/*
 * What the monitor's thread costs: the time to read a cache of some streams and pools, as it does twice a second.
 * Reading must cost less than 200 ns for each lane (one stream in one pool), and 20 us beside that. The best of some
 * rounds counts: a busy machine only ever makes one longer.
 *
 * Ends with 1 if a bar is not met.
 */
#define _POSIX_C_SOURCE 200809L
#include "cost.h"

#include "api/monitor.h"
#include "base/time.h"

#define ROUNDS      50
#define NS_MOST     20000
#define NS_PER_LANE 200
#define BLOCK_BYTES ((size_t)3 << 20)

static uint64_t buffer[MONITOR_MOST_BYTES / sizeof(uint64_t)];

static void lanes_make(vmm_pool *pool, unsigned streams)
{
    for (unsigned i = 1; i <= streams; i++) {
        void *block = NULL;
        vmm_stream stream = (vmm_stream)(uintptr_t)(i * UINT64_C(64));
        cost_require(vmm_alloc_from(pool, BLOCK_BYTES, stream, &block) == VMM_OK, "an allocation");
    }
}

static uint64_t best_ns(vmm_cache *cache)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = vmm__time_ns();
        cost_require(vmm__monitor_read(cache, (char *)buffer, sizeof buffer) != NULL, "a reading");
        uint64_t ns = vmm__time_ns() - start;
        best = ns < best ? ns : best;
    }
    return best;
}

static bool bar_meets(unsigned streams, unsigned pools)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.driver = VMM_DRIVER_SIM;
    config.device_bytes = UINT64_C(1) << 40;
    cost_require(vmm_create(&config, &cache) == VMM_OK, "a cache");
    lanes_make(vmm_cache_pool(cache), streams);
    for (unsigned i = 1; i < pools; i++) {
        vmm_pool *pool = NULL;
        cost_require(vmm_pool_create(cache, NULL, &pool) == VMM_OK, "a pool");
        lanes_make(pool, streams);
    }
    uint64_t ns = best_ns(cache);
    uint64_t most = NS_MOST + (uint64_t)streams * pools * NS_PER_LANE;
    printf("%u streams in %u pools: %.1f us, at most %.1f\n", streams, pools, (double)ns / 1e3,
           (double)most / 1e3);
    cost_require(vmm_destroy(cache) == VMM_OK, "the end");
    return ns <= most;
}

static bool reading_bar(void)
{
    bool is_met = bar_meets(1, 1);
    is_met = bar_meets(16, 4) && is_met;
    is_met = bar_meets(64, 16) && is_met;
    is_met = bar_meets(1000, 1) && is_met;
    return is_met;
}

int main(void)
{
    return cost_bar_meets(reading_bar) ? 0 : 1;
}
