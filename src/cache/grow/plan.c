/* Plans a view: see plan.h. */
#include "cache/grow/plan.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/grow/evict.h"
#include "cache/grow/target.h"

/* Microseconds on an H200: cuMemMap and its share of cuMemSetAccess; cuMemCreate. Only the ratio matters. */
enum { MAP_COST = 32, CREATE_COST = 13 };

/* ---- Items ----------------------------------------------------------------------------------- */

/*
 * An item stands for a candidate, in one number: its free bytes in units, and in the low half a granule of its chunk's
 * home, inverted. So a larger item has more free bytes, or as many and a lower address. 0: none. A search compares
 * thousands of items, and reads few chunks.
 */
enum { ITEM_SHIFT = 32 };
#define ITEM_BYTE ((UINT64_C(1) << ITEM_SHIFT) / LARGE_UNIT_BYTES)

static uint64_t item_of(uint64_t bytes, uint64_t granule)
{
    return bytes * ITEM_BYTE | (uint32_t)~granule;
}

static uint64_t item_bytes(uint64_t item)
{
    return (item >> ITEM_SHIFT) * LARGE_UNIT_BYTES;
}

/* The least item that has so many bytes. */
static uint64_t item_least(uint64_t bytes)
{
    return bytes * ITEM_BYTE;
}

/* Idle chunks, the largest first. The lists are in the cache's table, which has room for each chunk. */
struct idle {
    uint64_t *at;
    uint64_t *sums; /* of the bytes of an item and all before it */
    uint32_t count;
};

/* The bytes of the first items. */
static uint64_t idle_bytes(const struct idle *idle, uint64_t count)
{
    return count > 0 ? idle->sums[count - 1] : 0;
}

static void idle_add(struct idle *idle, uint64_t item, bool is)
{
    idle->at[idle->count] = item;
    idle->sums[idle->count] = idle_bytes(idle, idle->count) + item_bytes(item);
    idle->count += is;
}

/* Sorts the items: Shell's sort, with Tokuda's gaps. */
static void idle_sort(struct idle *idle)
{
    uint32_t count = idle->count;
    uint64_t gap = 1;
    while (gap < count)
        gap = gap * 9 / 4 + 1;
    while (gap > 1) {
        gap = gap * 4 / 9;
        for (uint64_t i = gap; i < count; i++) {
            uint64_t item = idle->at[i];
            uint64_t to = i;
            for (; to >= gap && idle->at[to - gap] < item; to -= gap)
                idle->at[to] = idle->at[to - gap];
            idle->at[to] = item;
        }
    }
    idle->count = 0;
    while (idle->count < count)
        idle_add(idle, idle->at[idle->count], true);
}

/* The fewest items that hold `bytes`: the largest; a large number if all of them do not. Which half of the sums has the
 * first that is enough is unpredictable, so no branch depends on it. */
static uint64_t idle_fewest(const struct idle *idle, uint64_t bytes)
{
    uint64_t less = 0; /* so many sums are too small */
    for (uint64_t length = idle->count, half; length > 0; length -= half) {
        half = (length + 1) / 2;
        less += idle->sums[less + half - 1] < bytes ? half : 0;
    }
    if (bytes == 0)
        return 0;
    return less < idle->count ? less + 1 : UINT32_MAX;
}

/* The smallest item, from number `from` on, that holds `bytes`; 0: none. */
static uint64_t idle_fit(const struct idle *idle, uint64_t from, uint64_t bytes)
{
    uint64_t least = item_least(bytes);
    uint64_t large = from; /* all items before this one are large enough */
    for (uint64_t length = idle->count - from, half; length > 0; length -= half) {
        half = (length + 1) / 2;
        large += idle->at[large + half - 1] >= least ? half : 0;
    }
    return large > from ? idle->at[large - 1] : 0;
}

/* Free heads, or tails, of partly live chunks, in no order: a plan asks for few of them. */
struct ends {
    uint64_t *at; /* padded with zeros to a multiple of ENDS_STEP */
    uint32_t count;
    uint64_t largest;
};

enum { ENDS_STEP = 4 }; /* so many are compared at a time */

static void ends_add(struct ends *ends, uint64_t item, bool is)
{
    ends->at[ends->count] = item;
    ends->count += is;
}

/* The largest item that is at most `most`; 0: none. */
static uint64_t ends_largest(const struct ends *ends, uint64_t most)
{
    uint64_t largest[ENDS_STEP] = { 0 };
    for (uint32_t i = 0; i < ends->count; i += ENDS_STEP) {
        for (uint32_t j = 0; j < ENDS_STEP; j++) {
            uint64_t item = ends->at[i + j];
            largest[j] = vmm__max(largest[j], item <= most ? item : 0);
        }
    }
    return vmm__max(vmm__max(largest[0], largest[1]), vmm__max(largest[2], largest[3]));
}

static void ends_complete(struct ends *ends)
{
    for (uint32_t i = 0; i < ENDS_STEP; i++)
        ends->at[ends->count + i] = 0;
    ends->largest = ends_largest(ends, UINT64_MAX);
}

/* The least item that is at least `least`; 0: none. The excess of an item that is less wraps, to more than `-least`. */
static uint64_t ends_fit(const struct ends *ends, uint64_t least)
{
    uint64_t excess[ENDS_STEP] = { -least, -least, -least, -least };
    if (ends->largest < least)
        return 0;
    for (uint32_t i = 0; i < ends->count; i += ENDS_STEP) {
        for (uint32_t j = 0; j < ENDS_STEP; j++)
            excess[j] = vmm__min(excess[j], ends->at[i + j] - least);
    }
    return least + vmm__min(vmm__min(excess[0], excess[1]), vmm__min(excess[2], excess[3]));
}

/* ---- The table ------------------------------------------------------------------------------- */

/* For each chunk, a number in each list, and a candidate; then the padding of the lists. */
enum { LISTS = 6 };

static uint64_t list_count(const struct vmm_cache *cache)
{
    return cache->vm.record_limit + ENDS_STEP;
}

static uint64_t table_bytes(const struct vmm_cache *cache)
{
    return list_count(cache) * (LISTS * sizeof(uint64_t) + sizeof(struct candidate));
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
    return (uint64_t *)cache->plan_table + number * list_count(cache);
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

/* What a site may become: it gets new memory, then the largest idle chunks that it may have, and then one more
 * chunk. */
struct choice {
    struct site site;
    uint64_t new_bytes;
    uint64_t cost;
    uint64_t idle_count;
    uint64_t rest_bytes; /* that the last chunk holds */
    uint64_t last;       /* item: an idle chunk or a free end; 0: none */
};

/* The state of one search. */
struct search {
    struct vmm_cache *cache;
    struct heap *heap;
    uint64_t bytes;
    uint64_t allowed_bytes;
    uint64_t chunk_bytes;  /* of a new chunk */
    uint64_t pinned_bytes; /* free, in partly live chunks of the heap */
    uint64_t room_bytes; /* that the limit of the heap's pool still allows of other pools' chunks */
    struct idle idle;    /* all */
    struct idle usable;  /* those that the site under consideration may have, and the largest end */
    uint64_t usable_end;
    struct ends heads;
    struct ends tails;
    struct choice best;  /* the cheapest with at most allowed_bytes */
    struct choice least; /* the one with the least new memory, but more */
};

static struct chunk *chunk_of(const struct search *search, uint64_t item)
{
    return vmm__vm_chunk(&search->cache->vm, ~(uint32_t)item);
}

static struct heap *heap_of(const struct search *search, const struct chunk *chunk)
{
    uint64_t address = vmm__chunk_address(&search->cache->vm, chunk);
    return vmm__directory_heap(&search->cache->directory, address);
}

/* ---- Candidates ------------------------------------------------------------------------------ */

/* Whether a chunk that has as many places as are allowed gives one up: its own heap's at once, another one's once all
 * work on it has finished. */
static bool chunk_gives_place(const struct search *search, struct heap *heap,
                              const struct chunk *chunk)
{
    if (chunk->places < PLACES_USUAL)
        return false;
    if (heap == search->heap)
        return vmm__evict_may(search->cache, heap, chunk);
    uint64_t epoch = vmm__directory_epoch(&search->cache->directory, chunk->first, chunk->granules);
    return vmm__clock_query(heap->clock, epoch) == VMM_OK;
}

/* Whether a chunk may have one place more. Its remap may be pending. */
static bool chunk_serves(const struct search *search, const struct chunk *chunk)
{
    return chunk->is_mapped && (chunk->places < PLACES_MOST ||
                                chunk_gives_place(search, heap_of(search, chunk), chunk));
}

/* Adds the idle chunks from one granule to another. */
static void chunks_add(struct search *search, uint64_t granule, uint64_t end)
{
    const struct vm *vm = &search->cache->vm;
    while (granule < end) {
        const struct chunk *chunk = vmm__vm_chunk(vm, granule);
        uint64_t item = item_of(vmm__chunk_bytes(vm, chunk), granule);
        idle_add(&search->idle, item, chunk_serves(search, chunk));
        granule += chunk->granules;
    }
}

/* The boundaries between chunks from one granule to another. */
struct bounds {
    bool has; /* false: there is none */
    uint64_t first;
    uint64_t last;
};

/* For any distance. A chunk ends at `high` if the extent does. */
static struct bounds bounds_far(const uint64_t *home_starts, uint64_t low, uint64_t high, bool ends)
{
    struct bounds bounds = { .has = ends, .first = high, .last = high };
    for (uint64_t at = low; at <= high; at += 64) {
        uint64_t starts = vmm__home_starts_from(home_starts, at);
        starts &= UINT64_MAX >> (63 - vmm__min(high - at, 63));
        if (starts == 0)
            continue;
        bounds.has = true;
        bounds.first = vmm__min(bounds.first, at + (uint64_t)__builtin_ctzll(starts));
        bounds.last = ends ? high : at + vmm__log2(starts);
    }
    return bounds;
}

/* Most blocks are short. Where their boundaries are is unpredictable, so no branch depends on it. */
static inline struct bounds bounds_of(const uint64_t *home_starts, uint64_t low, uint64_t high,
                                      bool ends)
{
    uint64_t distance = high - low;
    if (distance >= 64)
        return bounds_far(home_starts, low, high, ends);
    uint64_t starts = vmm__home_starts_from(home_starts, low) & UINT64_MAX >> (63 - distance);
    starts |= (uint64_t)ends << distance;
    return (struct bounds){ .has = starts != 0,
                            .first = low + (uint64_t)__builtin_ctzll(starts | UINT64_C(1) << 63),
                            .last = low + vmm__log2(starts | 1) };
}

/* Adds the chunks of the free blocks of the requesting heap: of each the tail of a chunk, up to the first boundary;
 * idle chunks; and the head of one, from the last boundary on. What is free in the middle of a chunk is of no use. */
static void blocks_add(struct search *search)
{
    const struct arena *arena = &search->cache->vm.arena;
    const uint64_t *home_starts = search->cache->vm.home_starts;
    const uint64_t address = arena->address;
    const uint64_t mask = arena->granule_bytes - 1;
    const unsigned shift = arena->granule_shift;
    const struct size_index *index = &search->heap->index;
    struct ends heads = search->heads;
    struct ends tails = search->tails;
    uint64_t pinned_bytes = 0;
    for (struct size_node *node = vmm__size_index_from(index, arena->granule_bytes); node != NULL;
         node = vmm__size_index_larger(index, node)) {
        const struct block *block = (const struct block *)node;
        uint64_t start = block->address - address;
        uint64_t end = start + node->size;
        struct bounds bounds =
            bounds_of(home_starts, (start + mask) >> shift, end >> shift, block->next == NULL);
        uint64_t tail_bytes = (bounds.first << shift) - start;
        uint64_t head_bytes = end - (bounds.last << shift);
        ends_add(&tails, item_of(tail_bytes, start >> shift), bounds.has & (tail_bytes > 0));
        ends_add(&heads, item_of(head_bytes, bounds.last), bounds.has & (head_bytes > 0));
        pinned_bytes += node->size;
        if (bounds.first < bounds.last) {
            chunks_add(search, bounds.first, bounds.last);
            pinned_bytes -= (bounds.last - bounds.first) << shift;
        }
    }
    search->heads = heads;
    search->tails = tails;
    search->pinned_bytes = pinned_bytes;
}

/* Adds the chunks of a run of another heap's idle chunks. A plan may use all of those of other pools, so the limit of
 * the heap's pool must allow them together. */
static bool run_add(void *context, const struct idle_run *found)
{
    struct search *search = context;
    const struct vm *vm = &search->cache->vm;
    struct idle_run run = *found;
    if (run.heap->lane->pool != search->heap->lane->pool) {
        if (!vmm__idle_cut(vm, search->room_bytes, &run))
            return true;
        search->room_bytes -= run.bytes;
    }
    uint64_t granule = vmm__arena_granule(&vm->arena, run.address);
    chunks_add(search, granule, granule + (run.bytes >> vm->arena.granule_shift));
    return true;
}

static void candidates_add(struct search *search, enum idle_when when)
{
    blocks_add(search);
    (void)vmm__idle_visit(search->cache, search->heap, when, run_add, search);
    idle_sort(&search->idle);
    ends_complete(&search->heads);
    ends_complete(&search->tails);
}

/* ---- Sites ----------------------------------------------------------------------------------- */

/* Whether the view of a site has a chunk already: it has each at most once. */
static bool view_has(const struct search *search, const struct site *site, uint64_t item)
{
    const struct chunk *chunk = chunk_of(search, item);
    return site->view != 0 && vmm__views_have(&search->cache->views, site->view, chunk);
}

/* The idle chunks that a site may have. */
static struct idle usable_of(const struct search *search, const struct site *site)
{
    struct idle usable = { .at = list_at(search->cache, 2), .sums = list_at(search->cache, 3) };
    if (site->view == 0)
        return search->idle;
    for (uint32_t i = 0; i < search->idle.count; i++)
        idle_add(&usable, search->idle.at[i], !view_has(search, site, search->idle.at[i]));
    return usable;
}

/* The free ends of partly live chunks that a site may end with. */
static const struct ends *ends_of(const struct search *search, const struct site *site)
{
    return site->is_left ? &search->tails : &search->heads;
}

/* Whether a site may end with a free end. */
static bool end_may(const struct search *search, const struct site *site, uint64_t item)
{
    const struct chunk *chunk = chunk_of(search, item);
    bool is_begin = site->begin != 0 && chunk == chunk_of(search, site->begin);
    return !is_begin && chunk_serves(search, chunk) && !view_has(search, site, item);
}

/* The smallest free end that holds `bytes`; 0: none. */
static uint64_t end_fit(const struct search *search, const struct site *site, uint64_t bytes)
{
    uint64_t item = ends_fit(ends_of(search, site), item_least(bytes));
    while (item != 0 && !end_may(search, site, item))
        item = ends_fit(ends_of(search, site), item + 1);
    return item;
}

/* The largest free end; 0: none. */
static uint64_t end_largest(const struct search *search, const struct site *site)
{
    uint64_t item = ends_of(search, site)->largest;
    while (item != 0 && !end_may(search, site, item))
        item = ends_largest(ends_of(search, site), item - 1);
    return item;
}

/* ---- Choices --------------------------------------------------------------------------------- */

/* How many of the largest idle chunks fill `bytes` of a site until a chunk or an end holds the rest, or all of them.
 * Returns what is missing, even with the largest end. */
static uint64_t choice_fill(const struct search *search, uint64_t bytes, struct choice *choice)
{
    const struct idle *idle = &search->usable;
    uint64_t end_bytes = item_bytes(search->usable_end);
    uint64_t before_end = idle_fewest(idle, bytes - vmm__min(bytes, end_bytes));
    uint64_t count = vmm__min(idle_fewest(idle, bytes) - 1, before_end);
    choice->idle_count = vmm__min(count, idle->count);
    choice->rest_bytes = bytes - idle_bytes(idle, choice->idle_count);
    return count <= idle->count ? 0 : choice->rest_bytes - end_bytes;
}

/* The smallest chunk that holds the rest of a choice: an idle one behind those that it has, or a free end. */
static uint64_t choice_last(const struct search *search, const struct choice *choice)
{
    uint64_t idle = idle_fit(&search->usable, choice->idle_count, choice->rest_bytes);
    uint64_t end = end_fit(search, &choice->site, choice->rest_bytes);
    bool is_end = idle == 0 || (end != 0 && item_bytes(end) < item_bytes(idle));
    return is_end ? end : idle;
}

static uint64_t choice_cost(const struct search *search, const struct choice *choice)
{
    uint64_t created = (choice->new_bytes + search->chunk_bytes - 1) / search->chunk_bytes;
    uint64_t mapped = choice->idle_count + (choice->rest_bytes > 0 ? 1 : 0) +
                      (choice->site.begin != 0 ? 1 : 0) + 2 * created;
    return mapped * MAP_COST + created * CREATE_COST;
}

/* The plan that a choice is better than; NULL: none. */
static struct choice *choice_beats(struct search *search, const struct choice *choice)
{
    const struct choice *least = &search->least;
    if (choice->new_bytes <= search->allowed_bytes)
        return choice->cost < search->best.cost ? &search->best : NULL;
    bool is_less = choice->new_bytes < least->new_bytes ||
                   (choice->new_bytes == least->new_bytes && choice->cost < least->cost);
    return is_less && search->best.cost == UINT64_MAX ? &search->least : NULL;
}

/* Considers a site with some new memory. Returns what is missing then. */
static uint64_t choice_consider(struct search *search, const struct site *site, uint64_t new_bytes)
{
    struct choice choice = { .site = *site, .new_bytes = new_bytes };
    uint64_t there_bytes = vmm__min(search->bytes, site->free_bytes + new_bytes);
    uint64_t missing = choice_fill(search, search->bytes - there_bytes, &choice);
    choice.cost = choice_cost(search, &choice);
    struct choice *beaten = missing > 0 ? NULL : choice_beats(search, &choice);
    if (beaten == NULL)
        return missing;
    uint64_t bytes = new_bytes + idle_bytes(&search->usable, choice.idle_count);
    if (choice.rest_bytes > 0) {
        choice.last = choice_last(search, &choice);
        bytes += vmm__chunk_bytes(&search->cache->vm, chunk_of(search, choice.last));
    }
    if (bytes <= site->room_bytes)
        *beaten = choice;
    return 0;
}

/* Considers a site with new memory of nothing, of all that is allowed, and of exactly what is missing. */
static void site_consider(struct search *search, const struct site *site)
{
    uint64_t granule_bytes = search->cache->vm.arena.granule_bytes;
    uint64_t bytes = search->bytes - vmm__min(search->bytes, site->free_bytes);
    uint64_t allowed_bytes = vmm__min(search->allowed_bytes, vmm__align_up(bytes, granule_bytes));
    search->usable = usable_of(search, site);
    search->usable_end = end_largest(search, site);
    uint64_t missing = choice_consider(search, site, 0);
    if (allowed_bytes > 0)
        (void)choice_consider(search, site, allowed_bytes);
    if (missing > 0)
        (void)choice_consider(search, site, vmm__align_up(missing, granule_bytes));
}

static void new_rows_consider(struct search *search)
{
    struct site site = { .end = NO_GRANULE, .room_bytes = UINT64_MAX };
    site_consider(search, &site);
    site.begin = end_largest(search, &(struct site){ .is_left = true });
    site.free_bytes = item_bytes(site.begin);
    if (site.begin != 0)
        site_consider(search, &site);
}

/* Whether the most bytes that a site can get, with fewer mappings than the best plan has, are too few. */
static bool site_is_dear(const struct search *search, const struct site *site)
{
    const struct idle *idle = &search->idle;
    uint64_t mapped = (search->best.cost - 1) / MAP_COST; /* at most, for less than its cost */
    uint64_t bytes = idle_bytes(idle, vmm__min(mapped, idle->count));
    uint64_t end_bytes = item_bytes(ends_of(search, site)->largest);
    if (mapped > 0)
        bytes = vmm__max(bytes, end_bytes + idle_bytes(idle, vmm__min(mapped - 1, idle->count)));
    return search->best.cost != UINT64_MAX &&
           site->free_bytes + search->allowed_bytes + bytes < search->bytes;
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
    bool is_first = place->left == NO_GRANULE; /* if not, it is the last */
    if (is_first ? !is_left && !vmm__views_is_last(views, end) : is_left)
        return;
    struct site site = { .end = end, .view = place->view, .is_left = is_left };
    site.free_bytes = vmm__views_end_bytes(search->heap, end, is_left);
    if (site_is_dear(search, &site))
        return;
    site.room_bytes = site_room_bytes(search, &site);
    if (site.free_bytes + site.room_bytes >= search->bytes)
        site_consider(search, &site);
}

/* Considers the ends that have free bytes, the newest first. */
static void rows_consider(struct search *search)
{
    const struct views *views = &search->cache->views;
    for (uint64_t i = views->end_count; i-- > 0;) {
        const struct view_end *end = &views->ends[i];
        if (end->heap != search->heap)
            continue;
        if (end->chunk->free_tail_bytes > 0)
            end_consider(search, end->place, false);
        if (end->chunk->free_head_bytes > 0)
            end_consider(search, end->place, true);
    }
}

/* ---- The plan -------------------------------------------------------------------------------- */

static struct candidate candidate_of(const struct search *search, uint64_t item)
{
    struct chunk *chunk = chunk_of(search, item);
    struct heap *heap = heap_of(search, chunk);
    return (struct candidate){ .chunk = chunk,
                               .heap = heap,
                               .bytes = item_bytes(item),
                               .gives_place = chunk_gives_place(search, heap, chunk) };
}

static struct plan plan_of(const struct search *search, const struct choice *choice)
{
    struct candidate *chunks = (struct candidate *)list_at(search->cache, LISTS);
    uint32_t count = 0;
    struct idle usable = usable_of(search, &choice->site);
    if (choice->site.begin != 0)
        chunks[count++] = candidate_of(search, choice->site.begin);
    for (uint64_t i = 0; i < choice->idle_count; i++)
        chunks[count++] = candidate_of(search, usable.at[i]);
    if (choice->last != 0)
        chunks[count++] = candidate_of(search, choice->last);
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
    const struct choice none = { .cost = UINT64_MAX, .new_bytes = UINT64_MAX };
    struct search search = {
        .cache = cache,
        .heap = heap,
        .bytes = bytes,
        .allowed_bytes = vmm__align_down(allowed_bytes, cache->vm.arena.granule_bytes),
        .room_bytes = vmm__account_room_bytes(&heap->lane->pool->account),
        .idle = { .at = list_at(cache, 0), .sums = list_at(cache, 1) },
        .heads.at = list_at(cache, 4),
        .tails.at = list_at(cache, 5),
        .best = none,
        .least = none,
    };
    candidates_add(&search, when);
    heap->pinned_bytes = search.pinned_bytes;
    search.chunk_bytes = (uint64_t)vmm__target_chunk_granules(cache, heap, bytes)
                         << cache->vm.arena.granule_shift;
    new_rows_consider(&search);
    rows_consider(&search);
    return plan_of(&search, search.best.cost != UINT64_MAX ? &search.best : &search.least);
}
