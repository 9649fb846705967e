/* Transfers of idle memory to another stream's heap, in place. */
#include "support/policy_support.h"

#include "cache/reuse/transfer.h"

static vmm_status transfer(struct scene *scene, struct heap *heap, uint64_t bytes,
                           enum idle_when when)
{
    scene_lock(scene, heap);
    vmm_status status = vmm__transfer(scene->cache, heap, bytes, when);
    scene_unlock(scene, heap);
    return status;
}

POLICY_TEST(finished_memory_is_transferred)
{
    struct block *block = extent(scene, &scene->pool->large, 20, 8, 2);
    uint64_t calls = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), calls);
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE); /* whole chunks */
    assert_int_equal(scene->pool->large.free_bytes, 4 * GRANULE);
    assert_ptr_equal(vmm__directory_heap(&scene->cache->directory, block->address),
                     &scene->other->large);
    assert_ok(vmm__cache_check(scene->cache));
}

POLICY_TEST(transfers_need_heaps_of_the_same_kind)
{
    (void)extent(scene, &scene->pool->large, 20, 4, 1);
    assert_status(transfer(scene, &scene->other->small, 4096, IDLE_FOLLOW), VMM__NO_FIT);
    assert_status(transfer(scene, &scene->pool->large, MIB, IDLE_FOLLOW), VMM__NO_FIT);
    (void)extent(scene, &scene->pool->small, 40, 2, 1);
    assert_ok(transfer(scene, &scene->other->small, 4096, IDLE_FINISHED));
    assert_int_equal(scene->other->small.free_bytes, GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* A transfer moves whole chunks: a live byte keeps its whole chunk. */
POLICY_TEST(partly_used_chunks_stay)
{
    struct heap *heap = &scene->pool->large;
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
    struct heap *heap = &scene->pool->large;
    struct block *best = extent(scene, heap, 20, 4, 4);
    (void)block_make_live(heap, best, 512);
    (void)extent(scene, heap, 40, 8, 4);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* Of two pools' runs, the one in the smaller free block. */
POLICY_TEST(tightest_run_of_all_pools_is_transferred)
{
    struct pool *third;
    struct pool *fourth;
    assert_ok(vmm__cache_pool(scene->cache, STREAM(3), &third));
    assert_ok(vmm__cache_pool(scene->cache, STREAM(4), &fourth));
    (void)extent(scene, &scene->pool->large, 10, 8, 2);
    (void)extent(scene, &third->large, 24, 4, 2);
    (void)extent(scene, &fourth->large, 40, 6, 2);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(third->large.free_bytes, 0);
    assert_ok(transfer(scene, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(fourth->large.free_bytes, 2 * GRANULE);
    assert_int_equal(scene->pool->large.free_bytes, 8 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

POLICY_TEST(work_in_flight_prevents_a_transfer_or_is_followed)
{
    struct heap *heap = &scene->pool->large;
    struct block *block = block_make_live(heap, extent(scene, heap, 20, 4, 4), 4 * GRANULE);
    block = block_free_busy(scene, heap, block);
    uint64_t address = block->address;
    assert_status(transfer(scene, &scene->other->large, MIB, IDLE_FINISHED), VMM__NO_FIT);
    assert_ok(transfer(scene, &scene->other->large, MIB, IDLE_FOLLOW));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 1);
    assert_int_equal(scene->driver->stalls, 0);
    memory_fill(scene->driver, address, 4 * GRANULE, 2, STREAM(2)); /* no race: it is ordered */
    memory_check(scene->driver, address, 4 * GRANULE, 2, STREAM(2));
}

/* If an event fails, the heap is skipped and its memory stays. */
POLICY_TEST(failing_heaps_are_skipped)
{
    struct heap *heap = &scene->pool->large;
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
    (void)extent(scene, &scene->pool->small, 20, 2, 1);
    assert_ok(vmm__heap_records_keep(&scene->other->small, 1));
    (void)vmm__host_fail_at(1);
    assert_status(transfer(scene, &scene->other->small, 4096, IDLE_FINISHED), VMM__NO_FIT);
    (void)vmm__host_fail_at(0);
    assert_int_equal(scene->cache->vm.limbo_bytes, GRANULE);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, NULL));
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}
