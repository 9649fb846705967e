/* One chapter of the soak: see soak.h. */
#include "soak.h"

#include "base/arith.h"
#include "base/hostmem.h"
#include "driver/sim.h"

#include <string.h>

#define MIB UINT64_C(1048576)

enum {
    LAG_MOST = 20000,
    LOOK_EVERY = 256,   /* at violations */
    CHECK_EVERY = 4096, /* all invariants */
    CHAPTER_LEAST = 10000,
    CHAPTER_MOST = 60000
};

/* ---- Settings -------------------------------------------------------------------------------- */

static int pressure_relieved(void *context, size_t bytes)
{
    struct soak *soak = context;
    (void)bytes;
    struct soak_block *block = soak_block_any(soak);
    if (block == NULL || soak_dice(soak, 8))
        return 0;
    soak_block_give(soak, block);
    return 1;
}

/* How much memory there is: plenty, plenty of it under a limit, or about as much as is live. */
static void memory_drawn(struct soak *soak, struct soak_settings *settings)
{
    uint64_t percent = random_between(&soak->random, 85, 115);
    uint64_t scarce = settings->live_bytes / 100 * percent + 4 * MIB;
    switch (random_next(&soak->random) % 6) {
    case 0:
    case 1:
        settings->config.limit_bytes = scarce;
        break;
    case 2:
        settings->device_bytes = scarce;
        settings->config.arena_bytes = soak_dice(soak, 2); /* 1: as few addresses as may be */
        break;
    case 3:
        settings->config.limit_bytes = 4 * scarce;
        break;
    default:
        return;
    }
    settings->may_fail = true;
    settings->may_stall = true;
}

/* An operation takes a microsecond. */
static uint64_t clock_read(void *context)
{
    const struct soak *soak = context;
    return soak->done * 1000;
}

static void decay_drawn(struct soak *soak, vmm_config *config)
{
    config->decay_ms = (uint32_t)random_between(&soak->random, 1, 10);
    config->decay_keep_bytes = soak_dice(soak, 2) ? 0 : soak_log_between(soak, MIB, 1024 * MIB);
    config->clock = clock_read;
    config->clock_context = soak;
}

static struct soak_settings settings_drawn(struct soak *soak)
{
    static const uint32_t footprints[] = { 0, 0, 1, 5, 50, 200, 1000, VMM_FOOTPRINT_ANY };
    struct soak_settings settings = { .config = VMM_CONFIG_INIT };
    vmm_config *config = &settings.config;
    settings.live_bytes = soak->is_short ? soak_log_between(soak, 16 * MIB, 512 * MIB)
                                         : soak_log_between(soak, 64 * MIB, 12288 * MIB);
    settings.streams = (unsigned)random_between(&soak->random, 1, SOAK_STREAMS);
    settings.slots = (unsigned)soak_log_between(soak, 16, soak->is_short ? 64 : SOAK_BLOCKS);
    settings.operations = random_between(&soak->random, CHAPTER_LEAST, CHAPTER_MOST);
    memory_drawn(soak, &settings);
    config->footprint_permille = footprints[random_next(&soak->random) % 8];
    config->sharing = (vmm_sharing)(random_next(&soak->random) % 2);
    config->compaction = (vmm_compaction)(random_next(&soak->random) % 3);
    config->no_caching = soak_dice(soak, 24);
    if (soak_dice(soak, 3))
        decay_drawn(soak, config);
    if (config->compaction != VMM_COMPACTION_OFF)
        settings.may_stall = true;
    if (soak_dice(soak, 3)) {
        config->pressure = pressure_relieved;
        config->pressure_context = soak;
    }
    settings.has_order = !soak_dice(soak, 3);
    settings.has_graphs = settings.streams > 1 && soak_dice(soak, 2);
    if (settings.has_graphs)
        settings.may_stall = true; /* to release one waits for the device */
    return settings;
}

/* When work finishes: by lag, or in an order that changes with each draw. */
static void finish_drawn(struct soak *soak)
{
    if (soak->settings.has_order) {
        enum order_kind kind = (enum order_kind)(random_next(&soak->random) % ORDER_KINDS);
        soak->order = order_make(kind, random_next(&soak->random), soak->settings.streams);
        order_begin(soak->driver, &soak->order);
        return;
    }
    uint64_t lag = soak_dice(soak, 4) ? 0 : soak_log_between(soak, 1, LAG_MOST);
    vmm__sim_lag_set(soak->driver, lag);
}

/* ---- What must hold -------------------------------------------------------------------------- */

static void violations_looked_at(struct soak *soak)
{
    const char *story;
    uint64_t violations = vmm__sim_violations(soak->driver, &story);
    if (violations == 0 || soak_is_troubled(soak))
        return;
    soak->sums.violations += violations;
    soak_trouble(soak, "%llu violations, first: %s", (unsigned long long)violations, story);
}

static vmm_stats stats_read(struct soak *soak)
{
    vmm_stats stats = VMM_STATS_INIT;
    soak_expect(soak, "vmm_stats_get", vmm_stats_get(soak->cache, &stats));
    return stats;
}

static void invariants_checked(struct soak *soak)
{
    soak_expect(soak, "vmm__cache_check", vmm__cache_check(soak->cache));
    vmm_stats stats = stats_read(soak);
    if (stats.requested_bytes.current != soak->live_bytes ||
        stats.allocations.current != soak->live_blocks)
        soak_trouble(soak, "the cache counts %llu bytes in %llu live blocks, not %llu in %llu",
                     (unsigned long long)stats.requested_bytes.current,
                     (unsigned long long)stats.allocations.current,
                     (unsigned long long)soak->live_bytes, (unsigned long long)soak->live_blocks);
    uint64_t limit = soak->settings.config.limit_bytes;
    if (limit != 0 && stats.reserved_bytes.peak > limit)
        soak_trouble(soak, "%llu bytes were reserved under a limit of %llu",
                     (unsigned long long)stats.reserved_bytes.peak, (unsigned long long)limit);
    if (!soak->settings.may_stall && stats.stalls != 0)
        soak_trouble(soak, "the host waited %llu times for the device, without a limit",
                     (unsigned long long)stats.stalls);
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void slot_turned(struct soak *soak)
{
    struct soak_block *block = &soak->blocks[random_next(&soak->random) % soak->settings.slots];
    if (block->address == NULL)
        soak_block_take(soak, block);
    else
        soak_block_give(soak, block);
}

static void cache_trimmed(struct soak *soak)
{
    uint64_t keep = soak_dice(soak, 2) ? 0 : random_next(&soak->random) % (soak->live_bytes + 1);
    soak_expect(soak, "vmm_trim", vmm_trim(soak->cache, keep, NULL));
}

static void operation(struct soak *soak)
{
    uint64_t dice = random_next(&soak->random) % 4096;
    struct soak_block *block = dice < 2400 ? NULL : soak_block_any(soak);
    if (soak->settings.has_graphs && soak_dice(soak, 12))
        soak_graph_operation(soak);
    else if (dice < 4)
        cache_trimmed(soak);
    else if (dice < 8)
        finish_drawn(soak);
    else if (dice < 16)
        soak_expect(soak, "vmm_tick", vmm_tick(soak->cache));
    else if (dice < 40 || (soak->is_short && soak_dice(soak, 32)))
        soak_stream_turn(soak);
    else if (block == NULL)
        slot_turned(soak);
    else if (dice < 3400)
        soak_block_use(soak, block);
    else if (dice < 3900)
        soak_block_touch(soak, block);
    else
        soak_block_pin(soak, block);
}

static void operations_run(struct soak *soak, uint64_t most,
                           void (*step)(void *context, uint64_t done), void *context)
{
    for (uint64_t i = 1; i <= most && !soak_is_troubled(soak); i++) {
        operation(soak);
        soak->done++;
        if (i % LOOK_EVERY == 0) {
            violations_looked_at(soak);
            step(context, soak->done);
        }
        if (i % CHECK_EVERY == 0)
            invariants_checked(soak);
    }
}

/* ---- A chapter ------------------------------------------------------------------------------- */

static void chapter_open(struct soak *soak)
{
    struct driver_options options = { .device_bytes = soak->settings.device_bytes };
    soak_expect(soak, "driver open", vmm__driver_sim_open(&options, &soak->driver));
    if (soak_is_troubled(soak))
        return;
    soak_lie_begin(soak);
    for (unsigned i = 1; i < SOAK_STREAMS; i++) /* the first is the default stream */
        soak_expect(soak, "stream create",
                    vmm__driver_stream_create(soak->driver, &soak->streams[i]));
    soak_expect(soak, "event create", vmm__driver_event_create(soak->driver, &soak->event));
    soak_expect(soak, "cache create",
                vmm__cache_create_on(&soak->settings.config, soak->driver, &soak->cache));
    finish_drawn(soak);
}

/* Everything live goes; then nothing may be left. */
static void chapter_empty(struct soak *soak)
{
    uint64_t places = 0;
    soak_stream_renew(soak);
    soak_graphs_end(soak);
    for (unsigned i = 0; i < soak->settings.slots; i++) {
        if (soak->blocks[i].address != NULL)
            soak_block_give(soak, &soak->blocks[i]);
    }
    soak_expect(soak, "mismatches", vmm__driver_mismatches(soak->driver, &places));
    soak->sums.mismatches += places;
    if (places != 0)
        soak_trouble(soak, "%llu places differ, first: %s", (unsigned long long)places,
                     vmm__sim_mismatch(soak->driver));
    invariants_checked(soak);
    soak_expect(soak, "vmm_trim", vmm_trim(soak->cache, 0, NULL));
    vmm_stats stats = stats_read(soak);
    if (stats.active_bytes.current != 0 || stats.reserved_bytes.current != 0 ||
        stats.unmovable_bytes != 0 || stats.kept_bytes != 0)
        soak_trouble(soak, "%llu bytes active and %llu reserved after everything was given back",
                     (unsigned long long)stats.active_bytes.current,
                     (unsigned long long)stats.reserved_bytes.current);
}

static void chapter_summed(struct soak *soak)
{
    vmm_stats stats = stats_read(soak);
    soak->sums.chapters++;
    soak->sums.moves += stats.map_calls - stats.create_calls;
    soak->sums.stream_waits += stats.stream_waits;
    soak->sums.stalls += stats.stalls;
    soak->sums.ooms += stats.ooms;
    soak->sums.pressure_calls += stats.pressure_calls;
    soak->sums.compactions += stats.compactions;
}

static void chapter_close(struct soak *soak)
{
    static const struct sim_census zero = { 0 };
    soak_expect(soak, "vmm_destroy", vmm_destroy(soak->cache));
    soak_expect(soak, "event destroy", vmm__driver_event_destroy(soak->driver, soak->event));
    struct sim_census census = vmm__sim_census(soak->driver);
    if (memcmp(&census, &zero, sizeof zero) != 0)
        soak_trouble(soak, "the device has %llu handles, %llu mappings and %llu events left",
                     (unsigned long long)census.handles, (unsigned long long)census.mappings,
                     (unsigned long long)census.events);
    violations_looked_at(soak);
    vmm__driver_close(soak->driver);
    if (vmm__host_outstanding() != 0)
        soak_trouble(soak, "%llu bytes of host memory are left",
                     (unsigned long long)vmm__host_outstanding());
}

/* After a lie nothing is expected any more. */
static void chapter_drop(struct soak *soak)
{
    (void)vmm_destroy(soak->cache);
    vmm__driver_close(soak->driver);
}

void soak_chapter(struct soak *soak, uint64_t most, void (*step)(void *context, uint64_t done),
                  void *context)
{
    soak->settings = settings_drawn(soak);
    chapter_open(soak);
    if (soak_is_troubled(soak))
        return;
    operations_run(soak, vmm__min(most, soak->settings.operations), step, context);
    violations_looked_at(soak);
    if (!soak_is_troubled(soak)) {
        chapter_empty(soak);
        chapter_summed(soak);
        chapter_close(soak);
    } else if (soak->lie != LIE_NONE) {
        chapter_drop(soak); /* else what is left only shows the same trouble again */
    }
}
