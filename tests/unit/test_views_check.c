/* vmm__views_check() finds every broken invariant of views. Their operations: see test_views_random.c. */
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
    assert_ok(vmm__views_take(heap, bytes, SEARCH_QUICK, &block));
    assert_int_equal(block->node.size, bytes);
    assert_int_equal(block->state, BLOCK_LIVE);
    assert_true(block->is_in_view);
    engine_check(engine);
    return block;
}

#define BIT(granule) (UINT64_C(1) << (granule))

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
