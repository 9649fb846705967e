/* Growth: the sources of memory, and the state after failures. */
#include "support/policy_support.h"

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
        struct heap *heap = i == 0 ? &scene->pool->large : &scene->pool->small;
        assert_ok(scene_grow(scene, heap, 3 * GRANULE + 512, GROW_TARGET));
        struct block *block = (struct block *)vmm__size_index_largest(&heap->index);
        assert_int_equal(block->node.size, 4 * GRANULE);
        memory_fill(scene->driver, block->address, block->node.size, 1, STREAM(1));
        assert_int_equal(heap->home_end, vmm__block_end(block));
    }
}

POLICY_TEST(own_chunks_move_while_in_use)
{
    struct heap *heap = &scene->pool->large;
    busy_holes_create(scene, heap, 0, 3);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 18 * GRANULE); /* the old mappings too */
    assert_int_equal(scene->driver->stalls, 0);
    struct block *block = (struct block *)vmm__size_index_largest(&heap->index);
    memory_fill(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
    memory_check(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, NULL));
    assert_int_equal(scene->driver->mapped_bytes, 12 * GRANULE);
}

POLICY_TEST(other_streams_chunks_move_after_their_work)
{
    busy_holes_create(scene, &scene->other->large, 0, 3);
    assert_ok(scene_grow(scene, &scene->pool->large, 2 * GRANULE, GROW_STEAL));
    assert_int_equal(scene_reserved_bytes(scene), 14 * GRANULE);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(scene_grow(scene, &scene->pool->large, 8 * GRANULE, GROW_STEAL));
    assert_int_equal(scene_reserved_bytes(scene), 14 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 0);
}

POLICY_TEST(single_granules_move_too)
{
    (void)extent(scene, &scene->other->large, 20, 1, 1);
    assert_ok(scene_grow(scene, &scene->pool->large, GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), 1);
    assert_int_equal(scene->other->large.free_bytes, 0);
}

POLICY_TEST(other_streams_can_be_followed)
{
    busy_holes_create(scene, &scene->other->large, 0, 3);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, &scene->pool->large, 6 * GRANULE, GROW_FOLLOW));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene->driver->stalls, 0);
    struct block *block = (struct block *)vmm__size_index_largest(&scene->pool->large.index);
    memory_fill(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1)); /* must not race */
    memory_check(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
}

POLICY_TEST(chunks_move_between_small_and_large_heaps)
{
    (void)extent(scene, &scene->pool->small, 0, 6, 1);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, &scene->pool->large, 6 * GRANULE, GROW_STEAL));
    assert_ok(scene_grow(scene, &scene->other->small, 3 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene->pool->small.free_bytes, 0);
    assert_int_equal(scene->other->small.free_bytes, 3 * GRANULE);
}

POLICY_TEST(growth_keeps_the_blocks_beside_it)
{
    struct heap *heap = &scene->pool->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 26, 4, 1);
    (void)extent(scene, heap, 50, 2, 1);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 10 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 10 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 10 * GRANULE);
}

/* The gap is filled with chunks of the free block behind it that the request does not need. */
POLICY_TEST(rest_of_the_block_beyond_fills_the_gap)
{
    struct heap *heap = &scene->pool->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 26, 12, 1);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 15 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 16 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 16 * GRANULE);
}

POLICY_TEST(needed_part_of_the_block_beyond_stays)
{
    struct heap *heap = &scene->pool->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)extent(scene, heap, 26, 12, 1);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 17 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before + 1);
    assert_int_equal(scene_reserved_bytes(scene), 17 * GRANULE);
    struct block *block;
    assert_ok(vmm__heap_take(heap, 17 * GRANULE, &block));
}

/* If no chunk can move, live bytes pin the free memory. */
POLICY_TEST(pinned_memory_makes_chunks_small)
{
    struct heap *heap = &scene->pool->large;
    scene->cache->footprint_permille = 1;
    (void)block_make_live(heap, extent(scene, heap, 20, 8, 8), GRANULE);
    (void)block_make_live(heap, extent(scene, heap, 48, 8, 8), GRANULE);
    assert_ok(scene_grow(scene, heap, 10 * GRANULE, GROW_TARGET));
    assert_true(scene->cache->is_fine);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_false(scene->cache->is_fine);
}

POLICY_TEST(chunks_larger_than_the_room_stay)
{
    struct heap *heap = &scene->pool->large;
    (void)extent(scene, heap, 20, 4, 1);
    (void)block_make_live(&scene->other->large, extent(scene, &scene->other->large, 26, 4, 4),
                          4 * GRANULE);
    (void)block_make_live(&scene->other->large, extent(scene, &scene->other->large, 14, 6, 4),
                          6 * GRANULE);
    (void)extent(scene, &scene->other->large, 50, 8, 8);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_STEAL)); /* room for two granules */
    assert_int_equal(scene->other->large.free_bytes, 8 * GRANULE);
}

POLICY_TEST(detached_growth_is_new_memory)
{
    struct heap *heap = &scene->pool->large;
    (void)extent(scene, heap, 20, 4, 1);
    assert_ok(scene_grow(scene, heap, 2 * GRANULE, GROW_DETACHED));
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
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = limit_bytes;
    vmm_cache *cache;
    assert_ok(vmm__cache_create_on(&config, driver, &cache));
    for (uint64_t i = 0; i < count; i++) {
        void *block;
        assert_ok(vmm_alloc(cache, block_bytes, NULL, &block));
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
    assert_int_equal(chunks_under(1100 * MIB), 512);
}

/* 32 GiB: chunks are 1/180 of reserved memory, but smaller in the first 8 GiB. */
POLICY_TEST(loading_creates_few_chunks)
{
    assert_in_range(chunks_of(2 * MIB, 16384, 0, 0), 1500, 2100);
    assert_in_range(chunks_of(32 * MIB, 1024, 0, 0), 1500, 2100);
    assert_in_range(chunks_of(1024 * MIB, 32, 0, 0), 500, 1000);
}

/* With larger chunks, blocks of a few granules would pin much of a small program's memory. */
POLICY_TEST(small_programs_have_small_chunks)
{
    assert_in_range(chunks_of(2 * MIB, 512, 0, 0), 512, 512);
    assert_in_range(chunks_of(8 * MIB, 256, 0, 0), 800, 1024); /* 2 GiB */
    assert_in_range(chunks_of(2 * MIB, 4096, 0, 0), 1500, 1900);
}

POLICY_TEST(programs_that_free_or_have_a_limit_are_not_loading)
{
    assert_in_range(chunks_of(32 * MIB, 256, 2, 0), 1100, 4096);
    assert_in_range(chunks_of(32 * MIB, 256, 0, UINT64_C(17000) * MIB), 1100, 4096);
}

/* A request of one granule maps a whole chunk, which later requests use. */
POLICY_TEST(small_requests_map_whole_chunks)
{
    uint64_t chunks = chunks_of(2 * MIB, 4096, 2, 0);
    assert_in_range(chunks, 1100, 3500);
    assert_true(chunks_of(2 * MIB, 4096, 0, UINT64_C(8500) * MIB) > chunks);
}

/* The limit is reached and the idle chunks do not suffice: they stay with the heap, and the growth fails. */
POLICY_TEST(failed_growth_keeps_moved_chunks)
{
    struct heap *heap = &scene->pool->large;
    busy_holes_create(scene, heap, 0, 3);
    scene->cache->vm.limit_bytes = scene_reserved_bytes(scene);
    assert_status(scene_grow(scene, heap, 8 * GRANULE, GROW_STEAL), VMM_ERR_DEVICE_OOM);
    assert_int_equal(heap->free_bytes, 6 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 12 * GRANULE);
    assert_ok(scene_grow(scene, heap, 6 * GRANULE, GROW_STEAL));
}

static struct heap *layout_create(struct scene *scene)
{
    struct heap *heap = &scene->pool->large;
    busy_holes_create(scene, heap, 0, 3);
    busy_holes_create(scene, &scene->other->small, 16, 2);
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
        for (uint64_t call = 1; call <= 24; call++) {
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
        struct heap *heap = &scene->pool->small;
        busy_holes_create(scene, &scene->pool->large, 0, 3);
        busy_holes_create(scene, &scene->other->small, 16, 2);
        (void)vmm__host_fail_at(number);
        (void)scene_grow(scene, heap, 13 * GRANULE, GROW_FOLLOW);
        trim_and_check(scene);
        scene_renew(scene);
    }
}

/* If old mappings occupy all free addresses, the request waits for them. */
POLICY_TEST(requests_wait_for_addresses_in_limbo)
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
    assert_true(scene->driver->stalls > 0);
}
