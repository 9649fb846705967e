/* Gathering the idle chunks of other streams in one heap. The teardown checks all invariants. */
#include "support/policy_support.h"

#include "cache/idle/gather.h"
#include "cache/streams.h"

#define CHUNK_BYTES (3 * GRANULE)

static bool gather(struct scene *scene, struct heap *heap)
{
    scene_lock(scene, heap);
    struct request request = { .heap = heap, .block_bytes = CHUNK_BYTES };
    bool has_gathered = vmm__gather(scene->cache, &request, CHUNK_BYTES);
    scene_unlock(scene, heap);
    return has_gathered;
}

static struct lane *third_lane(struct scene *scene)
{
    struct lane *third;
    assert_ok(vmm__stream_lane(scene->cache, STREAM(3), &third));
    return third;
}

/* Of all heaps of the pool, wherever they lie; a live byte keeps its whole chunk. */
POLICY_TEST(idle_chunks_of_all_streams_are_gathered)
{
    struct heap *heap = &scene->lane->large;
    struct lane *third = third_lane(scene);
    struct block *block = extent(scene, heap, 10, 8, 2);
    (void)block_make_live(heap, block, 512);
    (void)extent(scene, heap, 24, 2, 1);
    (void)extent(scene, &third->large, 40, 4, 4);
    uint64_t calls = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_true(gather(scene, &scene->other->large));
    assert_int_equal(scene->other->large.free_bytes, (6 + 2 + 4) * GRANULE);
    assert_int_equal(heap->bytes, 2 * GRANULE);
    assert_int_equal(third->large.bytes, 0);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), calls);
    assert_false(gather(scene, &scene->other->large));
}

/* The first run is cut out of the block that contained the second one. */
POLICY_TEST(several_runs_of_one_free_block_are_gathered)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 4, 1);
    vmm__vm_chunk(&scene->cache->vm, 11)->is_mapped = false; /* as if a remap were pending */
    assert_true(gather(scene, &scene->other->large));
    vmm__vm_chunk(&scene->cache->vm, 11)->is_mapped = true;
    assert_int_equal(scene->other->large.free_bytes, 3 * GRANULE);
    assert_int_equal(heap->free_bytes, GRANULE);
}

/* A busy stream would miss what it could reuse at once, so it keeps also what has finished. */
POLICY_TEST(streams_with_unfinished_work_keep_all)
{
    struct heap *heap = &scene->lane->large;
    struct lane *third = third_lane(scene);
    (void)extent(scene, &third->large, 40, 4, 4);
    (void)extent(scene, heap, 10, 2, 2);
    struct block *block = block_make_live(heap, extent(scene, heap, 20, 2, 2), 2 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    assert_true(gather(scene, &scene->other->large));
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
}

/* The second stream is busy, but did not use what it has gathered. */
POLICY_TEST(unused_memory_goes_on_to_a_third_stream)
{
    struct heap *heap = &scene->other->large;
    struct lane *third = third_lane(scene);
    struct block *live = block_make_live(heap, extent(scene, heap, 30, 2, 2), 2 * GRANULE);
    (void)extent(scene, &scene->lane->large, 10, 4, 2);
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, live->address, live->node.size, 1, STREAM(2));
    assert_true(gather(scene, heap));
    assert_true(gather(scene, &third->large));
    assert_int_equal(third->large.free_bytes, 4 * GRANULE);
    assert_int_equal(heap->free_bytes, 0);
}

/* What the second stream has used and freed waits for its work; the rest of it stays then, too. */
POLICY_TEST(used_memory_waits_for_the_stream_that_gathered_it)
{
    struct heap *heap = &scene->other->large;
    struct lane *third = third_lane(scene);
    (void)extent(scene, &scene->lane->large, 10, 4, 2);
    assert_true(gather(scene, heap));
    struct block *block =
        block_make_live(heap, vmm__heap_cover(heap, scene_address(scene, 10)), GRANULE);
    (void)block_free_busy(scene, heap, block);
    assert_false(gather(scene, &third->large));
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
}

/* Memory that was freed before the lane's last period is gathered. Returns its stamp. */
static uint64_t gathered_epoch(struct scene *scene)
{
    struct lane *lane = scene->other;
    struct block *block = extent(scene, &scene->lane->large, 10, 4, 2);
    block = block_make_live(&scene->lane->large, block, 4 * GRANULE);
    (void)vmm__heap_give(&scene->lane->large, block);
    scene_lock(scene, &lane->large);
    lane->period_epoch = vmm__lane_settle_locked(lane);
    scene_unlock(scene, &lane->large);
    assert_true(gather(scene, &lane->large));
    return vmm__directory_epoch(&scene->cache->directory, 10, 4);
}

/* Decay counts from the free, on whatever stream. */
POLICY_TEST(gathered_memory_keeps_its_stamp)
{
    uint64_t freed = vmm__clock_now(scene->lane->clock);
    assert_int_equal(gathered_epoch(scene), freed);
}

/* If lanes have clocks of their own, an epoch of the new heap may have passed long ago: decay counts from the
 * transfer. */
POLICY_TEST(memory_gathered_from_another_clock_does_not_expire_at_once)
{
    scene_renew_as(scene, CONFIG(.reuse = VMM_REUSE_DECLARED));
    uint64_t epoch = gathered_epoch(scene);
    assert_true(epoch > scene->other->period_epoch);
}

POLICY_TEST(small_heaps_gather_nothing)
{
    (void)extent(scene, &scene->lane->small, 10, 2, 1);
    assert_false(gather(scene, &scene->other->small));
    assert_int_equal(scene->lane->small.free_bytes, 2 * GRANULE);
}

/* Without host memory for the list of runs, or for records. */
POLICY_TEST(gathering_without_host_memory_changes_nothing)
{
    struct heap *heap = &scene->other->large;
    (void)extent(scene, &scene->lane->large, 10, 4, 2);
    for (uint64_t call = 1; call <= 2; call++) {
        (void)vmm__host_fail_at(call);
        assert_false(gather(scene, heap));
        (void)vmm__host_fail_at(0);
        assert_int_equal(scene->lane->large.free_bytes, 4 * GRANULE);
    }
    assert_true(gather(scene, heap));
}

static void *stream_alloc(struct scene *scene, unsigned stream, size_t bytes)
{
    return block_in(scene->cache, bytes, STREAM(stream));
}

/* Stream 2 has gathered, and has free memory for its next request. Stream 1 frees a block meanwhile. */
static void turns_begin(struct scene *scene)
{
    void *block = stream_alloc(scene, 1, 16 * MIB);
    (void)stream_alloc(scene, 1, 2 * MIB);
    void *own = stream_alloc(scene, 2, 14 * MIB);
    assert_ok(vmm_free(scene->cache, own));
    assert_false(gather(scene, &scene->other->large));
    assert_ok(vmm_free(scene->cache, block));
}

POLICY_TEST(a_request_of_a_chunk_gathers_first_while_streams_take_turns)
{
    struct heap *heap = &scene->other->large;
    turns_begin(scene);
    uint64_t bytes = heap->bytes;
    (void)stream_alloc(scene, 2, CHUNK_BYTES - GRANULE);
    assert_int_equal(heap->bytes, bytes);
    (void)stream_alloc(scene, 2, CHUNK_BYTES);
    assert_int_equal(heap->bytes, bytes + 16 * MIB);
}

/* Threads with streams of their own would gather each other's blocks for ever. */
POLICY_TEST(a_request_that_a_free_block_fits_does_not_gather)
{
    struct heap *heap = &scene->other->large;
    turns_begin(scene);
    uint64_t bytes = heap->bytes;
    uint64_t refills = scene->cache->refills;
    vmm__lane_lock(scene->other);
    vmm__heap_settle(heap); /* what was freed last serves its size without a look at the heap */
    vmm__lane_unlock(scene->other);
    (void)stream_alloc(scene, 2, 14 * MIB);
    assert_int_equal(heap->bytes, bytes);
    assert_int_equal(scene->cache->refills, refills);
}

/* However far apart their takes are. */
POLICY_TEST(takes_of_threads_that_queue_are_hasty)
{
    struct lane *lane = scene->other;
    struct takes *takes = &lane->owner.pool->takes;
    for (int i = 0; i < TAKES_HOARD; i += TAKES_QUEUED) {
        assert_false(vmm__lane_hoards(lane));
        takes->apart_us = 1000 * TAKES_APART_US;
        vmm__lane_takes_count(lane, true);
    }
    assert_true(vmm__lane_hoards(lane));
    takes->apart_us = 1000 * TAKES_APART_US;
    vmm__lane_takes_count(lane, false);
    assert_false(vmm__lane_hoards(lane));
}

POLICY_TEST(others_gather_nothing_from_a_lane_that_keeps_what_it_has)
{
    (void)extent(scene, &scene->lane->large, 10, 4, 2);
    scene->lane->hasty_takes = TAKES_HOARD;
    assert_false(gather(scene, &scene->other->large));
    scene->lane->hasty_takes = 0;
    assert_true(gather(scene, &scene->other->large));
}

/* It has what the other streams had, and these have freed nothing since. */
POLICY_TEST(the_lane_that_gathered_last_does_not_gather_again)
{
    const struct lane *lane = scene->other;
    turns_begin(scene);
    (void)stream_alloc(scene, 2, CHUNK_BYTES);
    assert_false(vmm__pool_should_gather(lane->owner.pool, lane));
    assert_true(vmm__pool_should_gather(lane->owner.pool, scene->lane));
}

/* Until a request that misses finds all work finished. */
POLICY_TEST(unfinished_work_ends_the_turns)
{
    const struct lane *lane = scene->other;
    turns_begin(scene);
    uint64_t bytes = lane->large.bytes;
    void *block = stream_alloc(scene, 1, 4 * MIB);
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, (uint64_t)(uintptr_t)block, 4 * MIB, 1, STREAM(1));
    assert_ok(vmm_free(scene->cache, block));
    (void)stream_alloc(scene, 2, CHUNK_BYTES);
    assert_int_equal(lane->large.bytes, bytes);
    assert_false(vmm__pool_should_gather(lane->owner.pool, lane));
    assert_false(vmm__pool_should_gather(lane->owner.pool, scene->lane));
}

/* A view of stream 1 spans three chunks between live blocks. Stream 2 borrows one of them for a while; then the view
 * serves stream 1, and afterwards stream 2, without a driver call but for events. */
POLICY_TEST(views_outlive_turns_of_streams)
{
    enum { BLOCKS = 6 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        assert_ok(vmm_alloc(scene->cache, 4 * MIB, STREAM(1), &blocks[i]));
    for (int i = 0; i < BLOCKS; i += 2)
        assert_ok(vmm_free(scene->cache, blocks[i]));
    void *block = block_in(scene->cache, 12 * MIB, STREAM(1));
    assert_ok(vmm_free(scene->cache, block));
    uint64_t maps = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_ok(vmm_alloc(scene->cache, 4 * MIB, STREAM(2), &block));
    assert_ok(vmm_free(scene->cache, block));
    for (int turn = 1; turn <= 4; turn++) {
        assert_ok(vmm_alloc(scene->cache, 12 * MIB, STREAM(turn), &block));
        assert_ok(vmm_free(scene->cache, block));
    }
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), maps);
}
