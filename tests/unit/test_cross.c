/* Idle memory that crosses to another stream's heap where it lies. */
#include "support/policy_support.h"

#include "policy/cross.h"

static void finished_memory_crosses(void **state)
{
    struct scene *scene = *state;
    struct block *block = territory(scene, &scene->pool->large, 20, 8, 2);
    uint64_t calls = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_ok(vmm__cross(scene->cache, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), calls);
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE); /* whole chunks */
    assert_int_equal(scene->pool->large.free_bytes, 4 * GRANULE);
    assert_ptr_equal(vmm__directory_heap(&scene->cache->directory, block->address),
                     &scene->other->large);
    assert_ok(vmm__cache_check(scene->cache));
}

static void memory_crosses_between_heaps_of_a_kind_only(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 20, 4, 1);
    assert_status(vmm__cross(scene->cache, &scene->other->small, 4096, IDLE_FOLLOW), VMM_NOT_READY);
    assert_status(vmm__cross(scene->cache, &scene->pool->large, MIB, IDLE_FOLLOW), VMM_NOT_READY);
    (void)territory(scene, &scene->pool->small, 40, 2, 1);
    assert_ok(vmm__cross(scene->cache, &scene->other->small, 4096, IDLE_FINISHED));
    assert_int_equal(scene->other->small.free_bytes, GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* Only whole chunks: a live byte in a chunk keeps all of it. */
static void parts_of_chunks_do_not_cross(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 20, 8, 4);
    (void)block_lived(heap, block, 512);
    assert_status(vmm__cross(scene->cache, &scene->other->large, 5 * GRANULE, IDLE_FINISHED),
                  VMM_NOT_READY);
    assert_ok(vmm__cross(scene->cache, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* The best fit has chunks that are used in part; a larger block has whole ones. */
static void the_next_larger_block_is_tried(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *best = territory(scene, heap, 20, 4, 4);
    (void)block_lived(heap, best, 512);
    (void)territory(scene, heap, 40, 8, 4);
    assert_ok(vmm__cross(scene->cache, &scene->other->large, 3 * GRANULE, IDLE_FINISHED));
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

static void work_in_flight_keeps_it_or_is_followed(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = block_lived(heap, territory(scene, heap, 20, 4, 4), 4 * GRANULE);
    block = block_given_busy(scene, heap, block);
    uint64_t address = block->address;
    assert_status(vmm__cross(scene->cache, &scene->other->large, MIB, IDLE_FINISHED),
                  VMM_NOT_READY);
    assert_ok(vmm__cross(scene->cache, &scene->other->large, MIB, IDLE_FOLLOW));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 1);
    assert_int_equal(scene->driver->stalls, 0);
    sim_filled(scene->driver, address, 4 * GRANULE, 2, STREAM(2)); /* no race: it is ordered */
    sim_checked(scene->driver, address, 4 * GRANULE, 2, STREAM(2));
}

/* An event fails, or host memory lacks: the heap is passed over, and all is accounted for. */
static void failures_pass_over(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = block_lived(heap, territory(scene, heap, 20, 4, 4), 4 * GRANULE);
    (void)block_given_busy(scene, heap, block);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm__cross(scene->cache, &scene->other->large, MIB, IDLE_FOLLOW), VMM_NOT_READY);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

/* The way into a small heap needs slots. Without them the memory goes to the driver: the way back
 * would need slots too. */
static void memory_without_slots_is_not_lost(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->small, 20, 2, 1);
    assert_ok(vmm__heap_records_keep(&scene->other->small, 1));
    (void)vmm__host_fail_at(1);
    assert_status(vmm__cross(scene->cache, &scene->other->small, 4096, IDLE_FINISHED),
                  VMM_NOT_READY);
    (void)vmm__host_fail_at(0);
    assert_int_equal(scene->cache->memory.limbo_bytes, GRANULE);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
    assert_int_equal(scene_reserved(scene), GRANULE);
    assert_ok(vmm__cache_check(scene->cache));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(finished_memory_crosses),
        POLICY_TEST(memory_crosses_between_heaps_of_a_kind_only),
        POLICY_TEST(parts_of_chunks_do_not_cross),
        POLICY_TEST(the_next_larger_block_is_tried),
        POLICY_TEST(work_in_flight_keeps_it_or_is_followed),
        POLICY_TEST(failures_pass_over),
        POLICY_TEST(memory_without_slots_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
