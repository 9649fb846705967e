/* Warm blocks: given back and taken again without a change of the heap, and nobody can tell. */
#include "support/engine_support.h"

static struct block *warmed(struct heap *heap, uint64_t bytes, uint64_t epoch)
{
    struct block *block = heap_taken(heap, bytes);
    vmm__heap_give_live(heap, block, epoch);
    assert_ptr_equal(heap->warm, block);
    assert_int_equal(block->state, BLOCK_WARM);
    return block;
}

static void the_same_size_gets_the_warm_block(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 4, 4);
    struct block *block = warmed(heap, MIB, 3);
    struct size_index index = heap->index;
    uint64_t free_bytes = heap->free_bytes;
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(heap_taken(heap, MIB), block);
        assert_null(heap->warm);
        vmm__heap_give_live(heap, block, 4);
    }
    assert_memory_equal(&heap->index, &index, sizeof index);
    assert_int_equal(heap->free_bytes, free_bytes);
    vmm__heap_settle(heap);
    assert_null(heap->warm);
    assert_int_equal(vmm__size_index_largest(&heap->index)->size, 4 * GRANULE);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 4);
    engine_checked(engine);
}

static void another_size_settles_it(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 4, 4);
    uint64_t address = warmed(heap, MIB, 3)->address;
    assert_int_equal(heap_taken(heap, 2 * MIB)->address, address);
    assert_null(heap->warm);
    engine_checked(engine);
}

/* Only the last that was taken is warm when given, and one block at a time. */
static void only_the_last_taken_is_warm(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 4, 4);
    struct block *first = heap_taken(heap, MIB);
    struct block *last = heap_taken(heap, MIB);
    vmm__heap_give_live(heap, first, 1);
    assert_null(heap->warm);
    assert_int_equal(first->state, BLOCK_FREE);
    vmm__heap_give_live(heap, last, 1);
    assert_null(heap->warm);
    engine_checked(engine);
    assert_int_equal(heap->free_bytes, 4 * GRANULE);
}

static void locking_a_pool_settles(void **state)
{
    struct engine *engine = *state;
    struct pool *pool = engine->pool;
    (void)engine_attached(engine, &pool->large, 10, 4, 4);
    (void)engine_attached(engine, &pool->small, 20, 4, 1);
    for (int i = 0; i < 2; i++) {
        (void)warmed(&pool->large, MIB, 3);
        (void)warmed(&pool->small, 64 << 10, 3);
        if (i == 0)
            vmm__pool_lock(pool);
        else
            vmm__pool_lock_second(pool);
        assert_null(pool->large.warm);
        assert_null(pool->small.warm);
        assert_int_equal(pool->large.free_bytes, 4 * GRANULE);
        assert_int_equal(pool->small.free_bytes, 4 * GRANULE);
        vmm__pool_unlock(pool);
    }
    engine_checked(engine);
}

/* The timeline went on between two blocks of one granule: the later epoch counts. */
static void what_is_given_later_keeps_its_epoch(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 1, 1);
    struct block *other = heap_taken(heap, 64 << 10);
    (void)warmed(heap, 64 << 10, 3);
    (void)vmm__heap_give(heap, other, 7); /* as a slab that closes, or a wait that is over */
    vmm__heap_settle(heap);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 10, 1), 7);
    engine_checked(engine);
}

/* What another block's end makes the best fit is taken, as if nothing had been warm. */
static void a_better_fit_that_comes_free_is_taken(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 1, 1);
    struct block *exact = heap_taken(heap, 64 << 10);
    uint64_t address = exact->address;
    (void)heap_taken(heap, 512);
    (void)warmed(heap, 64 << 10, 3);
    (void)vmm__heap_give(heap, exact, 3);
    assert_int_equal(heap_taken(heap, 64 << 10)->address, address);
    engine_checked(engine);
}

static void a_warm_block_is_an_unknown_pointer(void **state)
{
    struct engine *engine = *state;
    struct pool *pool = engine->pool;
    struct heap *heap = &pool->large;
    (void)engine_attached(engine, heap, 10, 1, 1);
    void *block;
    assert_ok(vmm__pool_take_locked(pool, MIB + 512, &block));
    uint64_t address = (uintptr_t)block;
    assert_ok(vmm__pool_give_locked(pool, heap, address));
    assert_non_null(heap->warm);
    assert_status(vmm__pool_give_locked(pool, heap, address), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm__pool_pin_locked(heap, address, true), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm__pool_use_locked(pool, heap, address, &engine->other->timeline),
                  VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(pool->account.allocations.current, 0);
    engine_checked(engine);
}

static void a_pinned_block_is_warm_and_unpinned(void **state)
{
    struct engine *engine = *state;
    struct pool *pool = engine->pool;
    struct heap *heap = &pool->large;
    (void)engine_attached(engine, heap, 10, 1, 1);
    void *block;
    void *again;
    assert_ok(vmm__pool_take_locked(pool, MIB + 512, &block));
    assert_ok(vmm__pool_pin_locked(heap, (uintptr_t)block, true));
    assert_ok(vmm__pool_give_locked(pool, heap, (uintptr_t)block));
    assert_int_equal(heap->unmovable_bytes, 0);
    assert_ok(vmm__pool_take_locked(pool, MIB + 512, &again));
    assert_ptr_equal(again, block);
    assert_int_equal(heap->unmovable_bytes, 0);
    engine_checked(engine);
}

/* As growing does it: the pool is locked, and the new memory joins what was warm at the wall. */
static void growth_joins_what_was_warm(void **state)
{
    struct engine *engine = *state;
    struct heap *heap = &engine->pool->large;
    (void)engine_attached(engine, heap, 10, 1, 1);
    struct block *block = warmed(heap, GRANULE, 3);
    assert_null(block->next);
    vmm__pool_lock(engine->pool);
    assert_int_equal(engine_attached(engine, heap, 11, 1, 1)->node.size, 2 * GRANULE);
    vmm__pool_unlock(engine->pool);
    engine_checked(engine);
}

/* ---- Placement ------------------------------------------------------------------------------ */

enum { TWINS_MOST = 80 };

/* The same request in two heaps of the same shape, the second of which is settled all the time. */
struct twins {
    struct heap *heaps[2];
    uint64_t starts[2];
    struct block *blocks[TWINS_MOST][2];
};

static void twins_taken(struct twins *twins, struct block **blocks, uint64_t bytes)
{
    vmm__heap_settle(twins->heaps[1]);
    vmm_status status = vmm__heap_take(twins->heaps[0], bytes, &blocks[0]);
    assert_status(vmm__heap_take(twins->heaps[1], bytes, &blocks[1]), status);
    if (status != VMM_OK) {
        blocks[0] = NULL;
        return;
    }
    assert_int_equal(blocks[0]->address - twins->starts[0], blocks[1]->address - twins->starts[1]);
}

/* Some are given as slabs and waits are, which leave nothing warm. */
static void twins_given(struct twins *twins, struct block **blocks, bool is_live)
{
    if (is_live)
        vmm__heap_give_live(twins->heaps[0], blocks[0], 1);
    else
        (void)vmm__heap_give(twins->heaps[0], blocks[0], 1);
    (void)vmm__heap_give(twins->heaps[1], blocks[1], 1);
    blocks[0] = NULL;
}

static unsigned twins_driven(struct engine *engine, struct twins *twins, uint64_t seed)
{
    unsigned warm = 0;
    unsigned slot = 0;
    for (int round = 0; round < 20000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        if ((seed >> 60) % 2 == 0) /* else the same again: takes that are given at once */
            slot = (unsigned)(seed >> 33) % TWINS_MOST;
        uint64_t units = (seed >> 58) % 3 == 0 ? (seed >> 45) % 60 + 1 : (seed >> 45) % 3 + 1;
        struct block **blocks = twins->blocks[slot];
        if (blocks[0] != NULL)
            twins_given(twins, blocks, (seed >> 50) % 5 != 0);
        else
            twins_taken(twins, blocks, units * 8192);
        warm += twins->heaps[0]->warm != NULL;
        if (round % 500 == 0)
            engine_checked(engine);
    }
    return warm;
}

static void placement_is_the_same_without_warmth(void **state)
{
    struct engine *engine = *state;
    for (int i = 0; i < 2; i++) {
        struct twins twins = { .starts = { engine_address(engine, 4 + 20 * (unsigned)i),
                                           engine_address(engine, 12 + 20 * (unsigned)i) } };
        struct pool *pools[2] = { engine->pool, engine->other };
        for (int j = 0; j < 2; j++) {
            twins.heaps[j] = i == 0 ? &pools[j]->large : &pools[j]->small;
            (void)engine_attached(engine, twins.heaps[j], 4 + 20 * (unsigned)i + 8 * (unsigned)j, 6,
                                  1);
        }
        assert_true(twins_driven(engine, &twins, 5 + (unsigned)i) > 1000);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(the_same_size_gets_the_warm_block),
        ENGINE_TEST(another_size_settles_it),
        ENGINE_TEST(only_the_last_taken_is_warm),
        ENGINE_TEST(locking_a_pool_settles),
        ENGINE_TEST(what_is_given_later_keeps_its_epoch),
        ENGINE_TEST(a_better_fit_that_comes_free_is_taken),
        ENGINE_TEST(a_warm_block_is_an_unknown_pointer),
        ENGINE_TEST(a_pinned_block_is_warm_and_unpinned),
        ENGINE_TEST(growth_joins_what_was_warm),
        ENGINE_TEST(placement_is_the_same_without_warmth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
