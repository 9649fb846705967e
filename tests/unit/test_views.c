/* Views: rows of places, their barriers and runs, and the blocks in them. */
#include "support/break_support.h"
#include "support/engine_support.h"

/* Three chunks of four granules, with homes at 4, 8 and 12, are mapped in this order from granule 34 on, in view 1. */
enum { CHUNK = 4, FIRST = 34, SECOND = FIRST + CHUNK, THIRD = SECOND + CHUNK, END = THIRD + CHUNK };

static const uint64_t CHUNK_BYTES = CHUNK * GRANULE;

static struct heap *row_create(struct engine *engine)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 4, 3 * CHUNK, CHUNK);
    for (uint64_t i = 0; i < 3; i++)
        engine_place(engine, heap, 4 + i * CHUNK, FIRST + i * CHUNK, 1);
    return heap;
}

/* Makes the given bytes of the homes live. */
static struct block *live_at(struct engine *engine, struct heap *heap, uint64_t granule,
                             uint64_t offset, uint64_t bytes)
{
    assert_ok(vmm__heap_records_keep(heap, 2));
    uint64_t address = engine_address(engine, granule) + offset;
    struct block *block = vmm__heap_cut(heap, address, bytes);
    block->state = BLOCK_LIVE;
    vmm__views_note(heap, address, bytes);
    engine_check(engine);
    return block;
}

static void give(struct engine *engine, struct heap *heap, struct block *block)
{
    struct block *free = vmm__heap_give(heap, block);
    assert_int_equal(free->state, BLOCK_FREE);
    engine_check(engine);
}

static struct block *take(struct engine *engine, struct heap *heap, uint64_t bytes)
{
    struct block *block;
    assert_ok(vmm__views_take(heap, bytes, &block));
    assert_int_equal(block->node.size, bytes);
    assert_int_equal(block->state, BLOCK_LIVE);
    assert_true(block->is_in_view);
    engine_check(engine);
    return block;
}

#define BIT(granule) (UINT64_C(1) << (granule))

static void assert_barriers(struct engine *engine, uint64_t bits)
{
    engine_check(engine);
    assert_int_equal(engine->views.barriers[0], bits);
    assert_int_equal(engine->views.barriers[1], 0);
}

/* Requires exactly one run of this size at the barrier; 0: none. */
static void assert_run(struct engine *engine, uint64_t barrier, uint64_t bytes)
{
    engine_check(engine);
    const struct view_place *place = &engine->views.places[barrier];
    assert_int_equal(place->run.link == NULL ? 0 : place->run.size, bytes);
}

/* ---- Rows and runs --------------------------------------------------------------------------- */

ENGINE_TEST(places_join_a_row)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 4, 3 * CHUNK, CHUNK);
    engine_place(engine, heap, 8, SECOND, 1);
    assert_barriers(engine, BIT(SECOND) | BIT(THIRD));
    assert_run(engine, SECOND, 0); /* free at its home, too */
    assert_int_equal(engine_ends(engine), 1);
    engine_place(engine, heap, 12, THIRD, 1);
    assert_barriers(engine, BIT(SECOND) | BIT(END));
    assert_run(engine, SECOND, 2 * CHUNK_BYTES);
    engine_place(engine, heap, 4, FIRST, 1);
    assert_barriers(engine, BIT(FIRST) | BIT(END));
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
    assert_run(engine, SECOND, 0);
    assert_int_equal(engine_ends(engine), 2);
    assert_int_equal(heap->view_chunks, 3);
    assert_false(vmm__views_is_last(&engine->views, FIRST));
    assert_true(vmm__views_is_last(&engine->views, THIRD));
}

ENGINE_TEST(places_of_other_views_form_rows_of_their_own)
{
    struct heap *heap = row_create(engine);
    engine_place(engine, heap, 4, 50, 2);
    engine_place(engine, heap, 12, 54, 2);
    assert_barriers(engine, BIT(FIRST) | BIT(END) | BIT(50) | BIT(58));
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
    assert_run(engine, 50, 2 * CHUNK_BYTES);
    assert_int_equal(engine_ends(engine), 4);
    struct block *live = live_at(engine, heap, 4, 0, GRANULE); /* in both rows */
    assert_run(engine, FIRST, 3 * CHUNK_BYTES - GRANULE);
    assert_run(engine, 50, 2 * CHUNK_BYTES - GRANULE);
    give(engine, heap, live);
    assert_run(engine, 50, 2 * CHUNK_BYTES);
}

/* A live granule at each position of each chunk. */
ENGINE_TEST(runs_follow_the_ends_of_chunks)
{
    struct heap *heap = row_create(engine);
    for (uint64_t at = 0; at < CHUNK; at++) {
        uint64_t head = at * GRANULE;
        uint64_t tail = CHUNK_BYTES - head - GRANULE;
        struct block *live = live_at(engine, heap, 4, head, GRANULE);
        assert_barriers(engine, BIT(FIRST) | BIT(END));
        assert_run(engine, FIRST, tail + 2 * CHUNK_BYTES);
        give(engine, heap, live);
        live = live_at(engine, heap, 8, head, GRANULE);
        assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(END));
        assert_run(engine, FIRST, head == 0 ? 0 : CHUNK_BYTES + head);
        assert_run(engine, SECOND, CHUNK_BYTES + tail);
        give(engine, heap, live);
        live = live_at(engine, heap, 12, head, GRANULE);
        assert_barriers(engine, BIT(FIRST) | BIT(THIRD) | BIT(END));
        assert_run(engine, FIRST, 2 * CHUNK_BYTES + head);
        assert_run(engine, THIRD, 0);
        give(engine, heap, live);
        assert_barriers(engine, BIT(FIRST) | BIT(END));
        assert_run(engine, FIRST, 3 * CHUNK_BYTES);
    }
}

ENGINE_TEST(a_block_over_several_chunks_ends_a_run)
{
    struct heap *heap = row_create(engine);
    struct block *live = live_at(engine, heap, 4, 3 * GRANULE, CHUNK_BYTES + 2 * GRANULE);
    assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(THIRD) | BIT(END));
    for (uint64_t barrier = FIRST; barrier < END; barrier += CHUNK)
        assert_run(engine, barrier, 0);
    give(engine, heap, live);
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
}

/* Home addresses fall, view addresses rise. */
ENGINE_TEST(rows_need_not_follow_the_homes)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 4, 3 * CHUNK, CHUNK);
    for (uint64_t i = 0; i < 3; i++)
        engine_place(engine, heap, 12 - i * CHUNK, FIRST + i * CHUNK, 1);
    (void)live_at(engine, heap, 12, 0, GRANULE);
    (void)live_at(engine, heap, 4, 3 * GRANULE, GRANULE);
    assert_run(engine, FIRST, 3 * CHUNK_BYTES - 2 * GRANULE);
    struct block *block = take(engine, heap, 3 * CHUNK_BYTES - 2 * GRANULE);
    assert_int_equal(block->address, engine_address(engine, FIRST + 1));
    assert_int_equal(heap->free_bytes, 0);
    give(engine, heap, block);
}

/* ---- Places come and go ---------------------------------------------------------------------- */

ENGINE_TEST(unmapping_in_the_middle_splits_a_row)
{
    struct heap *heap = row_create(engine);
    engine_unplace(engine, heap, SECOND);
    assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(THIRD) | BIT(END));
    assert_run(engine, FIRST, 0);
    assert_run(engine, THIRD, 0);
    assert_int_equal(engine_ends(engine), 2);
    assert_true(vmm__views_is_last(&engine->views, FIRST));
    assert_int_equal(heap->view_chunks, 2);
    assert_null(vmm__directory_heap(&engine->directory, engine_address(engine, SECOND)));
    engine_place(engine, heap, 8, SECOND, 1); /* the same view: the rows join again */
    assert_barriers(engine, BIT(FIRST) | BIT(END));
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
}

ENGINE_TEST(unmapping_an_end_shortens_a_row)
{
    struct heap *heap = row_create(engine);
    engine_unplace(engine, heap, FIRST);
    assert_barriers(engine, BIT(SECOND) | BIT(END));
    assert_run(engine, SECOND, 2 * CHUNK_BYTES);
    engine_unplace(engine, heap, THIRD);
    assert_barriers(engine, BIT(SECOND) | BIT(THIRD));
    assert_int_equal(engine_ends(engine), 1);
    engine_unplace(engine, heap, SECOND);
    assert_barriers(engine, 0);
    assert_int_equal(engine_ends(engine), 0);
    assert_int_equal(heap->view_chunks, 0);
    struct block *block;
    assert_status(vmm__views_take(heap, GRANULE, &block), VMM__NO_FIT);
    assert_int_equal(engine->driver->mapped_bytes, 3 * CHUNK_BYTES);
}

/* The place joins no row while it stays mapped. */
ENGINE_TEST(a_refused_unmap_leaves_a_place_in_no_row)
{
    struct heap *heap = row_create(engine);
    struct chunk *chunk = engine_chunk(engine, SECOND);
    vmm__sim_fail_at(engine->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__views_place_unmap(heap, chunk, SECOND), VMM_ERR_DRIVER);
    assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(THIRD) | BIT(END));
    assert_run(engine, FIRST, 0);
    assert_int_equal(chunk->places, 1);
    assert_int_equal(heap->view_chunks, 3);
    struct block *block;
    assert_status(vmm__views_take(heap, GRANULE, &block), VMM__NO_FIT);
    engine_unplace(engine, heap, SECOND);
    assert_int_equal(heap->view_chunks, 2);
    assert_int_equal(engine->driver->mapped_bytes, 5 * CHUNK_BYTES);
}

ENGINE_TEST(a_stranded_place_is_in_no_row)
{
    struct heap *heap = row_create(engine);
    struct chunk *chunk = engine_chunk(engine, 4);
    vmm__arena_take(&engine->memory.arena, 50, CHUNK);
    assert_ok(vmm__place_map(&engine->memory, chunk, 50));
    vmm__views_place_strand(heap, chunk, 50);
    assert_barriers(engine, BIT(FIRST) | BIT(END));
    assert_int_equal(chunk->places, 2);
    assert_int_equal(engine_ends(engine), 2);
    assert_null(vmm__directory_heap(&engine->directory, engine_address(engine, 50)));
    engine_unplace(engine, heap, 50);
    assert_int_equal(chunk->places, 1);
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
}

/* ---- Two heaps ------------------------------------------------------------------------------- */

/* Moves an idle chunk to another heap in place. */
static void transfer(struct engine *engine, uint64_t home, struct heap *from, struct heap *to)
{
    uint64_t address = engine_address(engine, home);
    struct block *block = vmm__heap_cover(from, address);
    assert_ok(vmm__heap_hand(from, block, address, CHUNK_BYTES, to, 0));
    engine_check(engine);
}

ENGINE_TEST(runs_end_where_another_heap_begins)
{
    struct heap *heap = row_create(engine);
    struct heap *other = &engine->other->large;
    (void)engine_attach(engine, other, 20, CHUNK, CHUNK);
    engine_place(engine, other, 20, END, 1);
    assert_barriers(engine, BIT(FIRST) | BIT(END) | BIT(END + CHUNK));
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
    assert_run(engine, END, 0);
    assert_int_equal(engine_ends(engine), 2);
    (void)live_at(engine, other, 20, 3 * GRANULE, GRANULE); /* a free head beyond the barrier */
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
    struct block *block = take(engine, heap, 3 * CHUNK_BYTES);
    give(engine, heap, block);
}

ENGINE_TEST(a_transferred_chunk_changes_runs_on_both_sides)
{
    struct heap *heap = row_create(engine);
    struct heap *other = &engine->other->large;
    transfer(engine, 8, heap, other);
    assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(THIRD) | BIT(END));
    for (uint64_t barrier = FIRST; barrier < END; barrier += CHUNK)
        assert_run(engine, barrier, 0);
    assert_int_equal(other->view_chunks, 1);
    assert_int_equal(heap->view_chunks, 2);
    transfer(engine, 12, heap, other);
    assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(END));
    assert_run(engine, SECOND, 2 * CHUNK_BYTES);
    transfer(engine, 4, heap, other);
    assert_barriers(engine, BIT(FIRST) | BIT(END));
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
    assert_int_equal(heap->view_chunks, 0);
    struct block *block = take(engine, other, 3 * CHUNK_BYTES);
    assert_ptr_equal(vmm__directory_heap(&engine->directory, block->address), other);
    give(engine, other, block);
}

/* The chunk goes to limbo with its places, which are unmapped first. */
ENGINE_TEST(a_released_chunk_takes_its_places_along)
{
    struct heap *heap = row_create(engine);
    uint64_t address = engine_address(engine, 8);
    struct chunk *chunk = engine_chunk(engine, 8);
    assert_ok(vmm__heap_detach(heap, vmm__heap_cover(heap, address), address, CHUNK_BYTES));
    vmm__limbo_put(&engine->memory, chunk, NULL, 0);
    assert_barriers(engine, BIT(FIRST) | BIT(SECOND) | BIT(THIRD) | BIT(END));
    assert_int_equal(engine_drain(engine), CHUNK_BYTES);
    assert_int_equal(engine->driver->mapped_bytes, 4 * CHUNK_BYTES);
    assert_int_equal(vmm__arena_room_after(&engine->memory.arena, SECOND), CHUNK);
}

/* Its bytes have changed, and no run was looked for since. */
ENGINE_TEST(a_changed_chunk_may_lose_its_places_and_leave)
{
    struct heap *heap = row_create(engine);
    for (uint64_t home = 4; home < 16; home += CHUNK) {
        struct chunk *chunk = engine_chunk(engine, home);
        struct block *block;
        uint64_t address = engine_address(engine, home);
        assert_ok(vmm__heap_take_edge(heap, vmm__heap_cover(heap, address), address, CHUNK_BYTES,
                                      &block));
        block = vmm__heap_give(heap, block);
        assert_true(chunk->is_marked);
        assert_ok(vmm__views_place_unmap(heap, chunk, chunk->place));
        assert_ok(vmm__heap_detach(heap, vmm__heap_cover(heap, address), address, CHUNK_BYTES));
        assert_false(chunk->is_marked);
        vmm__limbo_put(&engine->memory, chunk, NULL, 0);
    }
    assert_int_equal(heap->marked, 0);
    assert_int_equal(engine_drain(engine), 3 * CHUNK_BYTES);
}

/* ---- Blocks in views ------------------------------------------------------------------------- */

ENGINE_TEST(a_block_starts_at_the_partly_live_chunk)
{
    struct heap *heap = row_create(engine);
    struct block *low = live_at(engine, heap, 4, 0, GRANULE);
    struct block *block = take(engine, heap, GRANULE);
    assert_int_equal(block->address, engine_address(engine, FIRST + 1));
    give(engine, heap, block);
    struct block *high = live_at(engine, heap, 12, 3 * GRANULE, GRANULE);
    block = take(engine, heap, GRANULE); /* both ends are partly live: low */
    assert_int_equal(block->address, engine_address(engine, FIRST + 1));
    give(engine, heap, block);
    give(engine, heap, low);
    block = take(engine, heap, GRANULE); /* the barrier is idle, and forced: high */
    assert_int_equal(vmm__block_end(block), engine_address(engine, THIRD + 3));
    give(engine, heap, block);
    give(engine, heap, high);
    block = take(engine, heap, GRANULE); /* all are idle: low */
    assert_int_equal(block->address, engine_address(engine, FIRST));
    give(engine, heap, block);
}

ENGINE_TEST(a_run_without_a_tail_is_taken_from_its_head)
{
    struct heap *heap = row_create(engine);
    (void)live_at(engine, heap, 4, 3 * GRANULE, GRANULE);
    (void)live_at(engine, heap, 12, 2 * GRANULE, GRANULE);
    struct block *block = take(engine, heap, 3 * GRANULE);
    assert_int_equal(vmm__block_end(block), engine_address(engine, THIRD + 2));
    assert_int_equal(heap->free_bytes, 7 * GRANULE);
    give(engine, heap, block);
}

ENGINE_TEST(the_smallest_run_is_taken)
{
    struct heap *heap = row_create(engine);
    engine_place(engine, heap, 4, 50, 2);
    engine_place(engine, heap, 12, 54, 2);
    struct block *block = take(engine, heap, CHUNK_BYTES + GRANULE);
    assert_int_equal(block->address, engine_address(engine, 50));
    give(engine, heap, block);
    block = take(engine, heap, 2 * CHUNK_BYTES + GRANULE);
    assert_int_equal(block->address, engine_address(engine, FIRST));
    give(engine, heap, block);
    assert_status(vmm__views_take(heap, 3 * CHUNK_BYTES + 512, &block), VMM__NO_FIT);
}

/* Blocks over a tail, an idle chunk and a head, whose sizes are no multiples of granules. */
ENGINE_TEST(giving_back_restores_every_home_range)
{
    struct heap *heap = row_create(engine);
    (void)live_at(engine, heap, 4, 0, MIB);
    (void)live_at(engine, heap, 12, CHUNK_BYTES - MIB, MIB);
    uint64_t bytes = 3 * CHUNK_BYTES - 3 * MIB;
    for (uint64_t epoch = 5; epoch < 8; epoch++) {
        struct block *block = take(engine, heap, bytes);
        assert_int_equal(heap->free_bytes, MIB);
        assert_int_equal(block->address, engine_address(engine, FIRST) + MIB);
        uint64_t sum = 0;
        for (const struct block *piece = vmm__block_piece(block); piece != NULL;
             piece = vmm__block_piece(piece)) {
            assert_int_equal(piece->state, BLOCK_OCCUPIED);
            assert_ptr_equal(piece->user, block);
            sum += piece->node.size;
        }
        assert_int_equal(sum, bytes);
        for (uint64_t place = FIRST; place < END; place += CHUNK)
            assert_int_equal(engine->views.places[place].users, 1);
        lane_epoch(heap->lane, epoch);
        give(engine, heap, block);
        assert_int_equal(heap->free_bytes, bytes + MIB);
        assert_int_equal(vmm__size_index_largest(&heap->index)->size, bytes + MIB);
        for (uint64_t granule = 4; granule < 15; granule++)
            assert_int_equal(vmm__directory_epoch(&engine->directory, granule, 1), epoch);
        for (uint64_t place = FIRST; place < END; place += CHUNK) {
            assert_int_equal(engine->views.places[place].users, 0);
            assert_int_equal(engine->views.places[place].epoch, epoch);
        }
    }
}

/* Only the granules under the block are stamped, and only its places. */
ENGINE_TEST(giving_back_stamps_nothing_else)
{
    struct heap *heap = row_create(engine);
    uint64_t entered = vmm__clock_now(heap->lane->clock);
    struct block *block = take(engine, heap, CHUNK_BYTES + GRANULE);
    lane_epoch(heap->lane, 9);
    give(engine, heap, block);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 4, CHUNK + 1), 9);
    assert_int_equal(vmm__directory_epoch(&engine->directory, 9, 7), 0);
    assert_int_equal(engine->views.places[SECOND].epoch, 9);
    assert_int_equal(engine->views.places[THIRD].epoch, entered);
}

ENGINE_TEST(later_blocks_have_later_turns)
{
    struct heap *heap = row_create(engine);
    struct block *first = take(engine, heap, GRANULE);
    struct block *second = take(engine, heap, 2 * CHUNK_BYTES + GRANULE);
    uint64_t turn = engine->views.places[FIRST].turn;
    assert_int_equal(engine->views.places[THIRD].turn, turn);
    give(engine, heap, first);
    give(engine, heap, second);
    struct block *third = take(engine, heap, GRANULE);
    assert_true(engine->views.places[FIRST].turn > turn);
    assert_int_equal(engine->views.places[THIRD].turn, turn);
    give(engine, heap, third);
}

ENGINE_TEST(blocks_in_views_and_at_home_share_chunks)
{
    struct heap *heap = row_create(engine);
    struct block *low = take(engine, heap, CHUNK_BYTES + MIB);
    struct block *home = heap_take(heap, 3 * MIB); /* the rest of the second chunk */
    engine_check(engine);
    assert_int_equal(home->address, engine_address(engine, 8) + MIB);
    struct block *high = take(engine, heap, CHUNK_BYTES + 3 * MIB);
    assert_int_equal(high->address, engine_address(engine, SECOND) + 4 * MIB);
    give(engine, heap, low);
    assert_run(engine, FIRST, CHUNK_BYTES + MIB);
    give(engine, heap, home);
    give(engine, heap, high);
    assert_run(engine, FIRST, 3 * CHUNK_BYTES);
}

/* Without host memory for records nothing changes. */
ENGINE_TEST(a_block_without_records_is_refused)
{
    struct heap *heap = row_create(engine);
    struct block *block;
    struct block *taken = NULL;
    unsigned count = 0;
    (void)vmm__host_fail_at(1);
    while (vmm__views_take(heap, 512, &block) == VMM_OK) { /* uses up the spare records */
        block->prev = taken;
        taken = block;
        count++;
    }
    (void)vmm__host_fail_at(0);
    engine_check(engine);
    assert_int_equal(heap->free_bytes, 3 * CHUNK_BYTES - count * 512);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__views_take(heap, 512, &block), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    engine_check(engine);
    while (taken != NULL) {
        struct block *next = taken->prev;
        (void)vmm__heap_give(heap, taken);
        taken = next;
    }
    engine_check(engine);
    assert_int_equal(heap->free_bytes, 3 * CHUNK_BYTES);
}

ENGINE_TEST(addresses_find_the_block_that_covers_them)
{
    struct heap *heap = row_create(engine);
    const struct views *views = &engine->views;
    uint64_t start = engine_address(engine, FIRST);
    assert_null(vmm__views_cover(views, start));
    struct block *small = take(engine, heap, 512);
    struct block *next = take(engine, heap, MIB);
    struct block *large = take(engine, heap, 2 * CHUNK_BYTES);
    assert_ptr_equal(vmm__views_cover(views, start), small);
    assert_ptr_equal(vmm__views_cover(views, start + 511), small);
    assert_ptr_equal(vmm__views_cover(views, start + 512), next);
    assert_ptr_equal(vmm__views_cover(views, vmm__block_end(next) - 1), next);
    assert_ptr_equal(vmm__views_cover(views, vmm__block_end(next)), large);
    assert_ptr_equal(vmm__views_cover(views, engine_address(engine, SECOND)), large);
    assert_ptr_equal(vmm__views_cover(views, vmm__block_end(large) - 1), large);
    assert_null(vmm__views_cover(views, vmm__block_end(large)));
    assert_null(vmm__views_cover(views, engine_address(engine, END) - 1));
    assert_true(vmm__views_contain(views, start));
    assert_false(vmm__views_contain(views, engine_address(engine, 4)));
    give(engine, heap, next);
    assert_null(vmm__views_cover(views, start + 512));
    assert_ptr_equal(vmm__views_cover(views, start), small);
    give(engine, heap, small);
    give(engine, heap, large);
}

ENGINE_TEST(the_free_bytes_at_an_end_are_known)
{
    struct heap *heap = row_create(engine);
    assert_int_equal(vmm__views_end_bytes(heap, FIRST, true), 3 * CHUNK_BYTES);
    assert_int_equal(vmm__views_end_bytes(heap, THIRD, false), 3 * CHUNK_BYTES);
    struct block *live = live_at(engine, heap, 8, GRANULE, GRANULE);
    assert_int_equal(vmm__views_end_bytes(heap, FIRST, true), CHUNK_BYTES + GRANULE);
    assert_int_equal(vmm__views_end_bytes(heap, THIRD, false), CHUNK_BYTES + 2 * GRANULE);
    give(engine, heap, live);
    live = live_at(engine, heap, 4, 0, GRANULE);
    assert_int_equal(vmm__views_end_bytes(heap, FIRST, true), 0);
    give(engine, heap, live);
    live = live_at(engine, heap, 4, GRANULE, GRANULE);
    assert_int_equal(vmm__views_end_bytes(heap, FIRST, true), GRANULE);
    (void)live_at(engine, heap, 12, 3 * GRANULE, GRANULE);
    assert_int_equal(vmm__views_end_bytes(heap, THIRD, false), 0);
}

/* ---- The checks ------------------------------------------------------------------------------ */

ENGINE_TEST(finds_places_that_name_the_wrong_owner)
{
    struct heap *heap = row_create(engine);
    struct view_place *place = &engine->views.places[FIRST];
    struct directory_entry *entry = &engine->directory.entries[FIRST + 1];
    assert_found(vmm__views_check(heap), place->chunk, 0, "1: the place does not name");
    assert_found(vmm__views_check(heap), place->chunk, place->chunk + 1, "1: the place does not");
    assert_found(vmm__views_check(heap), entry->heap, NULL, "1: the directory does not");
    assert_found(vmm__views_check(heap), entry->heap, &engine->other->large,
                 "1: the directory does not");
    assert_found(vmm__views_check(heap), heap->view_chunks, 2, "8: the chunks with places");
}

ENGINE_TEST(finds_barriers_that_do_not_match)
{
    struct heap *heap = row_create(engine);
    (void)live_at(engine, heap, 12, GRANULE, GRANULE);
    _Atomic uint64_t *barriers = engine->views.barriers;
    const uint64_t bits = barriers[0];
    assert_int_equal(bits, BIT(FIRST) | BIT(THIRD) | BIT(END));
    static const uint64_t wrong[] = { FIRST, SECOND, THIRD };
    for (unsigned i = 0; i < 3; i++) {
        barriers[0] = bits ^ BIT(wrong[i]);
        found_broken(vmm__views_check(heap), "2: a barrier is missing or left over", __FILE__,
                     __LINE__);
        bool *is_forced = &engine->views.places[wrong[i]].is_forced;
        barriers[0] = bits;
        assert_found(vmm__views_check(heap), *is_forced, !*is_forced, "2: a barrier is missing");
    }
    barriers[0] = bits ^ BIT(END);
    found_broken(vmm__views_check(heap), "2: the row has no end", __FILE__, __LINE__);
    barriers[0] = bits;
    assert_ok(vmm__views_check(heap));
}

ENGINE_TEST(finds_runs_that_do_not_match)
{
    struct heap *heap = row_create(engine);
    struct size_node *run = &engine->views.places[FIRST].run;
    struct size_node *none = &engine->views.places[SECOND].run;
    assert_found(vmm__views_check(heap), run->size, run->size - 512, "3: a run has another size");
    assert_found(vmm__views_check(heap), run->link, NULL, "3: a run has another size");
    assert_found(vmm__views_check(heap), none->link, run->link, "3: a run without a barrier");
    assert_found(vmm__views_check(heap), heap->runs->rows, 0, "3: the index of runs");
    struct size_node extra = { .size = GRANULE };
    vmm__size_index_insert(heap->runs, &extra);
    found_broken(vmm__views_check(heap), "3: runs do not add up", __FILE__, __LINE__);
    vmm__size_index_remove(heap->runs, &extra);
    assert_ok(vmm__views_check(heap));
}

ENGINE_TEST(finds_ends_of_chunks_that_do_not_match)
{
    struct heap *heap = row_create(engine);
    (void)live_at(engine, heap, 4, GRANULE, GRANULE);
    struct chunk *chunk = engine_chunk(engine, 4);
    assert_found(vmm__views_check(heap), chunk->free_head_bytes, 0, "4: the free ends");
    assert_found(vmm__views_check(heap), chunk->free_tail_bytes, CHUNK_BYTES, "4: the free ends");
}

ENGINE_TEST(finds_users_that_do_not_add_up)
{
    struct heap *heap = row_create(engine);
    struct view_place *place = &engine->views.places[FIRST];
    assert_found(vmm__views_check(heap), place->users, 1, "5: the users");
    struct block *block = take(engine, heap, GRANULE);
    assert_found(vmm__views_check(heap), place->users, 0, "5: the users");
    assert_found(vmm__views_check(heap), heap->occupied_bytes, 0, "5: the bytes of blocks");
    give(engine, heap, block);
}

/* One place has a user too many, and another one too few. */
ENGINE_TEST(finds_users_that_add_up_at_the_wrong_places)
{
    struct heap *heap = row_create(engine);
    struct block *block = take(engine, heap, 2 * CHUNK_BYTES);
    engine->views.places[FIRST].users++;
    engine->views.places[SECOND].users--;
    found_broken(vmm__views_check(heap), "5: the users", __FILE__, __LINE__);
    engine->views.places[FIRST].users--;
    engine->views.places[SECOND].users++;
    assert_ok(vmm__views_check(heap));
    give(engine, heap, block);
}

ENGINE_TEST(finds_links_of_rows_that_do_not_match)
{
    struct heap *heap = row_create(engine);
    struct view_place *first = &engine->views.places[FIRST];
    struct view_place *last = &engine->views.places[SECOND - 1];
    assert_found(vmm__views_check(heap), first->left, THIRD, "7: the place to the left");
    assert_found(vmm__views_check(heap), last->first, SECOND, "7: the last granule");
    assert_found(vmm__views_check(heap), engine->views.places[SECOND].is_end, true,
                 "7: an end of a row");
    assert_found(vmm__views_check(heap), engine->views.places[THIRD].is_end, false,
                 "7: an end of a row");
    assert_found(vmm__views_check(heap), engine->views.end_count, 0, "7: the list of ends");
    struct view_end *end = &engine->views.ends[0];
    assert_found(vmm__views_check(heap), end->place, SECOND, "7: the list of ends");
    assert_found(vmm__views_check(heap), end->heap, NULL, "7: the list of ends");
    assert_found(vmm__views_check(heap), end->chunk, engine_chunk(engine, SECOND),
                 "7: the list of ends");
}

ENGINE_TEST(finds_bits_of_views_that_do_not_match)
{
    struct heap *heap = row_create(engine);
    struct chunk *chunk = engine_chunk(engine, 4);
    assert_found(vmm__views_check(heap), chunk->view_bits, 0, "9: the bits");
    assert_found(vmm__views_check(heap), chunk->view_bits, UINT64_MAX, "9: the bits");
}

ENGINE_TEST(a_chunk_is_in_the_views_of_its_places_only)
{
    struct heap *heap = row_create(engine);
    const struct chunk *chunk = engine_chunk(engine, 4);
    engine_place(engine, heap, 4, 55, 2);
    engine_place(engine, heap, 4, 60, 66); /* its bit is that of view 2 */
    assert_true(vmm__views_have(&engine->views, 1, chunk));
    assert_true(vmm__views_have(&engine->views, 66, chunk));
    assert_false(vmm__views_have(&engine->views, 3, chunk));
    engine_unplace(engine, heap, 55);
    assert_false(vmm__views_have(&engine->views, 2, chunk));
    assert_true(vmm__views_have(&engine->views, 66, chunk));
}

/* Two rows of one heap, side by side, that the places do not join. */
ENGINE_TEST(finds_rows_that_touch)
{
    struct heap *heap = &engine->lane->large;
    (void)engine_attach(engine, heap, 4, 3 * CHUNK, CHUNK);
    engine_place(engine, heap, 4, FIRST, 1);
    struct chunk *chunk = engine_chunk(engine, 8);
    vmm__arena_take(&engine->memory.arena, SECOND, CHUNK);
    assert_ok(vmm__place_map(&engine->memory, chunk, SECOND));
    vmm__views_place_add(heap, chunk, SECOND, 2);
    found_broken(vmm__views_check(heap), "6: two rows touch", __FILE__, __LINE__);
    assert_ok(vmm__views_place_unmap(heap, chunk, SECOND));
    engine->views.barriers[0] |= BIT(SECOND); /* the end of the other row was its barrier, too */
    engine_check(engine);
}

ENGINE_TEST(finds_a_chunk_that_is_twice_in_a_view)
{
    struct heap *heap = row_create(engine);
    engine_place(engine, heap, 4, 55, 2);
    assert_found(vmm__views_check(heap), engine->views.places[55].view, 1, "6: a chunk is twice");
    vmm__arena_take(&engine->memory.arena, END, CHUNK);
    struct chunk *chunk = engine_chunk(engine, 4);
    assert_ok(vmm__place_map(&engine->memory, chunk, END));
    vmm__views_place_add(heap, chunk, END, 1);
    found_broken(vmm__views_check(heap), "6: a chunk is twice", __FILE__, __LINE__);
    engine_unplace(engine, heap, END);
}

ENGINE_TEST(finds_pieces_that_do_not_match_their_block)
{
    struct heap *heap = row_create(engine);
    struct block *block = take(engine, heap, CHUNK_BYTES + GRANULE);
    struct block *piece = vmm__block_piece(block);
    assert_found(vmm__views_check(heap), piece->user, piece, "heap 6: a piece does not belong");
    assert_found(vmm__views_check(heap), piece->state, BLOCK_LIVE, "heap 6: a piece does not");
    assert_found(vmm__views_check(heap), block->node.size, CHUNK_BYTES, "heap 6: the pieces");
    assert_found(vmm__views_check(heap), piece->node.next, NULL, "heap 6: the pieces");
    give(engine, heap, block);
}
