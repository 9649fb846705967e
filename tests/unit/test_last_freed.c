/* The last freed block: reuse leaves the heap unchanged, and placement is the same as without
 * it. */
#include "support/engine_support.h"

/* Frees a live block as vmm_free() does. */
static void give_live(struct heap *heap, struct block *block)
{
    if (!vmm__heap_give_last(heap, block, heap->clock))
        (void)vmm__heap_give(heap, block);
}

static struct block *last_freed_create(struct heap *heap, uint64_t bytes)
{
    struct block *block = heap_take(heap, bytes);
    give_live(heap, block);
    assert_ptr_equal(heap->last_freed, block);
    assert_int_equal(block->state, BLOCK_LAST_FREED);
    return block;
}

ENGINE_TEST(same_size_reuses_the_last_freed_block)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 4, 4);
    struct block *block = last_freed_create(heap, MIB);
    struct size_index index = heap->index;
    uint64_t free_bytes = heap->free_bytes;
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(heap_take(heap, MIB), block);
        assert_null(heap->last_freed);
        lane_epoch(engine->lane, 4);
        give_live(heap, block);
    }
    assert_memory_equal(&heap->index, &index, sizeof index);
    assert_int_equal(heap->free_bytes, free_bytes);
    vmm__heap_settle(heap);
    assert_null(heap->last_freed);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 4 * GRANULE);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 4);
}

ENGINE_TEST(another_size_settles_the_last_freed_block)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 4, 4);
    uint64_t address = last_freed_create(heap, MIB)->address;
    assert_int_equal(heap_take(heap, 2 * MIB)->address, address);
    assert_null(heap->last_freed);
}

/* Only the block that was taken last becomes the last freed one, and only one at a time. */
ENGINE_TEST(only_the_last_taken_becomes_the_last_freed)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 4, 4);
    struct block *first = heap_take(heap, MIB);
    struct block *last = heap_take(heap, MIB);
    give_live(heap, first);
    assert_null(heap->last_freed);
    assert_int_equal(first->state, BLOCK_FREE);
    give_live(heap, last);
    assert_null(heap->last_freed);
    engine_check(engine);
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
}

ENGINE_TEST(lock_settles_the_heaps)
{
    struct lane *lane = engine->lane;
    (void)engine_attach(engine, &lane->large, 10, 4, 4);
    (void)engine_attach(engine, &lane->small, 20, 4, 1);
    for (int i = 0; i < 2; i++) {
        (void)last_freed_create(&lane->large, MIB);
        (void)last_freed_create(&lane->small, 64 << 10);
        if (i == 0)
            vmm__lane_lock(lane);
        else
            vmm__lane_lock_second(lane);
        assert_null(lane->large.last_freed);
        assert_null(lane->small.last_freed);
        assert_int_equal(lane->large.free_bytes, 4 * GRANULE);
        assert_int_equal(lane->small.free_bytes, 4 * GRANULE);
        vmm__lane_unlock(lane);
    }
}

ENGINE_TEST(scan_lock_settles_only_lanes_that_allocate_nothing)
{
    struct lane *lane = engine->lane;
    /* Whether the lane allocates before the scan, and whether the scan settles it. */
    static const bool scans[][2] = {
        { true, false }, { true, false }, { false, true }, { true, false }, { false, true },
    };
    (void)engine_attach(engine, &lane->large, 10, 4, 4);
    for (uint64_t i = 0; i < sizeof scans / sizeof *scans; i++) {
        if (scans[i][0]) {
            void *block;
            assert_ok(lane_take(lane, 2 * MIB, &block));
            assert_ok(lane_give(lane, &lane->large, (uintptr_t)block));
            assert_non_null(lane->large.last_freed);
        }
        for (int round = 0; round < 2; round++) { /* one scan may lock a lane twice */
            vmm__lane_lock_for_scan(lane, i + 1);
            assert_true((lane->large.last_freed == NULL) == scans[i][1]);
            vmm__lane_unlock(lane);
        }
    }
}

/* The clock advanced between the frees of two blocks in one granule: the later epoch counts. */
ENGINE_TEST(later_free_keeps_its_epoch)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 1, 1);
    struct block *other = heap_take(heap, 64 << 10);
    (void)last_freed_create(heap, 64 << 10);
    lane_epoch(engine->lane, 7);
    (void)vmm__heap_give(heap, other); /* as for a closing slab or a finished wait */
    vmm__heap_settle(heap);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 7);
}

/* A stamp is of the free: the memory may serve others as soon as what was submitted before that has finished. */
ENGINE_TEST(last_freed_block_is_stamped_as_it_is_freed)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 1, 1);
    lane_epoch(engine->lane, 3);
    (void)last_freed_create(heap, 64 << 10);
    lane_epoch(engine->lane, 7);
    vmm__heap_settle(heap);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 3);
}

/* A block that becomes the best fit is taken, as if there were no last freed block. */
ENGINE_TEST(better_fit_that_is_freed_later_is_taken)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 1, 1);
    struct block *exact = heap_take(heap, 64 << 10);
    uint64_t address = exact->address;
    (void)heap_take(heap, 512);
    (void)last_freed_create(heap, 64 << 10);
    (void)vmm__heap_give(heap, exact);
    assert_int_equal(heap_take(heap, 64 << 10)->address, address);
}

ENGINE_TEST(last_freed_block_is_an_unknown_pointer)
{
    struct lane *lane = engine->lane;
    struct heap *heap = &lane->large;
    (void)engine_attach(engine, heap, 10, 1, 1);
    void *block;
    assert_ok(lane_take(lane, MIB + 512, &block));
    uint64_t address = (uintptr_t)block;
    assert_ok(lane_give(lane, heap, address));
    assert_non_null(heap->last_freed);
    assert_status(lane_give(lane, heap, address), VMM_ERR_UNKNOWN_POINTER);
    assert_status(lane_pin(heap, address, true), VMM_ERR_UNKNOWN_POINTER);
    assert_status(lane_use(lane, heap, address, engine->other), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(lane->counters.allocations.current, 0);
}

ENGINE_TEST(free_unpins_the_last_freed_block)
{
    struct lane *lane = engine->lane;
    struct heap *heap = &lane->large;
    (void)engine_attach(engine, heap, 10, 1, 1);
    void *block;
    void *again;
    assert_ok(lane_take(lane, MIB + 512, &block));
    assert_ok(lane_pin(heap, (uintptr_t)block, true));
    assert_ok(lane_give(lane, heap, (uintptr_t)block));
    assert_int_equal(heap->unmovable_bytes, 0);
    assert_ok(lane_take(lane, MIB + 512, &again));
    assert_ptr_equal(again, block);
    assert_int_equal(heap->unmovable_bytes, 0);
}

/* Growth locks the lane, so that the new memory merges with the last freed block at the edge of
 * the extent. */
ENGINE_TEST(growth_merges_with_the_last_freed_block)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 1, 1);
    struct block *block = last_freed_create(heap, GRANULE);
    assert_null(block->next);
    vmm__lane_lock(engine->lane);
    assert_int_equal(engine_attach(engine, heap, 11, 1, 1)->node.size, 2 * GRANULE);
    vmm__lane_unlock(engine->lane);
}

/* ---- Placement ---------------------------------------------------------------------------- */

enum { SLOTS = 80 };

/* Two heaps of the same shape that get the same requests. The second is settled before each. */
struct heap_pair {
    struct heap *heaps[2];
    uint64_t starts[2];
    struct block *blocks[SLOTS][2];
};

static void pair_take(struct heap_pair *pair, struct block **blocks, uint64_t bytes)
{
    vmm__heap_settle(pair->heaps[1]);
    vmm_status status = vmm__heap_take(pair->heaps[0], bytes, SEARCH_QUICK, &blocks[0]);
    assert_status(vmm__heap_take(pair->heaps[1], bytes, SEARCH_QUICK, &blocks[1]), status);
    if (status != VMM_OK) {
        blocks[0] = NULL;
        return;
    }
    assert_int_equal(blocks[0]->address - pair->starts[0], blocks[1]->address - pair->starts[1]);
}

/* Some frees model slabs and waits, which leave no last freed block. */
static void pair_give(struct heap_pair *pair, struct block **blocks, bool is_live)
{
    if (is_live)
        give_live(pair->heaps[0], blocks[0]);
    else
        (void)vmm__heap_give(pair->heaps[0], blocks[0]);
    (void)vmm__heap_give(pair->heaps[1], blocks[1]);
    blocks[0] = NULL;
}

static unsigned pair_run(struct engine *engine, struct heap_pair *pair, uint64_t seed)
{
    unsigned reusable = 0;
    unsigned slot = 0;
    for (int round = 0; round < 20000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        if ((seed >> 60) % 2 == 0) /* otherwise the same slot: a take that is freed at once */
            slot = (unsigned)(seed >> 33) % SLOTS;
        uint64_t units = (seed >> 58) % 3 == 0 ? (seed >> 45) % 60 + 1 : (seed >> 45) % 3 + 1;
        struct block **blocks = pair->blocks[slot];
        if (blocks[0] != NULL)
            pair_give(pair, blocks, (seed >> 50) % 5 != 0);
        else
            pair_take(pair, blocks, units * 8192);
        reusable += pair->heaps[0]->last_freed != NULL;
        if (round % 500 == 0)
            engine_check(engine);
    }
    return reusable;
}

ENGINE_TEST(placement_is_the_same_without_a_last_freed_block)
{
    for (int i = 0; i < 2; i++) {
        struct heap_pair pair = { .starts = { engine_address(engine, 4 + 20 * (unsigned)i),
                                              engine_address(engine, 12 + 20 * (unsigned)i) } };
        struct lane *lanes[2] = { engine->lane, engine->other };
        for (int j = 0; j < 2; j++) {
            pair.heaps[j] = i == 0 ? &lanes[j]->large : &lanes[j]->small;
            (void)engine_attach(engine, pair.heaps[j], 4 + 20 * (unsigned)i + 8 * (unsigned)j, 6,
                                1);
        }
        assert_true(pair_run(engine, &pair, 5 + (unsigned)i) > 1000);
    }
}
