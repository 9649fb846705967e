/* Plans a view: see plan.h. */
#include "cache/grow/plan.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/grow/evict.h"
#include "cache/grow/target.h"

#include <stdlib.h>
#include <string.h>

/* Microseconds on an H200: cuMemMap and its share of cuMemSetAccess; cuMemCreate. Only the ratio matters. */
enum { MAP_COST = 32, CREATE_COST = 13 };

struct candidates {
    struct candidate *items;
    uint32_t count;
    uint64_t capacity;
};

/* The state of one search. */
struct search {
    struct vmm_cache *cache;
    struct heap *heap;
    uint64_t bytes;
    uint64_t allowed_bytes;
    uint64_t chunk_bytes;  /* of a new chunk */
    uint64_t pinned_bytes; /* free, in partly live chunks of the heap */
    enum idle_when when;
    struct candidates idle;  /* these three: the largest first */
    struct candidates heads; /* partly live chunks with a free head, and with a free tail */
    struct candidates tails;
    struct candidates trial; /* of the plan under consideration */
    struct plan best;        /* the cheapest with at most allowed_bytes */
    struct plan least;       /* the one with the least new memory */
};

static bool candidates_add(struct candidates *list, struct candidate item)
{
    if (!vmm__host_array_grow((void **)&list->items, &list->capacity, list->count, sizeof item))
        return false;
    list->items[list->count++] = item;
    return true;
}

static void candidates_free(struct candidates *list)
{
    vmm__host_free(list->items, list->capacity * sizeof *list->items);
}

/* ---- Candidates ------------------------------------------------------------------------------ */

/* Whether all work on an idle chunk has finished. */
static bool chunk_is_finished(const struct search *search, struct heap *heap,
                              const struct chunk *chunk)
{
    uint64_t epoch = vmm__directory_epoch(&search->cache->directory, chunk->first, chunk->granules);
    return vmm__timeline_query(&heap->lane->timeline, epoch) == VMM_OK;
}

/* Adds a chunk, unless it may not have one place more. */
static bool chunk_add(struct search *search, struct candidates *list, struct candidate item)
{
    struct chunk *chunk = item.chunk;
    bool is_own = item.heap == search->heap;
    if (!chunk->is_mapped) /* its remap is pending */
        return true;
    bool is_full = chunk->places >= PLACES_MOST;
    if (is_full)
        item.gives_place = is_own ? vmm__evict_may(search->cache, search->heap, chunk)
                                  : chunk_is_finished(search, item.heap, chunk);
    bool is_allowed = !is_full || item.gives_place || chunk->places < PLACES_BOUND;
    return !is_allowed || candidates_add(list, item);
}

/* Adds the chunks of a free block of the requesting heap. */
static bool block_add(struct search *search, const struct block *block)
{
    const struct vm *vm = &search->cache->vm;
    uint64_t end = vmm__block_end(block);
    bool is_ok = true;
    for (uint64_t at = block->address; at < end && is_ok;) {
        struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, at));
        uint64_t first = vmm__chunk_address(vm, chunk);
        uint64_t last = first + vmm__chunk_bytes(vm, chunk);
        struct candidate item = { .chunk = chunk,
                                  .heap = search->heap,
                                  .bytes = vmm__min(last, end) - at };
        struct candidates *list = last > end ? &search->heads : &search->idle;
        if (at > first)
            list = last > end ? NULL : &search->tails; /* free in the middle only: of no use */
        if (list != &search->idle)
            search->pinned_bytes += item.bytes;
        if (list != NULL)
            is_ok = chunk_add(search, list, item);
        at = last;
    }
    return is_ok;
}

static bool own_add(struct search *search)
{
    const struct size_index *index = &search->heap->index;
    struct size_node *node = vmm__size_index_from(index, search->cache->vm.arena.granule_bytes);
    bool is_ok = true;
    for (; node != NULL && is_ok; node = vmm__size_index_larger(index, node))
        is_ok = block_add(search, (const struct block *)node);
    return is_ok;
}

/* Adds the chunks of a run of another heap's idle chunks. */
static bool run_add(void *context, const struct idle_run *run)
{
    struct search *search = context;
    const struct vm *vm = &search->cache->vm;
    bool is_ok = true;
    for (uint64_t at = run->address; at < run->address + run->bytes && is_ok;) {
        struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, at));
        uint64_t bytes = vmm__chunk_bytes(vm, chunk);
        struct candidate item = { .chunk = chunk, .heap = run->heap, .bytes = bytes };
        is_ok = chunk_add(search, &search->idle, item);
        at += bytes;
    }
    return is_ok;
}

static int by_size(const void *a, const void *b)
{
    const struct candidate *left = a;
    const struct candidate *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return left->chunk < right->chunk ? -1 : left->chunk > right->chunk;
}

/* Sorts candidates, the largest first, and sums them up. */
static void candidates_sort(struct candidates *list)
{
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, by_size);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < list->count; i++) {
        sum += list->items[i].bytes;
        list->items[i].sum = sum;
    }
}

static uint64_t largest_bytes(const struct candidates *list)
{
    return list->count > 0 ? list->items[0].bytes : 0;
}

/* ---- Choices --------------------------------------------------------------------------------- */

/* A row to extend, or a row to begin. */
struct site {
    uint64_t end;  /* place; NO_GRANULE: a new row */
    uint64_t view; /* number of the row's view; 0: a new one */
    bool is_left;
    uint64_t free_bytes;           /* there already */
    uint64_t room_bytes;           /* free addresses to extend it by */
    const struct candidate *begin; /* a partly live chunk that a new row begins with; NULL: none */
};

/* A row has a chunk at most once. */
static bool site_bans(const struct search *search, const struct site *site,
                      const struct chunk *chunk)
{
    const struct views *views = &search->cache->views;
    if (site->begin != NULL)
        return site->begin->chunk == chunk;
    if (site->view == 0)
        return false;
    uint64_t place = chunk->place;
    while (place != NO_GRANULE && views->places[place].view != site->view)
        place = views->vm->next_places[place];
    return place != NO_GRANULE;
}

/* The smallest candidate that holds `bytes`, from number `from` on; NULL: none. */
static const struct candidate *smallest_fit(const struct search *search, const struct site *site,
                                            const struct candidates *list, uint32_t from,
                                            uint64_t bytes)
{
    uint32_t low = from;
    uint32_t high = list->count;
    if (low == high || list->items[low].bytes < bytes)
        return NULL;
    while (low < high) { /* finds the first that is too small */
        uint32_t middle = low + (high - low) / 2;
        if (list->items[middle].bytes >= bytes)
            low = middle + 1;
        else
            high = middle;
    }
    while (low > from && site_bans(search, site, list->items[low - 1].chunk))
        low--;
    return low > from ? &list->items[low - 1] : NULL;
}

/* The largest candidate from number *next on; moves *next behind it. NULL: none. */
static const struct candidate *largest_from(const struct search *search, const struct site *site,
                                            const struct candidates *list, uint32_t *next)
{
    while (*next < list->count && site_bans(search, site, list->items[*next].chunk))
        (*next)++;
    return *next < list->count ? &list->items[(*next)++] : NULL;
}

/* The free ends of partly live chunks that a site may end with. */
static const struct candidates *ends_of(const struct search *search, const struct site *site)
{
    return site->is_left ? &search->tails : &search->heads;
}

/* The smallest idle chunk, from number `from` on, or free end that holds `bytes`. */
static const struct candidate *rest_fit(const struct search *search, const struct site *site,
                                        uint32_t from, uint64_t bytes)
{
    const struct candidate *idle = smallest_fit(search, site, &search->idle, from, bytes);
    const struct candidate *end = smallest_fit(search, site, ends_of(search, site), 0, bytes);
    if (idle == NULL || end == NULL)
        return idle == NULL ? end : idle;
    return end->bytes < idle->bytes ? end : idle;
}

/* Fills `bytes`, into search->trial: while no chunk or end holds the rest, with the largest idle chunk; then with the
 * smallest that holds it, or, if the idle chunks are used up, with the largest end. Stores what is missing. False: out of
 * host memory. */
static bool fill_choose(struct search *search, const struct site *site, uint64_t bytes,
                        uint64_t *missing_bytes)
{
    uint32_t next = 0;
    uint32_t next_end = 0;
    bool is_over = false;
    bool is_ok = true;
    search->trial.count = 0;
    while (bytes > 0 && !is_over && is_ok) {
        const struct candidate *fit = rest_fit(search, site, next, bytes);
        if (fit == NULL)
            fit = largest_from(search, site, &search->idle, &next);
        is_over = fit == NULL;
        if (is_over)
            fit = largest_from(search, site, ends_of(search, site), &next_end);
        if (fit == NULL)
            continue;
        is_ok = candidates_add(&search->trial, *fit);
        bytes -= vmm__min(bytes, fit->bytes);
    }
    *missing_bytes = bytes;
    return is_ok;
}

static uint64_t plan_cost(const struct search *search, const struct site *site, uint64_t new_bytes)
{
    uint64_t created = (new_bytes + search->chunk_bytes - 1) / search->chunk_bytes;
    uint64_t mapped = search->trial.count + (site->begin != NULL ? 1 : 0) + 2 * created;
    return mapped * MAP_COST + created * CREATE_COST;
}

static bool plan_keep(struct plan *plan, const struct search *search, const struct site *site,
                      uint64_t new_bytes, uint64_t cost)
{
    uint32_t begun = site->begin != NULL ? 1 : 0;
    uint32_t count = search->trial.count + begun;
    while (plan->capacity < count) {
        if (!vmm__host_array_grow((void **)&plan->chunks, &plan->capacity, plan->capacity,
                                  sizeof *plan->chunks))
            return false;
    }
    if (begun != 0)
        plan->chunks[0] = *site->begin;
    if (search->trial.count > 0)
        memcpy(plan->chunks + begun, search->trial.items,
               search->trial.count * sizeof *plan->chunks);
    plan->count = count;
    plan->end = site->end;
    plan->view = site->view;
    plan->is_left = site->is_left;
    plan->has_begin = site->begin != NULL;
    plan->new_bytes = new_bytes;
    plan->cost = cost;
    return true;
}

static uint64_t trial_bytes(const struct search *search)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < search->trial.count; i++)
        bytes += vmm__chunk_bytes(&search->cache->vm, search->trial.items[i].chunk);
    return bytes;
}

/* Considers the trial with some new memory. */
static bool trial_consider(struct search *search, const struct site *site, uint64_t new_bytes)
{
    if (trial_bytes(search) + new_bytes > site->room_bytes)
        return true;
    uint64_t cost = plan_cost(search, site, new_bytes);
    bool is_ok = true;
    if (new_bytes <= search->allowed_bytes && cost < search->best.cost)
        is_ok = plan_keep(&search->best, search, site, new_bytes, cost);
    bool is_less = new_bytes < search->least.new_bytes ||
                   (new_bytes == search->least.new_bytes && cost < search->least.cost);
    if (is_ok && is_less)
        is_ok = plan_keep(&search->least, search, site, new_bytes, cost);
    return is_ok;
}

/* Considers a site with new memory of nothing, of all that is allowed, and of exactly what is missing. */
static bool site_consider(struct search *search, const struct site *site)
{
    uint64_t granule_bytes = search->cache->vm.arena.granule_bytes;
    uint64_t bytes = search->bytes - vmm__min(search->bytes, site->free_bytes);
    uint64_t missing;
    if (!fill_choose(search, site, bytes, &missing))
        return false;
    if (missing == 0 && !trial_consider(search, site, 0))
        return false;
    uint64_t most = vmm__align_up(bytes, granule_bytes);
    uint64_t tries[] = { vmm__min(search->allowed_bytes, most),
                         vmm__align_up(missing, granule_bytes) };
    for (int i = 0; i < 2; i++) {
        uint64_t rest;
        if (tries[i] == 0)
            continue;
        if (!fill_choose(search, site, bytes - vmm__min(bytes, tries[i]), &rest) ||
            (rest == 0 && !trial_consider(search, site, tries[i])))
            return false;
    }
    return true;
}

/* The fewest idle chunks that hold `bytes`; a large number if all of them do not. */
static uint64_t idle_fewest(const struct search *search, uint64_t bytes)
{
    uint64_t low = 0;
    uint64_t high = search->idle.count;
    if (bytes == 0)
        return 0;
    while (low < high) { /* finds the first whose sum is enough */
        uint64_t middle = low + (high - low) / 2;
        if (search->idle.items[middle].sum >= bytes)
            high = middle;
        else
            low = middle + 1;
    }
    return low < search->idle.count ? low + 1 : UINT32_MAX;
}

/* Whether even the largest idle chunks, and the largest free end, would make a site dearer than the best plan. */
static bool site_is_dear(const struct search *search, const struct site *site)
{
    uint64_t free_bytes = site->free_bytes + search->allowed_bytes;
    uint64_t bytes = search->bytes - vmm__min(search->bytes, free_bytes);
    uint64_t end_bytes = largest_bytes(ends_of(search, site));
    uint64_t with_end = 1 + idle_fewest(search, bytes - vmm__min(bytes, end_bytes));
    uint64_t least = vmm__min(idle_fewest(search, bytes), with_end);
    return search->best.cost != UINT64_MAX && least * MAP_COST >= search->best.cost;
}

static bool new_rows_consider(struct search *search)
{
    struct site site = { .end = NO_GRANULE, .room_bytes = UINT64_MAX };
    if (!site_consider(search, &site))
        return false;
    const struct candidate *begin = search->tails.count > 0 ? &search->tails.items[0] : NULL;
    site.begin = begin;
    site.free_bytes = begin == NULL ? 0 : begin->bytes;
    return begin == NULL || site_consider(search, &site);
}

/* The free addresses beside an end of a row; a granule stays free between rows. */
static uint64_t site_room_bytes(const struct search *search, const struct site *site)
{
    const struct arena *arena = &search->cache->vm.arena;
    const struct views *views = &search->cache->views;
    uint64_t after = site->end + views->vm->records[views->places[site->end].chunk].granules;
    uint64_t room = site->is_left ? vmm__arena_room_before(arena, site->end)
                                  : vmm__arena_room_after(arena, after);
    return room == 0 ? 0 : (room - 1) << arena->granule_shift;
}

/* Considers extending a row to the left of its first place, or to the right of its last. */
static bool end_consider(struct search *search, uint64_t end, bool is_left)
{
    const struct views *views = &search->cache->views;
    const struct view_place *place = &views->places[end];
    const struct chunk *chunk = &views->vm->records[place->chunk];
    bool is_used = (is_left ? chunk->free_head_bytes : chunk->free_tail_bytes) == 0;
    if (is_used || (is_left ? place->left != NO_GRANULE : !vmm__views_is_last(views, end)))
        return true;
    struct site site = { .end = end, .view = place->view, .is_left = is_left };
    site.free_bytes = vmm__views_end_bytes(search->heap, end, is_left);
    if (site_is_dear(search, &site))
        return true;
    site.room_bytes = site_room_bytes(search, &site);
    return site_consider(search, &site);
}

static bool rows_consider(struct search *search)
{
    const struct views *views = &search->cache->views;
    bool is_ok = true;
    for (uint64_t end = views->ends; end != NO_GRANULE && is_ok;
         end = views->places[end].ends_after) {
        uint64_t address = vmm__arena_address(&views->vm->arena, end);
        if (vmm__directory_heap(&search->cache->directory, address) == search->heap)
            is_ok = end_consider(search, end, false) && end_consider(search, end, true);
    }
    return is_ok;
}

static bool search_run(struct search *search)
{
    if (!own_add(search) ||
        !vmm__idle_visit(search->cache, search->heap, search->when, run_add, search))
        return false;
    search->heap->pinned_bytes = search->pinned_bytes;
    search->chunk_bytes =
        (uint64_t)vmm__target_chunk_granules(search->cache, search->heap, search->bytes)
        << search->cache->vm.arena.granule_shift;
    candidates_sort(&search->idle);
    candidates_sort(&search->heads);
    candidates_sort(&search->tails);
    return new_rows_consider(search) && rows_consider(search);
}

vmm_status vmm__plan_begin(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                           uint64_t allowed_bytes, enum idle_when when, struct plan *out)
{
    struct search search = { .cache = cache,
                             .heap = heap,
                             .bytes = bytes,
                             .allowed_bytes =
                                 vmm__align_down(allowed_bytes, cache->vm.arena.granule_bytes),
                             .when = when,
                             .best.cost = UINT64_MAX,
                             .least.cost = UINT64_MAX,
                             .least.new_bytes = UINT64_MAX };
    bool is_ok = search_run(&search);
    candidates_free(&search.idle);
    candidates_free(&search.heads);
    candidates_free(&search.tails);
    candidates_free(&search.trial);
    bool is_within = search.best.cost != UINT64_MAX;
    *out = is_within ? search.best : search.least;
    vmm__plan_end(is_within ? &search.least : &search.best);
    if (is_ok && out->cost != UINT64_MAX)
        return VMM_OK;
    vmm__plan_end(out);
    return is_ok ? VMM__NO_FIT
                 : vmm__error(VMM_ERR_HOST_OOM, "plan: no host memory for candidates");
}

void vmm__plan_end(struct plan *plan)
{
    vmm__host_free(plan->chunks, plan->capacity * sizeof *plan->chunks);
    plan->chunks = NULL;
    plan->capacity = 0;
}
