/* Heaps and the directory: blocks tile territories, join, split, and are found by address alone. */
#include "support/engine_support.h"

static void taking_splits_and_giving_joins(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    struct block *whole = engine_attached(engine, heap, 10, 8, 4);
    assert_int_equal(whole->node.size, 8 * GRANULE);
    struct block *a = heap_taken(heap, 3 * MIB);
    struct block *b = heap_taken(heap, 512);
    struct block *c = heap_taken(heap, 5 * MIB + 512);
    assert_int_equal(b->address, a->address + 3 * MIB);
    assert_int_equal(c->address, b->address + 512);
    engine_checked(engine);
    struct block *joined = vmm__heap_give(heap, b, 5);
    assert_ptr_equal(joined, b);
    joined = vmm__heap_give(heap, a, 9);
    assert_int_equal(joined->node.size, 3 * MIB + 512);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 2), 9);
    engine_checked(engine);
    joined = vmm__heap_give(heap, c, 12);
    assert_int_equal(joined->node.size, 8 * GRANULE);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 9);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 11, 4), 12);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 15, 3), 0);
    assert_int_equal(heap->free_bytes, 8 * GRANULE);
    engine_checked(engine);
}

/* Cutting a piece out of a block's middle takes two records: they are made before anything changes. */
static void a_piece_of_the_middle_is_detached_with_one_record_left(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 8, 1);
    while (heap->store.spare_count != 1)
        (void)heap_taken(heap, 512);
    struct block *rest = vmm__heap_cover(heap, engine_address(engine, 14));
    assert_ok(vmm__heap_detach(heap, rest, engine_address(engine, 14), GRANULE));
    vmm__memory_discard(&engine->memory, 14, 1, NULL, 0);
    assert_null(vmm__directory_heap(&engine->directory, engine_address(engine, 14)));
    assert_int_equal(engine_drained(engine), GRANULE);
}

static void the_best_fit_is_taken(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 0, 8, 4);
    struct block *fit = engine_attached(engine, heap, 20, 2, 4);
    (void)engine_attached(engine, heap, 40, 4, 4);
    struct block *block;
    assert_status(vmm__heap_take(heap, 8 * GRANULE + 512, &block), VMM_NOT_READY);
    assert_ptr_equal(heap_taken(heap, 2 * GRANULE), fit);
    assert_int_equal(heap_taken(heap, 3 * GRANULE)->address, engine_address(engine, 40));
    engine_checked(engine);
}

static void territories_join_on_either_side(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    struct block *middle = engine_attached(engine, heap, 20, 4, 4);
    struct block *right = engine_attached(engine, heap, 24, 4, 4);
    assert_ptr_equal(right, middle);
    struct block *left = engine_attached(engine, heap, 16, 4, 4);
    assert_int_equal(left->node.size, 12 * GRANULE);
    assert_int_equal(left->address, engine_address(engine, 16));
    (void)engine_attached(engine, heap, 30, 2, 4);
    struct block *bridge = engine_attached(engine, heap, 28, 2, 4);
    assert_int_equal(bridge->node.size, 16 * GRANULE);
    engine_checked(engine);
}

static void heaps_do_not_join_each_other(void **state)
{
    struct engine *engine = *state;
    (void)engine_attached(engine, &engine->pool->large, 20, 4, 4);
    struct block *other = engine_attached(engine, &engine->other->large, 24, 4, 4);
    struct block *small = engine_attached(engine, &engine->pool->small, 16, 4, 1);
    assert_int_equal(other->node.size, 4 * GRANULE);
    assert_int_equal(small->node.size, 4 * GRANULE);
    assert_null(other->prev);
    assert_null(small->next);
    engine_checked(engine);
}

/* Every address of an arena part is looked up: only the starts of blocks are found. */
static void only_starts_are_found(void **state)
{
    struct engine *engine = *state;
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->pool->large : &engine->pool->small;
        uint64_t granule = i == 0 ? 8 : 32;
        (void)engine_attached(engine, heap, granule, 4, 1);
        static const uint64_t units[] = { 1, 7, 512, 3, 513, 700, 1 };
        struct block *blocks[7];
        for (int j = 0; j < 7; j++)
            blocks[j] = heap_taken(heap, units[j] * heap->unit_bytes);
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
        engine_checked(engine);
    }
}

static void whole_granules_can_be_detached(void **state)
{
    struct engine *engine = *state;
    static const uint64_t cuts[][2] = { { 0, 8 }, { 0, 3 }, { 5, 3 }, { 2, 4 } };
    for (int i = 0; i < 8; i++) {
        struct heap *heap = i < 4 ? &engine->pool->large : &engine->pool->small;
        const uint64_t *cut = cuts[i % 4];
        struct block *block = engine_attached(engine, heap, 20, 8, 1);
        uint64_t address = engine_address(engine, 20 + cut[0]);
        assert_ok(vmm__heap_detach(heap, block, address, cut[1] * GRANULE));
        assert_int_equal(heap->free_bytes, (8 - cut[1]) * GRANULE);
        assert_null(vmm__directory_heap(&engine->directory, address));
        engine_checked(engine);
        struct block *whole;
        assert_ok(vmm__heap_attach(heap, address, cut[1] * GRANULE, 0, &whole));
        assert_int_equal(whole->node.size, 8 * GRANULE);
        engine_checked(engine);
        assert_ok(vmm__heap_detach(heap, whole, engine_address(engine, 20), 8 * GRANULE));
        for (uint64_t granule = 20; granule < 28; granule++)
            vmm__limbo_put(&engine->memory, vmm__memory_chunk(&engine->memory, granule), NULL, 0);
        assert_ok(vmm__limbo_drain(&engine->memory, NULL));
    }
}

static void the_block_before_a_border_is_found(void **state)
{
    struct engine *engine = *state;
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->pool->large : &engine->pool->small;
        uint64_t granule = i == 0 ? 0 : 32;
        (void)engine_attached(engine, heap, granule, 6, 1);
        struct block *first = heap_taken(heap, 4096);
        (void)heap_taken(heap, 3 * GRANULE); /* in a small heap at the high end */
        const struct directory *directory = &engine->directory;
        for (uint64_t at = granule + 1; at <= granule + 6; at++) {
            uint64_t border = engine_address(engine, at);
            struct block *before = first;
            while (vmm__block_end(before) < border)
                before = before->next;
            assert_ptr_equal(vmm__directory_before(directory, border), before);
        }
        assert_null(vmm__directory_before(directory, engine_address(engine, granule)));
        assert_int_equal(first->address, engine_address(engine, granule));
    }
}

static void large_and_small_take_from_different_ends(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->small;
    (void)engine_attached(engine, heap, 10, 1, 1);
    struct block *little = heap_taken(heap, 252 << 10);
    struct block *big = heap_taken(heap, 256 << 10);
    assert_int_equal(little->address, engine_address(engine, 10));
    assert_int_equal(vmm__block_end(big), engine_address(engine, 11));
    engine_checked(engine);
}

/* Small granules need slots, one allocation each, after the batch of block records. */
static void attaching_without_host_memory_changes_nothing(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->small;
    engine_mapped(engine, 20, 4, 1);
    assert_ok(vmm__heap_records_keep(heap, 1));
    for (uint64_t number = 1; number <= 4; number++) {
        struct block *block = NULL;
        (void)vmm__host_fail_at(number);
        vmm_status status =
            vmm__heap_attach(heap, engine_address(engine, 20), 4 * GRANULE, 0, &block);
        (void)vmm__host_fail_at(0);
        assert_int_equal(status, VMM_ERR_HOST_OOM);
        assert_null(block);
        assert_int_equal(heap->free_bytes, 0);
        assert_null(vmm__directory_heap(&engine->directory, engine_address(engine, 20)));
        engine_checked(engine);
    }
}

static void records_without_host_memory_change_nothing(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    struct block *block = engine_attached(engine, heap, 20, 4, 1);
    while (heap->store.spare_count > 0)
        (void)heap_taken(heap, 512);
    struct block *rest = (struct block *)vmm__size_index_largest(&heap->index);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__heap_take(heap, 512, &block), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(1);
    uint64_t address = engine_address(engine, 22);
    assert_status(vmm__heap_detach(heap, rest, address, GRANULE), VMM_ERR_HOST_OOM);
    engine_checked(engine);
    (void)heap_taken(heap, 512);
}

static void every_address_is_covered_by_its_block(void **state)
{
    struct engine *engine = *state;
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->pool->large : &engine->pool->small;
        uint64_t granule = i == 0 ? 8 : 32;
        struct block *block = engine_attached(engine, heap, granule, 4, 2);
        uint64_t start = block->address;
        static const uint64_t units[] = { 1, 600, 3, 1, 512, 40, 9 };
        for (int j = 0; j < 7; j++)
            (void)heap_taken(heap, units[j] * heap->unit_bytes);
        block = *vmm__directory_slot(&engine->directory, start);
        for (uint64_t at = start; at < start + 4 * GRANULE; at += 256) {
            block = at < vmm__block_end(block) ? block : block->next;
            assert_ptr_equal(vmm__heap_cover(heap, at), block);
        }
    }
}

/* From the middle, either end, and all of a free block. */
static void lent_bytes_are_nobody_s(void **state)
{
    struct engine *engine = *state;
    static const uint64_t parts[][2] = { { 100, 50 }, { 0, 10 }, { 500, 12 }, { 10, 90 } };
    for (int i = 0; i < 2; i++) {
        struct heap *heap = i == 0 ? &engine->pool->large : &engine->pool->small;
        uint64_t start = engine_attached(engine, heap, 10 + 10 * (unsigned)i, 1, 1)->address;
        uint64_t free_bytes = GRANULE;
        for (int j = 0; j < 4; j++) {
            uint64_t address = start + parts[j][0] * 4096;
            assert_ok(vmm__heap_lend(heap, address, parts[j][1] * 4096));
            free_bytes -= parts[j][1] * 4096;
            struct block *lent = vmm__heap_cover(heap, address);
            assert_int_equal(lent->state, BLOCK_LENT);
            assert_int_equal(lent->address, address);
            assert_int_equal(lent->node.size, parts[j][1] * 4096);
            assert_int_equal(heap->free_bytes, free_bytes);
            engine_checked(engine);
        }
        struct block *block;
        assert_status(vmm__heap_take(heap, 350 * 4096 + 4096, &block), VMM_NOT_READY);
        block = heap_taken(heap, 350 * 4096);
        assert_int_equal(block->address, start + 150 * 4096);
        vmm__heap_unlend(heap, 10 + 10 * (unsigned)i, 7);
        assert_int_equal(heap->free_bytes, 162 * 4096);
        assert_int_equal(vmm__directory_epoch(&engine->directory, 10 + 10 * (unsigned)i, 1), 7);
        assert_int_equal(vmm__heap_cover(heap, start)->node.size, 150 * 4096);
        engine_checked(engine);
        assert_int_equal(vmm__heap_give(heap, block, 9)->node.size, GRANULE);
    }
}

static void only_the_granule_asked_for_is_unlent(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    uint64_t start = engine_attached(engine, heap, 10, 3, 1)->address;
    for (unsigned granule = 0; granule < 3; granule++)
        assert_ok(vmm__heap_lend(heap, start + granule * GRANULE, GRANULE));
    assert_int_equal(heap->free_bytes, 0);
    vmm__heap_unlend(heap, 11, 0);
    assert_int_equal(heap->free_bytes, GRANULE);
    assert_int_equal(vmm__heap_cover(heap, start)->state, BLOCK_LENT);
    assert_int_equal(vmm__heap_cover(heap, start + GRANULE)->state, BLOCK_FREE);
    assert_int_equal(vmm__heap_cover(heap, start + 3 * GRANULE - 1)->state, BLOCK_LENT);
    vmm__heap_unlend(heap, 10, 0);
    vmm__heap_unlend(heap, 12, 0);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 3 * GRANULE);
    engine_checked(engine);
}

/* What is lent can be neither freed, used nor pinned. */
static void lent_bytes_are_unknown_pointers(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    uint64_t start = engine_attached(engine, heap, 10, 1, 1)->address;
    assert_ok(vmm__heap_lend(heap, start + 4096, 4096));
    assert_status(vmm__pool_give_locked(engine->pool, heap, start + 4096), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm__pool_pin_locked(heap, start + 4096, true), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm__pool_use_locked(engine->pool, heap, start + 4096, &engine->other->timeline),
                  VMM_ERR_UNKNOWN_POINTER);
    vmm__heap_unlend(heap, 10, 0);
    engine_checked(engine);
}

static void lending_without_host_memory_changes_nothing(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 1, 1);
    while (heap->store.spare_count > 1)
        (void)heap_taken(heap, 512);
    struct block *rest = (struct block *)vmm__size_index_largest(&heap->index);
    uint64_t free_bytes = heap->free_bytes;
    (void)vmm__host_fail_at(1);
    assert_status(vmm__heap_lend(heap, rest->address + 4096, 4096), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_int_equal(heap->free_bytes, free_bytes);
    assert_ptr_equal(vmm__heap_cover(heap, rest->address + 4096), rest);
    engine_checked(engine);
}

static void random_blocks_keep_all_invariants(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->small;
    (void)engine_attached(engine, heap, 4, 6, 1);
    (void)engine_attached(engine, heap, 14, 6, 1);
    struct block *blocks[200] = { NULL };
    uint64_t seed = 4;
    for (int round = 0; round < 20000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        struct block **slot = &blocks[(seed >> 33) % 200];
        uint64_t bytes = ((seed >> 45) % 60 + 1) * 4096;
        if (*slot != NULL) {
            assert_ptr_equal(vmm__heap_find(heap, (*slot)->address), *slot);
            (void)vmm__heap_give(heap, *slot, (seed >> 40) % 100);
            *slot = NULL;
        } else if (vmm__heap_take(heap, bytes, slot) != VMM_OK) {
            *slot = NULL;
        }
        if (round % 100 == 0)
            engine_checked(engine);
    }
    for (int i = 0; i < 200; i++) {
        if (blocks[i] != NULL)
            (void)vmm__heap_give(heap, blocks[i], 0);
    }
    engine_checked(engine);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 6 * GRANULE);
}

static void damage_is_found(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 8, 4);
    struct block *a = heap_taken(heap, 3 * MIB);
    struct block *b = heap_taken(heap, 3 * MIB);
    a->node.size -= 512;
    assert_status(vmm__pool_check_locked(engine->pool), VMM_ERR_INTERNAL);
    a->node.size += 512;
    b->prev = NULL;
    assert_status(vmm__pool_check_locked(engine->pool), VMM_ERR_INTERNAL);
    b->prev = a;
    b->state = BLOCK_FREE;
    assert_status(vmm__pool_check_locked(engine->pool), VMM_ERR_INTERNAL);
    b->state = BLOCK_LIVE;
    heap->free_bytes++;
    assert_status(vmm__pool_check_locked(engine->pool), VMM_ERR_INTERNAL);
    heap->free_bytes--;
    engine_checked(engine);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(taking_splits_and_giving_joins),
        ENGINE_TEST(a_piece_of_the_middle_is_detached_with_one_record_left),
        ENGINE_TEST(the_best_fit_is_taken),
        ENGINE_TEST(territories_join_on_either_side),
        ENGINE_TEST(heaps_do_not_join_each_other),
        ENGINE_TEST(only_starts_are_found),
        ENGINE_TEST(whole_granules_can_be_detached),
        ENGINE_TEST(the_block_before_a_border_is_found),
        ENGINE_TEST(large_and_small_take_from_different_ends),
        ENGINE_TEST(attaching_without_host_memory_changes_nothing),
        ENGINE_TEST(records_without_host_memory_change_nothing),
        ENGINE_TEST(every_address_is_covered_by_its_block),
        ENGINE_TEST(lent_bytes_are_nobody_s),
        ENGINE_TEST(only_the_granule_asked_for_is_unlent),
        ENGINE_TEST(lent_bytes_are_unknown_pointers),
        ENGINE_TEST(lending_without_host_memory_changes_nothing),
        ENGINE_TEST(random_blocks_keep_all_invariants),
        ENGINE_TEST(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
