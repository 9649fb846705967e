/* Plans a view: see plan.h. */
#include "cache/grow/plan.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/grow/evict.h"
#include "cache/grow/target.h"

#include <string.h>

/* Microseconds on an H200: cuMemMap and its share of cuMemSetAccess; cuMemCreate. Only the ratio matters. */
enum { MAP_COST = 32, CREATE_COST = 13 };

/* ---- Items ----------------------------------------------------------------------------------- */

/*
 * An item stands for a candidate, in one number: its free bytes in units, and in the low half its chunk's id, inverted.
 * So a larger item has more free bytes, or as many and a smaller id. 0: none. A search compares thousands of items, and
 * reads few chunks.
 */
enum { ITEM_SHIFT = 32 };

static uint64_t item_of(uint64_t bytes, uint32_t id)
{
    return bytes / LARGE_UNIT_BYTES << ITEM_SHIFT | (uint32_t)~id;
}

static uint64_t item_bytes(uint64_t item)
{
    return (item >> ITEM_SHIFT) * LARGE_UNIT_BYTES;
}

/* The least item that has so many bytes. */
static uint64_t item_least(uint64_t bytes)
{
    return bytes / LARGE_UNIT_BYTES << ITEM_SHIFT;
}

/* Items in a list of the table, which has room for each chunk. */
struct items {
    uint64_t *at;
    uint32_t count;
    uint64_t largest; /* of heads and tails */
};

/* The least item that is at least `least`; 0: none. Items that are less wrap, to more than `-least`. */
static uint64_t items_fit(const struct items *items, uint64_t least)
{
    uint64_t excess = -least;
    for (uint32_t i = 0; i < items->count; i++)
        excess = vmm__min(excess, items->at[i] - least);
    return least + excess;
}

/* The largest item below a limit; 0: none. Items that are not below wrap. */
static uint64_t items_largest(const struct items *items, uint64_t limit)
{
    uint64_t lack = limit - 1;
    for (uint32_t i = 0; i < items->count; i++)
        lack = vmm__min(lack, limit - 1 - items->at[i]);
    return limit - 1 - lack;
}

/* Sorts items, the largest first: Shell's sort, with Tokuda's gaps. */
static void items_sort(const struct items *items)
{
    uint64_t gap = 1;
    while (gap < items->count)
        gap = gap * 9 / 4 + 1;
    while (gap > 1) {
        gap = gap * 4 / 9;
        for (uint64_t i = gap; i < items->count; i++) {
            uint64_t item = items->at[i];
            uint64_t to = i;
            for (; to >= gap && items->at[to - gap] < item; to -= gap)
                items->at[to] = items->at[to - gap];
            items->at[to] = item;
        }
    }
}

/* ---- The search ------------------------------------------------------------------------------ */

/* A row to extend, or a row to begin. */
struct site {
    uint64_t end;  /* place; NO_GRANULE: a new row */
    uint64_t view; /* number of the row's view; 0: a new one */
    bool is_left;
    uint64_t free_bytes; /* there already */
    uint64_t room_bytes; /* free addresses to extend it by */
    uint64_t begin;      /* item: a partly live chunk that a new row begins with; 0: none */
};

/* What a site may become. */
struct choice {
    struct site site;
    uint64_t new_bytes;
    uint64_t cost;
    uint64_t bytes;     /* of the chunks */
    struct items items; /* in the order in which they are added */
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
    struct items idle;    /* the largest first */
    const uint64_t *sums; /* of the bytes of the idle chunks so far */
    struct items heads; /* partly live chunks with a free head, and with a free tail; in no order */
    struct items tails;
    struct choice trial; /* under consideration */
    struct choice best;  /* the cheapest with at most allowed_bytes */
    struct choice least; /* the one with the least new memory */
};

static struct chunk *chunk_of(const struct search *search, uint64_t item)
{
    return &search->cache->vm.records[~(uint32_t)item];
}

/* ---- Candidates ------------------------------------------------------------------------------ */

/* Whether a chunk that has as many places as are allowed gives one up: its own heap's at once, another one's once all
 * work on it has finished. */
static bool chunk_gives_place(const struct search *search, struct heap *heap,
                              const struct chunk *chunk)
{
    if (chunk->places < PLACES_MOST)
        return false;
    if (heap == search->heap)
        return vmm__evict_may(search->cache, heap, chunk);
    uint64_t epoch = vmm__directory_epoch(&search->cache->directory, chunk->first, chunk->granules);
    return vmm__timeline_query(&heap->lane->timeline, epoch) == VMM_OK;
}

/* Adds a chunk, unless it may not have one place more, or its remap is pending. */
static void chunk_add(const struct search *search, struct items *items, struct heap *heap,
                      const struct chunk *chunk, uint64_t bytes)
{
    bool is_allowed = chunk->places < PLACES_BOUND || chunk_gives_place(search, heap, chunk);
    if (chunk->is_mapped && is_allowed)
        items->at[items->count++] = item_of(bytes, vmm__chunk_id(&search->cache->vm, chunk));
}

/* Adds the chunks of a free block of the requesting heap. */
static void block_add(struct search *search, const struct block *block)
{
    const struct vm *vm = &search->cache->vm;
    uint64_t end = vmm__block_end(block);
    for (uint64_t at = block->address; at < end;) {
        const struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, at));
        uint64_t first = vmm__chunk_address(vm, chunk);
        uint64_t last = first + vmm__chunk_bytes(vm, chunk);
        uint64_t bytes = vmm__min(last, end) - at;
        bool has_end = last <= end;
        if (at == first)
            chunk_add(search, has_end ? &search->idle : &search->heads, search->heap, chunk, bytes);
        else if (has_end) /* free in the middle only: of no use */
            chunk_add(search, &search->tails, search->heap, chunk, bytes);
        if (at > first || !has_end)
            search->pinned_bytes += bytes;
        at = last;
    }
}

static void own_add(struct search *search)
{
    const struct size_index *index = &search->heap->index;
    struct size_node *node = vmm__size_index_from(index, search->cache->vm.arena.granule_bytes);
    for (; node != NULL; node = vmm__size_index_larger(index, node))
        block_add(search, (const struct block *)node);
}

/* Adds the chunks of a run of another heap's idle chunks. */
static bool run_add(void *context, const struct idle_run *run)
{
    struct search *search = context;
    const struct vm *vm = &search->cache->vm;
    for (uint64_t at = run->address; at < run->address + run->bytes;) {
        const struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, at));
        chunk_add(search, &search->idle, run->heap, chunk, vmm__chunk_bytes(vm, chunk));
        at += vmm__chunk_bytes(vm, chunk);
    }
    return true;
}

/* ---- Choices --------------------------------------------------------------------------------- */

/* A row has a chunk at most once. */
static bool site_bans(const struct search *search, const struct site *site, uint64_t item)
{
    const struct views *views = &search->cache->views;
    if (site->view == 0)
        return (uint32_t)site->begin == (uint32_t)item && site->begin != 0;
    uint64_t place = chunk_of(search, item)->place;
    while (place != NO_GRANULE && views->places[place].view != site->view)
        place = views->vm->next_places[place];
    return place != NO_GRANULE;
}

/* The free ends of partly live chunks that a site may end with. */
static const struct items *ends_of(const struct search *search, const struct site *site)
{
    return site->is_left ? &search->tails : &search->heads;
}

/* The smallest idle chunk, from number `from` on, that holds `bytes`; 0: none. */
static uint64_t idle_fit(const struct search *search, const struct site *site, uint32_t from,
                         uint64_t bytes)
{
    const uint64_t *idle = search->idle.at;
    uint64_t least = item_least(bytes);
    uint32_t low = from;
    uint32_t high = search->idle.count;
    if (low == high || idle[low] < least)
        return 0;
    while (low < high) { /* finds the first that is too small */
        uint32_t middle = low + (high - low) / 2;
        if (idle[middle] >= least)
            low = middle + 1;
        else
            high = middle;
    }
    while (low > from && site_bans(search, site, idle[low - 1]))
        low--;
    return low > from ? idle[low - 1] : 0;
}

/* The smallest free end that holds `bytes`; 0: none. */
static uint64_t end_fit(const struct search *search, const struct site *site, uint64_t bytes)
{
    const struct items *ends = ends_of(search, site);
    uint64_t least = item_least(bytes);
    uint64_t item = ends->largest < least ? 0 : items_fit(ends, least);
    while (item != 0 && site_bans(search, site, item))
        item = items_fit(ends, item + 1);
    return item;
}

/* The largest free end; 0: none. */
static uint64_t end_largest(const struct search *search, const struct site *site)
{
    uint64_t item = ends_of(search, site)->largest;
    while (item != 0 && site_bans(search, site, item))
        item = items_largest(ends_of(search, site), item);
    return item;
}

/* The largest idle chunk from number *next on; moves *next behind it. 0: none. */
static uint64_t idle_largest(const struct search *search, const struct site *site, uint32_t *next)
{
    while (*next < search->idle.count && site_bans(search, site, search->idle.at[*next]))
        (*next)++;
    return *next < search->idle.count ? search->idle.at[(*next)++] : 0;
}

/* The smallest idle chunk, from number `from` on, or free end that holds `bytes`. */
static uint64_t rest_fit(const struct search *search, const struct site *site, uint32_t from,
                         uint64_t bytes)
{
    uint64_t idle = idle_fit(search, site, from, bytes);
    uint64_t end = end_fit(search, site, bytes);
    if (idle == 0 || end == 0)
        return idle == 0 ? end : idle;
    return item_bytes(end) < item_bytes(idle) ? end : idle;
}

/* Fills `bytes`, into search->trial: while no chunk or end holds the rest, with the largest idle chunk; then with the
 * smallest that holds it, or, if the idle chunks are used up, with the largest end. Returns what is missing. */
static uint64_t trial_fill(struct search *search, uint64_t bytes)
{
    struct choice *trial = &search->trial;
    uint32_t next = 0;
    bool is_over = false;
    trial->items.count = 0;
    trial->bytes = 0;
    while (bytes > 0 && !is_over) {
        uint64_t item = rest_fit(search, &trial->site, next, bytes);
        if (item == 0)
            item = idle_largest(search, &trial->site, &next);
        is_over = item == 0;
        if (is_over)
            item = end_largest(search, &trial->site);
        if (item == 0)
            break;
        trial->items.at[trial->items.count++] = item;
        trial->bytes += vmm__chunk_bytes(&search->cache->vm, chunk_of(search, item));
        bytes -= vmm__min(bytes, item_bytes(item));
    }
    return bytes;
}

static uint64_t trial_cost(const struct search *search, uint64_t new_bytes)
{
    uint64_t created = (new_bytes + search->chunk_bytes - 1) / search->chunk_bytes;
    uint64_t begun = search->trial.site.begin != 0 ? 1 : 0;
    uint64_t mapped = search->trial.items.count + begun + 2 * created;
    return mapped * MAP_COST + created * CREATE_COST;
}

static void trial_keep(const struct search *search, struct choice *choice)
{
    struct items items = choice->items;
    items.count = search->trial.items.count;
    memcpy(items.at, search->trial.items.at, items.count * sizeof *items.at);
    *choice = search->trial;
    choice->items = items;
}

/* Considers the trial with some new memory. */
static void trial_consider(struct search *search, uint64_t new_bytes)
{
    struct choice *trial = &search->trial;
    const struct choice *least = &search->least;
    if (trial->bytes + new_bytes > trial->site.room_bytes)
        return;
    trial->new_bytes = new_bytes;
    trial->cost = trial_cost(search, new_bytes);
    if (new_bytes <= search->allowed_bytes && trial->cost < search->best.cost)
        trial_keep(search, &search->best);
    if (new_bytes < least->new_bytes ||
        (new_bytes == least->new_bytes && trial->cost < least->cost))
        trial_keep(search, &search->least);
}

/* Considers a site with new memory of nothing, of all that is allowed, and of exactly what is missing. */
static void site_consider(struct search *search, const struct site *site)
{
    uint64_t granule_bytes = search->cache->vm.arena.granule_bytes;
    uint64_t bytes = search->bytes - vmm__min(search->bytes, site->free_bytes);
    search->trial.site = *site;
    uint64_t missing = trial_fill(search, bytes);
    if (missing == 0)
        trial_consider(search, 0);
    uint64_t most = vmm__align_up(bytes, granule_bytes);
    uint64_t tries[] = { vmm__min(search->allowed_bytes, most),
                         vmm__align_up(missing, granule_bytes) };
    for (int i = 0; i < 2; i++) {
        if (tries[i] > 0 && trial_fill(search, bytes - vmm__min(bytes, tries[i])) == 0)
            trial_consider(search, tries[i]);
    }
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
        if (search->sums[middle] >= bytes)
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
    uint64_t end_bytes = item_bytes(ends_of(search, site)->largest);
    uint64_t with_end = 1 + idle_fewest(search, bytes - vmm__min(bytes, end_bytes));
    uint64_t least = vmm__min(idle_fewest(search, bytes), with_end);
    return search->best.cost != UINT64_MAX && least * MAP_COST >= search->best.cost;
}

static void new_rows_consider(struct search *search)
{
    struct site site = { .end = NO_GRANULE, .room_bytes = UINT64_MAX };
    site_consider(search, &site);
    site.begin = search->tails.largest;
    site.free_bytes = item_bytes(site.begin);
    if (site.begin != 0)
        site_consider(search, &site);
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
static void end_consider(struct search *search, uint64_t end, bool is_left)
{
    const struct views *views = &search->cache->views;
    const struct view_place *place = &views->places[end];
    const struct chunk *chunk = &views->vm->records[place->chunk];
    bool is_used = (is_left ? chunk->free_head_bytes : chunk->free_tail_bytes) == 0;
    if (is_used || (is_left ? place->left != NO_GRANULE : !vmm__views_is_last(views, end)))
        return;
    struct site site = { .end = end, .view = place->view, .is_left = is_left };
    site.free_bytes = vmm__views_end_bytes(search->heap, end, is_left);
    if (site_is_dear(search, &site))
        return;
    site.room_bytes = site_room_bytes(search, &site);
    if (site.free_bytes + site.room_bytes >= search->bytes)
        site_consider(search, &site);
}

static void rows_consider(struct search *search)
{
    const struct views *views = &search->cache->views;
    for (uint64_t end = views->ends; end != NO_GRANULE; end = views->places[end].ends_after) {
        uint64_t address = vmm__arena_address(&views->vm->arena, end);
        if (vmm__directory_heap(&search->cache->directory, address) == search->heap) {
            end_consider(search, end, false);
            end_consider(search, end, true);
        }
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

/* For each chunk, a number in each list, and a candidate. */
enum { LISTS = 7 };

static uint64_t table_bytes(const struct vmm_cache *cache)
{
    return cache->vm.record_limit * (LISTS * sizeof(uint64_t) + sizeof(struct candidate));
}

vmm_status vmm__plan_open(struct vmm_cache *cache)
{
    cache->plan_table = vmm__host_table_alloc(table_bytes(cache));
    return cache->plan_table != NULL
               ? VMM_OK
               : vmm__error(VMM_ERR_HOST_OOM, "plan: no host memory for the table");
}

void vmm__plan_close(struct vmm_cache *cache)
{
    vmm__host_table_free(cache->plan_table, table_bytes(cache));
}

static uint64_t *list_at(const struct vmm_cache *cache, uint64_t number)
{
    return (uint64_t *)cache->plan_table + number * cache->vm.record_limit;
}

static struct search search_begin(struct vmm_cache *cache, struct heap *heap, uint64_t bytes)
{
    return (struct search){
        .cache = cache,
        .heap = heap,
        .bytes = bytes,
        .idle.at = list_at(cache, 0),
        .heads.at = list_at(cache, 1),
        .tails.at = list_at(cache, 2),
        .sums = list_at(cache, 3),
        .trial.items.at = list_at(cache, 4),
        .best = { .items.at = list_at(cache, 5), .cost = UINT64_MAX },
        .least = { .items.at = list_at(cache, 6), .cost = UINT64_MAX, .new_bytes = UINT64_MAX }
    };
}

/* Sorts the idle chunks, and sums them up. */
static void idle_sort(const struct search *search)
{
    uint64_t *sums = list_at(search->cache, 3);
    uint64_t sum = 0;
    items_sort(&search->idle);
    for (uint32_t i = 0; i < search->idle.count; i++) {
        sum += item_bytes(search->idle.at[i]);
        sums[i] = sum;
    }
}

static struct candidate candidate_of(const struct search *search, uint64_t item)
{
    struct chunk *chunk = chunk_of(search, item);
    uint64_t address = vmm__chunk_address(&search->cache->vm, chunk);
    struct heap *heap = vmm__directory_heap(&search->cache->directory, address);
    return (struct candidate){ .chunk = chunk,
                               .heap = heap,
                               .bytes = item_bytes(item),
                               .gives_place = chunk_gives_place(search, heap, chunk) };
}

static struct plan plan_of(const struct search *search, const struct choice *choice)
{
    struct candidate *chunks = (struct candidate *)list_at(search->cache, LISTS);
    uint32_t count = 0;
    if (choice->site.begin != 0)
        chunks[count++] = candidate_of(search, choice->site.begin);
    for (uint32_t i = 0; i < choice->items.count; i++)
        chunks[count++] = candidate_of(search, choice->items.at[i]);
    return (struct plan){ .end = choice->site.end,
                          .view = choice->site.view,
                          .is_left = choice->site.is_left,
                          .has_begin = choice->site.begin != 0,
                          .new_bytes = choice->new_bytes,
                          .cost = choice->cost,
                          .count = count,
                          .chunks = chunks };
}

struct plan vmm__plan(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                      uint64_t allowed_bytes, enum idle_when when)
{
    struct search search = search_begin(cache, heap, bytes);
    unsigned shift = cache->vm.arena.granule_shift;
    search.allowed_bytes = vmm__align_down(allowed_bytes, cache->vm.arena.granule_bytes);
    own_add(&search);
    (void)vmm__idle_visit(cache, heap, when, run_add, &search);
    heap->pinned_bytes = search.pinned_bytes;
    search.chunk_bytes = (uint64_t)vmm__target_chunk_granules(cache, heap, bytes) << shift;
    idle_sort(&search);
    search.heads.largest = items_largest(&search.heads, UINT64_MAX);
    search.tails.largest = items_largest(&search.tails, UINT64_MAX);
    new_rows_consider(&search);
    rows_consider(&search);
    return plan_of(&search, search.best.cost != UINT64_MAX ? &search.best : &search.least);
}
