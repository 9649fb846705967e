/* Decay: when memory expires, how much is released, driver calls, and who polls. */
#include "support/policy_support.h"

#include "cache/idle/idle_scan.h"
#include "cache/idle/trim.h"

static uint64_t now_ms;

static uint64_t clock_read(void *context)
{
    assert_ptr_equal(context, &now_ms);
    return now_ms * 1000000;
}

/* Begins a period of ten milliseconds. */
static void decay_begin(struct scene *scene, uint64_t keep_bytes)
{
    vmm_config config = CONFIG(.decay_ms = 10, .decay_keep_bytes = keep_bytes, .clock = clock_read,
                               .clock_context = &now_ms);
    now_ms = 1000;
    vmm__decay_init(&scene->cache->decay, &config, scene->cache);
}

static void poll_at(struct scene *scene, uint64_t ms)
{
    now_ms = ms;
    assert_ok(vmm_poll(scene->cache));
    assert_ok(vmm__cache_check(scene->cache));
}

/* Uses a new chunk and frees it. */
static struct block *use_chunk(struct scene *scene, struct heap *heap, uint64_t granule,
                               uint32_t granules)
{
    struct block *block =
        block_make_live(heap, extent(scene, heap, granule, granules, granules), granules * GRANULE);
    memory_fill(scene->driver, block->address, block->node.size, 1, heap->lane->stream);
    return vmm__heap_give(heap, block);
}

POLICY_TEST(without_a_period_nothing_is_due)
{
    vmm_config config = CONFIG(.clock = clock_read, .clock_context = &now_ms);
    vmm__decay_init(&scene->cache->decay, &config, scene->cache);
    assert_false(vmm__decay_is_due(&scene->cache->decay));
}

POLICY_TEST(memory_expires_after_one_to_two_periods)
{
    decay_begin(scene, 0);
    (void)use_chunk(scene, &scene->lane->large, 10, 4);
    poll_at(scene, 1009);
    (void)use_chunk(scene, &scene->other->large, 30, 2);
    poll_at(scene, 1010);
    assert_int_equal(scene_reserved_bytes(scene), 6 * GRANULE);
    (void)use_chunk(scene, &scene->other->small, 50, 1);
    poll_at(scene, 1019);
    assert_int_equal(scene_reserved_bytes(scene), 7 * GRANULE);
    poll_at(scene, 1020);
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
    poll_at(scene, 1030);
    assert_int_equal(scene_reserved_bytes(scene), 0);
    assert_int_equal(scene->driver->counts.stalls, 0);
}

/* A late poll ends one period, not several, because the cache cannot know when the memory was used. */
POLICY_TEST(a_late_poll_ends_one_period)
{
    decay_begin(scene, 0);
    (void)use_chunk(scene, &scene->lane->large, 10, 4);
    poll_at(scene, 5000);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    poll_at(scene, 5009);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    poll_at(scene, 5010);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

/* Epochs end for other reasons, too; only the end of a period ages memory. */
POLICY_TEST(trims_do_not_age_memory)
{
    decay_begin(scene, 0);
    (void)use_chunk(scene, &scene->lane->large, 10, 4);
    for (int i = 0; i < 3; i++)
        assert_ok(vmm_trim(scene->cache, SIZE_MAX, NULL));
    poll_at(scene, 1010);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    poll_at(scene, 1020);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

POLICY_TEST(memory_in_use_does_not_expire)
{
    struct heap *heap = &scene->lane->large;
    decay_begin(scene, 0);
    struct block *block = use_chunk(scene, heap, 10, 4);
    for (uint64_t ms = 1010; ms < 1200; ms += 10) {
        block = block_make_live(heap, block, 3 * GRANULE);
        block = vmm__heap_give(heap, block);
        poll_at(scene, ms);
        assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    }
    poll_at(scene, 1200);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

/* decay_keep_bytes counts idle memory only, and a whole chunk never goes below it. */
POLICY_TEST(decay_keeps_the_floor)
{
    decay_begin(scene, 5 * GRANULE);
    for (uint64_t granule = 10; granule < 30; granule += 5)
        (void)use_chunk(scene, &scene->lane->large, granule, 4);
    struct block *live = extent(scene, &scene->other->large, 40, 8, 8);
    live = block_make_live(&scene->other->large, live, 8 * GRANULE);
    poll_at(scene, 1010);
    poll_at(scene, 1020);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE + 8 * GRANULE);
    poll_at(scene, 1030);
    assert_int_equal(scene_reserved_bytes(scene), 16 * GRANULE);
    (void)vmm__heap_give(&scene->other->large, live);
    poll_at(scene, 1040);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
    poll_at(scene, 1050);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
}

/* While the work runs, each poll costs one driver call. */
POLICY_TEST(unfinished_memory_stays_and_costs_one_query)
{
    struct heap *heap = &scene->lane->large;
    decay_begin(scene, 0);
    struct block *block = block_make_live(heap, extent(scene, heap, 10, 8, 2), 8 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    poll_at(scene, 1010);
    poll_at(scene, 1020);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
    assert_true(scene->cache->decay.is_stuck);
    assert_int_equal(heap->free_bytes, 8 * GRANULE);
    uint64_t calls = vmm__sim_calls(scene->driver);
    poll_at(scene, 1021);
    assert_int_equal(vmm__sim_calls(scene->driver), calls + 1);
    assert_true(vmm__decay_is_due(&scene->cache->decay));
    assert_int_equal(mismatches(scene->driver), 0);
    poll_at(scene, 1022);
    assert_int_equal(scene_reserved_bytes(scene), 0);
    assert_false(vmm__decay_is_due(&scene->cache->decay));
    assert_int_equal(scene->driver->counts.stalls, 0);
}

/* Memory that a trim found unfinished is released later, down to the trim target. */
POLICY_TEST(a_trim_target_lasts_until_its_work_finishes)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 10, 8, 2), 8 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    size_t released;
    assert_ok(vmm_trim(scene->cache, 3 * GRANULE, &released));
    assert_int_equal(released, 0);
    assert_true(scene->cache->has_trim_target);
    uint64_t calls = vmm__sim_calls(scene->driver);
    assert_ok(vmm_poll(scene->cache));
    assert_int_equal(vmm__sim_calls(scene->driver), calls + 1);
    (void)use_chunk(scene, &scene->other->large, 30, 2);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm_poll(scene->cache));
    assert_int_equal(scene_reserved_bytes(scene), 2 * GRANULE);
    assert_false(scene->cache->has_trim_target);
    assert_false(vmm__trim_may_have_expired(scene->cache));
}

POLICY_TEST(a_trim_target_that_is_met_ends)
{
    struct heap *heap = &scene->lane->large;
    (void)use_chunk(scene, &scene->other->large, 30, 2);
    struct block *block = block_make_live(heap, extent(scene, heap, 10, 2, 2), 2 * GRANULE);
    assert_ok(vmm__clock_wait(scene->other->clock, 1));
    (void)block_free_busy(scene, heap, block);
    assert_ok(vmm_trim(scene->cache, 4 * GRANULE, NULL));
    assert_false(scene->cache->has_trim_target);
    assert_ok(vmm_trim(scene->cache, 2 * GRANULE, NULL)); /* the other stream's chunk is enough */
    assert_int_equal(scene_reserved_bytes(scene), 2 * GRANULE);
    assert_false(scene->cache->has_trim_target);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_true(scene->cache->has_trim_target);
    assert_ok(vmm_trim(scene->cache, SIZE_MAX, NULL));
    assert_false(scene->cache->has_trim_target);
}

/* Empty slabs, and blocks whose uses by other streams have finished, expire like other memory. */
POLICY_TEST(slabs_and_used_blocks_expire)
{
    void *object;
    void *block;
    decay_begin(scene, 0);
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &object));
    assert_ok(vmm_alloc(scene->cache, 3 * GRANULE, STREAM(1), &block));
    assert_ok(vmm_record_stream(scene->cache, block, STREAM(2)));
    assert_ok(vmm_free(scene->cache, object));
    assert_ok(vmm_free(scene->cache, block));
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    poll_at(scene, 1010);
    poll_at(scene, 1020);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

POLICY_TEST(one_free_in_64_polls)
{
    void *objects[2 * DECAY_POLL_FREES];
    decay_begin(scene, 0);
    (void)use_chunk(scene, &scene->other->large, 30, 2);
    for (int i = 0; i < 2 * DECAY_POLL_FREES; i++)
        assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &objects[i]));
    now_ms = 1010;
    uint64_t epoch = vmm__clock_now(scene->lane->clock);
    for (int i = 0; i < DECAY_POLL_FREES; i++) {
        assert_int_equal(vmm__clock_now(scene->lane->clock), epoch);
        assert_ok(vmm_free(scene->cache, objects[i]));
    }
    assert_int_equal(vmm__clock_now(scene->lane->clock), epoch + 2); /* one for each lane */
    now_ms = 1020;
    for (int i = DECAY_POLL_FREES; i < 2 * DECAY_POLL_FREES; i++) {
        assert_int_equal(scene_reserved_bytes(scene), 3 * GRANULE);
        assert_ok(vmm_free(scene->cache, objects[i]));
    }
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
}

/* A poll never waits for the grow lock, whose holder may be waiting for the device. */
POLICY_TEST(a_poll_does_not_wait_for_the_grow_lock)
{
    decay_begin(scene, 0);
    (void)use_chunk(scene, &scene->lane->large, 10, 4);
    poll_at(scene, 1010);
    now_ms = 1020;
    vmm__fair_lock(&scene->cache->grow_lock);
    assert_ok(vmm_poll(scene->cache));
    vmm__fair_unlock(&scene->cache->grow_lock);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    assert_ok(vmm_poll(scene->cache));
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

/* If the driver fails, the memory stays, and a later poll tries again. */
POLICY_TEST(a_driver_error_is_reported)
{
    decay_begin(scene, 0);
    (void)use_chunk(scene, &scene->lane->large, 10, 8);
    poll_at(scene, 1010);
    now_ms = 1020;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm_poll(scene->cache), VMM_ERR_DRIVER);
    assert_status(vmm_poll(scene->cache), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
    poll_at(scene, 1021);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

/* The same without host memory for the block records. */
POLICY_TEST(missing_host_memory_is_reported)
{
    struct heap *heap = &scene->lane->large;
    decay_begin(scene, 0);
    struct block *block = use_chunk(scene, heap, 10, 8);
    uint64_t epoch = vmm__clock_now(scene->lane->clock);
    (void)use_chunk(scene, heap, 30, 2);
    while (heap->store.spare_count > 0)
        block = block_make_live(heap, block, 512)->next;
    poll_at(scene, 1010);
    assert_ok(vmm__clock_query(scene->lane->clock, epoch));
    now_ms = 1020;
    (void)vmm__host_fail_at(1);
    assert_status(vmm_poll(scene->cache), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_int_equal(scene_reserved_bytes(scene), 10 * GRANULE);
    poll_at(scene, 1021);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
}

POLICY_TEST(a_cache_without_decay_never_polls)
{
    (void)use_chunk(scene, &scene->lane->large, 10, 4);
    assert_false(vmm__trim_may_have_expired(scene->cache));
    for (int i = 0; i < 3 * DECAY_POLL_FREES; i++)
        assert_false(vmm__decay_should_poll(&scene->cache->decay, &scene->lane->frees));
    uint64_t epoch = vmm__clock_now(scene->lane->clock);
    assert_ok(vmm_poll(scene->cache));
    assert_int_equal(vmm__clock_now(scene->lane->clock), epoch);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
}

POLICY_TEST(the_check_finds_wrong_epochs)
{
    scene->lane->decayed.latest_epoch = 1;
    assert_status(vmm__cache_check(scene->cache), VMM_ERR_INTERNAL);
    scene->lane->decayed.latest_epoch = 0;
    scene->lane->trimmed.latest_epoch = vmm__clock_now(scene->lane->clock);
    assert_status(vmm__cache_check(scene->cache), VMM_ERR_INTERNAL);
    scene->lane->trimmed.latest_epoch = 0;
}
