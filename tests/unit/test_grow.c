/* Growth: the sources of memory, and the state after failures. */
#include "cache/pool/pools.h"
#include "support/policy_support.h"

#include <stdlib.h>

/* Creates extents of 2 free and 2 live granules, in chunks of one granule; work still uses the free ones. */
static void busy_holes_create(struct scene *scene, struct heap *heap, uint64_t granule,
                              unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct block *block = extent(scene, heap, granule + 4 * i, 4, 1);
        struct block *first = block_make_live(heap, block, 2 * GRANULE);
        (void)block_make_live(heap, first->next != NULL ? first->next : first->prev, 2 * GRANULE);
        (void)block_free_busy(scene, heap, first);
    }
}

POLICY_TEST(new_memory_is_usable)
{
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &scene->lane->large : &scene->lane->small;
        assert_ok(scene_grow(scene, heap, 3 * GRANULE + 512, GROW_TARGET));
        struct block *block = (struct block *)vmm__size_index_largest(&heap->index);
        assert_int_equal(block->node.size, 4 * GRANULE);
        memory_fill(scene->driver, block->address, block->node.size, 1, STREAM(1));
        assert_int_equal(heap->home_end, vmm__block_end(block));
    }
}

/* Uses a view of 6 granules on stream 1: no work may race with earlier work on its chunks. */
static void view_use(struct scene *scene, struct heap *heap)
{
    struct block *block = view_take(heap, 6 * GRANULE);
    memory_fill(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
    memory_check(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
    assert_int_equal(scene->driver->counts.stalls, 0);
    assert_int_equal(mismatches(scene->driver), 0);
    (void)vmm__heap_give(heap, block);
}

POLICY_TEST(own_chunks_serve_a_view_while_in_use)
{
    struct heap *heap = &scene->lane->large;
    busy_holes_create(scene, heap, 0, 3);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_VIEW));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 18 * GRANULE);
    view_use(scene, heap);
}

/* No driver call but for events. */
POLICY_TEST(a_view_is_found_again)
{
    struct heap *heap = &scene->lane->large;
    busy_holes_create(scene, heap, 0, 3);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_VIEW));
    uint64_t maps = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    for (int i = 0; i < 3; i++)
        view_use(scene, heap);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), maps);
    assert_int_equal(scene->driver->mapped_bytes, 18 * GRANULE);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, NULL));
    assert_int_equal(scene->driver->mapped_bytes, 18 * GRANULE);
}

POLICY_TEST(other_streams_chunks_serve_after_their_work)
{
    busy_holes_create(scene, &scene->other->large, 0, 3);
    assert_ok(scene_grow(scene, &scene->lane->large, 2 * GRANULE, GROW_VIEW));
    assert_int_equal(scene_reserved_bytes(scene), 14 * GRANULE);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(scene_grow(scene, &scene->lane->large, 8 * GRANULE, GROW_VIEW));
    assert_int_equal(scene_reserved_bytes(scene), 14 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 0);
    assert_int_equal(scene->lane->large.free_bytes, 8 * GRANULE);
}

POLICY_TEST(single_granules_serve_too)
{
    (void)extent(scene, &scene->other->large, 20, 1, 1);
    assert_ok(scene_grow(scene, &scene->lane->large, GRANULE, GROW_VIEW));
    assert_int_equal(creates(scene), 1);
    assert_int_equal(scene->other->large.free_bytes, 0);
}

POLICY_TEST(other_streams_can_be_followed)
{
    busy_holes_create(scene, &scene->other->large, 0, 3);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, &scene->lane->large, 6 * GRANULE, GROW_FOLLOW));
    assert_int_equal(creates(scene), before);
    view_use(scene, &scene->lane->large);
}

POLICY_TEST(small_heaps_make_no_views)
{
    struct heap *heap = &scene->lane->small;
    busy_holes_create(scene, heap, 0, 3);
    (void)extent(scene, &scene->lane->large, 20, 6, 1);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_VIEW));
    assert_int_equal(largest_free_bytes(heap), 6 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 24 * GRANULE); /* no hole has room beside it */
    assert_int_equal(scene->driver->mapped_bytes, scene_reserved_bytes(scene));
}

/* What others free is of no use to a large heap while it is in a small one. */
POLICY_TEST(small_heaps_serve_no_views)
{
    (void)extent(scene, &scene->lane->small, 0, 6, 1);
    (void)extent(scene, &scene->other->small, 10, 6, 1);
    assert_ok(scene_grow(scene, &scene->lane->large, 6 * GRANULE, GROW_VIEW));
    assert_int_equal(scene_reserved_bytes(scene), 18 * GRANULE);
    assert_int_equal(scene->lane->small.free_bytes, 6 * GRANULE);
    assert_int_equal(scene->other->small.free_bytes, 6 * GRANULE);
}

/* The gap between the first two would be filled with two new granules. */
POLICY_TEST(a_view_comes_before_new_memory)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 26, 4, 1);
    (void)extent(scene, heap, 50, 2, 1);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 10 * GRANULE, GROW_VIEW));
    assert_int_equal(creates(scene), before);
    assert_int_equal(largest_run_bytes(heap), 10 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 10 * GRANULE);
}

POLICY_TEST(new_memory_within_the_target_comes_before_a_view)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 26, 4, 1);
    (void)extent(scene, heap, 50, 2, 1);
    scene->cache->footprint_permille = VMM_FOOTPRINT_ANY;
    assert_ok(scene_grow(scene, heap, 10 * GRANULE, GROW_TARGET));
    assert_int_equal(largest_free_bytes(heap), 10 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 12 * GRANULE);
}

POLICY_TEST(memory_in_limbo_is_released_first)
{
    struct vm *vm = &scene->cache->vm;
    struct heap *heap = &scene->lane->large;
    vmm__arena_take(&vm->arena, 40, 2);
    assert_ok(vmm__vm_map(vm, &heap->lane->owner.pool->account, 40, 2, 2));
    assert_ok(vmm__vm_access(vm, 40, 2));
    vmm__vm_discard(vm, 40, 2, NULL, 0);
    assert_int_equal(vm->counts.limbo_bytes, 2 * GRANULE);
    assert_ok(scene_grow(scene, heap, 3 * GRANULE, GROW_TARGET));
    assert_int_equal(vm->counts.limbo_bytes, 0);
    assert_int_equal(scene->driver->mapped_bytes, scene_reserved_bytes(scene));
}

POLICY_TEST(growth_within_the_target_never_exceeds_it)
{
    struct heap *heap = &scene->lane->large;
    busy_holes_create(scene, heap, 0, 3);
    const struct request request = { .heap = heap, .block_bytes = 6 * GRANULE };
    scene_lock(scene, heap);
    assert_status(vmm__grow_new(scene->cache, &request, true), VMM__NO_FIT);
    scene_unlock(scene, heap);
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 12 * GRANULE);
}

/* 16 granules are free, and the gap has two. */
POLICY_TEST(only_the_deficit_is_new)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 26, 12, 1);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 17 * GRANULE, GROW_VIEW));
    assert_int_equal(creates(scene), before + 1);
    assert_int_equal(scene_reserved_bytes(scene), 17 * GRANULE);
    (void)vmm__heap_give(heap, view_take(heap, 17 * GRANULE));
}

POLICY_TEST(a_placement_that_needs_no_more_wins)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 20, 4, 1);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_VIEW));
    assert_int_equal(largest_free_bytes(heap), 6 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 6 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 6 * GRANULE);
}

/* A free tail of 7 granules, and a free head of 7. */
POLICY_TEST(free_ends_of_partly_live_chunks_serve)
{
    struct heap *heap = &scene->lane->large;
    (void)block_make_live(heap, extent(scene, heap, 20, 8, 8), GRANULE);
    struct block *head = block_make_live(heap, extent(scene, heap, 48, 8, 8), 7 * GRANULE);
    (void)block_make_live(heap, head->next, GRANULE);
    (void)vmm__heap_give(heap, head);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 14 * GRANULE, GROW_VIEW));
    assert_int_equal(creates(scene), before);
    assert_int_equal(largest_run_bytes(heap), 14 * GRANULE);
    (void)vmm__heap_give(heap, view_take(heap, 14 * GRANULE));
}

POLICY_TEST(without_views_growth_is_new_memory)
{
    struct heap *heap = &scene->lane->large;
    scene->cache->has_views = false;
    busy_holes_create(scene, heap, 0, 3);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_VIEW));
    assert_int_equal(scene_reserved_bytes(scene), 18 * GRANULE); /* no hole has room beside it */
    assert_int_equal(scene->driver->mapped_bytes, 18 * GRANULE);
}

/* A refusal is dear: the driver creates what fits, and releases it again. */
POLICY_TEST(growth_asks_a_device_that_has_refused)
{
    const struct request request = { .heap = &scene->lane->large,
                                     .block_bytes = (SCENE_GRANULES - 4) * GRANULE,
                                     .refused = VMM_ERR_DEVICE_OOM };
    struct block *block;
    uint64_t before = creates(scene);
    scene_lock(scene, request.heap);
    assert_status(vmm__grow(scene->cache, &request), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__grow_new(scene->cache, &request, false), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__grow_alone(scene->cache, &request, request.block_bytes, &block),
                  VMM_ERR_DEVICE_OOM);
    scene_unlock(scene, request.heap);
    assert_int_equal(creates(scene), before);
}

POLICY_TEST(growth_alone_is_new_memory)
{
    struct heap *heap = &scene->lane->large;
    struct block *block;
    (void)extent(scene, heap, 20, 4, 1);
    const struct request request = { .heap = heap };
    assert_ok(vmm__grow_alone(scene->cache, &request, 2 * GRANULE, &block));
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(block->node.size, 2 * GRANULE);
    assert_true(block->prev == NULL && block->next == NULL);
    assert_int_equal(scene_reserved_bytes(scene), 6 * GRANULE);
    assert_int_equal(heap->home_end, 0);
}

/* Creates a cache, fills it with blocks and returns its number of chunks. */
static uint64_t chunks_of(uint64_t block_bytes, uint64_t count, uint64_t frees_every,
                          uint64_t limit_bytes)
{
    const struct driver_options options = { .device_bytes = 40960 * MIB };
    struct driver *driver;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    vmm_cache *cache = cache_on(driver, .limit_bytes = limit_bytes);
    for (uint64_t i = 0; i < count; i++) {
        void *block = block_in(cache, block_bytes, NULL);
        if (frees_every == 0 || i % frees_every != 0)
            continue;
        assert_ok(vmm_free(cache, block));
        assert_ok(vmm_alloc(cache, block_bytes, NULL, &block));
    }
    uint64_t chunks = vmm__driver_calls(driver, DRIVER_CALL_create);
    uint64_t live_bytes = count * block_bytes;
    uint64_t reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
    assert_true(reserved_bytes <= live_bytes + live_bytes / 100 + GRANULE);
    assert_ok(vmm_destroy(cache));
    vmm__driver_close(driver);
    return chunks;
}

/* The number of chunks of one block of 1 GiB under a limit. */
static uint64_t chunks_under(uint64_t limit_bytes)
{
    return chunks_of(1024 * MIB, 1, 0, limit_bytes);
}

TEST(chunks_are_small_only_near_the_limit)
{
    assert_int_equal(chunks_under(0), 64); /* of 16 MiB, 1/64 of the block */
    assert_int_equal(chunks_under(4096 * MIB), 64);
    assert_int_equal(chunks_under(1100 * MIB), 256);
}

/*
 * Chunks of k * sqrt(R) MiB, k = 0.4, are 2 / k * sqrt(R) = 5 * sqrt(R) in R MiB, if each is the largest. Requests of a
 * granule make smaller ones, as the target allows, and the number of granules is rounded down.
 */
TEST(chunks_grow_with_the_program)
{
    assert_in_range(chunks_of(32 * MIB, 1024, 0, 0), 905, 2000); /* 32 GiB */
    assert_in_range(chunks_of(1024 * MIB, 32, 0, 0), 800, 1000);
    assert_in_range(chunks_of(2 * MIB, 16384, 0, 0), 905, 2 * 1000);
    assert_in_range(chunks_of(2 * MIB, 4096, 0, 0), 453, 4 * 453);
    assert_in_range(chunks_of(8 * MIB, 256, 0, 0), 226, 5 * 226);
    assert_in_range(chunks_of(2 * MIB, 512, 0, 0), 160, 512);
}

/* With 1 GiB live, requests of a granule make chunks of a quarter of the 16 MiB that the target adds, not of one
 * granule and not of the 13 MiB that are most. */
TEST(small_requests_widen_their_chunk_by_a_share_of_the_room)
{
    uint64_t more = chunks_of(2 * MIB, 1024, 0, 0) - chunks_of(2 * MIB, 512, 0, 0);
    assert_in_range(more, 100, 400); /* for 512 granules */
}

/* Blocks of a quarter of the largest chunk and more have chunks of their own, so that each frees its memory whole. */
TEST(blocks_of_one_size_have_chunks_of_their_own)
{
    uint64_t before =
        chunks_of(32 * MIB, 256, 0, 0); /* 8 GiB, where the largest chunk has 36 MiB */
    assert_int_equal(chunks_of(32 * MIB, 300, 0, 0) - before, 44);
}

/* Fills most of a device with blocks of one size, frees every second one, and allocates blocks of 1 GiB. Returns how
 * much of the device is live in the end. */
static uint64_t live_after_alternate_frees(uint64_t block_bytes)
{
    const struct driver_options options = { .device_bytes = 40960 * MIB };
    uint64_t count = 32768 * MIB / block_bytes;
    void **blocks = calloc(count, sizeof *blocks);
    struct driver *driver;
    void *large;
    assert_non_null(blocks);
    assert_ok(vmm__driver_sim_open(&options, &driver));
    vmm_cache *cache = cache_on_with(driver, NULL);
    for (uint64_t i = 0; i < count; i++)
        assert_ok(vmm_alloc(cache, block_bytes, NULL, &blocks[i]));
    for (uint64_t i = 0; i < count; i += 2)
        assert_ok(vmm_free(cache, blocks[i]));
    while (vmm_alloc(cache, 1024 * MIB, NULL, &large) == VMM_OK)
        ;
    uint64_t live_bytes = vmm__stat_now(&cache->totals.allocated_bytes);
    assert_ok(vmm_destroy(cache));
    vmm__driver_close(driver);
    free(blocks);
    return live_bytes;
}

/* Their holes serve larger blocks, as memory that cudaFree() gave back would. */
TEST(every_second_block_of_one_size_leaves_whole_chunks)
{
    static const uint64_t sizes_mib[] = { 10, 12, 24, 48, 64, 100 };
    for (size_t i = 0; i < sizeof sizes_mib / sizeof *sizes_mib; i++)
        assert_true(live_after_alternate_frees(sizes_mib[i] * MIB) > 38500 * MIB);
}

/* A request of one granule maps a whole chunk, which later requests use. */
TEST(small_requests_map_whole_chunks)
{
    uint64_t chunks = chunks_of(2 * MIB, 4096, 2, 0);
    assert_in_range(chunks, 453, 5 * 453);
    assert_true(chunks_of(2 * MIB, 4096, 0, UINT64_C(8500) * MIB) > chunks);
}

/* The limit is reached and the idle chunks do not suffice: they stay with the heap, and the growth fails. */
POLICY_TEST(failed_growth_keeps_transferred_chunks)
{
    struct heap *heap = &scene->lane->large;
    busy_holes_create(scene, &scene->other->large, 0, 3);
    assert_int_equal(mismatches(scene->driver), 0); /* the work ends */
    scene->cache->vm.limit_bytes = scene_reserved_bytes(scene);
    assert_status(scene_grow(scene, heap, 8 * GRANULE, GROW_VIEW), VMM_ERR_DEVICE_OOM);
    assert_int_equal(heap->free_bytes, 6 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 12 * GRANULE);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_VIEW));
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
}

static struct heap *layout_create(struct scene *scene)
{
    struct heap *heap = &scene->lane->large;
    busy_holes_create(scene, heap, 0, 3);
    busy_holes_create(scene, &scene->other->large, 16, 2);
    return heap;
}

/* Trims, and checks that exactly the live granules stay. */
static void trim_and_check(struct scene *scene)
{
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_int_equal(scene_reserved_bytes(scene), 10 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 10 * GRANULE);
    assert_int_equal(vmm__sim_census(scene->driver).physical_bytes, 10 * GRANULE);
}

/* Each driver call of a growth fails, once or from then on. */
POLICY_TEST(failed_driver_calls_leak_nothing)
{
    static const vmm_status statuses[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM };
    for (int i = 0; i < 4; i++) {
        for (uint64_t call = 1; call <= 40; call++) {
            struct heap *heap = layout_create(scene);
            vmm__sim_fail_at(scene->driver, call, statuses[i / 2], i % 2 != 0);
            (void)scene_grow(scene, heap, 13 * GRANULE, GROW_FOLLOW);
            trim_and_check(scene);
            scene_renew(scene);
        }
    }
}

POLICY_TEST(failed_host_allocations_leak_nothing)
{
    for (uint64_t number = 1; number <= 20; number++) {
        struct heap *heap = layout_create(scene);
        (void)vmm__host_fail_at(number);
        (void)scene_grow(scene, heap, 13 * GRANULE, GROW_FOLLOW);
        trim_and_check(scene);
        scene_renew(scene);
    }
}

/* Views and limbo may occupy all free addresses: requests go on. */
POLICY_TEST(requests_find_addresses_again)
{
    enum { PIECES = 12, ROUNDS = 40 };
    scene->cache->vm.limit_bytes = PIECES * GRANULE;
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    for (int round = 0; round < ROUNDS; round++) {
        void *blocks[PIECES + 1];
        for (int i = 0; i < PIECES; i++) {
            assert_ok(vmm_alloc(scene->cache, GRANULE, STREAM(1), &blocks[i]));
            memory_fill(scene->driver, (uintptr_t)blocks[i], GRANULE, 1, STREAM(1));
        }
        for (int i = 0; i < PIECES; i += 2)
            assert_ok(vmm_free(scene->cache, blocks[i]));
        assert_ok(vmm_alloc(scene->cache, PIECES / 2 * GRANULE, STREAM(1), &blocks[PIECES]));
        memory_fill(scene->driver, (uintptr_t)blocks[PIECES], PIECES / 2 * GRANULE, 2, STREAM(1));
        for (int i = 1; i < PIECES; i += 2)
            assert_ok(vmm_free(scene->cache, blocks[i]));
        assert_ok(vmm_free(scene->cache, blocks[PIECES]));
        assert_ok(vmm__cache_check(scene->cache));
    }
}

/* ---- Idle memory of other pools ---------------------------------------------------------------- */

/* The chunk of the default pool alone would do, but its limit refuses that to the new pool, whose own chunks do. What
 * is free beside a live block could not be released. */
POLICY_TEST(a_pool_at_its_limit_makes_a_view_of_its_own_chunks)
{
    vmm_pool_options options = { .struct_size = sizeof options, .limit_bytes = 6 * GRANULE };
    struct lane *lane;
    vmm_pool *pool = pool_in_with(scene->cache, &options);
    assert_ok(vmm__pool_lane(scene->cache->pools.first, STREAM(1), &lane));
    (void)extent(scene, &scene->lane->large, 20, 4, 4);
    (void)block_make_live(&lane->large, extent(scene, &lane->large, 0, 4, 2), GRANULE);
    assert_ok(vmm__heap_records_keep(&lane->large, 2));
    (void)vmm__heap_take_at(&lane->large, scene_address(scene, 2), 2 * GRANULE);
    (void)extent(scene, &lane->large, 6, 2, 2);
    void *block = block_in_pool(pool, 3 * GRANULE, STREAM(1));
    assert_int_equal(scene_reserved_bytes(scene), 10 * GRANULE);
    assert_ok(vmm_free(scene->cache, block));
}

/* A wait for a stream that is being captured cannot be submitted, so its idle chunk is of no use, though it alone would
 * do. */
POLICY_TEST(idle_memory_of_a_captured_stream_does_not_hinder_a_view)
{
    struct block *block;
    scene_renew_as(scene, CONFIG(.reuse = VMM_REUSE_STREAM_WAIT));
    struct lane *lane = scene->lane;
    scene->cache->vm.limit_bytes = 10 * GRANULE;
    block = extent(scene, &scene->other->large, 20, 4, 4);
    block = block_make_live(&scene->other->large, block, 4 * GRANULE);
    (void)block_free_busy(scene, &scene->other->large, block);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(2)));
    (void)block_make_live(&lane->large, extent(scene, &lane->large, 0, 4, 2), GRANULE);
    assert_ok(vmm__heap_records_keep(&lane->large, 2));
    (void)vmm__heap_take_at(&lane->large, scene_address(scene, 2), 2 * GRANULE);
    (void)extent(scene, &lane->large, 6, 2, 2);
    void *out = block_in(scene->cache, 3 * GRANULE, STREAM(1));
    assert_ok(vmm_free(scene->cache, out));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(2)));
}
