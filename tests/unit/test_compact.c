/* Compaction: what it frees, what it leaves alone, and what becomes of it later. */
#include "support/live_support.h"

static void live_granules_get_chunks_of_their_own(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 8, 8);
    (void)lived_at(scene, heap, scene_address(scene, 13) + 4096, MIB);
    assert_ok(compacted(scene, 7 * GRANULE));
    assert_int_equal(scene_reserved(scene), GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, GRANULE);
    assert_int_equal(heap->free_bytes, GRANULE - MIB);
    assert_int_equal(scene_chunk(scene, 13)->granules, 1);
    for (uint64_t granule = 10; granule < 18; granule++) {
        struct heap *owner =
            vmm__directory_heap(&scene->cache->directory, scene_address(scene, granule));
        assert_ptr_equal(owner, granule == 13 ? heap : NULL);
    }
    assert_int_equal(scene->cache->memory.arena.free_granules, SCENE_GRANULES - 1);
    lives_checked(scene);
    (void)territory(scene, heap, 14, 2, 2); /* its addresses are used again */
    (void)lived_at(scene, heap, scene_address(scene, 14), 2 * GRANULE);
}

static void full_granules_in_a_row_stay_together(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 12, 12);
    (void)lived_at(scene, heap, scene_address(scene, 12), 3 * GRANULE);
    (void)lived_at(scene, heap, scene_address(scene, 16) + 512, 2 * GRANULE);
    assert_ok(compacted(scene, GRANULE));
    assert_int_equal(scene_reserved(scene), 6 * GRANULE);
    assert_int_equal(scene_chunk(scene, 12)->granules, 3);
    for (uint64_t granule = 16; granule < 19; granule++)
        assert_int_equal(scene_chunk(scene, granule)->granules, 1);
}

static void places_that_do_not_overlap_share_a_chunk(void **state)
{
    struct scene *scene = *state;
    (void)place_lived(scene, &scene->pool->large, 10, 0, 300);
    (void)place_lived(scene, &scene->other->large, 20, 300, 212);
    assert_ok(compacted(scene, GRANULE));
    assert_int_equal(scene_reserved(scene), GRANULE);
    assert_int_equal(scene->cache->memory.twins, 1);
    assert_true(place_handle(scene, 10) == place_handle(scene, 20));
    assert_int_equal(scene->pool->large.free_bytes + scene->other->large.free_bytes, 0);
    lives_checked(scene);
    assert_int_equal(scene->cache->compactions, 1);
    assert_status(compacted(scene, GRANULE), VMM_NOT_READY);
    assert_int_equal(scene->cache->compactions, 1); /* it moved nothing */
}

static void three_places_and_then_a_ring_share_a_chunk(void **state)
{
    struct scene *scene = *state;
    (void)place_lived(scene, &scene->pool->large, 10, 0, 100);
    (void)place_lived(scene, &scene->other->large, 20, 100, 101);
    (void)place_lived(scene, &scene->pool->small, 30, 201, 102);
    assert_ok(compacted(scene, 2 * GRANULE));
    assert_int_equal(scene_reserved(scene), GRANULE);
    assert_int_equal(scene->cache->memory.twins, 2);
    lives_checked(scene);
    uint64_t ring_handle = place_handle(scene, 10);
    struct block *pinned = place_lived(scene, &scene->other->large, 40, 303, 209);
    live_pinned(&scene->other->large, pinned); /* so it is the ring that moves */
    assert_ok(compacted(scene, GRANULE));
    assert_int_equal(scene_reserved(scene), GRANULE);
    assert_int_equal(scene->cache->memory.twins, 3);
    static const uint64_t places[] = { 10, 20, 30 };
    for (int i = 0; i < 3; i++)
        assert_true(place_handle(scene, places[i]) == place_handle(scene, 40));
    assert_true(place_handle(scene, 10) != ring_handle);
}

static void places_that_overlap_stay_apart(void **state)
{
    struct scene *scene = *state;
    (void)place_lived(scene, &scene->pool->large, 10, 0, 300);
    (void)place_lived(scene, &scene->pool->large, 20, 299, 213);
    assert_status(compacted(scene, GRANULE), VMM_NOT_READY);
    assert_int_equal(scene_reserved(scene), 2 * GRANULE);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_copy), 0);
}

/* The owner's place keeps free what is live nowhere; a block can be had there, in nobody's way. */
static void what_is_live_nowhere_can_be_had_once(void **state)
{
    struct scene *scene = *state;
    (void)place_lived(scene, &scene->pool->large, 10, 0, 100);
    (void)place_lived(scene, &scene->pool->large, 20, 200, 50);
    (void)place_lived(scene, &scene->pool->large, 30, 400, 50);
    assert_ok(compacted(scene, 2 * GRANULE));
    struct heap *heap = &scene->pool->large;
    assert_int_equal(heap->free_bytes, (512 - 200) * PART_BYTES);
    while (heap->free_bytes > 0) {
        const struct size_node *node = vmm__size_index_largest(&heap->index);
        (void)lived_at(scene, heap, ((const struct block *)node)->address, node->size);
    }
    lives_checked(scene);
}

static void pinned_bytes_stay_where_they_are(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 4, 4);
    struct block *in_chunk = lived_at(scene, heap, scene_address(scene, 11), MIB);
    struct block *in_place = place_lived(scene, heap, 20, 0, 10);
    struct block *overlap = place_lived(scene, heap, 30, 0, 20);
    (void)place_lived(scene, heap, 40, 100, 20); /* may be the guest of either */
    live_pinned(heap, in_chunk);
    live_pinned(heap, in_place);
    live_pinned(heap, overlap);
    uint64_t handles[] = { place_handle(scene, 10), place_handle(scene, 20),
                           place_handle(scene, 30) };
    assert_ok(compacted(scene, UINT64_MAX));
    assert_int_equal(scene_reserved(scene), 6 * GRANULE);
    assert_int_equal(scene_chunk(scene, 10)->granules, 4);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(place_handle(scene, 10 + 10 * i) == handles[i]);
    assert_true(place_handle(scene, 40) == handles[1] || place_handle(scene, 40) == handles[2]);
    lives_checked(scene);
    assert_ok(vmm__pool_pin_locked(heap, in_chunk->address, false));
    assert_ok(compacted(scene, 3 * GRANULE));
    assert_int_equal(scene_reserved(scene), 3 * GRANULE);
}

static void nothing_to_gain_is_told(void **state)
{
    struct scene *scene = *state;
    assert_status(compacted(scene, GRANULE), VMM_NOT_READY);
    (void)territory(scene, &scene->pool->large, 10, 4, 4);
    (void)lived_at(scene, &scene->pool->large, scene_address(scene, 10), 4 * GRANULE);
    assert_status(compacted(scene, GRANULE), VMM_NOT_READY);
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_copy), 0);
}

static void only_as_much_as_was_asked_for_moves(void **state)
{
    struct scene *scene = *state;
    for (unsigned i = 0; i < 6; i++)
        (void)place_lived(scene, &scene->pool->large, 10 + 2 * i, 60 * i, 60);
    for (unsigned freed = 1; freed <= 5; freed++) {
        assert_ok(compacted(scene, 1));
        assert_int_equal(scene_reserved(scene), (6 - freed) * GRANULE);
    }
    assert_status(compacted(scene, 1), VMM_NOT_READY);
}

static void it_is_only_done_where_it_may(void **state)
{
    struct scene *scene = *state;
    (void)place_lived(scene, &scene->pool->large, 10, 0, 1);
    (void)place_lived(scene, &scene->pool->large, 20, 1, 1);
    scene->cache->compaction = VMM_COMPACTION_OFF;
    assert_status(compacted(scene, GRANULE), VMM_NOT_READY);
    scene->cache->compaction = VMM_COMPACTION_AUTO;
    scene->cache->has_callers = true;
    assert_status(compacted(scene, GRANULE), VMM_NOT_READY);
    assert_int_equal(scene->driver->stalls, 0);
    scene->cache->compaction = VMM_COMPACTION_ON;
    assert_ok(compacted(scene, GRANULE));
}

/* Work is waited for, also that on blocks freed just now. */
static void work_in_flight_is_waited_for(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)place_lived(scene, heap, 10, 0, 100);
    (void)place_lived(scene, heap, 20, 100, 100);
    struct block *busy = territory(scene, heap, 30, 2, 1);
    (void)block_given_busy(scene, heap, block_lived(heap, busy, 2 * GRANULE));
    assert_ok(compacted(scene, 3 * GRANULE));
    assert_int_equal(scene_reserved(scene), GRANULE);
    assert_true(scene->driver->stalls > 0);
    vmm__sim_lag_set(scene->driver, 0);
}

/* ---- When live blocks go --------------------------------------------------------------------- */

static void places_part_when_their_blocks_are_freed(void **state)
{
    static const unsigned orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 2, 0 }, { 2, 0, 1 } };
    struct scene *scene = *state;
    for (unsigned order = 0; order < 4; order++) {
        for (unsigned i = 0; i < 3; i++)
            (void)place_lived(scene, i == 1 ? &scene->other->large : &scene->pool->large,
                              10 + 10 * i, 100 * i, 100);
        assert_ok(compacted(scene, 2 * GRANULE));
        assert_int_equal(scene->cache->memory.twins, 2);
        for (unsigned i = 0; i < 3; i++) {
            unsigned place = orders[order][i];
            live_given(scene, scene_address(scene, 10 + 10 * place) + place * 100 * PART_BYTES);
            assert_ok(vmm_trim(scene->cache, 0, NULL));
            assert_int_equal(scene->cache->memory.twins, i == 0 ? 1 : 0);
            assert_int_equal(scene_reserved(scene), i == 2 ? 0 : GRANULE);
            assert_int_equal(scene->driver->mapped_bytes, (2 - i) * GRANULE);
            assert_null(scene_chunk(scene, 10 + 10 * place));
            lives_checked(scene);
        }
        assert_int_equal(scene->cache->memory.arena.free_granules, SCENE_GRANULES);
        live_count = 0;
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LIVE_TEST(live_granules_get_chunks_of_their_own),
        LIVE_TEST(full_granules_in_a_row_stay_together),
        LIVE_TEST(places_that_do_not_overlap_share_a_chunk),
        LIVE_TEST(three_places_and_then_a_ring_share_a_chunk),
        LIVE_TEST(places_that_overlap_stay_apart),
        LIVE_TEST(what_is_live_nowhere_can_be_had_once),
        LIVE_TEST(pinned_bytes_stay_where_they_are),
        LIVE_TEST(nothing_to_gain_is_told),
        LIVE_TEST(only_as_much_as_was_asked_for_moves),
        LIVE_TEST(it_is_only_done_where_it_may),
        LIVE_TEST(work_in_flight_is_waited_for),
        LIVE_TEST(places_part_when_their_blocks_are_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
