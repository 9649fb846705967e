/*
 * Measures on the sim driver what fragtest cannot show, for bars.py: planning in a large cache, a compaction between
 * freed blocks, growth and trims of 32 GiB. Writes a line for each figure: a name, a blank, and a value.
 *
 * usage: bars_scenes planning|compact|growth
 */
#include "fragtest/policies/policy.h"
#include "fragtest/replay/timing.h"
#include "fragtest/trace/random.h"

#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "error: %s: %s\n", what, vmm_last_error());
    exit(2);
}

static vmm_cache *cache_create(uint32_t footprint_permille, uint64_t limit_bytes)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;

    config.driver = VMM_DRIVER_SIM;
    config.footprint_permille = footprint_permille;
    config.limit_bytes = limit_bytes;
    require(vmm_create(&config, &cache) == VMM_OK, "vmm_create");
    return cache;
}

static vmm_stats stats_of(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;

    require(vmm_stats_get(cache, &stats) == VMM_OK, "vmm_stats_get");
    return stats;
}

static void *block_alloc(vmm_cache *cache, uint64_t bytes)
{
    void *block = NULL;

    require(vmm_alloc(cache, bytes, NULL, &block) == VMM_OK, "vmm_alloc");
    return block;
}

static void block_free(vmm_cache *cache, void *block)
{
    require(vmm_free(cache, block) == VMM_OK, "vmm_free");
}

/* ---- Planning -------------------------------------------------------------------------------- */

/* Default chunks for 130 GiB are about 5000. Plans are measured while the views grow from 150 to 250. */
enum { PLANNING_BLOCKS = 4096, PLANNING_STEP = 50, VIEWS_FIRST = 150, VIEWS_LAST = 250 };
#define PLANNING_LIVE  (130 * GIB)
#define PLANNING_CHUNK (28 * MIB)

struct planning {
    vmm_cache *cache;
    void *blocks[PLANNING_BLOCKS];
    uint64_t bytes[PLANNING_BLOCKS];
    uint64_t live_bytes;
    uint64_t random;
};

/* Frees a random block, and allocates one of another size if it fits. */
static void planning_round(struct planning *planning)
{
    uint64_t at = random_between(&planning->random, 0, PLANNING_BLOCKS - 1);

    if (planning->blocks[at] != NULL) {
        block_free(planning->cache, planning->blocks[at]);
        planning->live_bytes -= planning->bytes[at];
        planning->blocks[at] = NULL;
    }
    uint64_t bytes = (2 * MIB) << random_between(&planning->random, 0, 5);
    bytes += random_between(&planning->random, 0, bytes / 512) * 512;
    if (planning->live_bytes + bytes > PLANNING_LIVE)
        return;
    planning->blocks[at] = block_alloc(planning->cache, bytes);
    planning->bytes[at] = bytes;
    planning->live_bytes += bytes;
}

static void planning_fill(vmm_cache *cache)
{
    enum { CHUNKS = PLANNING_LIVE / PLANNING_CHUNK };
    static void *chunks[CHUNKS];

    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = block_alloc(cache, PLANNING_CHUNK);
    for (unsigned i = 0; i < CHUNKS; i++)
        block_free(cache, chunks[i]);
}

/* Goes on until there are so many views. */
static vmm_stats planning_grow(struct planning *planning, uint64_t views)
{
    vmm_stats stats = stats_of(planning->cache);

    while (stats.views < views) {
        for (unsigned i = 0; i < PLANNING_STEP; i++)
            planning_round(planning);
        stats = stats_of(planning->cache);
    }
    return stats;
}

static int planning_run(void)
{
    static struct planning planning = { .random = 1 };

    planning.cache = cache_create(0, 0);
    planning_fill(planning.cache);
    vmm_stats before = planning_grow(&planning, VIEWS_FIRST);
    vmm_stats after = planning_grow(&planning, VIEWS_LAST);
    uint64_t plans = after.plans - before.plans;
    (void)printf("chunks %" PRIu64 "\nviews %" PRIu64 "\nplan_us %.2f\n", after.chunks.current,
                 after.views,
                 (double)(after.planning_ns - before.planning_ns) / 1e3 / (double)plans);
    return 0;
}

/* ---- A compaction between freed blocks ------------------------------------------------------- */

#define COMPACT_BYTES (2 * MIB)
#define COMPACT_LIMIT (12 * GIB + GIB / 5)
enum { COMPACT_BLOCKS = 12 * GIB / COMPACT_BYTES };

/* Allocates blocks until a request fails. */
static uint64_t bytes_had(vmm_cache *cache, uint64_t bytes)
{
    uint64_t had = 0;
    void *block;

    while (vmm_alloc(cache, bytes, NULL, &block) == VMM_OK)
        had += bytes;
    return had;
}

static int compact_run(void)
{
    static void *blocks[COMPACT_BLOCKS];
    vmm_cache *cache = cache_create(0, COMPACT_LIMIT);
    uint64_t moved = 0;

    for (unsigned i = 0; i < COMPACT_BLOCKS; i++)
        blocks[i] = block_alloc(cache, COMPACT_BYTES);
    for (unsigned i = 0; i < COMPACT_BLOCKS; i += 2)
        block_free(cache, blocks[i]);
    uint64_t driver_ns = stats_of(cache).driver_ns;
    uint64_t start_ns = vmm__time_ns();
    require(vmm_compact(cache, 0, &moved, NULL) == VMM_OK, "vmm_compact");
    uint64_t host_ns = vmm__time_ns() - start_ns;
    driver_ns = stats_of(cache).driver_ns - driver_ns;
    uint64_t large = bytes_had(cache, 512 * MIB);
    uint64_t small = bytes_had(cache, 64 * MIB);
    (void)printf("compact_driver_ms %.1f\ncompact_host_ms %.1f\nmoved_mib %.0f\n"
                 "had_512_mib %.0f\nhad_64_mib %.0f\n",
                 (double)driver_ns / 1e6, (double)host_ns / 1e6, (double)moved / (double)MIB,
                 (double)large / (double)MIB, (double)small / (double)MIB);
    return 0;
}

/* ---- Growth and trim ------------------------------------------------------------------------- */

#define GROWTH_BYTES (32 * GIB)
enum { GROWTH_MOST = GROWTH_BYTES / (2 * MIB) };

static void growth_measure(struct driver *driver, const struct policy_ops *ops, uint64_t bytes)
{
    static struct policy_place places[GROWTH_MOST];
    vmm_stream streams[1] = { NULL };
    struct policy_setup setup = { .driver = driver, .streams = streams, .stream_count = 1 };
    struct policy *policy;
    struct timing timing;
    uint64_t count = GROWTH_BYTES / bytes;

    require(ops->open(ops, &setup, &policy) == VMM_OK, ops->name);
    timing_begin(&timing, driver);
    timing_pass(&timing);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t start_ns = vmm__time_ns();
        require(ops->alloc(policy, bytes, 0, &places[i]) == VMM_OK, ops->name);
        timing_call(&timing, start_ns);
    }
    double growth_ns = timing_pass_ns(&timing);
    for (uint64_t i = 0; i < count; i++)
        require(ops->free(policy, places[i]) == VMM_OK, ops->name);
    timing_pass(&timing);
    uint64_t start_ns = vmm__time_ns();
    require(ops->trim(policy) == VMM_OK, ops->name);
    timing_call(&timing, start_ns);
    (void)printf("%s_%" PRIu64 "_growth_ms %.2f\n%s_%" PRIu64 "_trim_ms %.2f\n", ops->name,
                 bytes / MIB, growth_ns / 1e6, ops->name, bytes / MIB,
                 timing_pass_ns(&timing) / 1e6);
    require(ops->close(policy) == VMM_OK, ops->name);
}

static int growth_run(void)
{
    static const uint64_t sizes[] = { 2 * MIB, 32 * MIB, GIB };
    struct driver_options options = { 0 };
    struct driver *driver;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned k = 0; k < POLICY_COUNT; k++) {
            require(vmm__driver_open(VMM_DRIVER_SIM, &options, &driver) == VMM_OK, "sim");
            growth_measure(driver, policy_at(k), sizes[i]);
            vmm__driver_close(driver);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "planning") == 0)
        return planning_run();
    if (argc == 2 && strcmp(argv[1], "compact") == 0)
        return compact_run();
    if (argc == 2 && strcmp(argv[1], "growth") == 0)
        return growth_run();
    (void)fprintf(stderr, "usage: bars_scenes planning|compact|growth\n");
    return 2;
}
