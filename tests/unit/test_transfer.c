/* Transfers of idle memory to another stream's heap, in place. */
#include "support/policy_support.h"

#include "cache/idle/transfer.h"
#include "cache/streams.h"

static vmm_status transfer(struct scene *scene, struct heap *heap, uint64_t bytes,
                           enum idle_when when)
{
    scene_lock(scene, heap);
    vmm_status status =
        vmm__transfer(scene->cache, &(struct request){ .heap = heap, .block_bytes = bytes }, when);
    scene_unlock(scene, heap);
    return status;
}

POLICY_TEST(finished_memory_is_transferred)
{
    struct block *block = extent(scene, &scene->lane->large, 20, 8, 2);
    uint64_t calls = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), calls);
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE); /* whole chunks */
    assert_int_equal(scene->lane->large.free_bytes, 4 * GRANULE);
    assert_ptr_equal(vmm__directory_heap(&scene->cache->directory, block->address),
                     &scene->other->large);
    assert_ok(vmm__cache_check(scene->cache));
}

POLICY_TEST(transfers_need_heaps_of_the_same_kind)
{
    (void)extent(scene, &scene->lane->large, 20, 4, 1);
    assert_status(transfer(scene, &scene->other->small, 4096, IDLE_FOLLOW), VMM__NO_FIT);
    assert_status(transfer(scene, &scene->lane->large, MIB, IDLE_FOLLOW), VMM__NO_FIT);
    (void)extent(scene, &scene->lane->small, 40, 2, 1);
    assert_ok(transfer(scene, &scene->other->small, 4096, IDLE_FINISHED));
    assert_int_equal(scene->other->small.free_bytes, GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* A transfer moves whole chunks: a live byte keeps its whole chunk. */
POLICY_TEST(partly_used_chunks_stay)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 20, 8, 4);
    (void)block_make_live(heap, block, 512);
    assert_status(transfer(scene, &scene->other->large, 5 * GRANULE, IDLE_FINISHED), VMM__NO_FIT);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* The best fit has chunks that are used in part; a larger block has whole ones. */
POLICY_TEST(next_larger_block_is_tried)
{
    struct heap *heap = &scene->lane->large;
    struct block *best = extent(scene, heap, 20, 4, 4);
    (void)block_make_live(heap, best, 512);
    (void)extent(scene, heap, 40, 8, 4);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* Of three runs, the shortest that is long enough. */
POLICY_TEST(tightest_run_of_all_lanes_is_transferred)
{
    struct lane *third;
    struct lane *fourth;
    assert_ok(vmm__stream_lane(scene->cache, STREAM(3), &third));
    assert_ok(vmm__stream_lane(scene->cache, STREAM(4), &fourth));
    (void)extent(scene, &scene->lane->large, 10, 8, 2);
    (void)extent(scene, &third->large, 24, 4, 2);
    (void)extent(scene, &fourth->large, 40, 6, 2);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(third->large.free_bytes, 0);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(fourth->large.free_bytes, 2 * GRANULE);
    assert_int_equal(scene->lane->large.free_bytes, 8 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* Three streams' free memory lies side by side. Together it holds the request, and only the chunks that it needs change
 * heaps. */
POLICY_TEST(transfers_join_what_lies_side_by_side)
{
    struct lane *third;
    assert_ok(vmm__stream_lane(scene->cache, STREAM(3), &third));
    struct heap *heap = &scene->other->large;
    (void)extent(scene, &scene->lane->large, 20, 2, 2);
    (void)extent(scene, heap, 22, 3, 1);
    (void)extent(scene, &third->large, 25, 6, 2);
    assert_ok(transfer(scene, heap, 8 * GRANULE, IDLE_FINISHED));
    assert_int_equal(scene->lane->large.bytes, 0);
    assert_int_equal(third->large.bytes, 2 * GRANULE);
    const struct block *joined = vmm__heap_cover(heap, scene_address(scene, 20));
    assert_int_equal(joined->address, scene_address(scene, 20));
    assert_int_equal(joined->node.size, 9 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* The heap's own free block counts, also where it ends inside a granule; live bytes between two runs part them. */
POLICY_TEST(live_bytes_end_an_interval)
{
    struct heap *heap = &scene->other->large;
    struct block *own = extent(scene, heap, 24, 2, 1);
    struct block *live = block_make_live(heap, own, MIB);
    (void)extent(scene, &scene->lane->large, 20, 4, 1);
    (void)extent(scene, &scene->lane->large, 26, 4, 1);
    assert_status(transfer(scene, heap, 8 * GRANULE, IDLE_FINISHED), VMM__NO_FIT);
    assert_ok(transfer(scene, heap, 5 * GRANULE + MIB, IDLE_FINISHED));
    assert_int_equal(vmm__block_end(live->next), scene_address(scene, 30));
    assert_int_equal(scene->lane->large.bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* A request that has a block of its own does not use the heap's free block, and gains nothing beside it. */
POLICY_TEST(a_long_enough_block_of_its_own_is_no_transfer)
{
    struct heap *heap = &scene->other->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, &scene->lane->large, 24, 4, 1);
    assert_status(transfer(scene, heap, 3 * GRANULE, IDLE_FOLLOW), VMM__NO_FIT);
    assert_int_equal(scene->lane->large.bytes, 4 * GRANULE);
}

/* Without host memory for the list of runs nothing is transferred. */
POLICY_TEST(transfers_without_host_memory_change_nothing)
{
    (void)extent(scene, &scene->lane->large, 20, 4, 1);
    assert_ok(vmm__heap_records_keep(&scene->other->large, 2));
    (void)vmm__host_fail_at(1);
    assert_status(transfer(scene, &scene->other->large, GRANULE, IDLE_FINISHED), VMM__NO_FIT);
    (void)vmm__host_fail_at(0);
    assert_int_equal(scene->lane->large.bytes, 4 * GRANULE);
}

/* Frees a block of stream 1 with work in flight. Returns whether the clock is due then. */
static bool free_makes_due(struct scene *scene, uint64_t bytes)
{
    void *block = block_in(scene->cache, bytes, STREAM(1));
    scene->lane->large.last_taken = NULL; /* as if another block had been taken since */
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, (uint64_t)(uintptr_t)block, bytes, 1, STREAM(1));
    uint64_t calls = vmm__sim_calls(scene->driver);
    assert_ok(vmm_free(scene->cache, block));
    assert_int_equal(vmm__sim_calls(scene->driver), calls); /* a free makes no driver call */
    return atomic_load(&scene->cache->clock.is_due);
}

static uint64_t ticks(const struct scene *scene)
{
    return atomic_load(&scene->driver->counts.clock_ticks);
}

static vmm_status search(struct scene *scene)
{
    return transfer(scene, &scene->other->large, 30 * MIB, IDLE_FINISHED);
}

/* Once others search a stream's memory, its frees mark the clock as due, and the next search ticks: a later one then
 * finds what has finished since. */
POLICY_TEST(frees_of_searched_streams_make_the_clock_due)
{
    struct clock *clock = &scene->cache->clock;
    assert_false(free_makes_due(scene, 20 * MIB));
    assert_status(search(scene), VMM__NO_FIT);
    assert_true(free_makes_due(scene, 20 * MIB));
    uint64_t before = ticks(scene);
    uint64_t epoch = vmm__clock_now(clock);
    assert_status(search(scene), VMM__NO_FIT);
    assert_true(ticks(scene) > before);
    assert_false(atomic_load(&clock->is_due));
    before = ticks(scene);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__clock_query(clock, epoch));
    assert_int_equal(ticks(scene), before);
}

/* The clock is due after a 64th of the heap's bytes, in however many blocks. */
POLICY_TEST(small_frees_make_the_clock_due_together)
{
    enum { PIECE = 2 * MIB };
    struct lane *lane = scene->lane;
    unsigned frees = 1;
    (void)extent(scene, &lane->large, 10, 12, 4);
    assert_status(search(scene), VMM__NO_FIT);
    assert_int_equal(lane->due_bytes, lane->large.bytes / 64);
    lane->due_bytes = 2 * PIECE + 1; /* as if the heap had 256 MiB */
    lane->until_due_bytes = lane->due_bytes;
    while (!free_makes_due(scene, PIECE))
        frees++;
    assert_int_equal(frees, 3);
}

POLICY_TEST(work_in_flight_prevents_a_transfer_or_is_followed)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 20, 4, 4), 4 * GRANULE);
    block = block_free_busy(scene, heap, block);
    uint64_t address = block->address;
    assert_status(transfer(scene, &scene->other->large, MIB, IDLE_FINISHED), VMM__NO_FIT);
    assert_ok(transfer(scene, &scene->other->large, MIB, IDLE_FOLLOW));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 1);
    assert_int_equal(scene->driver->counts.stalls, 0);
    memory_fill(scene->driver, address, 4 * GRANULE, 2, STREAM(2)); /* no race: it is ordered */
    memory_check(scene->driver, address, 4 * GRANULE, 2, STREAM(2));
}

/* What a stream got while it waits for another one's work is not finished for a third one. */
POLICY_TEST(followed_memory_is_unfinished_for_others)
{
    struct lane *third;
    struct heap *heap = &scene->lane->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 20, 4, 4), 4 * GRANULE);
    assert_ok(vmm__stream_lane(scene->cache, STREAM(3), &third));
    (void)block_free_busy(scene, heap, block);
    assert_ok(transfer(scene, &scene->other->large, MIB, IDLE_FOLLOW));
    assert_status(transfer(scene, &third->large, MIB, IDLE_FINISHED), VMM__NO_FIT);
}

/* If an event fails, the heap is skipped and its memory stays. */
POLICY_TEST(failing_heaps_are_skipped)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 20, 4, 4), 4 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(transfer(scene, &scene->other->large, MIB, IDLE_FOLLOW), VMM__NO_FIT);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* Attaching to a small heap needs slots. Without them the memory is released: attaching it to its old heap would need
 * slots too. */
POLICY_TEST(memory_without_slots_is_released)
{
    (void)extent(scene, &scene->lane->small, 20, 2, 1);
    assert_ok(vmm__heap_records_keep(&scene->other->small, 1));
    (void)vmm__host_fail_at(2); /* 1: the list of runs */
    assert_status(transfer(scene, &scene->other->small, 4096, IDLE_FINISHED), VMM__NO_FIT);
    (void)vmm__host_fail_at(0);
    assert_int_equal(scene->cache->vm.counts.limbo_bytes, GRANULE);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, NULL));
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}
