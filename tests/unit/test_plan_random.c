/* Plans of a cache after random requests: each is the one that a plain search finds, chunk by chunk, with no table, no
 * sums and nothing passed over. */
#include "support/policy_support.h"

#include "base/arith.h"
#include "base/hostmem.h"
#include "cache/grow/evict.h"
#include "cache/grow/plan.h"
#include "cache/grow/target.h"
#include "cache/streams.h"

#include <stdlib.h>

enum { MAP = 32, CREATE = 13 }; /* as plan.c has them */
enum {
    BLOCKS = 256,
    STEPS = 4000,
    PLAN_EVERY = 8,
    FREE_EVERY = 200,
    LIST = 1024,
    DEVICE_MIB = 2048
};

enum kind { LONGER_RIGHT, LONGER_LEFT, BEGUN, WITH_NEW, WITH_END, WITH_OTHERS, KINDS };

struct game {
    struct driver *driver;
    vmm_cache *cache;
    uint64_t seed;
    void *blocks[BLOCKS];
    unsigned plans[KINDS]; /* that were compared */
};

static uint64_t draw(struct game *game, uint64_t below)
{
    game->seed ^= game->seed << 13;
    game->seed ^= game->seed >> 7;
    game->seed ^= game->seed << 17;
    return game->seed % below;
}

/* ---- A plain search -------------------------------------------------------------------------- */

struct part {
    struct chunk *chunk;
    uint64_t bytes;
};

struct list {
    struct part at[LIST];
    unsigned count;
};

/* What the search has found, in the order of a plan. */
struct found {
    uint64_t end;
    bool is_left;
    struct chunk *begin;
    uint64_t new_bytes;
    uint64_t cost;
    struct list chunks;
};

struct plain {
    struct vmm_cache *cache;
    struct heap *heap;
    uint64_t bytes;
    uint64_t allowed_bytes;
    uint64_t pinned_bytes;
    struct list idle;
    struct list heads;
    struct list tails;
    struct found best;
    struct found least;
};

static void list_add(struct list *list, struct chunk *chunk, uint64_t bytes)
{
    assert_true(list->count < LIST);
    list->at[list->count++] = (struct part){ chunk, bytes };
}

/* The larger first; of equal ones the one whose home is lower. */
static int by_size(const void *a, const void *b)
{
    const struct part *left = a;
    const struct part *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return left->chunk->first < right->chunk->first ? -1 : 1;
}

/* Adds what a plan may use of a chunk. Blocks of less than a granule do not count. */
static void chunk_search(struct plain *plain, struct chunk *chunk)
{
    const struct vm *vm = &plain->cache->vm;
    uint64_t start = vmm__chunk_address(vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(vm, chunk);
    struct heap *heap = vmm__directory_heap(&plain->cache->directory, start);
    bool is_own = heap == plain->heap;
    if (heap->is_small)
        return;
    assert_true(chunk->is_mapped && chunk->places < PLACES_USUAL);
    for (const struct block *block = vmm__heap_cover(heap, start);
         block != NULL && block->address < end; block = block->next) {
        uint64_t low = vmm__max(block->address, start);
        uint64_t high = vmm__min(vmm__block_end(block), end);
        if (block->state != BLOCK_FREE || block->node.size < GRANULE)
            continue;
        bool is_idle = low == start && high == end;
        if (is_idle)
            list_add(&plain->idle, chunk, high - low);
        else if (is_own && low == start)
            list_add(&plain->heads, chunk, high - low);
        else if (is_own && high == end)
            list_add(&plain->tails, chunk, high - low);
        plain->pinned_bytes += is_own && !is_idle ? high - low : 0;
    }
}

static bool is_banned(const struct plain *plain, uint64_t view, const struct chunk *begin,
                      const struct chunk *chunk)
{
    const struct views *views = &plain->cache->views;
    for (uint64_t at = chunk->place; at != NO_GRANULE; at = views->vm->next_places[at]) {
        if (view != 0 && views->places[at].view == view)
            return true;
    }
    return chunk == begin;
}

static void list_remove(struct list *list, const struct chunk *chunk)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < list->count; i++) {
        if (list->at[i].chunk != chunk)
            list->at[kept++] = list->at[i];
    }
    list->count = kept;
}

static struct list list_allow(const struct plain *plain, const struct list *list, uint64_t view,
                              const struct chunk *begin)
{
    static struct list allowed;
    allowed.count = 0;
    for (unsigned i = 0; i < list->count; i++) {
        if (!is_banned(plain, view, begin, list->at[i].chunk))
            list_add(&allowed, list->at[i].chunk, list->at[i].bytes);
    }
    return allowed;
}

/* The smallest part that holds `bytes`: the last one in the order. NULL: none. */
static const struct part *list_fit(const struct list *list, uint64_t bytes)
{
    const struct part *fit = NULL;
    for (unsigned i = 0; i < list->count && list->at[i].bytes >= bytes; i++)
        fit = &list->at[i];
    return fit;
}

/* Fills bytes with the largest idle chunk until an idle chunk or an end holds the rest. Returns what is missing. */
static uint64_t fill(struct list idle, const struct list *ends, uint64_t bytes, struct list *out)
{
    out->count = 0;
    while (bytes > 0) {
        const struct part *fit = list_fit(&idle, bytes);
        const struct part *end = list_fit(ends, bytes);
        bool is_over = fit == NULL && end == NULL && idle.count == 0;
        if (fit == NULL || (end != NULL && end->bytes < fit->bytes))
            fit = end;
        if (fit == NULL)
            fit = idle.count > 0 ? &idle.at[0] : ends->count > 0 ? &ends->at[0] : NULL;
        if (fit == NULL)
            break;
        struct part part = *fit;
        list_add(out, part.chunk, part.bytes);
        list_remove(&idle, part.chunk);
        bytes -= vmm__min(bytes, part.bytes);
        if (is_over)
            break;
    }
    return bytes;
}

/* Considers a site with some new memory. Returns what is missing. */
static uint64_t try_new(struct plain *plain, const struct found *site, uint64_t view,
                        uint64_t free_bytes, uint64_t room_bytes, uint64_t new_bytes)
{
    static struct found found;
    static struct list idle;
    static struct list ends;
    uint64_t there = vmm__min(plain->bytes, free_bytes + new_bytes);
    uint64_t most =
        (uint64_t)vmm__target_chunk_granules(plain->cache, plain->heap, plain->bytes) * GRANULE;
    idle = list_allow(plain, &plain->idle, view, site->begin);
    ends = list_allow(plain, site->is_left ? &plain->tails : &plain->heads, view, site->begin);
    found = *site;
    found.new_bytes = new_bytes;
    uint64_t missing = fill(idle, &ends, plain->bytes - there, &found.chunks);
    uint64_t created = (new_bytes + most - 1) / most;
    uint64_t bytes = new_bytes;
    for (unsigned i = 0; i < found.chunks.count; i++)
        bytes += vmm__chunk_bytes(&plain->cache->vm, found.chunks.at[i].chunk);
    found.cost =
        (found.chunks.count + (found.begin != NULL ? 1 : 0) + 2 * created) * MAP + created * CREATE;
    if (missing > 0 || bytes > room_bytes)
        return missing;
    if (new_bytes <= plain->allowed_bytes && found.cost < plain->best.cost)
        plain->best = found;
    if (new_bytes < plain->least.new_bytes ||
        (new_bytes == plain->least.new_bytes && found.cost < plain->least.cost))
        plain->least = found;
    return 0;
}

static void site_try(struct plain *plain, const struct found *site, uint64_t view,
                     uint64_t free_bytes, uint64_t room_bytes)
{
    uint64_t bytes = plain->bytes - vmm__min(plain->bytes, free_bytes);
    uint64_t allowed = vmm__min(plain->allowed_bytes, vmm__align_up(bytes, GRANULE));
    uint64_t missing = try_new(plain, site, view, free_bytes, room_bytes, 0);
    if (allowed > 0)
        (void)try_new(plain, site, view, free_bytes, room_bytes, allowed);
    if (missing > 0)
        (void)try_new(plain, site, view, free_bytes, room_bytes, vmm__align_up(missing, GRANULE));
}

/* The free bytes at an end of a row, place by place; stops where another heap's chunk or a partly live one does. */
static uint64_t end_free_bytes(const struct plain *plain, uint64_t place, bool is_left)
{
    const struct views *views = &plain->cache->views;
    uint64_t bytes = 0;
    while (place != NO_GRANULE) {
        const struct chunk *chunk = vmm__vm_chunk(views->vm, place);
        uint64_t size = vmm__chunk_bytes(views->vm, chunk);
        uint64_t free = is_left ? chunk->free_head_bytes : chunk->free_tail_bytes;
        uint64_t next = is_left ? place + chunk->granules : views->places[place].left;
        if (vmm__directory_heap(views->directory, vmm__arena_address(&views->vm->arena, place)) !=
            plain->heap)
            break;
        bytes += free;
        if (free < size || (is_left && vmm__views_is_last(views, place)))
            break;
        place = next;
    }
    return bytes;
}

static void end_try(struct plain *plain, uint64_t place, bool is_left)
{
    const struct views *views = &plain->cache->views;
    const struct arena *arena = &plain->cache->vm.arena;
    const struct chunk *chunk = vmm__vm_chunk(views->vm, place);
    bool is_end =
        is_left ? views->places[place].left == NO_GRANULE : vmm__views_is_last(views, place);
    if (!is_end || (is_left ? chunk->free_head_bytes : chunk->free_tail_bytes) == 0)
        return;
    struct found site = { .end = place, .is_left = is_left };
    uint64_t room = is_left ? vmm__arena_room_before(arena, place)
                            : vmm__arena_room_after(arena, place + chunk->granules);
    site_try(plain, &site, views->places[place].view, end_free_bytes(plain, place, is_left),
             room == 0 ? 0 : (room - 1) * GRANULE);
}

static void search(struct plain *plain)
{
    const struct views *views = &plain->cache->views;
    const struct vm *vm = &plain->cache->vm;
    for (uint32_t id = 1; id < vm->record_high; id++) {
        if (vm->records[id].state == CHUNK_HELD)
            chunk_search(plain, &vm->records[id]);
    }
    qsort(plain->idle.at, plain->idle.count, sizeof *plain->idle.at, by_size);
    qsort(plain->heads.at, plain->heads.count, sizeof *plain->heads.at, by_size);
    qsort(plain->tails.at, plain->tails.count, sizeof *plain->tails.at, by_size);
    plain->heap->pinned_bytes = plain->pinned_bytes;
    struct found site = { .end = NO_GRANULE };
    site_try(plain, &site, 0, 0, UINT64_MAX);
    site.begin = plain->tails.count > 0 ? plain->tails.at[0].chunk : NULL;
    if (site.begin != NULL)
        site_try(plain, &site, 0, plain->tails.at[0].bytes, UINT64_MAX);
    for (uint64_t i = views->end_count; i-- > 0;) {
        uint64_t address = vmm__arena_address(&vm->arena, views->ends[i].place);
        if (vmm__directory_heap(views->directory, address) != plain->heap)
            continue;
        end_try(plain, views->ends[i].place, false);
        end_try(plain, views->ends[i].place, true);
    }
}

/* ---- The comparison -------------------------------------------------------------------------- */

static void assert_plan_is(const struct plan *plan, const struct found *found)
{
    unsigned begun = found->begin != NULL ? 1 : 0;
    assert_int_equal(plan->cost, found->cost);
    assert_int_equal(plan->new_bytes, found->new_bytes);
    assert_int_equal(plan->end, found->end);
    assert_int_equal(plan->is_left, found->is_left);
    assert_int_equal(plan->has_begin, begun);
    assert_int_equal(plan->count, found->chunks.count + begun);
    if (begun != 0)
        assert_ptr_equal(plan->chunks[0].chunk, found->begin);
    for (unsigned i = 0; i < found->chunks.count; i++) {
        assert_ptr_equal(plan->chunks[begun + i].chunk, found->chunks.at[i].chunk);
        assert_int_equal(plan->chunks[begun + i].bytes, found->chunks.at[i].bytes);
    }
}

static void plan_count(struct game *game, const struct plan *plan, const struct heap *heap)
{
    const struct candidate *last = plan->count > 0 ? &plan->chunks[plan->count - 1] : NULL;
    uint64_t last_bytes = last != NULL ? vmm__chunk_bytes(&game->cache->vm, last->chunk) : 0;
    game->plans[LONGER_RIGHT] += plan->end != NO_GRANULE && !plan->is_left;
    game->plans[LONGER_LEFT] += plan->end != NO_GRANULE && plan->is_left;
    game->plans[BEGUN] += plan->has_begin;
    game->plans[WITH_NEW] += plan->new_bytes > 0;
    game->plans[WITH_END] += plan->count > (plan->has_begin ? 1U : 0U) && last->bytes < last_bytes;
    game->plans[WITH_OTHERS] += last != NULL && last->heap != heap;
}

/* Plans for a random request of a stream. */
static void plan_compare(struct game *game)
{
    static struct plain plain;
    struct vmm_cache *cache = game->cache;
    struct lane *lane;
    assert_ok(vmm__stream_lane(cache, STREAM(1 + draw(game, 2)), &lane));
    struct heap *heap = &lane->large;
    plain = (struct plain){ .cache = cache, .heap = heap };
    plain.bytes =
        (1 + draw(game, 256 * MIB >> draw(game, 8)) / LARGE_UNIT_BYTES) * LARGE_UNIT_BYTES;
    plain.allowed_bytes = draw(game, 2) * draw(game, 40) * GRANULE;
    plain.best.cost = UINT64_MAX;
    plain.least = (struct found){ .cost = UINT64_MAX, .new_bytes = UINT64_MAX };
    vmm__fair_lock(&cache->grow_lock);
    vmm__lane_lock(lane);
    vmm__request_lanes_lock(cache, &(struct request){ .heap = heap });
    (void)vmm__host_fail_at(0);
    struct plan plan = vmm__plan(cache, heap, plain.bytes, plain.allowed_bytes, IDLE_FINISHED);
    assert_int_equal(vmm__host_fail_at(0), 0); /* a plan allocates nothing */
    uint64_t pinned_bytes = heap->pinned_bytes;
    search(&plain);
    assert_int_equal(pinned_bytes, plain.pinned_bytes);
    assert_plan_is(&plan, plain.best.cost != UINT64_MAX ? &plain.best : &plain.least);
    plan_count(game, &plan, heap);
    vmm__request_lanes_unlock(cache, heap);
    vmm__lane_unlock(lane);
    vmm__fair_unlock(&cache->grow_lock);
}

static void request(struct game *game, void **block)
{
    if (*block != NULL) {
        assert_ok(vmm_free(game->cache, *block));
        *block = NULL;
        return;
    }
    uint64_t bytes = 2 * MIB + draw(game, (4 * MIB) << draw(game, 6));
    vmm_status status = vmm_alloc(game->cache, bytes, STREAM(1 + draw(game, 8) / 7), block);
    assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
}

/* Frees most blocks: what is free then spans many chunks. */
static void blocks_free(struct game *game)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (game->blocks[i] != NULL && draw(game, 8) > 0)
            request(game, &game->blocks[i]);
    }
}

TEST(plans_are_those_of_a_plain_search)
{
    struct game game = { .seed = 88172645463325252 };
    struct driver_options options = { .device_bytes = DEVICE_MIB * MIB };
    vmm_config config = VMM_CONFIG_INIT;
    config.reuse = VMM_REUSE_ANY_USE;
    assert_ok(vmm__driver_sim_open(&options, &game.driver));
    assert_ok(vmm__cache_create_on(&config, game.driver, &game.cache));
    for (unsigned step = 0; step < STEPS; step++) {
        request(&game, &game.blocks[draw(&game, BLOCKS)]);
        if (step % FREE_EVERY == FREE_EVERY - 1)
            blocks_free(&game);
        if (step % PLAN_EVERY == PLAN_EVERY - 1)
            plan_compare(&game);
    }
    for (unsigned i = 0; i < KINDS; i++)
        assert_true(game.plans[i] > 20);
    assert_ok(vmm_destroy(game.cache));
    vmm__driver_close(game.driver);
}
