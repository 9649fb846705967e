/* Growing and stealing: where the memory comes from, and what is left when something fails. */
#include "support/policy_support.h"

/* Territories of 2 free and 2 live granules, in chunks of one, the free ones still in use. */
static void holes_busy(struct scene *scene, struct heap *heap, uint64_t granule, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct block *block = territory(scene, heap, granule + 4 * i, 4, 1);
        struct block *first = block_lived(heap, block, 2 * GRANULE);
        (void)block_lived(heap, first->next != NULL ? first->next : first->prev, 2 * GRANULE);
        (void)block_given_busy(scene, heap, first);
    }
}

static void new_memory_can_be_used(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &scene->pool->large : &scene->pool->small;
        assert_ok(grown(scene, heap, 3 * GRANULE + 512, GROW_TARGET));
        struct block *block = (struct block *)vmm__size_index_largest(&heap->index);
        assert_int_equal(block->node.size, 4 * GRANULE);
        sim_filled(scene->driver, block->address, block->node.size, 1, STREAM(1));
        assert_int_equal(heap->home_end, vmm__block_end(block));
    }
}

static void own_chunks_are_handed_over_in_flight(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    holes_busy(scene, heap, 0, 3);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, heap, 6 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene_reserved(scene), 12 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 18 * GRANULE); /* stale mappings too */
    assert_int_equal(scene->driver->stalls, 0);
    struct block *block = (struct block *)vmm__size_index_largest(&heap->index);
    sim_filled(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
    sim_checked(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
    assert_int_equal(scene->driver->mapped_bytes, 12 * GRANULE);
}

static void other_streams_chunks_are_had_when_they_are_done(void **state)
{
    struct scene *scene = *state;
    holes_busy(scene, &scene->other->large, 0, 3);
    assert_ok(grown(scene, &scene->pool->large, 2 * GRANULE, GROW_STEAL));
    assert_int_equal(scene_reserved(scene), 14 * GRANULE);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(grown(scene, &scene->pool->large, 8 * GRANULE, GROW_STEAL));
    assert_int_equal(scene_reserved(scene), 14 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 0);
}

static void a_single_granule_is_stolen_too(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 20, 1, 1);
    assert_ok(grown(scene, &scene->pool->large, GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), 1);
    assert_int_equal(scene->other->large.free_bytes, 0);
}

static void other_streams_can_be_followed(void **state)
{
    struct scene *scene = *state;
    holes_busy(scene, &scene->other->large, 0, 3);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, &scene->pool->large, 6 * GRANULE, GROW_FOLLOW));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene->driver->stalls, 0);
    struct block *block = (struct block *)vmm__size_index_largest(&scene->pool->large.index);
    sim_filled(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1)); /* must not race */
    sim_checked(scene->driver, block->address, 6 * GRANULE, 2, STREAM(1));
}

static void small_heaps_give_to_large_ones_and_back(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->small, 0, 6, 1);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, &scene->pool->large, 6 * GRANULE, GROW_STEAL));
    assert_ok(grown(scene, &scene->other->small, 3 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(scene->pool->small.free_bytes, 0);
    assert_int_equal(scene->other->small.free_bytes, 3 * GRANULE);
}

static void what_the_site_builds_on_is_not_robbed(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 1);
    (void)territory(scene, heap, 26, 4, 1);
    (void)territory(scene, heap, 50, 2, 1);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, heap, 10 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 10 * GRANULE);
    assert_int_equal(scene_reserved(scene), 10 * GRANULE);
}

/* The void is filled with what the request leaves of the free block behind it. */
static void the_rest_of_the_block_beyond_fills_the_void(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 1);
    (void)territory(scene, heap, 26, 12, 1);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, heap, 15 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 16 * GRANULE);
    assert_int_equal(scene_reserved(scene), 16 * GRANULE);
}

static void what_the_request_needs_of_the_block_beyond_stays(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 1);
    (void)territory(scene, heap, 26, 12, 1);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, heap, 17 * GRANULE, GROW_STEAL));
    assert_int_equal(creates(scene), before + 1);
    assert_int_equal(scene_reserved(scene), 17 * GRANULE);
    struct block *block;
    assert_ok(vmm__heap_take(heap, 17 * GRANULE, &block));
}

/* When nothing more can be moved, what is free is pinned. */
static void pinned_memory_makes_chunks_fine(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    scene->cache->footprint_permille = 1;
    (void)block_lived(heap, territory(scene, heap, 20, 8, 8), GRANULE);
    (void)block_lived(heap, territory(scene, heap, 48, 8, 8), GRANULE);
    assert_ok(grown(scene, heap, 10 * GRANULE, GROW_TARGET));
    assert_true(scene->cache->is_fine);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_false(scene->cache->is_fine);
}

static void chunks_too_large_for_the_room_stay(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 1);
    (void)block_lived(&scene->other->large, territory(scene, &scene->other->large, 26, 4, 4),
                      4 * GRANULE);
    (void)block_lived(&scene->other->large, territory(scene, &scene->other->large, 14, 6, 4),
                      6 * GRANULE);
    (void)territory(scene, &scene->other->large, 50, 8, 8);
    assert_ok(grown(scene, heap, 6 * GRANULE, GROW_STEAL)); /* room for two granules */
    assert_int_equal(scene->other->large.free_bytes, 8 * GRANULE);
}

static void alone_is_new_and_apart(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 1);
    assert_ok(grown(scene, heap, 2 * GRANULE, GROW_ALONE));
    assert_int_equal(scene_reserved(scene), 6 * GRANULE);
    assert_int_equal(heap->home_end, 0);
}

/* Fills a cache of its own with blocks, and tells how many chunks it has then. */
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
    uint64_t reserved_bytes = vmm__figure_now(&cache->memory.reserved_bytes);
    assert_true(reserved_bytes <= live_bytes + live_bytes / 100 + GRANULE);
    assert_ok(vmm_destroy(cache));
    vmm__driver_close(driver);
    return chunks;
}

/* For one block of 1 GiB under a limit. */
static uint64_t chunks_under(uint64_t limit_bytes)
{
    return chunks_of(1024 * MIB, 1, 0, limit_bytes);
}

static void only_a_near_limit_makes_chunks_small(void **state)
{
    (void)state;
    assert_int_equal(chunks_under(0), 64); /* of 16 MiB, 1/64 of the block */
    assert_int_equal(chunks_under(4096 * MIB), 64);
    assert_int_equal(chunks_under(1100 * MIB), 512);
}

/* 32 GiB: chunks of 1/180 of what there is, but smaller in the first 8 GiB. */
static void what_is_loaded_lies_in_few_chunks(void **state)
{
    (void)state;
    assert_in_range(chunks_of(2 * MIB, 16384, 0, 0), 1500, 2100);
    assert_in_range(chunks_of(32 * MIB, 1024, 0, 0), 1500, 2100);
    assert_in_range(chunks_of(1024 * MIB, 32, 0, 0), 500, 1000);
}

/* Otherwise blocks of a few granules would pin much of a small program's memory. */
static void small_programs_have_small_chunks(void **state)
{
    (void)state;
    assert_in_range(chunks_of(2 * MIB, 512, 0, 0), 512, 512);
    assert_in_range(chunks_of(8 * MIB, 256, 0, 0), 800, 1024); /* 2 GiB */
    assert_in_range(chunks_of(2 * MIB, 4096, 0, 0), 1500, 1900);
}

static void what_frees_or_has_a_limit_does_not_load(void **state)
{
    (void)state;
    assert_in_range(chunks_of(32 * MIB, 256, 2, 0), 1100, 4096);
    assert_in_range(chunks_of(32 * MIB, 256, 0, UINT64_C(17000) * MIB), 1100, 4096);
}

/* A block of a granule takes a whole chunk, so that those after it need none. */
static void a_small_request_gets_a_whole_chunk(void **state)
{
    (void)state;
    uint64_t chunks = chunks_of(2 * MIB, 4096, 2, 0);
    assert_in_range(chunks, 1100, 3500);
    assert_true(chunks_of(2 * MIB, 4096, 0, UINT64_C(8500) * MIB) > chunks);
}

/* The device is full but for what can be stolen: that is gained, the request is told. */
static void a_growth_that_falls_short_keeps_what_it_stole(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    holes_busy(scene, heap, 0, 3);
    scene->cache->memory.limit_bytes = scene_reserved(scene);
    assert_status(grown(scene, heap, 8 * GRANULE, GROW_STEAL), VMM_ERR_DEVICE_OOM);
    assert_int_equal(heap->free_bytes, 6 * GRANULE);
    assert_int_equal(scene_reserved(scene), 12 * GRANULE);
    assert_ok(grown(scene, heap, 6 * GRANULE, GROW_STEAL));
}

static struct heap *laid_out(struct scene *scene)
{
    struct heap *heap = &scene->pool->large;
    holes_busy(scene, heap, 0, 3);
    holes_busy(scene, &scene->other->small, 16, 2);
    return heap;
}

/* All that is idle goes back; exactly the live granules stay. */
static void idle_returned(struct scene *scene)
{
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_int_equal(scene_reserved(scene), 10 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, 10 * GRANULE);
    assert_int_equal(vmm__sim_census(scene->driver).physical_bytes, 10 * GRANULE);
}

/* Each call of a growth that steals and maps fails, once and for ever. */
static void failed_calls_lose_nothing(void **state)
{
    static const vmm_status statuses[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM };
    for (int i = 0; i < 4; i++) {
        for (uint64_t call = 1; call <= 24; call++) {
            struct scene *scene = *state;
            struct heap *heap = laid_out(scene);
            vmm__sim_fail_at(scene->driver, call, statuses[i / 2], i % 2 != 0);
            (void)grown(scene, heap, 13 * GRANULE, GROW_FOLLOW);
            idle_returned(scene);
            assert_int_equal(scene_teardown(state), 0);
            assert_int_equal(scene_setup(state), 0);
        }
    }
}

static void failed_allocations_lose_nothing(void **state)
{
    for (uint64_t number = 1; number <= 20; number++) {
        struct scene *scene = *state;
        struct heap *heap = &scene->pool->small;
        holes_busy(scene, &scene->pool->large, 0, 3);
        holes_busy(scene, &scene->other->small, 16, 2);
        (void)vmm__host_fail_at(number);
        (void)grown(scene, heap, 13 * GRANULE, GROW_FOLLOW);
        idle_returned(scene);
        assert_int_equal(scene_teardown(state), 0);
        assert_int_equal(scene_setup(state), 0);
    }
}

/* Stale mappings may hold all addresses that are left: the request waits for them. */
static void addresses_in_limbo_are_waited_for(void **state)
{
    enum { PIECES = 12, ROUNDS = 40 };
    struct scene *scene = *state;
    scene->cache->memory.limit_bytes = PIECES * GRANULE;
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    for (int round = 0; round < ROUNDS; round++) {
        void *blocks[PIECES + 1];
        for (int i = 0; i < PIECES; i++) {
            assert_ok(vmm_alloc(scene->cache, GRANULE, STREAM(1), &blocks[i]));
            sim_filled(scene->driver, (uintptr_t)blocks[i], GRANULE, 1, STREAM(1));
        }
        for (int i = 0; i < PIECES; i += 2)
            assert_ok(vmm_free(scene->cache, blocks[i]));
        assert_ok(vmm_alloc(scene->cache, PIECES / 2 * GRANULE, STREAM(1), &blocks[PIECES]));
        sim_filled(scene->driver, (uintptr_t)blocks[PIECES], PIECES / 2 * GRANULE, 2, STREAM(1));
        for (int i = 1; i < PIECES; i += 2)
            assert_ok(vmm_free(scene->cache, blocks[i]));
        assert_ok(vmm_free(scene->cache, blocks[PIECES]));
        assert_ok(vmm__cache_check(scene->cache));
    }
    assert_true(scene->driver->stalls > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(new_memory_can_be_used),
        POLICY_TEST(own_chunks_are_handed_over_in_flight),
        POLICY_TEST(other_streams_chunks_are_had_when_they_are_done),
        POLICY_TEST(a_single_granule_is_stolen_too),
        POLICY_TEST(other_streams_can_be_followed),
        POLICY_TEST(small_heaps_give_to_large_ones_and_back),
        POLICY_TEST(what_the_site_builds_on_is_not_robbed),
        POLICY_TEST(the_rest_of_the_block_beyond_fills_the_void),
        POLICY_TEST(what_the_request_needs_of_the_block_beyond_stays),
        POLICY_TEST(pinned_memory_makes_chunks_fine),
        POLICY_TEST(chunks_too_large_for_the_room_stay),
        POLICY_TEST(alone_is_new_and_apart),
        cmocka_unit_test(only_a_near_limit_makes_chunks_small),
        POLICY_TEST(what_is_loaded_lies_in_few_chunks),
        POLICY_TEST(small_programs_have_small_chunks),
        POLICY_TEST(what_frees_or_has_a_limit_does_not_load),
        POLICY_TEST(a_small_request_gets_a_whole_chunk),
        POLICY_TEST(a_growth_that_falls_short_keeps_what_it_stole),
        POLICY_TEST(failed_calls_lose_nothing),
        POLICY_TEST(failed_allocations_lose_nothing),
        POLICY_TEST(addresses_in_limbo_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
