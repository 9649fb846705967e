/* Runs of idle chunks: see idle_scan.h. */
#include "cache/idle/idle_scan.h"
#include "base/arith.h"
#include "base/hostmem.h"

/* The bytes of whole granules inside a block; *idle_bytes: those of whole chunks. */
static uint64_t whole_granules(const struct vm *memory, const struct block *block,
                               uint64_t *idle_bytes)
{
    const struct arena *arena = &memory->arena;
    uint64_t first = vmm__arena_granule(arena, block->address + arena->granule_bytes - 1);
    uint64_t limit = vmm__arena_granule(arena, vmm__block_end(block));
    const struct chunk *chunk;
    *idle_bytes = 0;
    for (uint64_t at = first; at < limit; at = chunk->first + chunk->granules) {
        chunk = vmm__vm_chunk(memory, at);
        if (chunk->first == at && at + chunk->granules <= limit)
            *idle_bytes += vmm__chunk_bytes(memory, chunk);
    }
    return first < limit ? (limit - first) << arena->granule_shift : 0;
}

struct idle_sum vmm__idle_sum(const struct vm *memory, const struct heap *heap)
{
    const struct size_node *node = vmm__size_index_largest(&heap->index);
    struct idle_sum sum = { .largest_bytes = node == NULL ? 0 : node->size };
    for (; node != NULL && node->size >= memory->arena.granule_bytes;
         node = vmm__size_index_smaller(&heap->index, node)) {
        uint64_t idle_bytes;
        sum.granule_bytes += whole_granules(memory, (const struct block *)node, &idle_bytes);
        sum.idle_bytes += idle_bytes;
    }
    sum.granule_bytes -= sum.idle_bytes;
    sum.pinned_bytes = heap->free_bytes - sum.idle_bytes;
    return sum;
}

uint64_t vmm__idle_epoch(const struct vmm_cache *cache, const struct idle_run *run)
{
    const struct arena *arena = &cache->vm.arena;
    return vmm__directory_epoch(&cache->directory, vmm__arena_granule(arena, run->address),
                                run->bytes >> arena->granule_shift);
}

void vmm__idle_stick(struct idle_scan *scan, uint64_t epoch, vmm_status status)
{
    scan->stuck_epoch = epoch;
    if (status != VMM__PENDING && scan->failed == VMM_OK)
        scan->failed = status;
}

/* Whether the work up to an epoch has finished, or the receiving stream can wait for it. */
static bool epoch_may(struct idle_scan *scan, uint64_t epoch)
{
    struct clock *clock = scan->from->lane->clock;
    if (epoch <= scan->clear_epoch || epoch >= scan->stuck_epoch)
        return epoch <= scan->clear_epoch;
    vmm_status status = scan->when == IDLE_FOLLOW
                            ? vmm__clock_follow_check(clock, epoch, scan->to->owner.stream)
                            : vmm__clock_query(clock, epoch);
    if (status == VMM_OK)
        scan->clear_epoch = epoch;
    else
        vmm__idle_stick(scan, epoch, status);
    return status == VMM_OK;
}

static bool chunk_may(struct vmm_cache *cache, struct idle_scan *scan, const struct chunk *chunk)
{
    bool is_any = scan->when == IDLE_ANY;
    /* graphs use the addresses of a retained lane, live or free */
    if (!is_any && vmm__lane_is_retained(scan->from->lane))
        return false;
    uint64_t epoch = vmm__directory_epoch(&cache->directory, chunk->first, chunk->granules);
    if (epoch > scan->latest_epoch)
        return false;
    if (!chunk->is_mapped) /* its remap is pending */
        return false;
    return is_any || scan->to == scan->from->lane || epoch_may(scan, epoch);
}

bool vmm__idle_next(struct vmm_cache *cache, struct idle_scan *scan, struct block *block,
                    uint64_t address, uint64_t bytes, struct idle_run *run)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t from = vmm__max(address, block->address);
    uint64_t granule = vmm__arena_granule(arena, from + arena->granule_bytes - 1);
    uint64_t limit = vmm__arena_granule(arena, vmm__block_end(block));
    uint64_t count = 0;
    while (granule + count < limit && count << arena->granule_shift < bytes) {
        const struct chunk *chunk = vmm__vm_chunk(&cache->vm, granule + count);
        uint64_t end = chunk->first + chunk->granules;
        bool is_whole = chunk->first == granule + count && end <= limit;
        bool may = is_whole && chunk_may(cache, scan, chunk);
        if (!may && count > 0)
            break;
        granule = may ? granule : end;
        count += may ? chunk->granules : 0;
    }
    *run = (struct idle_run){ .heap = scan->from,
                              .block = block,
                              .address = vmm__arena_address(arena, granule),
                              .bytes = count << arena->granule_shift };
    return count > 0;
}

/* Where a scan begins in a free block. */
static uint64_t block_begin(const struct vmm_cache *cache, const struct idle_scan *scan,
                            const struct block *block)
{
    uint64_t granule_bytes = cache->vm.arena.granule_bytes;
    bool leaves_room = scan->leaves_room && block->address % granule_bytes != 0;
    return block->address + (leaves_room ? scan->from->room_granules * granule_bytes : 0);
}

static bool heap_visit(struct vmm_cache *cache, struct idle_scan *scan, idle_visit visit,
                       void *context)
{
    const struct size_index *index = &scan->from->index;
    struct size_node *node = vmm__size_index_from(index, cache->vm.arena.granule_bytes);
    bool is_ok = true;
    for (; node != NULL && is_ok; node = vmm__size_index_larger(index, node)) {
        struct block *block = (struct block *)node;
        struct idle_run run;
        uint64_t from = block_begin(cache, scan, block);
        while (is_ok && vmm__idle_next(cache, scan, block, from, UINT64_MAX, &run)) {
            is_ok = visit(context, &run);
            from = run.address + run.bytes;
        }
    }
    return is_ok;
}

bool vmm__idle_visit_heap(struct vmm_cache *cache, struct idle_scan *scan, idle_visit visit,
                          void *context)
{
    struct lane *lane = scan->from->lane;
    vmm__lane_clock_arm_locked(lane);
    vmm__clock_tick_due(lane->clock, NULL);
    return heap_visit(cache, scan, visit, context);
}

bool vmm__idle_visit(struct vmm_cache *cache, const struct heap *heap, enum idle_when when,
                     bool leaves_room, idle_visit visit, void *context)
{
    bool is_ok = true;
    for (struct lane *lane = cache->scanned; lane != NULL && is_ok; lane = lane->scan_next) {
        struct heap *from = heap->is_small ? &lane->small : &lane->large;
        struct idle_scan scan = vmm__idle_scan(from, heap->lane, when);
        scan.leaves_room = leaves_room;
        if (from == heap)
            continue;
        is_ok = vmm__idle_visit_heap(cache, &scan, visit, context);
    }
    return is_ok;
}

bool vmm__idle_runs_add(void *context, const struct idle_run *run)
{
    struct idle_runs *runs = context;
    if (!vmm__host_array_grow((void **)&runs->items, &runs->capacity, runs->count,
                              sizeof *runs->items))
        return false;
    runs->items[runs->count++] = *run;
    return true;
}

void vmm__idle_runs_free(struct idle_runs *runs)
{
    vmm__host_free(runs->items, runs->capacity * sizeof *runs->items);
}

static bool run_count(void *context, const struct idle_run *run)
{
    *(uint64_t *)context += run->bytes;
    return true;
}

uint64_t vmm__idle_finished(struct vmm_cache *cache, struct heap *heap)
{
    struct idle_scan scan = vmm__idle_scan(heap, NULL, IDLE_FINISHED);
    uint64_t bytes = 0;
    (void)heap_visit(cache, &scan, run_count, &bytes);
    return bytes;
}

bool vmm__idle_cut(const struct vm *memory, uint64_t most_bytes, struct idle_run *run)
{
    unsigned shift = memory->arena.granule_shift;
    uint64_t granule = vmm__arena_granule(&memory->arena, run->address);
    uint64_t end = granule + (run->bytes >> shift);
    while ((end - granule) << shift > most_bytes)
        end = vmm__vm_chunk(memory, end - 1)->first;
    run->bytes = (end - granule) << shift;
    return run->bytes > 0;
}

struct block *vmm__idle_behind(const struct vmm_cache *cache, const struct idle_run *run)
{
    uint64_t end = run->address + run->bytes;
    if (!vmm__heap_has_extent(run->heap, end))
        return NULL;
    struct block *block = *vmm__directory_slot(&cache->directory, end);
    bool is_it = block != NULL && block->address == end && block->state == BLOCK_FREE;
    return is_it ? block : NULL;
}

/* Releases a guard page behind the run too. */
vmm_status vmm__idle_discard(struct vmm_cache *cache, const struct idle_run *run)
{
    struct arena *arena = &cache->vm.arena;
    uint64_t epoch = vmm__idle_epoch(cache, run);
    vmm_status status = vmm__heap_detach(run->heap, run->block, run->address, run->bytes);
    if (status != VMM_OK)
        return status;
    vmm__vm_discard(&cache->vm, vmm__arena_granule(arena, run->address),
                    run->bytes >> arena->granule_shift, run->heap->clock, epoch);
    vmm__arena_guard_page_take(arena, vmm__arena_granule(arena, run->address + run->bytes));
    return VMM_OK;
}

void vmm__idle_discard_heap(struct vmm_cache *cache, struct heap *heap)
{
    struct idle_scan scan = vmm__idle_scan(heap, NULL, IDLE_ANY);
    struct size_node *node = vmm__size_index_largest(&heap->index);
    while (node != NULL && node->size >= cache->vm.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(&heap->index, node);
        struct block *block = (struct block *)node;
        struct idle_run run;
        if (vmm__idle_next(cache, &scan, block, block->address, UINT64_MAX, &run))
            (void)vmm__idle_discard(cache, &run);
        node = next;
    }
}

/*
 * The stamp of a run in the heap that gets it: the same one, if both lanes have the cache's clock. Otherwise memory
 * whose work has finished gets an epoch that has passed: until the new stream uses it, nothing does, so it may go on to
 * a third stream at once. The epoch is later than what a trim or decay has expired: the memory may have been freed a
 * moment ago.
 */
static uint64_t hand_epoch(const struct idle_run *run, uint64_t epoch, struct lane *to)
{
    if (run->heap->clock == to->clock)
        return epoch;
    uint64_t passed = vmm__clock_passed(to->clock);
    uint64_t expired = vmm__max(to->trimmed.latest_epoch, to->period_epoch);
    bool has_finished = vmm__clock_query(run->heap->clock, epoch) == VMM_OK;
    return has_finished && (expired == 0 || passed > expired) ? passed : vmm__clock_now(to->clock);
}

/* Attaching to a small heap needs slots. Without them the run goes to limbo: attaching it to its old heap would need
 * slots, too. */
static vmm_status small_hand(struct vmm_cache *cache, const struct idle_run *run, struct heap *to,
                             uint64_t new_epoch)
{
    uint64_t epoch = vmm__idle_epoch(cache, run);
    vmm_status status = vmm__heap_records_keep(to, 1);
    if (status == VMM_OK)
        status = vmm__heap_detach(run->heap, run->block, run->address, run->bytes);
    if (status != VMM_OK)
        return status;
    status = vmm__heap_attach(to, run->address, run->bytes, new_epoch);
    if (status != VMM_OK)
        vmm__vm_discard(&cache->vm, vmm__arena_granule(&cache->vm.arena, run->address),
                        run->bytes >> cache->vm.arena.granule_shift, run->heap->clock, epoch);
    return status;
}

/* Whether work that lane `to` submits from now on may use a run, and the limit of its pool allows it: VMM_OK,
 * VMM__NO_FIT, VMM__PENDING, or an error. With IDLE_FOLLOW, makes the stream of `to` wait for the run's work if it has
 * to. */
static vmm_status run_clear(struct vmm_cache *cache, const struct idle_run *run,
                            const struct lane *to, enum idle_when when)
{
    struct clock *clock = run->heap->clock;
    if (run->heap->lane->owner.pool != to->owner.pool &&
        vmm__account_short_bytes(&to->owner.pool->account, run->bytes) > 0)
        return VMM__NO_FIT;
    uint64_t epoch = vmm__idle_epoch(cache, run);
    if (when == IDLE_FOLLOW)
        return vmm__clock_follow(clock, epoch, to->owner.stream);
    return vmm__clock_query(clock, epoch);
}

vmm_status vmm__idle_take(struct vmm_cache *cache, const struct idle_run *found, struct heap *to,
                          enum idle_when when)
{
    const struct arena *arena = &cache->vm.arena;
    struct idle_run run = *found;
    run.block = vmm__heap_cover(run.heap, run.address);
    vmm_status status = run_clear(cache, &run, to->lane, when);
    if (status != VMM_OK)
        return status;
    uint64_t epoch = hand_epoch(&run, vmm__idle_epoch(cache, &run), to->lane);
    status = to->is_small ? small_hand(cache, &run, to, epoch)
                          : vmm__heap_hand(run.heap, run.block, run.address, run.bytes, to, epoch);
    if (status == VMM_OK)
        vmm__account_move(&cache->vm, vmm__arena_granule(arena, run.address),
                          run.bytes >> arena->granule_shift, &to->lane->owner.pool->account);
    return status;
}
