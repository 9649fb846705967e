/* The check of pools: every invariant of heap, directory, slab and pool that is broken is found. */
#include "support/break_support.h"
#include "support/engine_support.h"

/* Three blocks in a territory of two granules: live, free, live; the fourth, free, is the rest. */
struct row {
    struct pool *pool;
    struct heap *heap;
    struct block *first;
    struct block *hole;
    struct block *last;
    struct block *rest;
};

static struct row row_laid_out(struct engine *engine)
{
    struct row row = { .pool = engine->pool, .heap = &engine->pool->large };
    (void)engine_attached(engine, row.heap, 4, 2, 2);
    row.first = heap_taken(row.heap, MIB);
    row.hole = heap_taken(row.heap, MIB);
    row.last = heap_taken(row.heap, MIB);
    row.rest = row.last->next;
    (void)vmm__heap_give(row.heap, row.hole, 1);
    engine_checked(engine);
    return row;
}

static vmm_status checked(const struct row *row)
{
    return vmm__pool_check_locked(row->pool);
}

static void blocks_that_do_not_tile_are_found(void **state)
{
    struct row row = row_laid_out(*state);
    assert_found(checked(&row), row.first->node.size, 0, "4: not a multiple");
    assert_found(checked(&row), row.first->node.size, MIB - 1, "4: not a multiple");
    assert_found(checked(&row), row.first->address, row.first->address + 1, "directory 2");
    assert_found(checked(&row), row.last->address, row.last->address + 1, "1: the next block");
    assert_found(checked(&row), row.first->node.size, MIB - 512, "1: the next block");
    assert_found(checked(&row), row.hole->prev, NULL, "1: the next block");
    assert_found(checked(&row), row.last->next, NULL, "1: a wall inside a granule");
    assert_found(checked(&row), row.last->state, BLOCK_FREE, "2: two free neighbours");
}

static void blocks_outside_of_their_territory_are_found(void **state)
{
    struct row row = row_laid_out(*state);
    struct directory_entry *beyond =
        vmm__directory_entry(row.heap->directory, row.first->address) + 1;
    struct directory_entry *own = beyond - 1;
    uint64_t far_away = row.rest->node.size + 2 * GRANULE;
    assert_found(checked(&row), row.rest->node.size, far_away, "index");
    assert_found(checked(&row), beyond->heap, NULL, "directory 1");
    assert_found(checked(&row), own->first, row.hole, "directory 2: a territory");
    assert_found(checked(&row), own->first, NULL, "directory 2: a territory");
    assert_found(checked(&row), row.first->prev, row.rest, "directory 2: a territory");
}

static void slots_that_name_nothing_are_found(void **state)
{
    struct row row = row_laid_out(*state);
    struct directory_entry *second =
        vmm__directory_entry(row.heap->directory, row.first->address) + 1;
    (void)heap_taken(row.heap,
                     MIB); /* the hole, and of the rest: a block begins in the second granule */
    struct block *late = heap_taken(row.heap, MIB);
    assert_found(checked(&row), second->first, NULL, "directory 2: the slot");
    assert_found(checked(&row), second->first, late, "directory 2: the slot");
}

static void an_index_that_does_not_fit_is_found(void **state)
{
    struct row row = row_laid_out(*state);
    assert_found(checked(&row), row.heap->free_bytes, row.heap->free_bytes + 512, "do not add up");
    assert_found(checked(&row), row.hole->state, BLOCK_LIVE, "3: not free, but indexed");
    assert_found(checked(&row), row.heap->index.rows, 0, "3: the index");
    vmm__size_index_remove(&row.heap->index, &row.hole->node);
    found_broken(checked(&row), "do not add up", __FILE__, __LINE__);
    vmm__size_index_insert(&row.heap->index, &row.hole->node);
    assert_ok(checked(&row));
}

static void pins_that_do_not_add_up_are_found(void **state)
{
    struct row row = row_laid_out(*state);
    assert_found(checked(&row), row.first->is_pinned, true, "5: pinned blocks");
    assert_found(checked(&row), row.heap->unmovable_bytes, 512, "5: pinned blocks");
}

static void small_heaps_are_checked_too(void **state)
{
    struct engine *engine = *state;
    (void)engine_attached(engine, &engine->pool->small, 0, 1, 1);
    struct row row = { .pool = engine->pool, .heap = &engine->pool->small };
    assert_found(checked(&row), row.heap->free_bytes, 0, "small heap");
}

static void territories_at_both_ends_of_the_arena_are_checked(void **state)
{
    struct engine *engine = *state;
    struct row row = { .pool = engine->pool, .heap = &engine->pool->large };
    struct block *low = engine_attached(engine, row.heap, 0, 1, 1);
    struct block *high = engine_attached(engine, row.heap, ENGINE_GRANULES - 1, 1, 1);
    assert_found(checked(&row), low->node.size, 512, "3: the index");
    assert_found(checked(&row), high->is_pinned, true, "5: pinned blocks");
}

/* ---- Slabs ---------------------------------------------------------------------------------- */

/* One object of 512 bytes is out. */
static struct slab *slab_begun(struct engine *engine)
{
    void *object;
    (void)engine_attached(engine, &engine->pool->small, 0, 1, 1);
    assert_ok(vmm__pool_take_locked(engine->pool, 512, &object));
    engine_checked(engine);
    assert_non_null(engine->pool->slabs.all);
    return engine->pool->slabs.all;
}

static void bits_of_a_slab_that_overlap_are_found(void **state)
{
    struct engine *engine = *state;
    struct row row = { .pool = engine->pool };
    struct slab *slab = slab_begun(engine);
    uint64_t free_bit = slab->free_bits & -slab->free_bits;
    assert_found(checked(&row), slab->waiting_bits, free_bit, "slab 2");
    assert_found(checked(&row), slab->pinned_bits, free_bit, "slab 2");
    assert_found(checked(&row), slab->known_bits, free_bit, "slab 2");
    assert_found(checked(&row), slab->block, NULL, "slab 2");
}

static void slots_of_a_slab_that_name_another_block_are_found(void **state)
{
    struct engine *engine = *state;
    struct row row = { .pool = engine->pool };
    struct slab *slab = slab_begun(engine);
    assert_true(slab->block->node.size > SMALL_SLOT_BYTES);
    struct block **slot =
        vmm__directory_slot(&engine->directory, slab->block->address + SMALL_SLOT_BYTES);
    assert_found(checked(&row), *slot, NULL, "slab 4");
}

static void slabs_in_a_wrong_list_are_found(void **state)
{
    struct engine *engine = *state;
    struct row row = { .pool = engine->pool };
    struct slab *slab = slab_begun(engine);
    assert_found(checked(&row), slab->class_index, slab->class_index + 1, "slab 3");
    assert_found(checked(&row), slab->free_bits, 0, "slab 3");
}

/* ---- Pools ---------------------------------------------------------------------------------- */

static void epochs_of_overdue_memory_are_checked(void **state)
{
    struct engine *engine = *state;
    struct row row = { .pool = engine->pool };
    uint64_t now = vmm__timeline_now(&engine->pool->timeline);
    assert_found(checked(&row), row.pool->trimmed.latest_epoch, now, "pool: invariant 3: overdue");
    assert_found(checked(&row), row.pool->period_epoch, now, "pool: invariant 3: overdue");
    assert_found(checked(&row), row.pool->decayed.latest_epoch, row.pool->period_epoch + 1,
                 "pool: invariant 3: decayed");
    assert_found(checked(&row), row.pool->timeline.passed, now, "timeline: invariant 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENGINE_TEST(blocks_that_do_not_tile_are_found),
        ENGINE_TEST(blocks_outside_of_their_territory_are_found),
        ENGINE_TEST(slots_that_name_nothing_are_found),
        ENGINE_TEST(an_index_that_does_not_fit_is_found),
        ENGINE_TEST(pins_that_do_not_add_up_are_found),
        ENGINE_TEST(small_heaps_are_checked_too),
        ENGINE_TEST(territories_at_both_ends_of_the_arena_are_checked),
        ENGINE_TEST(bits_of_a_slab_that_overlap_are_found),
        ENGINE_TEST(slots_of_a_slab_that_name_another_block_are_found),
        ENGINE_TEST(slabs_in_a_wrong_list_are_found),
        ENGINE_TEST(epochs_of_overdue_memory_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
