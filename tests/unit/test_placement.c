/* Placements: beside a free block, between two, at the heap's home, at fresh addresses. */
#include "support/policy_support.h"

#include "cache/grow/placement.h"

static struct placement placement_find(struct scene *scene, const struct heap *heap, uint64_t bytes)
{
    struct placement placement;
    assert_ok(vmm__placement_find(scene->cache, heap, bytes, &placement));
    assert_true(placement.count > 0 && placement.room >= placement.count);
    for (uint64_t granule = placement.granule; granule < placement.granule + placement.room;
         granule++) {
        uint64_t first;
        uint64_t count;
        assert_true(vmm__arena_gap(&scene->cache->vm.arena, granule, &first, &count));
    }
    return placement;
}

POLICY_TEST(first_growth_uses_fresh_addresses)
{
    struct placement placement = placement_find(scene, &scene->lane->large, 4 * GRANULE - 5);
    assert_int_equal(placement.granule, 30); /* centred in the arena */
    assert_int_equal(placement.count, 4);
    assert_null(placement.beside);
}

POLICY_TEST(free_blocks_grow_to_the_right)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 20, 4, 4);
    struct block *live = block_make_live(heap, block, 5 * MIB);
    struct placement placement = placement_find(scene, heap, 6 * MIB);
    assert_int_equal(placement.granule, 24);
    assert_int_equal(placement.count, 2);
    assert_ptr_equal(placement.beside, live->next);
}

POLICY_TEST(free_blocks_grow_to_the_left)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 20, 4, 4);
    struct block *low = block_make_live(heap, block, 5 * MIB);
    (void)block_make_live(heap, low->next, 3 * MIB);
    low = vmm__heap_give(heap, low);
    (void)extent(scene, &scene->other->large, 24, 4, 4);
    struct placement placement = placement_find(scene, heap, 8 * MIB);
    assert_int_equal(placement.granule, 18);
    assert_int_equal(placement.count, 2);
    assert_ptr_equal(placement.beside, low);
}

/* The search of the index may have missed the block; extending it gains nothing. */
POLICY_TEST(large_enough_blocks_are_not_extended)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 20, 4, 4);
    struct placement placement = placement_find(scene, heap, 4 * GRANULE);
    assert_int_equal(placement.count, 4);
    assert_null(placement.beside);
    placement = placement_find(scene, heap, 3 * GRANULE);
    assert_int_equal(placement.count, 3);
}

/* A gap that is too small joins the free blocks on both sides. */
POLICY_TEST(two_free_blocks_are_bridged)
{
    struct heap *heap = &scene->lane->large;
    struct block *left = extent(scene, heap, 20, 4, 4);
    (void)extent(scene, heap, 26, 4, 4);
    struct placement placement = placement_find(scene, heap, 10 * GRANULE);
    assert_int_equal(placement.granule, 24);
    assert_int_equal(placement.count, 2);
    assert_ptr_equal(placement.beside, left);
    placement = placement_find(scene, heap, 10 * GRANULE + 1);
    assert_int_not_equal(placement.granule, 24);
}

POLICY_TEST(blocks_of_other_heaps_are_not_bridged)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 20, 4, 4);
    (void)extent(scene, &scene->other->large, 26, 4, 4);
    struct block *far = extent(scene, heap, 40, 4, 4);
    (void)block_make_live(heap, far, GRANULE);
    struct placement placement = placement_find(scene, heap, 9 * GRANULE);
    assert_true(placement.granule + placement.count <= 26 || placement.granule >= 30);
}

POLICY_TEST(the_fewest_new_granules_win)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 4, 2, 2);
    struct block *block = extent(scene, heap, 40, 6, 2);
    struct placement placement = placement_find(scene, heap, 8 * GRANULE);
    assert_int_equal(placement.count, 2);
    assert_ptr_equal(placement.beside, block);
    (void)block_make_live(heap, block, 6 * GRANULE);
    assert_int_equal(placement_find(scene, heap, 8 * GRANULE).count, 6);
}

POLICY_TEST(full_heaps_grow_at_home)
{
    struct heap *heap = &scene->lane->large;
    (void)block_make_live(heap, extent(scene, heap, 20, 4, 4), 4 * GRANULE);
    heap->home_end = scene_address(scene, 24);
    struct placement placement = placement_find(scene, heap, GRANULE);
    assert_int_equal(placement.granule, 24);
    assert_null(placement.beside);
}

static void chunks_release(struct scene *scene, struct heap *heap, struct block *block,
                           uint64_t granule, uint64_t count)
{
    struct vm *memory = &scene->cache->vm;
    assert_ok(vmm__heap_detach(heap, block, scene_address(scene, granule), count * GRANULE));
    vmm__vm_discard(memory, granule, count, NULL, 0);
    assert_ok(vmm__limbo_drain(memory, NULL));
}

POLICY_TEST(home_ends_where_a_trim_left_it)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 20, 8, 1);
    heap->home_end = scene_address(scene, 28);
    struct block *live = block_make_live(heap, block, 3 * GRANULE);
    chunks_release(scene, heap, live->next, 23, 5);
    assert_int_equal(placement_find(scene, heap, 2 * GRANULE).granule, 23);
    live = vmm__heap_give(heap, live);
    chunks_release(scene, heap, live, 20, 3);
    struct placement placement =
        placement_find(scene, heap, 2 * GRANULE); /* the extent is released: the end stays */
    assert_int_equal(placement.granule, 28);
}

/* Grows a heap at home by a block of its granules, which stays live. Returns the first granule. */
static uint64_t home_grow(struct scene *scene, struct heap *heap, uint64_t bytes)
{
    struct placement placement = placement_find(scene, heap, bytes);
    uint64_t end = placement.granule + placement.count;
    struct block *block =
        extent(scene, heap, placement.granule, placement.count, (uint32_t)placement.count);
    vmm__placement_note(heap, scene_address(scene, placement.granule), scene_address(scene, end),
                        bytes);
    (void)block_make_live(heap, block, placement.count * GRANULE);
    return placement.granule;
}

/* Blocks that fill granules badly get room behind them, and each heap goes on where it last grew. */
POLICY_TEST(heaps_with_wasteful_blocks_have_room_at_home)
{
    struct heap *heap = &scene->lane->large;
    struct heap *other = &scene->other->large;
    const uint64_t bytes = 8 * MIB / 5;
    uint64_t first = home_grow(scene, heap, bytes);
    assert_int_equal(home_grow(scene, other, 2 * GRANULE + bytes), first + 1 + 8);
    assert_int_equal(home_grow(scene, heap, 5 * GRANULE), first + 1);
    assert_int_equal(home_grow(scene, heap, 3 * GRANULE), first + 6);
    assert_int_equal(home_grow(scene, heap, bytes), first + 12); /* the room is full */
    assert_int_equal(home_grow(scene, other, GRANULE), first + 13 + 8);
}

POLICY_TEST(blocks_that_fill_granules_lie_side_by_side)
{
    struct heap *heap = &scene->lane->large;
    struct heap *other = &scene->other->large;
    uint64_t first = home_grow(scene, heap, 5 * GRANULE);
    assert_int_equal(home_grow(scene, other, 3 * GRANULE - MIB), first + 5);
    assert_int_equal(home_grow(scene, heap, GRANULE), first + 8);
}

/* A trim may leave a heap more room than it had: then the home ends where it has grown to. */
POLICY_TEST(home_ends_where_the_last_heap_does)
{
    struct heap *heap = &scene->lane->large;
    struct heap *other = &scene->other->large;
    uint64_t first = home_grow(scene, heap, 5 * GRANULE);
    uint64_t far = home_grow(scene, other, 5 * GRANULE);
    struct block *block = vmm__heap_give(other, vmm__heap_cover(other, scene_address(scene, far)));
    chunks_release(scene, other, block, far, 5);
    assert_int_equal(home_grow(scene, heap, 6 * GRANULE), first + 5);
    assert_int_equal(scene->cache->pool.home.end, scene_address(scene, first + 11));
}

/* A block at the high end of its granule leaves the low one free: the next granule must lie before it. */
POLICY_TEST(small_heaps_grow_downward_for_blocks_from_the_high_end)
{
    struct heap *heap = &scene->lane->small;
    const uint64_t high = 256 << 10;
    uint64_t first = home_grow(scene, heap, high);
    assert_int_equal(home_grow(scene, heap, high), first - 1);
    assert_int_equal(home_grow(scene, heap, high - 1), first + 1);
    assert_int_equal(home_grow(scene, heap, high), first - 2);
    struct block *block =
        vmm__heap_give(heap, vmm__heap_cover(heap, scene_address(scene, first - 2)));
    chunks_release(scene, heap, block, first - 2, 1);
    assert_int_equal(home_grow(scene, heap, high), first - 2);
    assert_int_equal(home_grow(scene, heap, high - 1), first + 2);
    (void)extent(scene, &scene->other->large, first - 3, 1, 1);
    assert_int_equal(home_grow(scene, heap, high), first + 3);
}

/* A small block that extends the first one moves the begin of the home. */
POLICY_TEST(small_heaps_begin_where_they_were_extended)
{
    struct heap *heap = &scene->lane->small;
    uint64_t first = home_grow(scene, heap, MIB);
    vmm__placement_note(heap, scene_address(scene, first - 1), scene_address(scene, first), 4096);
    (void)block_make_live(heap, extent(scene, heap, first - 1, 1, 1), GRANULE);
    assert_int_equal(home_grow(scene, heap, MIB), first - 2);
    assert_int_equal(home_grow(scene, heap, 4096), first + 1);
}

/* One free granule follows the home, and a trim has freed the granules before it: the room is their sum. */
POLICY_TEST(room_at_home_includes_trimmed_granules)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = extent(scene, heap, 20, 8, 1);
    heap->home_end = scene_address(scene, 28);
    (void)block_make_live(&scene->other->large, extent(scene, &scene->other->large, 29, 4, 4),
                          4 * GRANULE);
    struct block *live = block_make_live(heap, block, 3 * GRANULE);
    chunks_release(scene, heap, live->next, 23, 5);
    assert_int_equal(placement_find(scene, heap, 6 * GRANULE).granule, 23);
    struct placement placement = placement_find(scene, heap, 7 * GRANULE);
    assert_true(placement.granule + placement.count <= 20 || placement.granule >= 33);
}

POLICY_TEST(home_at_the_arena_end_is_skipped)
{
    struct heap *heap = &scene->lane->large;
    (void)block_make_live(heap, extent(scene, heap, 60, 4, 1), 4 * GRANULE);
    heap->home_end = scene_address(scene, SCENE_GRANULES);
    struct placement placement = placement_find(scene, heap, GRANULE);
    assert_true(placement.granule + placement.count <= 60);
    (void)block_make_live(heap, extent(scene, heap, 0, 4, 1), 4 * GRANULE);
    assert_true(placement_find(scene, heap, 50 * GRANULE).granule >= 4);
}

POLICY_TEST(missing_addresses_are_reported)
{
    struct heap *heap = &scene->lane->large;
    (void)block_make_live(heap, extent(scene, heap, 30, 4, 4), 4 * GRANULE);
    struct placement placement = { .count = 77 };
    assert_status(vmm__placement_find(scene->cache, heap, 31 * GRANULE, &placement),
                  VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm__placement_alone(scene->cache, 29 * GRANULE, &placement),
                  VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(placement.count, 77);
    assert_int_equal(placement_find(scene, heap, 30 * GRANULE).count, 30);
}

POLICY_TEST(placements_alone_touch_no_chunk)
{
    struct heap *heap = &scene->lane->large;
    for (int i = 0; i < 6; i++) {
        struct placement placement;
        assert_ok(vmm__placement_alone(scene->cache, 3 * MIB, &placement));
        assert_int_equal(placement.count, 2);
        assert_null(vmm__vm_chunk(&scene->cache->vm, placement.granule - 1));
        assert_null(vmm__vm_chunk(&scene->cache->vm, placement.granule + placement.count));
        (void)block_make_live(heap, extent(scene, heap, placement.granule, 2, 2), 2 * GRANULE);
    }
}
