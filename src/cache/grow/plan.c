/* Plans a view: see plan.h. */
#include "cache/grow/plan.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/grow/evict.h"
#include "cache/grow/target.h"

#include <stdlib.h>

/* Microseconds on an H200: cuMemMap and its share of cuMemSetAccess; cuMemCreate. Only the ratio matters. */
enum { MAP_COST = 32, CREATE_COST = 13 };

/* ---- The table ------------------------------------------------------------------------------- */

/* What a plan may use, the largest first; of equal ones the one with the lowest home first. */
struct list {
    struct candidate *at; /* in the cache's table, which has room for each chunk */
    uint32_t count;
};

enum { LIST_IDLE, LIST_HEADS, LIST_TAILS, LIST_PLAN, LISTS };

static uint64_t table_bytes(const struct vmm_cache *cache)
{
    return cache->vm.record_limit * LISTS * sizeof(struct candidate);
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

static struct list list_open(const struct vmm_cache *cache, uint64_t number)
{
    struct candidate *table = cache->plan_table;
    return (struct list){ .at = table + number * cache->vm.record_limit };
}

static int by_size(const void *a, const void *b)
{
    const struct candidate *left = a;
    const struct candidate *right = b;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? 1 : -1;
    return left->chunk->first < right->chunk->first ? -1 : left->chunk->first > right->chunk->first;
}

static void list_sort(const struct list *list)
{
    if (list->count > 1)
        qsort(list->at, list->count, sizeof *list->at, by_size);
}

/* ---- The search ------------------------------------------------------------------------------ */

/* A row to extend, or a row to begin. */
struct site {
    uint64_t end;  /* place; NO_GRANULE: a new row */
    uint64_t view; /* number of the row's view; 0: a new one */
    bool is_left;
    uint64_t free_bytes;           /* there already */
    uint64_t room_bytes;           /* free addresses to extend it by */
    const struct candidate *begin; /* a partly live chunk that a new row begins with; NULL: none */
};

/* What a site may become: it gets new memory, then the largest idle chunks that it may have, and then one more
 * chunk. */
struct choice {
    struct site site;
    uint64_t new_bytes;
    uint64_t cost;
    uint32_t idle_count;
    uint32_t idle_end; /* those in the list from here on are smaller than the ones it has */
    uint64_t idle_bytes;
    uint64_t rest_bytes;          /* that the last chunk holds */
    const struct candidate *last; /* an idle chunk or a free end; NULL: none */
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
    struct list idle;    /* idle chunks */
    struct list heads;   /* free heads of partly live chunks */
    struct list tails;   /* free tails of partly live chunks */
    struct choice best;  /* the cheapest with at most allowed_bytes */
    struct choice least; /* the one with the least new memory, but more */
};

/* ---- Candidates ------------------------------------------------------------------------------ */

/* Whether a chunk has PLACES_USUAL places or more, and can give one up: a chunk of the requesting heap as
 * vmm__evict_may() says, a chunk of another heap if all work on it has finished. */
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

/* Adds a chunk that may have one place more; the remap of one that is not mapped is pending. */
static void chunk_add(const struct search *search, struct heap *heap, struct chunk *chunk,
                      uint64_t bytes, struct list *list)
{
    bool serves =
        chunk->is_mapped && (chunk->places < PLACES_MOST || chunk_gives_place(search, heap, chunk));
    if (serves)
        list->at[list->count++] =
            (struct candidate){ .chunk = chunk, .heap = heap, .bytes = bytes };
}

/* Adds the chunks from a granule on, all idle, that end at `end` or before. Returns where the last one ends. */
static uint64_t chunks_add(struct search *search, struct heap *heap, uint64_t granule, uint64_t end)
{
    const struct vm *vm = &search->cache->vm;
    while (granule < end) {
        struct chunk *chunk = vmm__vm_chunk(vm, granule);
        if (granule + chunk->granules > end)
            break;
        chunk_add(search, heap, chunk, vmm__chunk_bytes(vm, chunk), &search->idle);
        granule += chunk->granules;
    }
    return granule;
}

/* Adds the chunks of a free block of the requesting heap: the tail of the chunk that it begins in, idle chunks, and the
 * head of the chunk that it ends in. What is free in the middle of a chunk is of no use. */
static void block_add(struct search *search, const struct block *block)
{
    const struct vm *vm = &search->cache->vm;
    const struct arena *arena = &vm->arena;
    uint64_t end = vmm__block_end(block);
    struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(arena, block->address));
    uint64_t first = chunk->first;
    if (vmm__chunk_address(vm, chunk) < block->address) {
        first += chunk->granules;
        if (vmm__arena_address(arena, first) > end) {
            search->pinned_bytes += block->node.size;
            return;
        }
        chunk_add(search, search->heap, chunk, vmm__arena_address(arena, first) - block->address,
                  &search->tails);
    }
    uint64_t last = chunks_add(search, search->heap, first, vmm__arena_granule(arena, end));
    uint64_t head_bytes = end - vmm__arena_address(arena, last);
    if (head_bytes > 0)
        chunk_add(search, search->heap, vmm__vm_chunk(vm, last), head_bytes, &search->heads);
    search->pinned_bytes += block->node.size - ((last - first) << arena->granule_shift);
}

/* Adds the chunks of a run of another heap's idle chunks. A plan may take all candidates from other pools, so the limit
 * of the requesting heap's pool must allow all of them together. */
static bool run_add(void *context, const struct idle_run *found)
{
    struct search *search = context;
    const struct vm *vm = &search->cache->vm;
    struct idle_run run = *found;
    if (run.heap->lane->owner.pool != search->heap->lane->owner.pool) {
        if (!vmm__idle_cut(vm, search->room_bytes, &run))
            return true;
        search->room_bytes -= run.bytes;
    }
    uint64_t granule = vmm__arena_granule(&vm->arena, run.address);
    (void)chunks_add(search, run.heap, granule, granule + (run.bytes >> vm->arena.granule_shift));
    return true;
}

static void candidates_add(struct search *search, enum idle_when when)
{
    const struct size_index *index = &search->heap->index;
    uint64_t granule_bytes = search->cache->vm.arena.granule_bytes;
    for (struct size_node *node = vmm__size_index_from(index, granule_bytes); node != NULL;
         node = vmm__size_index_larger(index, node))
        block_add(search, (const struct block *)node);
    /* Gathering and transfer have failed: the view takes rooms, too. */
    (void)vmm__idle_visit(search->cache, search->heap, when, false, run_add, search);
    list_sort(&search->idle);
    list_sort(&search->heads);
    list_sort(&search->tails);
}

/* ---- Sites ----------------------------------------------------------------------------------- */

/* Whether a site may have a chunk: a view has each at most once. */
static bool site_may(const struct search *search, const struct site *site,
                     const struct candidate *candidate)
{
    bool is_begin = site->begin != NULL && candidate->chunk == site->begin->chunk;
    return !is_begin && (site->view == 0 ||
                         !vmm__views_have(&search->cache->views, site->view, candidate->chunk));
}

/* The free ends of partly live chunks that a site may end with. */
static const struct list *ends_of(const struct search *search, const struct site *site)
{
    return site->is_left ? &search->tails : &search->heads;
}

/* The largest of a list, from one on, that a site may have; NULL: none. */
static const struct candidate *site_largest(const struct search *search, const struct site *site,
                                            const struct list *list, uint32_t from)
{
    while (from < list->count && !site_may(search, site, &list->at[from]))
        from++;
    return from < list->count ? &list->at[from] : NULL;
}

/* The smallest of a list, from one on, that holds `bytes` and that a site may have; NULL: none. */
static const struct candidate *site_fit(const struct search *search, const struct site *site,
                                        const struct list *list, uint32_t from, uint64_t bytes)
{
    uint32_t low = from; /* all before are large enough */
    uint32_t high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->at[middle].bytes >= bytes)
            low = middle + 1;
        else
            high = middle;
    }
    while (low > from && !site_may(search, site, &list->at[low - 1]))
        low--;
    return low > from ? &list->at[low - 1] : NULL;
}

/* ---- Choices --------------------------------------------------------------------------------- */

/* Fills `bytes` of a site with the largest idle chunks until one more chunk or an end holds the rest. Stops when that
 * is dearer than the best plan. Returns what is missing, even with the largest end. */
static uint64_t choice_fill(const struct search *search, uint64_t bytes, struct choice *choice)
{
    const struct list *idle = &search->idle;
    const struct candidate *end =
        site_largest(search, &choice->site, ends_of(search, &choice->site), 0);
    uint64_t end_bytes = end == NULL ? 0 : end->bytes;
    while (choice->idle_count * MAP_COST < search->best.cost) {
        const struct candidate *next = site_largest(search, &choice->site, idle, choice->idle_end);
        choice->rest_bytes = bytes - choice->idle_bytes;
        if (choice->rest_bytes <= end_bytes || (next != NULL && choice->rest_bytes <= next->bytes))
            return 0;
        if (next == NULL)
            return choice->rest_bytes - end_bytes;
        choice->idle_count++;
        choice->idle_bytes += next->bytes;
        choice->idle_end = (uint32_t)(next - idle->at) + 1;
    }
    return 0;
}

/* The smallest chunk that holds the rest of a choice: an idle one behind those that it has, or a free end. */
static const struct candidate *choice_last(const struct search *search, const struct choice *choice)
{
    const struct candidate *idle =
        site_fit(search, &choice->site, &search->idle, choice->idle_end, choice->rest_bytes);
    const struct candidate *end =
        site_fit(search, &choice->site, ends_of(search, &choice->site), 0, choice->rest_bytes);
    bool is_end = idle == NULL || (end != NULL && end->bytes < idle->bytes);
    return is_end ? end : idle;
}

static uint64_t choice_cost(const struct search *search, const struct choice *choice)
{
    uint64_t created = (choice->new_bytes + search->chunk_bytes - 1) / search->chunk_bytes;
    uint64_t mapped = choice->idle_count + (choice->rest_bytes > 0 ? 1 : 0) +
                      (choice->site.begin != NULL ? 1 : 0) + 2 * created;
    return mapped * MAP_COST + created * CREATE_COST;
}

/* The choice of the search that this one should replace, because it is better; NULL: none. */
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
    uint64_t bytes = new_bytes + choice.idle_bytes;
    if (choice.rest_bytes > 0) {
        choice.last = choice_last(search, &choice);
        bytes += vmm__chunk_bytes(&search->cache->vm, choice.last->chunk);
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
    if (search->tails.count == 0)
        return;
    site.begin = &search->tails.at[0];
    site.free_bytes = site.begin->bytes;
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
    bool is_first = place->left == NO_GRANULE; /* if not, it is the last */
    if (is_first ? !is_left && !vmm__views_is_last(views, end) : is_left)
        return;
    struct site site = { .end = end, .view = place->view, .is_left = is_left };
    site.free_bytes = vmm__views_end_bytes(search->heap, end, is_left);
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

static struct plan plan_of(const struct search *search, const struct choice *choice)
{
    struct list chunks = list_open(search->cache, LIST_PLAN);
    const struct site *site = &choice->site;
    if (site->begin != NULL)
        chunks.at[chunks.count++] = *site->begin;
    for (uint32_t i = 0; i < choice->idle_end; i++) {
        if (site_may(search, site, &search->idle.at[i]))
            chunks.at[chunks.count++] = search->idle.at[i];
    }
    if (choice->last != NULL)
        chunks.at[chunks.count++] = *choice->last;
    for (uint32_t i = 0; i < chunks.count; i++)
        chunks.at[i].gives_place = chunk_gives_place(search, chunks.at[i].heap, chunks.at[i].chunk);
    return (struct plan){ .end = site->end,
                          .view = site->view,
                          .is_left = site->is_left,
                          .has_begin = site->begin != NULL,
                          .new_bytes = choice->new_bytes,
                          .cost = choice->cost,
                          .count = chunks.count,
                          .chunks = chunks.at };
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
        .room_bytes = vmm__account_room_bytes(&heap->lane->owner.pool->account),
        .idle = list_open(cache, LIST_IDLE),
        .heads = list_open(cache, LIST_HEADS),
        .tails = list_open(cache, LIST_TAILS),
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
