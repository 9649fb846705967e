/* The checks of vm, arena, clock and size index find every broken invariant. */
#include "support/break_support.h"
#include "support/engine_support.h"

static vmm_status check(const struct engine *engine)
{
    return vmm__vm_check(&engine->memory);
}

/* Chunks of two granules. */
struct chunks {
    struct chunk *first;
    struct chunk *second;
};

static struct chunks chunks_create(struct engine *engine)
{
    struct chunks chunks;
    engine_map(engine, 10, 2, 2);
    engine_map(engine, 20, 2, 2);
    engine_map(engine, 30, 2, 2);
    chunks.first = engine_chunk(engine, 10);
    chunks.second = engine_chunk(engine, 20);
    return chunks;
}

ENGINE_TEST(finds_a_page_map_that_does_not_match)
{
    struct chunks chunks = chunks_create(engine);
    assert_found(check(engine), engine->memory.pages[11], 0, "vm: invariant 1");
    assert_found(check(engine), chunks.second->first, 40, "vm: invariant 1");
}

ENGINE_TEST(finds_places_that_do_not_match)
{
    struct vm *vm = &engine->memory;
    struct chunks chunks = chunks_create(engine);
    vmm__arena_take(&vm->arena, 40, 2);
    assert_ok(vmm__place_map(vm, chunks.first, 40));
    assert_ok(vmm__vm_access(vm, 40, 2));
    assert_ok(check(engine));
    assert_found(check(engine), vm->pages[41], 0, "vm: invariant 1");
    assert_found(check(engine), vm->pages[40], vmm__chunk_id(vm, chunks.second), "vm: invariant 1");
    assert_found(check(engine), chunks.first->place, NO_GRANULE, "has lost a place");
    assert_found(check(engine), vm->next_places[40], 40, "has lost a place");
    assert_found(check(engine), vm->counts.places, 0, "vm: invariant 3");
    assert_found(check(engine), vm->counts.view_bytes, GRANULE, "vm: invariant 3");
    vmm__arena_give(&vm->arena, 40, 2);
    found_broken(check(engine), "vm: invariant 2", __FILE__, __LINE__);
    vmm__arena_take(&vm->arena, 40, 2);
    assert_ok(vmm__place_unmap(vm, chunks.first, 40));
    assert_ok(check(engine));
    assert_true(vm->counts.places == 0 && vm->counts.view_bytes == 0 && vm->counts.places_max == 1);
}

ENGINE_TEST(finds_sums_of_chunks_that_do_not_match)
{
    struct chunks chunks = chunks_create(engine);
    assert_found(check(engine), chunks.second->state, CHUNK_UNUSED, "vm: invariant 2");
    assert_found(check(engine), engine->memory.counts.limbo_bytes, GRANULE, "vm: invariant 3");
    uint64_t reserved = engine_reserved_bytes(engine);
    engine->memory.reserved_bytes.current = reserved + 1;
    found_broken(check(engine), "vm: invariant 3", __FILE__, __LINE__);
    engine->memory.reserved_bytes.current = reserved;
    assert_found(check(engine), engine->memory.remap_pending, 1, "invariant 5");
    assert_found(check(engine), chunks.second->is_mapped, false, "invariant 5");
}

ENGINE_TEST(finds_a_record_that_is_in_no_list)
{
    struct chunks chunks = chunks_create(engine);
    uint32_t held = engine->memory.pages[10];
    vmm__vm_discard(&engine->memory, 20, 2, engine->lane->clock, 0);
    assert_found(check(engine), engine->memory.limbo_head, 0, "invariant 6");
    assert_found(check(engine), engine->memory.limbo_head, held, "invariant 6");
    assert_found(check(engine), chunks.second->next, held, "invariant 6");
    (void)engine_drain(engine);
    assert_found(check(engine), engine->memory.unused, 0, "invariant 6");
    assert_found(check(engine), engine->memory.unused, held, "invariant 6");
}

/* An alias has no memory of its own and belongs in limbo. */
ENGINE_TEST(finds_an_alias_outside_limbo)
{
    struct chunks chunks = chunks_create(engine);
    assert_found(check(engine), chunks.second->is_alias, true, "has no memory");
    assert_found(check(engine), chunks.first->is_alias, true, "has no memory");
}

/* ---- Arena -------------------------------------------------------------------------------- */

ENGINE_TEST(finds_broken_gaps)
{
    (void)chunks_create(engine);
    struct arena *arena = &engine->memory.arena;
    assert_found(vmm__arena_check(arena), arena->free_granules, 3, "arena: invariant 4");
    assert_found(vmm__arena_check(arena), arena->index.rows, 0, "arena: invariant 3");
    assert_found(vmm__arena_check(arena), arena->edges[12].first_plus_1, 0, "arena: invariant 2");
    assert_found(vmm__arena_check(arena), arena->edges[19].first_plus_1, 0, "arena: invariant 2");
    assert_found(vmm__arena_check(arena), arena->edges[20].first_plus_1, 13, "arena: invariant 1");
    assert_found(vmm__arena_check(arena), arena->edges[11].first_plus_1, 1, "arena: invariant 1");
    assert_found(check(engine), arena->edges[12].first_plus_1, 0, "arena: invariant 2");
}

/* ---- Clock -------------------------------------------------------------------------------- */

ENGINE_TEST(finds_epochs_that_do_not_rise)
{
    struct clock *clock = engine->lane->clock;
    engine_map(engine, 0, 1, 1);
    engine_make_busy(engine, engine_address(engine, 0), GRANULE, 1);
    for (int i = 0; i < 2; i++) {
        vmm__clock_tick(clock);
        engine_make_busy(engine, engine_address(engine, 0), GRANULE, 1);
    }
    assert_int_equal(clock->count, 2);
    struct clock_event *oldest = &clock->ring[clock->oldest];
    struct clock_event *next = &clock->ring[(clock->oldest + 1) % CLOCK_EVENTS];
    assert_found(vmm__clock_check(clock), next->epoch, oldest->epoch, "invariant 1");
    assert_found(vmm__clock_check(clock), oldest->epoch, clock->passed, "invariant 1");
    assert_found(vmm__clock_check(clock), next->epoch, vmm__clock_now(clock), "invariant 1");
}

/* ---- Index of sizes ----------------------------------------------------------------------- */

#define assert_index_broken(field, value)                                                          \
    do {                                                                                           \
        __typeof__(field) saved = (field);                                                         \
        (field) = (value);                                                                         \
        assert_false(vmm__size_index_check(&index));                                               \
        (field) = saved;                                                                           \
        assert_true(vmm__size_index_check(&index));                                                \
    } while (0)

TEST(finds_a_broken_index_of_sizes)
{
    static struct size_index index;
    struct size_node one = { .size = 100 };
    struct size_node two = { .size = 100 };
    struct size_node three = { .size = 5000 };
    vmm__size_index_init(&index, 1);
    assert_true(vmm__size_index_open(&index, UINT64_MAX));
    vmm__size_index_insert(&index, &one);
    vmm__size_index_insert(&index, &two);
    vmm__size_index_insert(&index, &three);
    assert_true(vmm__size_index_check(&index));
    unsigned list = vmm__size_list(&index, 100);
    assert_index_broken(index.end.size, 1);
    assert_index_broken(index.end.next, &one);
    assert_index_broken(index.rows, index.rows ^ 1);
    assert_index_broken(index.columns[list / SIZE_INDEX_COLUMNS], UINT32_C(1));
    assert_index_broken(index.heads[list], NULL);
    assert_index_broken(one.link, NULL);
    assert_index_broken(one.size, 5000);
    vmm__size_index_close(&index);
}
