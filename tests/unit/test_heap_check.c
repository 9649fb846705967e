/* vmm__lane_check_locked() finds every broken invariant of heap, directory, slab and lane. */
#include "support/break_support.h"
#include "support/engine_support.h"

/* Three blocks in an extent of two granules: live, free, live. The free rest is the fourth. */
struct row {
    struct lane *lane;
    struct heap *heap;
    struct block *first;
    struct block *hole;
    struct block *last;
    struct block *rest;
};

static struct row row_create(struct engine *engine)
{
    struct row row = { .lane = engine->lane, .heap = &engine->lane->large };
    (void)engine_attach(engine, row.heap, 4, 2, 2);
    row.first = heap_take(row.heap, MIB);
    row.hole = heap_take(row.heap, MIB);
    row.last = heap_take(row.heap, MIB);
    row.rest = row.last->next;
    (void)vmm__heap_give(row.heap, row.hole);
    engine_check(engine);
    return row;
}

static vmm_status check(const struct row *row)
{
    return lane_check(row->lane);
}

ENGINE_TEST(finds_blocks_that_do_not_tile)
{
    struct row row = row_create(engine);
    assert_found(check(&row), row.first->node.size, 0, "4: not a multiple");
    assert_found(check(&row), row.first->node.size, MIB - 1, "4: not a multiple");
    assert_found(check(&row), row.first->address, row.first->address + 1, "directory 2");
    assert_found(check(&row), row.last->address, row.last->address + 1, "1: the next block");
    assert_found(check(&row), row.first->node.size, MIB - 512, "1: the next block");
    assert_found(check(&row), row.hole->prev, NULL, "1: the next block");
    assert_found(check(&row), row.last->next, NULL, "1: an extent ends inside a granule");
    assert_found(check(&row), row.last->state, BLOCK_FREE, "2: two free neighbours");
}

ENGINE_TEST(finds_blocks_outside_their_extent)
{
    struct row row = row_create(engine);
    struct directory_entry *beyond =
        vmm__directory_entry(row.heap->directory, row.first->address) + 1;
    struct directory_entry *own = beyond - 1;
    uint64_t too_far = row.rest->node.size + 2 * GRANULE;
    assert_found(check(&row), row.rest->node.size, too_far, "index");
    assert_found(check(&row), beyond->heap, NULL, "directory 1");
    assert_found(check(&row), own->first, row.hole, "directory 2: an extent");
    assert_found(check(&row), own->first, NULL, "directory 2: an extent");
    assert_found(check(&row), row.first->prev, row.rest, "directory 2: an extent");
}

ENGINE_TEST(finds_slots_that_name_the_wrong_block)
{
    struct row row = row_create(engine);
    struct directory_entry *second =
        vmm__directory_entry(row.heap->directory, row.first->address) + 1;
    /* Fills the hole, then takes from the rest: that block begins in the second granule. */
    (void)heap_take(row.heap, MIB);
    struct block *late = heap_take(row.heap, MIB);
    assert_found(check(&row), second->first, NULL, "directory 2: the slot");
    assert_found(check(&row), second->first, late, "directory 2: the slot");
}

ENGINE_TEST(finds_an_index_that_does_not_match)
{
    struct row row = row_create(engine);
    assert_found(check(&row), row.heap->free_bytes, row.heap->free_bytes + 512, "do not add up");
    assert_found(check(&row), row.hole->state, BLOCK_LIVE, "3: not free, but indexed");
    assert_found(check(&row), row.heap->index.rows, 0, "3: the index");
    vmm__size_index_remove(&row.heap->index, &row.hole->node);
    found_broken(check(&row), "do not add up", __FILE__, __LINE__);
    vmm__size_index_insert(&row.heap->index, &row.hole->node);
    assert_ok(check(&row));
}

ENGINE_TEST(finds_pinned_bytes_that_do_not_add_up)
{
    struct row row = row_create(engine);
    assert_found(check(&row), row.first->pins, PIN_PROGRAM, "5: pinned blocks");
    assert_found(check(&row), row.heap->unmovable_bytes, 512, "5: pinned blocks");
}

ENGINE_TEST(checks_small_heaps)
{
    (void)engine_attach(engine, &engine->lane->small, 0, 1, 1);
    struct row row = { .lane = engine->lane, .heap = &engine->lane->small };
    assert_found(check(&row), row.heap->free_bytes, 0, "small heap");
}

ENGINE_TEST(checks_extents_at_both_ends_of_the_arena)
{
    struct row row = { .lane = engine->lane, .heap = &engine->lane->large };
    struct block *low = engine_attach(engine, row.heap, 0, 1, 1);
    struct block *high = engine_attach(engine, row.heap, ENGINE_GRANULES - 1, 1, 1);
    assert_found(check(&row), low->node.size, 512, "3: the index");
    assert_found(check(&row), high->pins, PIN_PROGRAM, "5: pinned blocks");
}

/* ---- Slabs -------------------------------------------------------------------------------- */

/* Allocates one object of 512 bytes and returns its slab. */
static struct slab *slab_create(struct engine *engine)
{
    void *object;
    (void)engine_attach(engine, &engine->lane->small, 0, 1, 1);
    assert_ok(lane_take(engine->lane, 512, &object));
    engine_check(engine);
    assert_non_null(engine->lane->slabs.all);
    return engine->lane->slabs.all;
}

ENGINE_TEST(finds_overlapping_bits_of_a_slab)
{
    struct row row = { .lane = engine->lane };
    struct slab *slab = slab_create(engine);
    uint64_t free_bit = slab->free_bits & -slab->free_bits;
    assert_found(check(&row), slab->waiting_bits, free_bit, "slab 2");
    assert_found(check(&row), slab->pinned_bits, free_bit, "slab 2");
    assert_found(check(&row), slab->listed_bits, free_bit, "slab 2");
    assert_found(check(&row), slab->block, NULL, "slab 2");
}

ENGINE_TEST(finds_slots_of_a_slab_that_name_another_block)
{
    struct row row = { .lane = engine->lane };
    struct slab *slab = slab_create(engine);
    assert_true(slab->block->node.size > SMALL_SLOT_BYTES);
    struct block **slot =
        vmm__directory_slot(&engine->directory, slab->block->address + SMALL_SLOT_BYTES);
    assert_found(check(&row), *slot, NULL, "slab 4");
}

ENGINE_TEST(finds_slabs_in_the_wrong_list)
{
    struct row row = { .lane = engine->lane };
    struct slab *slab = slab_create(engine);
    assert_found(check(&row), slab->class_index, slab->class_index + 1, "slab 3");
    assert_found(check(&row), engine->lane->slabs.partial[slab->class_index], NULL, "slab 3");
    assert_found(check(&row), slab->free_bits, 0, "slab 3");
}

ENGINE_TEST(finds_slabs_of_pools_that_start_elsewhere)
{
    struct row row = { .lane = engine->lane };
    struct slab *slab = slab_create(engine);
    row.lane->owner.is_pooled = true;
    assert_ok(check(&row));
    assert_found(check(&row), slab->address, slab->address + SMALL_SLOT_BYTES, "slab 5");
    row.lane->owner.is_pooled = false;
}

/* ---- Lanes -------------------------------------------------------------------------------- */

ENGINE_TEST(finds_expired_epochs_that_have_not_ended)
{
    struct row row = { .lane = engine->lane };
    uint64_t now = vmm__clock_now(engine->lane->clock);
    assert_found(check(&row), row.lane->trimmed.latest_epoch, now, "lane: invariant 3: expired");
    assert_found(check(&row), row.lane->period_epoch, now, "lane: invariant 3: expired");
    assert_found(check(&row), row.lane->decayed.latest_epoch, row.lane->period_epoch + 1,
                 "lane: invariant 3: decayed");
    assert_found(check(&row), row.lane->clock->passed, now, "clock: invariant 1");
}
