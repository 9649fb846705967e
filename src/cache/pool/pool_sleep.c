/* The sleep or the wake of one pool: see pool_sleep.h. */
#include "cache/pool/pool_sleep.h"
#include "base/arith.h"
#include "base/callback.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/reclaim/trim.h"

#include <stdlib.h>

/* Contents that are copied before their memory is released. Large enough for full speed, small against the pool. */
#define STAGING_BYTES (UINT64_C(256) << 20)

/* Chunks that are released, sleep or wake while the grow lock is held: about 3 ms of driver time. */
enum { CHUNKS_AT_ONCE = 64 };

/* Copies that are under way: those of the chunks before `end`. */
struct stage {
    uint64_t epoch; /* of the stream of transfers: they have finished once it passes */
    uint64_t end;
};

/* ---- Chunks -------------------------------------------------------------------------------- */

static struct chunk *chunk_of(const struct pool_sleep *work, uint64_t number)
{
    return work->chunks.items[number].chunk;
}

static struct lane *lane_of(const struct pool_sleep *work, const struct chunk *chunk)
{
    const struct vmm_cache *cache = work->cache;
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    const struct heap *heap = vmm__directory_heap(&cache->directory, address);
    return heap != NULL ? heap->lane : vmm__reserved_around_locked(cache, address)->lane;
}

static int by_home(const void *a, const void *b)
{
    const struct listed_chunk *left = a;
    const struct listed_chunk *right = b;
    return left->home < right->home ? -1 : left->home > right->home;
}

static vmm_status chunks_list_locked(struct pool_sleep *work)
{
    struct vm *vm = &work->cache->vm;
    struct chunk_list *chunks = &work->chunks;
    VMM_ASSERT_HELD(&work->cache->grow_lock);
    if (!vmm__pool_is_used(work->pool))
        vmm__reserves_end_locked(work->pool);
    chunks->count = 0;
    for (uint32_t id = 1; id < vm->record_high; id++) {
        struct chunk *chunk = &vm->records[id];
        if (chunk->state != CHUNK_HELD || chunk->account != &work->pool->account)
            continue;
        if (!vmm__host_array_grow((void **)&chunks->items, &chunks->capacity, chunks->count,
                                  sizeof *chunks->items))
            return vmm__error(VMM_ERR_HOST_OOM, "sleep: no host memory for the list of chunks");
        chunks->items[chunks->count++] =
            (struct listed_chunk){ .chunk = chunk, .home = chunk->first };
    }
    if (chunks->count > 1)
        qsort(chunks->items, chunks->count, sizeof *chunks->items, by_home);
    return VMM_OK;
}

/* Releases a chunk without a block, with its addresses. False if it has one; a unit of a reserved block has. */
static bool chunk_drop_locked(struct pool_sleep *work, const struct chunk *chunk)
{
    struct vmm_cache *cache = work->cache;
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    uint64_t bytes = vmm__chunk_bytes(&cache->vm, chunk);
    struct heap *heap = vmm__directory_heap(&cache->directory, address);
    struct block *block = heap == NULL ? NULL : vmm__heap_cover(heap, address);
    if (block == NULL)
        return false;
    bool is_idle = block->state == BLOCK_FREE && vmm__block_end(block) >= address + bytes;
    if (!is_idle || vmm__heap_detach(heap, block, address, bytes) != VMM_OK)
        return false;
    vmm__vm_discard(&cache->vm, chunk->first, chunk->granules, NULL, 0);
    return true;
}

/* Unmaps the places of a chunk that no block uses. */
static void places_drop_locked(struct pool_sleep *work, struct chunk *chunk)
{
    const struct views *views = &work->cache->views;
    struct heap *heap = &lane_of(work, chunk)->large;
    for (uint64_t at = chunk->place; at != NO_GRANULE;) {
        uint64_t next = work->cache->vm.next_places[at];
        if (views->places[at].users == 0 && !chunk->is_asleep && chunk->unmapped == 0)
            (void)vmm__views_place_unmap(heap, chunk, at);
        at = next;
    }
}

/* Releases a chunk without a block, or the places that no block uses. Returns whether the chunk has gone. */
static bool chunk_shrink_locked(struct pool_sleep *work, struct chunk *chunk)
{
    struct lane *lane = lane_of(work, chunk);
    vmm__lane_lock(lane);
    bool is_dropped = chunk_drop_locked(work, chunk);
    if (!is_dropped && chunk->places > 0)
        places_drop_locked(work, chunk);
    vmm__lane_unlock(lane);
    return is_dropped;
}

/* Does so with the listed chunks from `from` up to `end`, unless graphs may use them. Those that stay follow the first
 * `kept` in the list; returns their number with these. */
static uint64_t chunks_shrink_locked(struct pool_sleep *work, uint64_t from, uint64_t end,
                                     uint64_t kept)
{
    struct error_line line;
    VMM_ASSERT_HELD(&work->cache->grow_lock);
    bool is_used = vmm__pool_is_used(work->pool);
    vmm__error_save(&line);
    for (uint64_t i = from; i < end; i++) {
        if (is_used || !chunk_shrink_locked(work, chunk_of(work, i)))
            work->chunks.items[kept++] = work->chunks.items[i];
    }
    (void)vmm__limbo_drain(&work->cache->vm, NULL);
    vmm__error_restore(&line);
    return kept;
}

/* Gives back what no block uses, and what is in limbo. The work on it has finished. */
static void idle_drop(struct pool_sleep *work)
{
    uint64_t from = 0;
    uint64_t kept = 0;
    do {
        uint64_t end = vmm__min(work->chunks.count, from + CHUNKS_AT_ONCE);
        vmm__fair_lock(&work->cache->grow_lock);
        kept = chunks_shrink_locked(work, from, end, kept);
        vmm__fair_unlock(&work->cache->grow_lock);
        from = end;
    } while (from < work->chunks.count);
    work->chunks.count = kept;
}

/* Frees blocks whose waits are over and empty slabs, in all lanes of the pool. */
static void lanes_settle_locked(struct pool_sleep *work)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__cache_counters_flush(work->cache, NULL); /* before waits end, so that totals stay exact */
    for (struct lane *lane = work->cache->lanes.stocked.first; lane != NULL;
         lane = lane->list_next) {
        if (lane->pool != work->pool)
            continue;
        vmm__lane_lock(lane);
        (void)vmm__lane_poll_locked(lane, UINT32_MAX);
        (void)vmm__slabs_purge(&lane->slabs, vmm__timeline_now(&lane->timeline));
        vmm__lane_unlock(lane);
    }
    vmm__error_restore(&line);
}

/* ---- Contents ------------------------------------------------------------------------------ */

static vmm_status contents_list_locked(struct pool_sleep *work)
{
    vmm_status status = VMM_OK;
    VMM_ASSERT_HELD(&work->cache->grow_lock);
    for (uint64_t i = 0; i < work->chunks.count && status == VMM_OK; i++) {
        const struct chunk *chunk = chunk_of(work, i);
        struct lane *lane = lane_of(work, chunk);
        vmm__lane_lock(lane);
        status = vmm__chunk_list(work->cache, chunk, work->pool->backup);
        vmm__lane_unlock(lane);
    }
    return status;
}

/* Submits the copies of the chunks from `from` on, up to `bytes`, and returns where it stopped in *end. */
static vmm_status contents_copy(struct pool_sleep *work, uint64_t from, uint64_t limit,
                                uint64_t bytes, uint64_t *end)
{
    vmm_status status = VMM_OK;
    uint64_t start_bytes = work->copy.bytes;
    for (*end = from; *end < limit && status == VMM_OK && work->copy.bytes - start_bytes < bytes;
         ++*end) {
        const struct chunk *chunk = chunk_of(work, *end);
        vmm__fair_lock(&work->cache->grow_lock);
        struct lane *lane = lane_of(work, chunk);
        vmm__lane_lock(lane);
        if (work->copy.way == CHUNK_SAVE || chunk->has_slept)
            status = vmm__chunk_copy(&work->copy, chunk);
        vmm__lane_unlock(lane);
        vmm__fair_unlock(&work->cache->grow_lock);
    }
    return status;
}

/* Waits for all copies that were submitted. */
static vmm_status copies_wait(struct pool_sleep *work)
{
    struct timeline *timeline = &work->cache->transfers.timeline;
    vmm_status status = vmm__timeline_wait(timeline, vmm__timeline_advance(timeline));
    work->has_unfinished = status != VMM_OK;
    return status;
}

/* The same after a failure, whose line stays. */
static void copies_wait_quietly(struct pool_sleep *work)
{
    struct error_line line;
    vmm__error_save(&line);
    (void)copies_wait(work);
    vmm__error_restore(&line);
}

/* Makes copies possible. */
static vmm_status transfers_open(struct pool_sleep *work)
{
    struct transfers *transfers = &work->cache->transfers;
    vmm_status status = VMM_OK;
    vmm__fair_lock(&work->cache->grow_lock);
    if (!transfers->is_open) {
        status = vmm__driver_stream_create(work->cache->driver, &transfers->stream);
        transfers->is_open = status == VMM_OK;
        if (transfers->is_open)
            vmm__timeline_init(&transfers->timeline, work->cache->driver, transfers->stream);
    }
    work->copy.stream = transfers->stream;
    work->has_contents = status == VMM_OK;
    vmm__fair_unlock(&work->cache->grow_lock);
    return status;
}

/* The driver may refuse once. */
vmm_status vmm__pool_sleep_transfers_close(struct vmm_cache *cache)
{
    struct transfers *transfers = &cache->transfers;
    if (!transfers->is_open)
        return VMM_OK;
    vmm_status first = vmm__timeline_fini(&transfers->timeline);
    vmm_status status = vmm__driver_stream_destroy(cache->driver, transfers->stream);
    if (status != VMM_OK)
        status = vmm__driver_stream_destroy(cache->driver, transfers->stream);
    return first != VMM_OK ? first : status;
}

/* ---- Mappings ------------------------------------------------------------------------------ */

/* Puts chunks to sleep, or wakes them, from `from` up to `end`; *done is where it stopped. Chunks may be so already. */
static vmm_status chunks_each(struct pool_sleep *work,
                              vmm_status (*change)(struct vm *, struct chunk *), uint64_t from,
                              uint64_t end, uint64_t *done)
{
    vmm_status status = VMM_OK;
    *done = from;
    while (*done < end && status == VMM_OK) {
        uint64_t stop = vmm__min(end, *done + CHUNKS_AT_ONCE);
        vmm__fair_lock(&work->cache->grow_lock);
        for (; *done < stop && status == VMM_OK; *done += status == VMM_OK ? 1 : 0)
            status = change(&work->cache->vm, chunk_of(work, *done));
        vmm__fair_unlock(&work->cache->grow_lock);
    }
    return status;
}

static vmm_status chunks_sleep(struct pool_sleep *work, uint64_t from, uint64_t end, uint64_t *done)
{
    return chunks_each(work, vmm__chunk_sleep, from, end, done);
}

/* Tells the program of each mapping. */
static void mappings_tell(const struct pool_sleep *work, vmm_sleep_fn function)
{
    const struct vm *vm = &work->cache->vm;
    struct callback callback;
    if (function == NULL)
        return;
    vmm__callback_begin(&callback, work->cache, false);
    for (uint64_t i = 0; i < work->chunks.count; i++) {
        const struct chunk *chunk = chunk_of(work, i);
        uint64_t bytes = vmm__chunk_bytes(vm, chunk);
        void *context = work->options->context;
        function(context, work->pool->handle, vmm__chunk_address(vm, chunk), bytes);
        for (uint64_t at = chunk->place; at != NO_GRANULE; at = vm->next_places[at])
            function(context, work->pool->handle, vmm__arena_address(&vm->arena, at), bytes);
    }
    vmm__callback_end(&callback);
}

/* ---- One pool ------------------------------------------------------------------------------ */

static bool keeps(const struct pool_sleep *work)
{
    vmm_on_sleep wanted = work->options->on_sleep;
    return (wanted == VMM_ON_SLEEP_AS_POOL ? work->pool->on_sleep : wanted) == VMM_ON_SLEEP_KEEP;
}

/* Reports read the backup's size under the lock. */
static vmm_status backup_make(struct pool_sleep *work)
{
    struct pool *pool = work->pool;
    vmm__fair_lock(&work->cache->grow_lock);
    if (pool->backup == NULL)
        pool->backup = vmm__host_alloc(1, sizeof *pool->backup);
    vmm__fair_unlock(&work->cache->grow_lock);
    if (pool->backup != NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_sleep: no host memory for a backup");
}

static vmm_status backup_open(struct pool_sleep *work)
{
    vmm_status status = backup_make(work);
    if (status != VMM_OK)
        return status;
    work->copy.backup = work->pool->backup;
    work->copy.way = CHUNK_SAVE;
    return transfers_open(work);
}

void vmm__pool_sleep_free(struct pool_sleep *work)
{
    vmm__host_free(work->chunks.items, work->chunks.capacity * sizeof *work->chunks.items);
}

static vmm_status sleep_prepare(struct pool_sleep *work)
{
    struct vmm_cache *cache = work->cache;
    vmm__fair_lock(&cache->grow_lock);
    lanes_settle_locked(work);
    vmm_status status = chunks_list_locked(work);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK)
        idle_drop(work);
    if (status == VMM_OK && work->pool->backup != NULL)
        vmm__backup_clear(work->pool->backup);
    if (status != VMM_OK || !keeps(work))
        return status;
    status = backup_open(work);
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    status = contents_list_locked(work);
    vmm__fair_unlock(&cache->grow_lock);
    return status == VMM_OK ? vmm__backup_lay_out(work->pool->backup, cache->driver) : status;
}

static uint64_t staging_bytes(const struct pool_sleep *work)
{
    uint64_t bytes = work->options->staging_bytes;
    return bytes != 0 ? bytes : STAGING_BYTES;
}

/* Submits the copies of one stage, and an event behind them. */
static vmm_status stage_begin(struct pool_sleep *work, uint64_t from, struct stage *stage)
{
    struct timeline *timeline = &work->cache->transfers.timeline;
    vmm_status status =
        contents_copy(work, from, work->chunks.count, staging_bytes(work), &stage->end);
    stage->epoch = vmm__timeline_advance(timeline);
    if (status == VMM_OK)
        status = vmm__timeline_record(timeline, stage->epoch);
    return status == VMM__PENDING ? VMM_OK : status; /* no event is free: the wait records it */
}

/* While the chunks of one stage are released, the contents of the next are copied. */
static vmm_status stages_run(struct pool_sleep *work, struct stage stages[2], uint64_t *done)
{
    vmm_status status = stage_begin(work, 0, &stages[0]);
    for (unsigned now = 0; *done < work->chunks.count && status == VMM_OK; now ^= 1) {
        uint64_t end = stages[now].end;
        if (end < work->chunks.count)
            status = stage_begin(work, end, &stages[now ^ 1]);
        if (status == VMM_OK)
            status = vmm__timeline_wait(&work->cache->transfers.timeline, stages[now].epoch);
        if (status == VMM_OK)
            status = chunks_sleep(work, *done, end, done);
    }
    return status;
}

static vmm_status contents_sleep(struct pool_sleep *work, uint64_t *done)
{
    struct stage stages[2];
    vmm_status status = stages_run(work, stages, done);
    if (status == VMM_OK)
        return VMM_OK;
    copies_wait_quietly(work); /* they read memory that is about to be used again */
    return status;
}

/* Wakes what sleeps, up to `end`, and copies the contents of chunks that slept back. */
static vmm_status contents_wake(struct pool_sleep *work, uint64_t end, uint64_t *done)
{
    vmm_status status = VMM_OK;
    *done = 0;
    while (*done < end && status == VMM_OK) {
        uint64_t from = *done;
        uint64_t copied;
        status =
            chunks_each(work, vmm__chunk_wake, from, vmm__min(end, from + CHUNKS_AT_ONCE), done);
        if (status == VMM_OK && work->has_contents)
            status = contents_copy(work, from, *done, UINT64_MAX, &copied);
    }
    if (work->has_contents && status == VMM_OK)
        return copies_wait(work);
    if (work->has_contents)
        copies_wait_quietly(work);
    return status;
}

static void pool_wake_finish(struct pool_sleep *work)
{
    vmm__fair_lock(&work->cache->grow_lock);
    for (uint64_t i = 0; i < work->chunks.count; i++)
        chunk_of(work, i)->has_slept = false;
    vmm__fair_unlock(&work->cache->grow_lock);
    mappings_tell(work, work->options->mapped);
}

vmm_status vmm__pool_sleep(struct pool_sleep *work)
{
    uint64_t done = 0;
    vmm_status status = sleep_prepare(work);
    if (status != VMM_OK)
        return status;
    mappings_tell(work, work->options->unmapping);
    status = work->has_contents ? contents_sleep(work, &done)
                                : chunks_sleep(work, 0, work->chunks.count, &done);
    work->sleeps = status == VMM_OK;
    if (status == VMM_OK)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    work->copy.way = CHUNK_LOAD;
    vmm_status undone = contents_wake(work, vmm__min(done + 1, work->chunks.count), &done);
    work->sleeps = undone != VMM_OK;
    if (!work->sleeps)
        pool_wake_finish(work);
    vmm__error_restore(&line);
    return status;
}

/* Idle memory of other pools makes room, up to what the wake needs. */
static void room_make(struct pool_sleep *work)
{
    struct vmm_cache *cache = work->cache;
    struct error_line line;
    uint64_t asleep_bytes = 0;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    for (uint64_t i = 0; i < work->chunks.count; i++) {
        const struct chunk *chunk = chunk_of(work, i);
        asleep_bytes += chunk->is_asleep ? vmm__chunk_bytes(&cache->vm, chunk) : 0;
    }
    uint64_t short_bytes = vmm__vm_short_bytes(&cache->vm, &work->pool->account, asleep_bytes);
    uint64_t free_bytes;
    uint64_t total_bytes;
    if (vmm__driver_memory_info(cache->driver, &free_bytes, &total_bytes) == VMM_OK)
        short_bytes = vmm__max(short_bytes, asleep_bytes - vmm__min(asleep_bytes, free_bytes));
    struct trim_target target = { .bytes = short_bytes,
                                  .when = IDLE_FINISHED,
                                  .taker = work->pool };
    if (short_bytes > 0)
        (void)vmm__trim_idle(cache, &target);
    (void)vmm__limbo_drain(&cache->vm, NULL);
    vmm__fair_unlock(&cache->grow_lock);
    vmm__error_restore(&line);
}

static vmm_status wake_prepare(struct pool_sleep *work)
{
    struct vmm_cache *cache = work->cache;
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = chunks_list_locked(work);
    if (status == VMM_OK)
        lanes_settle_locked(work);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK) {
        idle_drop(work);
        room_make(work);
    }
    bool has_backup = work->pool->backup != NULL && work->pool->backup->count > 0;
    bool clears = !has_backup && cache->zeroes;
    if (status != VMM_OK || (!has_backup && !clears))
        return status;
    work->copy.backup = work->pool->backup;
    work->copy.way = has_backup ? CHUNK_LOAD : CHUNK_CLEAR;
    return transfers_open(work);
}

vmm_status vmm__pool_wake(struct pool_sleep *work)
{
    uint64_t done = 0;
    vmm_status status = wake_prepare(work);
    if (status == VMM_OK)
        status = contents_wake(work, work->chunks.count, &done);
    return status;
}

/* Drops chunks that have not slept from the list: after a sleep that failed, the backup may not have their contents. */
static void chunks_list_slept(struct pool_sleep *work)
{
    struct chunk_list *chunks = &work->chunks;
    uint64_t kept = 0;
    vmm__fair_lock(&work->cache->grow_lock);
    for (uint64_t i = 0; i < chunks->count; i++) {
        if (chunk_of(work, i)->has_slept)
            chunks->items[kept++] = chunks->items[i];
    }
    chunks->count = kept;
    vmm__fair_unlock(&work->cache->grow_lock);
}

/* Puts what woke of a pool back to sleep. Leaves it as it is if copies may still write to its memory. */
static void pool_wake_undo(struct pool_sleep *work)
{
    uint64_t done;
    struct error_line line;
    if (work->has_unfinished) /* the driver may refuse once */
        copies_wait_quietly(work);
    if (work->has_unfinished)
        return;
    vmm__error_save(&line);
    chunks_list_slept(work);
    for (uint64_t from = 0; from < work->chunks.count; from = done + 1)
        (void)chunks_sleep(work, from, work->chunks.count, &done);
    vmm__error_restore(&line);
}

void vmm__pool_wake_end(struct pool_sleep *work)
{
    if (work->sleeps)
        pool_wake_undo(work);
    else
        pool_wake_finish(work);
}

/* ---- The end of a pool -------------------------------------------------------------------- */

/* Releases the chunks of a pool, even if graphs have used them: nothing can use what sleeps. */
static vmm_status chunks_end_locked(struct pool_sleep *work)
{
    struct pool *pool = work->pool;
    uint64_t uses = pool->uses;
    bool is_leaving = pool->is_leaving;
    pool->uses = 0;
    pool->is_leaving = false;
    vmm_status status = chunks_list_locked(work);
    if (status == VMM_OK)
        work->chunks.count = chunks_shrink_locked(work, 0, work->chunks.count, 0);
    if (status == VMM_OK && work->chunks.count > 0)
        status = vmm__error(VMM_ERR_HOST_OOM, "pool %s: no host memory to release its chunks",
                            pool->name);
    pool->uses = uses;
    pool->is_leaving = is_leaving;
    return status;
}

vmm_status vmm__pool_sleep_release_locked(struct pool *pool)
{
    struct pool_sleep work = { .cache = pool->cache, .pool = pool };
    lanes_settle_locked(&work);
    vmm__cache_counters_flush(pool->cache, NULL);
    if (vmm__stat_now(&pool->totals.active_bytes) > 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "pool %s sleeps, and freed blocks of it wait for streams: vmm_wait()",
                          pool->name);
    vmm_status status = chunks_end_locked(&work);
    vmm__pool_sleep_free(&work);
    return status;
}
