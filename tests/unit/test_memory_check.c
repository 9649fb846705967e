/* The checks of memory, arena, timeline and size index: every invariant that is broken is found. */
#include "support/break_support.h"
#include "support/engine_support.h"

static vmm_status checked(const struct engine *engine)
{
    return vmm__memory_check(&engine->memory);
}

/* A chunk of two granules, another, and one that shares the memory of the first. */
struct chunks {
    struct chunk *first;
    struct chunk *second;
    struct chunk *alias;
};

static struct chunks chunks_laid_out(struct engine *engine)
{
    struct chunks chunks;
    engine_mapped(engine, 10, 2, 2);
    engine_mapped(engine, 20, 2, 2);
    engine_mapped(engine, 30, 2, 2);
    chunks.first = engine_chunk(engine, 10);
    chunks.second = engine_chunk(engine, 20);
    chunks.alias = engine_chunk(engine, 30);
    assert_ok(vmm__memory_mesh(&engine->memory, chunks.first, chunks.alias));
    (void)engine_drained(engine);
    chunks.alias = engine_chunk(engine, 30);
    assert_true(chunks.alias->is_alias);
    assert_int_equal(engine->memory.twins, 1);
    return chunks;
}

static void a_page_map_that_does_not_fit_is_found(void **state)
{
    struct engine *engine = *state;
    struct chunks chunks = chunks_laid_out(engine);
    assert_found(checked(engine), engine->memory.pages[11], 0, "memory: invariant 1");
    assert_found(checked(engine), chunks.second->first, 40, "memory: invariant 1");
}

static void sums_of_chunks_that_do_not_fit_are_found(void **state)
{
    struct engine *engine = *state;
    struct chunks chunks = chunks_laid_out(engine);
    assert_found(checked(engine), chunks.second->state, CHUNK_UNUSED, "memory: invariant 2");
    assert_found(checked(engine), engine->memory.limbo_bytes, GRANULE, "memory: invariant 3");
    uint64_t reserved = engine_reserved(engine);
    engine->memory.reserved_bytes.current = reserved + 1;
    found_broken(checked(engine), "memory: invariant 3", __FILE__, __LINE__);
    engine->memory.reserved_bytes.current = reserved;
    assert_found(checked(engine), engine->memory.twins, 2, "invariants 4 and 5");
    assert_found(checked(engine), engine->memory.astray, 1, "invariants 4 and 5");
    assert_found(checked(engine), chunks.second->is_mapped, false, "invariants 4 and 5");
}

static void rings_that_break_are_found(void **state)
{
    struct engine *engine = *state;
    struct chunks chunks = chunks_laid_out(engine);
    uint32_t second = engine->memory.pages[20];
    assert_found(checked(engine), chunks.second->is_alias, true, "has no memory");
    assert_found(checked(engine), chunks.alias->twin, 0, "the ring of chunk");
    assert_found(checked(engine), chunks.first->twin, second, "the ring of chunk");
    assert_found(checked(engine), chunks.alias->granules, 1, "the ring of chunk");
    assert_found(checked(engine), chunks.alias->state, CHUNK_LIMBO, "the ring of chunk");
    assert_found(checked(engine), chunks.alias->twin, engine->memory.pages[30],
                 "the ring of chunk");
    assert_found(checked(engine), chunks.alias->is_alias, false, "2 of them own it");
    assert_found(checked(engine), chunks.first->is_alias, true, "0 of them own it");
    assert_found(checked(engine), chunks.second->twin, second, "shares its memory with 0 others");
}

/* ---- Arena ---------------------------------------------------------------------------------- */

static void voids_that_break_are_found(void **state)
{
    struct engine *engine = *state;
    (void)chunks_laid_out(engine);
    struct arena *arena = &engine->memory.arena;
    assert_found(vmm__arena_check(arena), arena->free_granules, 3, "arena: invariant 4");
    assert_found(vmm__arena_check(arena), arena->index.rows, 0, "arena: invariant 3");
    assert_found(vmm__arena_check(arena), arena->edges[12].first_plus_1, 0, "arena: invariant 2");
    assert_found(vmm__arena_check(arena), arena->edges[19].first_plus_1, 0, "arena: invariant 2");
    assert_found(vmm__arena_check(arena), arena->edges[20].first_plus_1, 13, "arena: invariant 1");
    assert_found(vmm__arena_check(arena), arena->edges[11].first_plus_1, 1, "arena: invariant 1");
    assert_found(checked(engine), arena->edges[12].first_plus_1, 0, "arena: invariant 2");
}

/* ---- Timeline ------------------------------------------------------------------------------- */

static void epochs_that_do_not_rise_are_found(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    engine_mapped(engine, 0, 1, 1);
    engine_busy(engine, engine_address(engine, 0), GRANULE, 1);
    for (int i = 0; i < 2; i++) {
        uint64_t epoch = vmm__timeline_advance(timeline);
        assert_ok(vmm__timeline_mark(timeline, epoch));
        engine_busy(engine, engine_address(engine, 0), GRANULE, 1);
    }
    assert_int_equal(timeline->count, 2);
    struct timeline_mark *oldest = &timeline->marks[timeline->oldest];
    struct timeline_mark *next = &timeline->marks[(timeline->oldest + 1) % TIMELINE_MARKS];
    assert_found(vmm__timeline_check(timeline), next->epoch, oldest->epoch, "invariant 1");
    assert_found(vmm__timeline_check(timeline), oldest->epoch, timeline->passed, "invariant 1");
    assert_found(vmm__timeline_check(timeline), next->epoch, vmm__timeline_now(timeline),
                 "invariant 1");
}

/* ---- Index of sizes ------------------------------------------------------------------------- */

#define assert_index_breaks(field, value)                                                          \
    do {                                                                                           \
        __typeof__(field) whole = (field);                                                         \
        (field) = (value);                                                                         \
        assert_false(vmm__size_index_check(&index));                                               \
        (field) = whole;                                                                           \
        assert_true(vmm__size_index_check(&index));                                                \
    } while (0)

static void an_index_of_sizes_that_breaks_is_found(void **state)
{
    (void)state;
    static struct size_index index;
    struct size_node one = { .size = 100 };
    struct size_node two = { .size = 100 };
    struct size_node three = { .size = 5000 };
    vmm__size_index_init(&index);
    vmm__size_index_insert(&index, &one);
    vmm__size_index_insert(&index, &two);
    vmm__size_index_insert(&index, &three);
    assert_true(vmm__size_index_check(&index));
    unsigned list = vmm__size_list(100);
    assert_index_breaks(index.nobody.size, 1);
    assert_index_breaks(index.nobody.next, &one);
    assert_index_breaks(index.rows, index.rows ^ 1);
    assert_index_breaks(index.columns[list / SIZE_INDEX_COLUMNS], UINT32_C(1));
    assert_index_breaks(index.heads[list], NULL);
    assert_index_breaks(one.link, NULL);
    assert_index_breaks(one.size, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENGINE_TEST(a_page_map_that_does_not_fit_is_found),
        ENGINE_TEST(sums_of_chunks_that_do_not_fit_are_found),
        ENGINE_TEST(rings_that_break_are_found),
        ENGINE_TEST(voids_that_break_are_found),
        ENGINE_TEST(epochs_that_do_not_rise_are_found),
        cmocka_unit_test(an_index_of_sizes_that_breaks_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
