/* Compaction: what it releases and what it leaves alone. Pins, and caches that do not compact: see
 * ../api/test_cache_compact.c. */
#include "support/live_support.h"

LIVE_TEST(live_granules_move_to_chunks_of_their_own)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 8, 8);
    (void)live_block_at(scene, heap, scene_address(scene, 13) + 4096, MIB);
    assert_ok(scene_compact(scene, 7 * GRANULE));
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, GRANULE);
    assert_int_equal(heap->free_bytes, GRANULE - MIB);
    assert_int_equal(scene_chunk(scene, 13)->granules, 1);
    for (uint64_t granule = 10; granule < 18; granule++) {
        struct heap *owner =
            vmm__directory_heap(&scene->cache->directory, scene_address(scene, granule));
        assert_ptr_equal(owner, granule == 13 ? heap : NULL);
    }
    assert_int_equal(scene->cache->vm.arena.free_granules, SCENE_GRANULES - 1);
    live_blocks_check(scene);
    (void)extent(scene, heap, 14, 2, 2); /* the addresses can be reused */
    (void)live_block_at(scene, heap, scene_address(scene, 14), 2 * GRANULE);
}

LIVE_TEST(adjacent_live_granules_share_a_chunk)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 12, 12);
    (void)live_block_at(scene, heap, scene_address(scene, 12), 3 * GRANULE);
    (void)live_block_at(scene, heap, scene_address(scene, 16) + 512, 2 * GRANULE);
    assert_ok(scene_compact(scene, GRANULE));
    assert_int_equal(scene_reserved_bytes(scene), 6 * GRANULE);
    assert_int_equal(scene_chunk(scene, 12)->granules, 3);
    assert_int_equal(scene_chunk(scene, 16)->granules, 3);
}

/* A block in a view lies over the free tail of one chunk and over half of another; then the bytes before the tail are
 * freed, so that both chunks have a free granule. */
static struct block *view_make(struct scene *scene, struct heap *heap)
{
    (void)extent(scene, heap, 10, 4, 4);
    (void)live_block_at(scene, heap, scene_address(scene, 10), 3 * MIB);
    (void)extent(scene, heap, 20, 2, 2);
    assert_ok(scene_grow(scene, heap, 8 * MIB, GROW_VIEW));
    struct block *block = live_view_take(scene, heap, 6 * MIB);
    live_block_free(scene, scene_address(scene, 10));
    assert_int_equal(scene_chunk(scene, 10)->granules, 4);
    return block;
}

LIVE_TEST(blocks_in_views_keep_their_address_when_their_chunks_move)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = view_make(scene, heap);
    uint64_t address = block->address;
    uint64_t handles[] = { place_handle(scene, 11), place_handle(scene, 20) };
    assert_ok(scene_compact(scene, 2 * GRANULE));
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    assert_true(place_handle(scene, 11) != handles[0] && place_handle(scene, 20) != handles[1]);
    for (uint64_t granule = 11; granule <= 20; granule += 9) {
        const struct chunk *chunk = scene_chunk(scene, granule);
        assert_int_equal(chunk->granules, granule == 11 ? 3 : 1);
        assert_int_equal(chunk->places, 1);
        assert_int_equal(scene->cache->views.places[chunk->place].users, 1);
    }
    assert_int_equal(scene->driver->mapped_bytes, 8 * GRANULE);
    assert_ptr_equal(vmm__views_cover(&scene->cache->views, address + 6 * MIB - 1), block);
    live_blocks_check(scene);
    live_block_free(scene, address); /* the row stays, with a whole granule at both ends */
    assert_int_equal(live_view_take(scene, heap, 8 * MIB)->address, address - MIB);
    live_blocks_check(scene);
}

LIVE_TEST(chunks_under_pinned_blocks_in_views_do_not_move)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = view_make(scene, heap);
    live_block_pin(heap, block);
    assert_status(scene_compact(scene, UINT64_MAX), VMM__NOTHING);
    assert_int_equal(scene_reserved_bytes(scene), 6 * GRANULE);
    assert_ok(lane_pin(heap, block->address, false));
    (void)atomic_fetch_add(&scene->cache->unpins, 1);
    assert_ok(scene_compact(scene, UINT64_MAX));
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
}

/* One block ends on the head of a chunk, another begins on its tail. The granules between them leave their row. */
LIVE_TEST(a_row_is_split_where_a_chunk_was_free)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 8, 8);
    uint64_t middle = scene_address(scene, 10) + 3 * MIB;
    (void)live_block_at(scene, heap, middle, 8 * MIB);
    (void)live_block_at(scene, heap, middle + 8 * MIB, 2 * MIB);
    (void)extent(scene, heap, 20, 2, 2);
    assert_ok(scene_grow(scene, heap, 7 * MIB, GROW_VIEW));
    struct block *first = live_view_take(scene, heap, 7 * MIB);
    (void)extent(scene, heap, 24, 2, 2);
    assert_ok(scene_grow(scene, heap, 7 * MIB, GROW_VIEW));
    struct block *second = live_view_take(scene, heap, 7 * MIB);
    const struct view_place *place = &scene->cache->views.places[scene_chunk(scene, 10)->place];
    assert_int_equal(scene_chunk(scene, 10)->places, 1);
    assert_int_equal(place->users, 2);
    live_block_free(scene, middle);
    assert_ok(scene_compact(scene, UINT64_MAX));
    assert_int_equal(scene_reserved_bytes(scene), 9 * GRANULE);
    for (uint64_t granule = 10; granule <= 15; granule += 5) {
        assert_int_equal(scene_chunk(scene, granule)->granules, granule == 10 ? 2 : 3);
        assert_int_equal(scene_chunk(scene, granule)->places, 1);
    }
    live_blocks_check(scene);
    live_block_free(scene, first->address);
    live_blocks_check(scene);
    live_block_free(scene, second->address);
}

LIVE_TEST(idle_places_are_unmapped_before_their_chunk_moves)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 4, 4);
    (void)live_block_at(scene, heap, scene_address(scene, 10), MIB);
    (void)extent(scene, heap, 20, 2, 2);
    assert_ok(scene_grow(scene, heap, 5 * GRANULE, GROW_VIEW));
    uint64_t place = scene_chunk(scene, 10)->place;
    struct block *block = view_take(heap, 4 * GRANULE);
    (void)vmm__heap_give(heap, block);
    assert_ok(scene_compact(scene, 3 * GRANULE));
    assert_int_equal(scene->cache->counts.compactions, 1);
    assert_int_equal(scene_chunk(scene, 10)->granules, 1);
    assert_int_equal(scene_chunk(scene, 10)->places, 0);
    assert_null(scene_chunk(scene, place));
    live_blocks_check(scene);
}

LIVE_TEST(compaction_reports_that_it_gained_nothing)
{
    assert_status(scene_compact(scene, GRANULE), VMM__NOTHING);
    (void)extent(scene, &scene->lane->large, 10, 4, 4);
    (void)live_block_at(scene, &scene->lane->large, scene_address(scene, 10), 4 * GRANULE);
    assert_status(scene_compact(scene, GRANULE), VMM__NOTHING);
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_copy), 0);
}

/* As after a trim. */
LIVE_TEST(lanes_without_memory_are_vacated)
{
    (void)extent(scene, &scene->lane->large, 10, 4, 4);
    assert_ok(vmm_compact(scene->cache, 0, NULL, NULL));
    assert_int_equal(scene_reserved_bytes(scene), 0);
    assert_null(scene->lane->list); /* its stream has not ended */
}

/* A chunk of four granules with live bytes in one. */
static void chunk_make_live(struct scene *scene, struct heap *heap, uint64_t granule)
{
    (void)extent(scene, heap, granule, 4, 4);
    (void)live_block_at(scene, heap, scene_address(scene, granule + 1), MIB);
}

LIVE_TEST(compaction_moves_only_what_the_request_needs)
{
    for (unsigned i = 0; i < 4; i++)
        chunk_make_live(scene, &scene->lane->large, 4 + 8 * i);
    for (unsigned moved = 1; moved <= 4; moved++) {
        assert_ok(scene_compact(scene, 1));
        assert_int_equal(scene_reserved_bytes(scene), (16 - 3 * moved) * GRANULE);
        assert_int_equal(scene->cache->counts.compactions, moved);
    }
    assert_status(scene_compact(scene, 1), VMM__NOTHING);
    assert_int_equal(scene->cache->counts.compactions, 4); /* the last call moved nothing */
}

/* The first chunk has no room for its copy until the second, which needs less, is released. */
LIVE_TEST(a_chunk_without_room_is_tried_again)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 4, 12, 12);
    (void)live_block_at(scene, heap, scene_address(scene, 6), 3 * GRANULE);
    (void)extent(scene, heap, 20, 4, 4);
    (void)live_block_at(scene, heap, scene_address(scene, 21), GRANULE);
    scene->cache->vm.limit_bytes = 17 * GRANULE;
    assert_ok(scene_compact(scene, UINT64_MAX));
    assert_int_equal(scene_reserved_bytes(scene), 4 * GRANULE);
    scene->cache->vm.limit_bytes = 0;
}

/* Every other granule is live, in a chunk larger than the cache makes. */
LIVE_TEST(a_chunk_splits_into_any_number_of_parts)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 0, 20, 20);
    for (unsigned i = 0; i < 10; i++)
        (void)live_block_at(scene, heap, scene_address(scene, 2 * i), GRANULE);
    assert_ok(scene_compact(scene, UINT64_MAX));
    assert_int_equal(scene_reserved_bytes(scene), 10 * GRANULE);
}

/* Compaction waits for all work, including that on blocks freed just before. */
LIVE_TEST(compaction_waits_for_work_in_flight)
{
    struct heap *heap = &scene->lane->large;
    chunk_make_live(scene, heap, 10);
    struct block *busy = extent(scene, heap, 30, 2, 1);
    (void)block_free_busy(scene, heap, block_make_live(heap, busy, 2 * GRANULE));
    assert_ok(scene_compact(scene, 5 * GRANULE));
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
    assert_true(scene->driver->counts.stalls > 0);
    vmm__sim_lag_set(scene->driver, 0);
}
