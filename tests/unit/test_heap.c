/* Heaps and the directory: blocks tile extents, are split and merged, and are found by address. */
#include "support/engine_support.h"

ENGINE_TEST(take_splits_and_give_merges)
{
    struct heap *heap = &engine->lane->large;
    struct block *whole = engine_attach(engine, heap, 10, 8, 4);
    assert_int_equal(whole->node.size, 8 * GRANULE);
    struct block *a = heap_take(heap, 3 * MIB);
    struct block *b = heap_take(heap, 512);
    struct block *c = heap_take(heap, 5 * MIB + 512);
    assert_int_equal(b->address, a->address + 3 * MIB);
    assert_int_equal(c->address, b->address + 512);
    engine_check(engine);
    lane_epoch(engine->lane, 5);
    struct block *merged = vmm__heap_give(heap, b);
    assert_ptr_equal(merged, b);
    lane_epoch(engine->lane, 9);
    merged = vmm__heap_give(heap, a);
    assert_int_equal(merged->node.size, 3 * MIB + 512);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 2), 9);
    engine_check(engine);
    lane_epoch(engine->lane, 12);
    merged = vmm__heap_give(heap, c);
    assert_int_equal(merged->node.size, 8 * GRANULE);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 9);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 11, 4), 12);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 15, 3), 0);
    assert_int_equal(heap->free_bytes, 8 * GRANULE);
    engine_check(engine);
}

/* Detaching the middle of a block takes two records. They are allocated before anything changes. */
ENGINE_TEST(detaching_the_middle_works_with_one_record_left)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 8, 1);
    while (heap->store.spare_count != 1)
        (void)heap_take(heap, 512);
    struct block *rest = vmm__heap_cover(heap, engine_address(engine, 14));
    assert_ok(vmm__heap_detach(heap, rest, engine_address(engine, 14), GRANULE));
    vmm__vm_discard(&engine->memory, 14, 1, NULL, 0);
    assert_null(vmm__directory_heap(&engine->directory, engine_address(engine, 14)));
    assert_int_equal(engine_drain(engine), GRANULE);
}

ENGINE_TEST(take_uses_the_best_fit)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 0, 8, 4);
    struct block *fit = engine_attach(engine, heap, 20, 2, 4);
    (void)engine_attach(engine, heap, 40, 4, 4);
    struct block *block;
    assert_status(vmm__heap_take(heap, 8 * GRANULE + 512, &block), VMM__NO_FIT);
    assert_ptr_equal(heap_take(heap, 2 * GRANULE), fit);
    assert_int_equal(heap_take(heap, 3 * GRANULE)->address, engine_address(engine, 40));
    engine_check(engine);
}

ENGINE_TEST(adjacent_extents_merge)
{
    struct heap *heap = &engine->lane->large;
    struct block *middle = engine_attach(engine, heap, 20, 4, 4);
    struct block *right = engine_attach(engine, heap, 24, 4, 4);
    assert_ptr_equal(right, middle);
    struct block *left = engine_attach(engine, heap, 16, 4, 4);
    assert_int_equal(left->node.size, 12 * GRANULE);
    assert_int_equal(left->address, engine_address(engine, 16));
    (void)engine_attach(engine, heap, 30, 2, 4);
    struct block *bridge = engine_attach(engine, heap, 28, 2, 4);
    assert_int_equal(bridge->node.size, 16 * GRANULE);
    engine_check(engine);
}

ENGINE_TEST(extents_of_different_heaps_do_not_merge)
{
    (void)engine_attach(engine, &engine->lane->large, 20, 4, 4);
    struct block *other = engine_attach(engine, &engine->other->large, 24, 4, 4);
    struct block *small = engine_attach(engine, &engine->lane->small, 16, 4, 1);
    assert_int_equal(other->node.size, 4 * GRANULE);
    assert_int_equal(small->node.size, 4 * GRANULE);
    assert_null(other->prev);
    assert_null(small->next);
    engine_check(engine);
}

/* Looks up every address of a part of the arena: only the starts of blocks are found. */
ENGINE_TEST(find_accepts_only_block_starts)
{
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->lane->large : &engine->lane->small;
        uint64_t granule = i == 0 ? 8 : 32;
        (void)engine_attach(engine, heap, granule, 4, 1);
        static const uint64_t units[] = { 1, 7, 512, 3, 513, 700, 1 };
        struct block *blocks[7];
        for (int j = 0; j < 7; j++)
            blocks[j] = heap_take(heap, units[j] * heap->unit_bytes);
        uint64_t start = engine_address(engine, granule);
        for (uint64_t at = start; at < start + 2 * GRANULE; at += 256) {
            struct block *wanted = NULL;
            for (int j = 0; j < 7; j++)
                wanted = blocks[j]->address == at ? blocks[j] : wanted;
            struct block *found = vmm__heap_find(heap, at);
            if (found != NULL && found->state == BLOCK_FREE)
                found = NULL;
            assert_ptr_equal(found, wanted);
        }
        engine_check(engine);
    }
}

ENGINE_TEST(whole_granules_can_be_detached)
{
    static const uint64_t cuts[][2] = { { 0, 8 }, { 0, 3 }, { 5, 3 }, { 2, 4 } };
    for (int i = 0; i < 8; i++) {
        struct heap *heap = i < 4 ? &engine->lane->large : &engine->lane->small;
        const uint64_t *cut = cuts[i % 4];
        struct block *block = engine_attach(engine, heap, 20, 8, 1);
        uint64_t address = engine_address(engine, 20 + cut[0]);
        assert_ok(vmm__heap_detach(heap, block, address, cut[1] * GRANULE));
        assert_int_equal(heap->free_bytes, (8 - cut[1]) * GRANULE);
        assert_null(vmm__directory_heap(&engine->directory, address));
        engine_check(engine);
        assert_ok(vmm__heap_attach(heap, address, cut[1] * GRANULE, 0));
        struct block *whole = vmm__heap_cover(heap, address);
        assert_int_equal(whole->node.size, 8 * GRANULE);
        engine_check(engine);
        assert_ok(vmm__heap_detach(heap, whole, engine_address(engine, 20), 8 * GRANULE));
        for (uint64_t granule = 20; granule < 28; granule++)
            vmm__limbo_put(&engine->memory, vmm__vm_chunk(&engine->memory, granule), NULL, 0);
        assert_ok(vmm__limbo_drain(&engine->memory, NULL));
    }
}

ENGINE_TEST(directory_finds_the_block_before_a_boundary)
{
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->lane->large : &engine->lane->small;
        uint64_t granule = i == 0 ? 0 : 32;
        (void)engine_attach(engine, heap, granule, 6, 1);
        struct block *first = heap_take(heap, 4096);
        (void)heap_take(heap, 3 * GRANULE); /* a small heap takes this from the high end */
        const struct directory *directory = &engine->directory;
        for (uint64_t at = granule + 1; at <= granule + 6; at++) {
            uint64_t boundary = engine_address(engine, at);
            struct block *before = first;
            while (vmm__block_end(before) < boundary)
                before = before->next;
            assert_ptr_equal(vmm__directory_before(directory, boundary), before);
        }
        assert_null(vmm__directory_before(directory, engine_address(engine, granule)));
        assert_int_equal(first->address, engine_address(engine, granule));
    }
}

ENGINE_TEST(large_and_small_blocks_come_from_different_ends)
{
    struct heap *heap = &engine->lane->small;
    (void)engine_attach(engine, heap, 10, 1, 1);
    struct block *small = heap_take(heap, 252 << 10);
    struct block *big = heap_take(heap, 256 << 10);
    assert_int_equal(small->address, engine_address(engine, 10));
    assert_int_equal(vmm__block_end(big), engine_address(engine, 11));
    engine_check(engine);
}

/* Each granule of a small heap needs an allocation for its slots, after the batch of block
 * records. */
ENGINE_TEST(attach_without_host_memory_changes_nothing)
{
    struct heap *heap = &engine->lane->small;
    engine_map(engine, 20, 4, 1);
    assert_ok(vmm__heap_records_keep(heap, 1));
    for (uint64_t number = 1; number <= 4; number++) {
        (void)vmm__host_fail_at(number);
        vmm_status status = vmm__heap_attach(heap, engine_address(engine, 20), 4 * GRANULE, 0);
        (void)vmm__host_fail_at(0);
        assert_int_equal(status, VMM_ERR_HOST_OOM);
        assert_int_equal(heap->free_bytes, 0);
        assert_null(vmm__directory_heap(&engine->directory, engine_address(engine, 20)));
        engine_check(engine);
    }
}

ENGINE_TEST(records_without_host_memory_change_nothing)
{
    struct heap *heap = &engine->lane->large;
    struct block *block = engine_attach(engine, heap, 20, 4, 1);
    while (heap->store.spare_count > 0)
        (void)heap_take(heap, 512);
    struct block *rest = (struct block *)vmm__size_index_largest(&heap->index);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__heap_take(heap, 512, &block), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(1);
    uint64_t address = engine_address(engine, 22);
    assert_status(vmm__heap_detach(heap, rest, address, GRANULE), VMM_ERR_HOST_OOM);
    engine_check(engine);
    (void)heap_take(heap, 512);
}

ENGINE_TEST(cover_finds_the_block_of_every_address)
{
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->lane->large : &engine->lane->small;
        uint64_t granule = i == 0 ? 8 : 32;
        struct block *block = engine_attach(engine, heap, granule, 4, 2);
        uint64_t start = block->address;
        static const uint64_t units[] = { 1, 600, 3, 1, 512, 40, 9 };
        for (int j = 0; j < 7; j++)
            (void)heap_take(heap, units[j] * heap->unit_bytes);
        block = *vmm__directory_slot(&engine->directory, start);
        for (uint64_t at = start; at < start + 4 * GRANULE; at += 256) {
            block = at < vmm__block_end(block) ? block : block->next;
            assert_ptr_equal(vmm__heap_cover(heap, at), block);
        }
    }
}

ENGINE_TEST(random_blocks_keep_the_invariants)
{
    struct heap *heap = &engine->lane->small;
    (void)engine_attach(engine, heap, 4, 6, 1);
    (void)engine_attach(engine, heap, 14, 6, 1);
    struct block *blocks[200] = { NULL };
    uint64_t seed = 4;
    for (int round = 0; round < 20000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        struct block **slot = &blocks[(seed >> 33) % 200];
        uint64_t bytes = ((seed >> 45) % 60 + 1) * 4096;
        if (*slot != NULL) {
            assert_ptr_equal(vmm__heap_find(heap, (*slot)->address), *slot);
            (void)vmm__heap_give(heap, *slot);
            *slot = NULL;
        } else if (vmm__heap_take(heap, bytes, slot) != VMM_OK) {
            *slot = NULL;
        }
        if (round % 100 == 0)
            engine_check(engine);
    }
    for (int i = 0; i < 200; i++) {
        if (blocks[i] != NULL)
            (void)vmm__heap_give(heap, blocks[i]);
    }
    engine_check(engine);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 6 * GRANULE);
}

ENGINE_TEST(check_finds_damage)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 10, 8, 4);
    struct block *a = heap_take(heap, 3 * MIB);
    struct block *b = heap_take(heap, 3 * MIB);
    a->node.size -= 512;
    assert_status(lane_check(engine->lane), VMM_ERR_INTERNAL);
    a->node.size += 512;
    b->prev = NULL;
    assert_status(lane_check(engine->lane), VMM_ERR_INTERNAL);
    b->prev = a;
    b->state = BLOCK_FREE;
    assert_status(lane_check(engine->lane), VMM_ERR_INTERNAL);
    b->state = BLOCK_LIVE;
    heap->free_bytes++;
    assert_status(lane_check(engine->lane), VMM_ERR_INTERNAL);
    heap->free_bytes--;
    engine_check(engine);
}
