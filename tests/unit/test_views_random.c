/* Views in random steps: after each step every invariant holds, and the runs and ends are those that a search of all
 * units finds. */
#include "support/engine_support.h"

/* Homes of up to four granules start at multiples of four; rows lie above. */
enum { SLOTS = 8, SLOT = 4, VIEWS_FIRST = SLOTS * SLOT + 1, BLOCKS = 48, STEPS = 4000 };

static const uint64_t UNIT = MIB / 2;

struct game {
    struct engine *engine;
    uint64_t seed;
    struct block *blocks[BLOCKS]; /* live */
    struct heap *heaps[BLOCKS];   /* of these */
    unsigned count;
    unsigned done[8]; /* steps that changed something, by kind */
};

static uint64_t draw(struct game *game, uint64_t below)
{
    game->seed ^= game->seed << 13;
    game->seed ^= game->seed >> 7;
    game->seed ^= game->seed << 17;
    return game->seed % below;
}

static struct heap *draw_heap(struct game *game)
{
    return draw(game, 4) == 0 ? &game->engine->other->large : &game->engine->lane->large;
}

static struct heap *heap_of(const struct game *game, uint64_t granule)
{
    return vmm__directory_heap(&game->engine->directory, engine_address(game->engine, granule));
}

/* The place that has a byte of a view. */
static uint64_t place_of(const struct game *game, uint64_t address)
{
    const struct vm *vm = &game->engine->memory;
    uint64_t granule = vmm__arena_granule(&vm->arena, address);
    const struct chunk *chunk = vmm__vm_chunk(vm, granule);
    uint64_t place = chunk->place;
    while (place > granule || granule >= place + chunk->granules)
        place = vm->next_places[place];
    return place;
}

/* The byte of a home that a byte of a view is. */
static uint64_t home_of(const struct game *game, uint64_t address)
{
    const struct vm *vm = &game->engine->memory;
    uint64_t place = place_of(game, address);
    return vmm__chunk_address(vm, vmm__vm_chunk(vm, place)) + address -
           vmm__arena_address(&vm->arena, place);
}

/* Whether a place in a row starts at a granule. */
static bool is_place(const struct game *game, uint64_t granule)
{
    return game->engine->views.places[granule].chunk != 0;
}

/* A stretch of free bytes at consecutive addresses of a view, in chunks of one heap. */
struct stretch {
    uint64_t bytes;
    unsigned chunks;
    bool is_first; /* it began in a chunk that is the first of its heap in the row */
    uint64_t most; /* result: of those that the index must have */
};

/* The index leaves out what is free at a home, too, but for a chunk behind another one. */
static void stretch_add(struct stretch *stretch, uint64_t chunk_bytes)
{
    stretch->bytes += UNIT;
    bool is_behind = !stretch->is_first && stretch->bytes == chunk_bytes;
    if (stretch->chunks > 1 || is_behind)
        stretch->most = vmm__max(stretch->most, stretch->bytes);
}

static void stretch_granule(const struct game *game, const struct heap *heap, uint64_t granule,
                            struct stretch *stretch)
{
    uint64_t chunk_bytes = engine_chunk(game->engine, granule)->granules * GRANULE;
    for (uint64_t at = 0; at < GRANULE; at += UNIT) {
        uint64_t home = home_of(game, engine_address(game->engine, granule) + at);
        if (vmm__heap_cover(heap, home)->state == BLOCK_FREE) {
            stretch->chunks += stretch->chunks == 0;
            stretch_add(stretch, chunk_bytes);
        } else {
            stretch->bytes = 0;
            stretch->chunks = 0;
        }
    }
}

/* The largest such stretch of a heap, found unit by unit. */
static uint64_t stretch_bytes(const struct game *game, const struct heap *heap)
{
    struct stretch stretch = { .bytes = 0 };
    for (uint64_t granule = VIEWS_FIRST; granule < ENGINE_GRANULES; granule++) {
        if (heap_of(game, granule) != heap)
            continue;
        const struct view_place *place = &game->engine->views.places[granule];
        if (is_place(game, granule)) {
            bool is_first = place->left == NO_GRANULE || heap_of(game, place->left) != heap;
            stretch.bytes = is_first ? 0 : stretch.bytes;
            stretch.is_first = stretch.bytes == 0 ? is_first : stretch.is_first;
            stretch.chunks = stretch.bytes == 0 ? 0 : stretch.chunks + 1;
        }
        stretch_granule(game, heap, granule, &stretch);
    }
    return stretch.most;
}

static uint64_t run_bytes_most(const struct heap *heap)
{
    uint64_t most = 0;
    if (heap->runs == NULL)
        return 0;
    for (const struct size_node *node = vmm__size_index_largest(heap->runs); node != NULL;
         node = vmm__size_index_smaller(heap->runs, node))
        most = vmm__max(most, node->size);
    return most;
}

/* The list of ends has exactly the first and last places of rows. */
static void ends_check(const struct game *game)
{
    const struct views *views = &game->engine->views;
    unsigned ends = 0;
    for (uint64_t granule = VIEWS_FIRST; granule < ENGINE_GRANULES; granule++) {
        bool is_end = is_place(game, granule) && (views->places[granule].left == NO_GRANULE ||
                                                  vmm__views_is_last(views, granule));
        assert_int_equal(is_place(game, granule) && views->places[granule].is_end, is_end);
        ends += is_end;
    }
    assert_int_equal(engine_ends(game->engine), ends);
}

static void game_check(struct game *game)
{
    engine_check(game->engine);
    ends_check(game);
    struct heap *heaps[] = { &game->engine->lane->large, &game->engine->other->large };
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(run_bytes_most(heaps[i]), stretch_bytes(game, heaps[i]));
}

static void block_keep(struct game *game, struct heap *heap, struct block *block)
{
    game->blocks[game->count] = block;
    game->heaps[game->count++] = heap;
}

static bool step_take_home(struct game *game)
{
    struct heap *heap = draw_heap(game);
    struct block *block;
    if (game->count == BLOCKS ||
        vmm__heap_take(heap, (1 + draw(game, 24)) * UNIT, SEARCH_QUICK, &block) != VMM_OK)
        return false;
    block_keep(game, heap, block);
    return true;
}

/* The block must lie over free bytes only, which are occupied now, of places whose turn is the latest. NO_FIT only if
 * no stretch is as large. */
static bool step_take_view(struct game *game)
{
    struct heap *heap = draw_heap(game);
    struct block *block;
    uint64_t bytes = (1 + draw(game, 24)) * UNIT;
    uint64_t most = stretch_bytes(game, heap);
    uint64_t free_bytes = heap->free_bytes;
    uint64_t turn = game->engine->views.turn + 1;
    if (game->count == BLOCKS)
        return false;
    vmm_status status = vmm__views_take(heap, bytes, SEARCH_WHOLE, &block);
    if (bytes > most) {
        assert_status(status, VMM__NO_FIT);
        return false;
    }
    assert_ok(status);
    assert_int_equal(heap->free_bytes, free_bytes - bytes);
    for (uint64_t at = block->address; at < vmm__block_end(block); at += UNIT) {
        const struct block *piece = vmm__heap_cover(heap, home_of(game, at));
        assert_int_equal(piece->state, BLOCK_OCCUPIED);
        assert_ptr_equal(piece->user, block);
        assert_ptr_equal(vmm__views_cover(&game->engine->views, at), block);
        assert_int_equal(game->engine->views.places[place_of(game, at)].turn, turn);
    }
    block_keep(game, heap, block);
    return true;
}

static bool step_give(struct game *game)
{
    if (game->count == 0)
        return false;
    uint64_t i = draw(game, game->count);
    struct heap *heap = game->heaps[i];
    uint64_t free_bytes = heap->free_bytes;
    uint64_t bytes = game->blocks[i]->node.size;
    (void)vmm__heap_give(heap, game->blocks[i]);
    assert_int_equal(heap->free_bytes, free_bytes + bytes);
    game->count--;
    game->blocks[i] = game->blocks[game->count];
    game->heaps[i] = game->heaps[game->count];
    return true;
}

static bool chunk_is_in_view(const struct game *game, const struct chunk *chunk, uint64_t view)
{
    uint64_t place = chunk->place;
    while (place != NO_GRANULE && game->engine->views.places[place].view != view)
        place = game->engine->memory.next_places[place];
    return place != NO_GRANULE;
}

/* Whether granules of the rows' addresses are free. */
static bool is_free(const struct game *game, uint64_t granule, uint64_t count)
{
    uint64_t first;
    uint64_t free_count;
    return granule >= VIEWS_FIRST && granule + count <= ENGINE_GRANULES &&
           vmm__arena_gap(&game->engine->memory.arena, granule, &first, &free_count) &&
           first + free_count >= granule + count;
}

/* Extends a row to the right or left, or begins one. A granule stays free between rows. */
static bool step_place(struct game *game)
{
    struct engine *engine = game->engine;
    struct chunk *chunk = engine_chunk(engine, draw(game, SLOTS) * SLOT);
    uint64_t at = VIEWS_FIRST + draw(game, ENGINE_GRANULES - VIEWS_FIRST);
    if (chunk == NULL)
        return false;
    uint64_t count = chunk->granules;
    uint64_t view = engine->views.last_view + 1;
    bool is_extended = is_place(game, at);
    bool is_left = draw(game, 2) == 0;
    if (is_extended) {
        view = engine->views.places[at].view;
        at = is_left ? at - count : at + engine_chunk(engine, at)->granules;
    }
    uint64_t before = is_extended && !is_left ? 0 : 1;
    uint64_t after = is_extended && is_left ? 0 : 1;
    if (chunk_is_in_view(game, chunk, view) || !is_free(game, at - before, before + count + after))
        return false;
    engine_place(engine, heap_of(game, chunk->first), chunk->first, at, view);
    return true;
}

/* Some are refused, and tried again by a later step. */
static bool step_unmap(struct game *game)
{
    struct engine *engine = game->engine;
    uint64_t at = VIEWS_FIRST + draw(game, ENGINE_GRANULES - VIEWS_FIRST);
    struct chunk *chunk = engine_chunk(engine, at);
    if (chunk == NULL || engine->views.places[at].users > 0)
        return false;
    uint64_t place = chunk->place;
    while (place != NO_GRANULE && place != at)
        place = engine->memory.next_places[place];
    if (place == NO_GRANULE)
        return false;
    vmm__sim_fail_at(engine->driver, draw(game, 4) == 0 ? 1 : 0, VMM_ERR_DRIVER, false);
    (void)vmm__views_place_unmap(heap_of(game, chunk->first), chunk, at);
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    return true;
}

static struct chunk *draw_idle(struct game *game)
{
    struct chunk *chunk = engine_chunk(game->engine, draw(game, SLOTS) * SLOT);
    if (chunk == NULL)
        return NULL;
    uint64_t address = vmm__chunk_address(&game->engine->memory, chunk);
    struct heap *heap = heap_of(game, chunk->first);
    vmm__heap_settle(heap);
    const struct block *block = vmm__heap_cover(heap, address);
    uint64_t end = address + vmm__chunk_bytes(&game->engine->memory, chunk);
    return block->state == BLOCK_FREE && vmm__block_end(block) >= end ? chunk : NULL;
}

static void chunk_detach(struct game *game, struct chunk *chunk)
{
    struct heap *heap = heap_of(game, chunk->first);
    uint64_t address = vmm__chunk_address(&game->engine->memory, chunk);
    assert_ok(vmm__heap_detach(heap, vmm__heap_cover(heap, address), address,
                               vmm__chunk_bytes(&game->engine->memory, chunk)));
}

static bool step_transfer(struct game *game)
{
    struct engine *engine = game->engine;
    struct chunk *chunk = draw_idle(game);
    if (chunk == NULL)
        return false;
    struct heap *from = heap_of(game, chunk->first);
    struct heap *to = from == &engine->lane->large ? &engine->other->large : &engine->lane->large;
    uint64_t address = vmm__chunk_address(&engine->memory, chunk);
    assert_ok(vmm__heap_hand(from, vmm__heap_cover(from, address), address,
                             vmm__chunk_bytes(&engine->memory, chunk), to, 0));
    return true;
}

static bool step_release(struct game *game)
{
    struct chunk *chunk = draw_idle(game);
    if (chunk == NULL || draw(game, 4) != 0)
        return false;
    chunk_detach(game, chunk);
    vmm__limbo_put(&game->engine->memory, chunk, NULL, 0);
    assert_ok(vmm__limbo_drain(&game->engine->memory, NULL));
    return true;
}

static bool step_attach(struct game *game)
{
    uint64_t slot = draw(game, SLOTS) * SLOT;
    uint32_t granules = (uint32_t)(1 + draw(game, SLOT));
    if (engine_chunk(game->engine, slot) != NULL)
        return false;
    (void)engine_attach(game->engine, draw_heap(game), slot, granules, granules);
    return true;
}

static void game_run(struct engine *engine, uint64_t seed)
{
    static bool (*const steps[])(struct game *) = { step_take_home, step_take_view, step_give,
                                                    step_place,     step_unmap,     step_transfer,
                                                    step_release,   step_attach };
    struct game game = { .engine = engine, .seed = seed };
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t kind = draw(&game, 8);
        kind = kind >= 4 && kind <= 6 && draw(&game, 2) == 0 ? 3 : kind; /* more come than go */
        game.done[kind] += steps[kind](&game);
        game_check(&game);
    }
    for (unsigned kind = 0; kind < 8; kind++)
        assert_true(game.done[kind] > 20);
    while (step_give(&game))
        game_check(&game);
}

TEST(random_steps_keep_every_invariant)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        void *engine;
        assert_int_equal(engine_setup(&engine), 0);
        game_run(engine, seed * UINT64_C(0x9e3779b97f4a7c15));
        assert_int_equal(engine_teardown(&engine), 0);
    }
}
