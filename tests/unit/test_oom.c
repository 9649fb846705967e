/* The oom report: what needs the memory, and what would help. */
#include "support/policy_support.h"

#include "cache/pool/pools.h"
#include "cache/reclaim/oom_report.h"

#include <string.h>

/* The report of a request that needs `granules` from the driver. */
static const char *report(struct scene *scene, uint64_t granules)
{
    struct oom oom = { .status = VMM_ERR_DEVICE_OOM,
                       .lane = scene->lane,
                       .bytes = granules * GRANULE,
                       .grow_bytes = granules * GRANULE };
    vmm__fair_lock(&scene->cache->grow_lock);
    vmm__lane_lock(scene->lane);
    assert_status(vmm__oom_report(scene->cache, &oom), VMM_ERR_DEVICE_OOM);
    vmm__lane_unlock(scene->lane);
    vmm__fair_unlock(&scene->cache->grow_lock);
    return vmm_last_error();
}

static void assert_says(const char *line, const char *part)
{
    if (strstr(line, part) == NULL)
        fail_msg("'%s' is not in: %s", part, line);
}

static void assert_silent(const char *line, const char *part)
{
    if (strstr(line, part) != NULL)
        fail_msg("'%s' is in: %s", part, line);
}

/* ---- Free memory --------------------------------------------------------------------------- */

/* Chunks 0 to 5 of 4 granules: a free one, one with a hole inside, one with two holes, holes across chunk borders. */
POLICY_TEST(pinned_chunks_are_counted_once)
{
    struct heap *heap = &scene->other->large;
    static const struct {
        uint64_t granules;
        bool is_live;
    } parts[] = {
        { 4, false },                             /* chunk 0 */
        { 1, true },  { 2, false }, { 1, true },  /* 1 */
        { 1, false }, { 1, true },  { 1, false }, /* 2 */
        { 1, true },  { 3, true },                /* 2, 3 */
        { 7, false }, { 1, true },                /* 3, 4 and 5 */
    };
    enum { PARTS = sizeof parts / sizeof parts[0] };
    struct block *blocks[PARTS];
    struct block *rest = extent(scene, heap, 0, 24, 4);
    for (int i = 0; i < PARTS; i++) {
        blocks[i] = block_make_live(heap, rest, parts[i].granules * GRANULE);
        rest = blocks[i]->next;
    }
    for (int i = 0; i < PARTS; i++) {
        if (!parts[i].is_live)
            (void)vmm__heap_give(heap, blocks[i]);
    }
    vmm_stats stats = stats_of(scene->cache);
    assert_int_equal(stats.idle_bytes, 8 * GRANULE);
    assert_int_equal(stats.pinned_bytes, 8 * GRANULE); /* 2, 2, 1 and 3 in chunks 1, 2, 3 and 5 */
    assert_says(report(scene, 40), "16.0 MiB idle (0 KiB in flight), 16.0 MiB pinned beside live "
                                   "blocks (most by stream 0x102: 16.0 MiB)");
}

POLICY_TEST(the_report_names_the_stream_that_pins_most)
{
    struct heap *heaps[] = { &scene->lane->large, &scene->other->large, &scene->other->small };
    for (uint64_t i = 0; i < 3; i++)
        (void)block_make_live(heaps[i], extent(scene, heaps[i], 10 * i, 1, 1), GRANULE / 2);
    assert_says(report(scene, 40), "3.0 MiB pinned beside live blocks (most by stream "
                                   "0x102: 2.0 MiB)");
}

POLICY_TEST(the_report_names_the_default_stream_in_words)
{
    struct lane *lane;
    assert_ok(vmm__stream_lane(scene->cache, NULL, &lane));
    struct heap *heap = &lane->large;
    (void)block_make_live(heap, extent(scene, heap, 20, 1, 1), GRANULE / 2);
    scene->lane = lane;
    const char *line = report(scene, 40);
    assert_says(line, "needed 80.0 MiB on the default stream: ");
    assert_says(line, "1.0 MiB pinned beside live blocks (most by the default stream: 1.0 MiB)");
}

POLICY_TEST(no_stream_is_named_without_pinned_memory)
{
    (void)extent(scene, &scene->lane->large, 0, 4, 2);
    const char *line = report(scene, 40);
    assert_says(line, "8.0 MiB idle (0 KiB in flight), largest hole 8.0 MiB");
    assert_silent(line, "pinned");
}

POLICY_TEST(the_report_shows_idle_memory_in_flight)
{
    struct heap *other = &scene->other->large;
    struct block *block = block_make_live(other, extent(scene, other, 20, 4, 1), 3 * GRANULE);
    (void)block_free_busy(scene, other, block);
    assert_says(report(scene, 40), "8.0 MiB idle (6.0 MiB in flight)");
}

/* ---- The cause ------------------------------------------------------------------------- */

POLICY_TEST(raising_the_limit_by_the_reported_bytes_suffices)
{
    struct vm *memory = &scene->cache->vm;
    void *more;
    memory->limit_bytes = 9 * GRANULE + 12345;
    (void)block_in(scene->cache, 5 * GRANULE, STREAM(2));
    assert_status(vmm_alloc(scene->cache, 7 * GRANULE - 1, STREAM(1), &more), VMM_ERR_DEVICE_OOM);
    assert_says(vmm_last_error(), "18.0 MiB (limit)");
    assert_says(vmm_last_error(), "; the limit is 6.0 MiB too small"); /* 3 granules less a bit */
    memory->limit_bytes = 12 * GRANULE - 1;
    assert_status(vmm_alloc(scene->cache, 7 * GRANULE - 1, STREAM(1), &more), VMM_ERR_DEVICE_OOM);
    memory->limit_bytes = 12 * GRANULE;
    assert_ok(vmm_alloc(scene->cache, 7 * GRANULE - 1, STREAM(1), &more));
}

POLICY_TEST(the_report_shows_a_device_that_is_too_small)
{
    const char *line = report(scene, SCENE_GRANULES / 2 + 3);
    assert_says(line, "0 KiB reserved of 64.0 MiB (device)");
    assert_says(line, "; the device is 6.0 MiB too small");
}

/* A handle outside the cache stands for memory of another process. */
POLICY_TEST(the_report_shows_memory_of_other_users)
{
    uint64_t handle = handle_create(scene->driver, 20 * GRANULE);
    void *out;
    assert_status(vmm_alloc(scene->cache, 15 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_says(vmm_last_error(), "; other users hold 40.0 MiB of the device's memory, "
                                  "which is 6.0 MiB too much");
    scene->cache->vm.limit_bytes = 16 * GRANULE;
    assert_status(vmm_alloc(scene->cache, 15 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_says(vmm_last_error(), "; other users hold 8.0 MiB of the device's memory, "
                                  "which is 6.0 MiB too much");
    assert_ok(vmm__driver_release(scene->driver, handle, 20 * GRANULE));
}

POLICY_TEST(the_report_shows_a_refusal_without_reason)
{
    assert_says(report(scene, 3), "; the driver refuses though 64.0 MiB are free");
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    const char *line = report(scene, 3);
    assert_silent(line, "free");
    assert_says(line, "in limbo");
}

/* Four chunks of so many granules, with live bytes in the first one, fill the limit. */
static void limit_pin(struct scene *scene, uint32_t granules)
{
    struct heap *heap = &scene->lane->large;
    for (uint64_t i = 0; i < 4; i++)
        (void)block_make_live(heap, extent(scene, heap, 10 * i, granules, granules), GRANULE / 2);
    scene->cache->vm.limit_bytes = 4 * (uint64_t)granules * GRANULE;
    scene->cache->compaction = VMM_OFF;
}

POLICY_TEST(compaction_is_suggested_where_it_would_suffice)
{
    limit_pin(scene, 2);
    assert_says(report(scene, 4),
                "; vmm_compact(), or compaction, which is off, might free pinned memory");
    assert_silent(report(scene, 5), "compaction");
    scene->cache->compaction = VMM_ON;
    assert_silent(report(scene, 4), "compaction");
}

/* It releases whole granules: here each has live bytes. */
POLICY_TEST(compaction_is_not_suggested_for_parts_of_granules)
{
    limit_pin(scene, 1);
    assert_silent(report(scene, 1), "compaction");
}

POLICY_TEST(the_report_shows_that_addresses_ran_out)
{
    struct oom oom = { .status = VMM_ERR_ADDRESS_SPACE,
                       .lane = scene->lane,
                       .bytes = GRANULE,
                       .grow_bytes = GRANULE };
    assert_status(vmm__oom_report(scene->cache, &oom), VMM_ERR_ADDRESS_SPACE);
    assert_says(vmm_last_error(),
                "; no run of free addresses is long enough: 128 MiB are reserved, "
                "arena_bytes allows 128 MiB");
}

POLICY_TEST(addresses_are_told_in_large_units)
{
    struct oom oom = { .status = VMM_ERR_ADDRESS_SPACE,
                       .lane = scene->lane,
                       .bytes = GRANULE,
                       .grow_bytes = GRANULE };
    scene->cache->vm.arena.limit_bytes = 16 * TIB;
    assert_status(vmm__oom_report(scene->cache, &oom), VMM_ERR_ADDRESS_SPACE);
    assert_says(vmm_last_error(), "arena_bytes allows 16.0 TiB");
}

/* ---- The line -------------------------------------------------------------------------------- */

/* All parts at once, with long numbers: nothing is truncated. */
POLICY_TEST(the_longest_line_fits)
{
    struct vm *memory = &scene->cache->vm;
    struct heap *heap = &scene->lane->large;
    (void)block_make_live(heap, extent(scene, heap, 10, 1, 1), GRANULE / 2);
    vmm__stat_add(&scene->cache->totals.requested_bytes, TIB);
    vmm__stat_add(&memory->reserved_bytes, TIB);
    uint64_t total_bytes = scene->driver->total_bytes;
    scene->driver->total_bytes = 4 * TIB;
    memory->limit_bytes = 2 * TIB;
    memory->counts.limbo_bytes = TIB;
    scene->cache->compaction = VMM_OFF;
    scene->lane->owner.stream = (vmm_stream)UINTPTR_MAX;
    uint64_t handle = handle_create(scene->driver, 4 * TIB - GRANULE);
    const char *line = report(scene, 1);
    scene->lane->owner.stream = STREAM(1);
    vmm__stat_subtract(&scene->cache->totals.requested_bytes, TIB);
    vmm__stat_subtract(&memory->reserved_bytes, TIB);
    memory->counts.limbo_bytes = 0;
    assert_says(line, "other users hold 1048574.0 MiB");
    assert_silent(line, "might free pinned memory"); /* 1 MiB is pinned, but 2 MiB are needed */
    assert_true(strlen(line) < 440);
    line = report(scene, 0);
    assert_says(line, "might free pinned memory");
    assert_null(strchr(line, '\n'));
    assert_ok(vmm__driver_release(scene->driver, handle, 4 * TIB - GRANULE));
    scene->driver->total_bytes = total_bytes;
}

/* The same for a pool with a limit and the longest name, while another pool sleeps and one is retained. */
POLICY_TEST(the_longest_line_of_a_pool_fits)
{
    struct vm *memory = &scene->cache->vm;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *handle;
    struct lane *lanes[2];
    char name[POOL_NAME_BYTES];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    options.limit_bytes = TIB + 6 * MIB;
    options.name = name;
    for (int i = 0; i < 2; i++) {
        options.kind = i == 0 ? VMM_POOL_GENERAL : VMM_POOL_GRAPH;
        assert_ok(vmm_pool_create(scene->cache, &options, &handle));
        assert_ok(vmm__pool_lane(scene->cache->pools.first, STREAM(1), &lanes[i]));
        struct block *block = extent(scene, &lanes[i]->large, (uint64_t)(10 + 10 * i), 4, 4);
        (void)block_make_live(&lanes[i]->large, block, GRANULE / 2);
    }
    struct pool *pool = lanes[0]->owner.pool;
    uint64_t total_bytes = scene->driver->total_bytes;
    scene->driver->total_bytes = 4 * TIB;
    vmm__stat_add(&scene->cache->totals.requested_bytes, TIB + MIB);
    vmm__stat_add(&pool->totals.requested_bytes, TIB + MIB);
    vmm__stat_add(&memory->reserved_bytes, TIB + MIB);
    vmm__stat_add(&pool->account.reserved_bytes, TIB + MIB);
    memory->counts.limbo_bytes = TIB + MIB;
    memory->counts.asleep_bytes = TIB + MIB;
    struct lane *lane = scene->lane;
    lanes[0]->owner.stream = (vmm_stream)UINTPTR_MAX;
    scene->lane = lanes[0];
    scene->cache->compaction = VMM_OFF;
    const char *line = report(scene, 1);
    scene->lane = lane;
    lanes[0]->owner.stream = STREAM(1);
    vmm__stat_subtract(&scene->cache->totals.requested_bytes, TIB + MIB);
    vmm__stat_subtract(&pool->totals.requested_bytes, TIB + MIB);
    vmm__stat_subtract(&memory->reserved_bytes, TIB + MIB);
    vmm__stat_subtract(&pool->account.reserved_bytes, TIB + MIB);
    memory->counts.limbo_bytes = 0;
    memory->counts.asleep_bytes = 0;
    scene->driver->total_bytes = total_bytes;
    assert_says(line, "asleep, ");
    assert_says(line, "retained for captured graphs, ");
    assert_says(line, name);
    assert_says(line, "might free pinned memory");
}
