/* Sleep and wake: see sleep.h. */
#include "cache/pool/sleep.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/pool/capture.h"
#include "cache/pool/chunk_copy.h"
#include "cache/reclaim/trim.h"

#include <stdlib.h>

/* Contents that are copied before their memory is released. Large enough for full speed, small against the pool. */
#define STAGING_BYTES (UINT64_C(256) << 20)

/* Chunks that sleep or wake while the grow lock is held: about 3 ms of driver time. */
enum { CHUNKS_AT_ONCE = 64 };

/* The chunks of one pool, in the order of their homes. */
struct chunk_list {
    struct listed_chunk {
        struct chunk *chunk;
        uint64_t home; /* granule */
    } * items;
    uint64_t count;
    uint64_t capacity;
};

/* Copies that are under way: those of the chunks before `end`. */
struct stage {
    uint64_t epoch; /* of the stream of transfers: they have finished once it passes */
    uint64_t end;
};

/* The sleep or wake of one pool. */
struct work {
    struct vmm_cache *cache;
    const struct sleep_order *order;
    struct pool *pool;
    struct chunk_list chunks;
    struct chunk_copy copy;
    bool sleeps;         /* what becomes of the pool when the order ends */
    bool has_contents;   /* they are saved, loaded or cleared */
    bool has_unfinished; /* copies may still run, because the driver failed to wait */
};

/* ---- Chunks -------------------------------------------------------------------------------- */

static struct chunk *chunk_of(const struct work *work, uint64_t number)
{
    return work->chunks.items[number].chunk;
}

static struct lane *lane_of(const struct work *work, const struct chunk *chunk)
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

static vmm_status chunks_list_locked(struct work *work)
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
static bool chunk_drop_locked(struct work *work, const struct chunk *chunk)
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
static void places_drop_locked(struct work *work, struct chunk *chunk)
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

/* Gives back what no block uses, unless graphs may use it. The work on it has finished. */
static void idle_drop_locked(struct work *work)
{
    struct error_line line;
    VMM_ASSERT_HELD(&work->cache->grow_lock);
    if (vmm__pool_is_used(work->pool))
        return;
    vmm__error_save(&line);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < work->chunks.count; i++) {
        struct chunk *chunk = chunk_of(work, i);
        struct lane *lane = lane_of(work, chunk);
        vmm__lane_lock(lane);
        bool is_dropped = chunk_drop_locked(work, chunk);
        if (!is_dropped && chunk->places > 0)
            places_drop_locked(work, chunk);
        vmm__lane_unlock(lane);
        if (!is_dropped)
            work->chunks.items[kept++] = work->chunks.items[i];
    }
    work->chunks.count = kept;
    (void)vmm__limbo_drain(&work->cache->vm, NULL);
    vmm__error_restore(&line);
}

/* Frees blocks whose waits are over and empty slabs, in all lanes of the pool. */
static void lanes_settle_locked(struct work *work)
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

static vmm_status contents_list_locked(struct work *work)
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
static vmm_status contents_copy(struct work *work, uint64_t from, uint64_t limit, uint64_t bytes,
                                uint64_t *end)
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
static vmm_status copies_wait(struct work *work)
{
    struct timeline *timeline = &work->cache->transfers.timeline;
    vmm_status status = vmm__timeline_wait(timeline, vmm__timeline_advance(timeline));
    work->has_unfinished = status != VMM_OK;
    return status;
}

/* The same after a failure, whose line stays. */
static void copies_wait_quietly(struct work *work)
{
    struct error_line line;
    vmm__error_save(&line);
    (void)copies_wait(work);
    vmm__error_restore(&line);
}

/* Makes copies possible. */
static vmm_status transfers_open(struct work *work)
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
vmm_status vmm__sleep_transfers_close(struct vmm_cache *cache)
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
static vmm_status chunks_each(struct work *work, vmm_status (*change)(struct vm *, struct chunk *),
                              uint64_t from, uint64_t end, uint64_t *done)
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

static vmm_status chunks_sleep(struct work *work, uint64_t from, uint64_t end, uint64_t *done)
{
    return chunks_each(work, vmm__chunk_sleep, from, end, done);
}

/* Tells the program of each mapping. */
static void mappings_tell(const struct work *work, vmm_sleep_fn function)
{
    const struct vm *vm = &work->cache->vm;
    if (function == NULL)
        return;
    for (uint64_t i = 0; i < work->chunks.count; i++) {
        const struct chunk *chunk = chunk_of(work, i);
        uint64_t bytes = vmm__chunk_bytes(vm, chunk);
        void *context = work->order->options.context;
        function(context, work->pool->handle, vmm__chunk_address(vm, chunk), bytes);
        for (uint64_t at = chunk->place; at != NO_GRANULE; at = vm->next_places[at])
            function(context, work->pool->handle, vmm__arena_address(&vm->arena, at), bytes);
    }
}

/* ---- One pool ------------------------------------------------------------------------------ */

static bool keeps(const struct work *work)
{
    vmm_on_sleep wanted = work->order->options.on_sleep;
    return (wanted == VMM_ON_SLEEP_AS_POOL ? work->pool->on_sleep : wanted) == VMM_ON_SLEEP_KEEP;
}

/* Reports read the backup's size under the lock. */
static vmm_status backup_make(struct work *work)
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

static vmm_status backup_open(struct work *work)
{
    vmm_status status = backup_make(work);
    if (status != VMM_OK)
        return status;
    work->copy.backup = work->pool->backup;
    work->copy.way = CHUNK_SAVE;
    return transfers_open(work);
}

static void work_end(struct work *work)
{
    vmm__host_free(work->chunks.items, work->chunks.capacity * sizeof *work->chunks.items);
}

static vmm_status sleep_prepare(struct work *work)
{
    struct vmm_cache *cache = work->cache;
    vmm__fair_lock(&cache->grow_lock);
    lanes_settle_locked(work);
    vmm_status status = chunks_list_locked(work);
    if (status == VMM_OK)
        idle_drop_locked(work);
    vmm__fair_unlock(&cache->grow_lock);
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

static uint64_t staging_bytes(const struct work *work)
{
    uint64_t bytes = work->order->options.staging_bytes;
    return bytes != 0 ? bytes : STAGING_BYTES;
}

/* Submits the copies of one stage, and an event behind them. */
static vmm_status stage_begin(struct work *work, uint64_t from, struct stage *stage)
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
static vmm_status stages_run(struct work *work, struct stage stages[2], uint64_t *done)
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

static vmm_status contents_sleep(struct work *work, uint64_t *done)
{
    struct stage stages[2];
    vmm_status status = stages_run(work, stages, done);
    if (status == VMM_OK)
        return VMM_OK;
    copies_wait_quietly(work); /* they read memory that is about to be used again */
    return status;
}

/* Wakes what sleeps, up to `end`, and copies the contents of chunks that slept back. */
static vmm_status contents_wake(struct work *work, uint64_t end, uint64_t *done)
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

static void wake_end(struct work *work)
{
    vmm__fair_lock(&work->cache->grow_lock);
    for (uint64_t i = 0; i < work->chunks.count; i++)
        chunk_of(work, i)->has_slept = false;
    vmm__fair_unlock(&work->cache->grow_lock);
    mappings_tell(work, work->order->options.mapped);
}

/* Puts a pool to sleep. On failure wakes what sleeps already; the pool stays asleep if that fails, too. */
static vmm_status pool_sleep(struct work *work)
{
    uint64_t done = 0;
    vmm_status status = sleep_prepare(work);
    if (status != VMM_OK)
        return status;
    mappings_tell(work, work->order->options.unmapping);
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
        wake_end(work);
    vmm__error_restore(&line);
    return status;
}

/* Idle memory of other pools makes room, up to what the wake needs. */
static void room_make_locked(struct work *work)
{
    struct vmm_cache *cache = work->cache;
    uint64_t asleep_bytes = 0;
    VMM_ASSERT_HELD(&cache->grow_lock);
    for (uint64_t i = 0; i < work->chunks.count; i++) {
        const struct chunk *chunk = chunk_of(work, i);
        asleep_bytes += chunk->is_asleep ? vmm__chunk_bytes(&cache->vm, chunk) : 0;
    }
    uint64_t short_bytes = vmm__vm_short_bytes(&cache->vm, &work->pool->account, asleep_bytes);
    uint64_t free_bytes;
    uint64_t total_bytes;
    if (vmm__driver_memory_info(cache->driver, &free_bytes, &total_bytes) == VMM_OK)
        short_bytes = vmm__max(short_bytes, asleep_bytes - vmm__min(asleep_bytes, free_bytes));
    struct trim_target target = { .bytes = short_bytes, .when = IDLE_FINISHED };
    if (short_bytes > 0)
        (void)vmm__trim_idle(cache, &target);
    (void)vmm__limbo_drain(&cache->vm, NULL);
}

static vmm_status wake_prepare(struct work *work)
{
    struct vmm_cache *cache = work->cache;
    struct error_line line;
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = chunks_list_locked(work);
    vmm__error_save(&line);
    if (status == VMM_OK) {
        lanes_settle_locked(work);
        idle_drop_locked(work);
        room_make_locked(work);
        vmm__error_restore(&line);
    }
    vmm__fair_unlock(&cache->grow_lock);
    bool has_backup = work->pool->backup != NULL && work->pool->backup->count > 0;
    bool clears = !has_backup && cache->zeroes;
    if (status != VMM_OK || (!has_backup && !clears))
        return status;
    work->copy.backup = work->pool->backup;
    work->copy.way = has_backup ? CHUNK_LOAD : CHUNK_CLEAR;
    return transfers_open(work);
}

/* Wakes a pool. On failure a part of it may be awake: the caller calls pool_rest(). */
static vmm_status pool_wake(struct work *work)
{
    uint64_t done = 0;
    vmm_status status = wake_prepare(work);
    if (status == VMM_OK)
        status = contents_wake(work, work->chunks.count, &done);
    return status;
}

/* Drops chunks that have not slept from the list: after a sleep that failed, the backup may not have their contents. */
static void chunks_list_slept(struct work *work)
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
static void pool_rest(struct work *work)
{
    uint64_t done;
    struct error_line line;
    if (work->has_unfinished)
        return;
    vmm__error_save(&line);
    chunks_list_slept(work);
    for (uint64_t from = 0; from < work->chunks.count; from = done + 1)
        (void)chunks_sleep(work, from, work->chunks.count, &done);
    vmm__error_restore(&line);
}

/* ---- Orders -------------------------------------------------------------------------------- */

/* Marks the lanes of a pool, so that they serve no request, or serve again. */
static void lanes_mark_locked(struct pool *pool, bool is_asleep)
{
    struct vmm_cache *cache = pool->cache;
    bool is_default = pool == &cache->pool;
    VMM_ASSERT_HELD(&cache->grow_lock);
    for (struct lane *lane = cache->lanes.first; lane != NULL; lane = lane->next) {
        if (lane->pool != pool)
            continue;
        if (is_asleep && !is_default && lane->is_in_table)
            vmm__lane_table_leave(&pool->table, lane);
        vmm__lane_lock(lane);
        lane->is_asleep = is_asleep;
        vmm__lane_unlock(lane);
    }
    if (is_default)
        vmm__route_slow_path_set(cache);
}

static void phase_set_locked(struct pool *pool, vmm_pool_phase phase)
{
    bool was_awake = pool->phase == VMM_POOL_AWAKE;
    pool->phase = phase;
    if (was_awake != (phase == VMM_POOL_AWAKE))
        lanes_mark_locked(pool, phase != VMM_POOL_AWAKE);
}

static void phases_set(const struct sleep_order *order, uint64_t count, vmm_pool_phase phase)
{
    for (uint64_t i = 0; i < count; i++)
        phase_set_locked(order->pools[i], phase);
}

/* Whether a pool has blocks that other processes may use. */
static bool is_exported(const struct pool *pool)
{
    bool has_exports = false;
    for (struct lane *lane = pool->cache->lanes.first; lane != NULL && !has_exports;
         lane = lane->next) {
        if (lane->pool != pool)
            continue;
        vmm__lane_lock(lane);
        has_exports = lane->exports > 0;
        vmm__lane_unlock(lane);
    }
    return has_exports;
}

/* The reason why a pool cannot begin; NULL: it can. */
static const char *begin_obstacle(const struct pool *pool, vmm_pool_phase from)
{
    if (pool->phase != from)
        return "goes to sleep or wakes in another call, or is named twice";
    return from == VMM_POOL_AWAKE && is_exported(pool) ? "has exported blocks" : NULL;
}

static vmm_status begin_locked(struct sleep_order *order)
{
    const char *function = order->is_wake ? "vmm_pool_wake" : "vmm_pool_sleep";
    vmm_pool_phase from = order->is_wake ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE;
    vmm_pool_phase to = order->is_wake ? VMM_POOL_AWAKE : VMM_POOL_ASLEEP;
    uint64_t kept = 0;
    VMM_ASSERT_HELD(&order->cache->grow_lock);
    vmm_status status = vmm__capture_query(order->cache);
    if (status == VMM__PENDING)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: a capture is under way", function);
    if (status != VMM_OK)
        return status;
    for (uint64_t i = 0; i < order->count; i++) {
        struct pool *pool = order->pools[i];
        if (pool->phase == to)
            continue;
        const char *obstacle = begin_obstacle(pool, from);
        if (obstacle != NULL) {
            phases_set(order, kept, from);
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: pool %s %s", function, pool->name,
                              obstacle);
        }
        phase_set_locked(pool, order->is_wake ? VMM_POOL_WAKING : VMM_POOL_SLEEPING);
        order->pools[kept++] = pool;
    }
    order->count = kept;
    return VMM_OK;
}

vmm_status vmm__sleep_begin(struct sleep_order *order)
{
    vmm__fair_lock(&order->cache->grow_lock);
    vmm_status status = begin_locked(order);
    vmm__fair_unlock(&order->cache->grow_lock);
    return status;
}

void vmm__sleep_cancel(const struct sleep_order *order)
{
    vmm__fair_lock(&order->cache->grow_lock);
    phases_set(order, order->count, order->is_wake ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE);
    vmm__fair_unlock(&order->cache->grow_lock);
}

static struct work work_of(const struct sleep_order *order, uint64_t number)
{
    return (struct work){ .cache = order->cache,
                          .order = order,
                          .pool = order->pools[number],
                          .sleeps = order->is_wake,
                          .copy = { .cache = order->cache } };
}

/* Waits for work that may use the pools, or memory that a wake needs. */
static vmm_status work_wait(const struct sleep_order *order)
{
    bool is_used = false;
    vmm__fair_lock(&order->cache->grow_lock);
    for (uint64_t i = 0; i < order->count; i++)
        is_used = is_used || vmm__pool_is_used(order->pools[i]);
    vmm__fair_unlock(&order->cache->grow_lock);
    return is_used ? vmm__driver_device_wait(order->cache->driver) : vmm__cache_wait(order->cache);
}

/* Pools that slept before a later one failed wake again. */
static void sleep_undo(struct work *works, uint64_t count)
{
    struct error_line line;
    vmm__error_save(&line);
    for (uint64_t i = 0; i < count; i++) {
        if (!works[i].sleeps)
            continue;
        works[i].sleeps = pool_wake(&works[i]) != VMM_OK;
        if (works[i].sleeps)
            pool_rest(&works[i]);
        else
            wake_end(&works[i]);
    }
    vmm__error_restore(&line);
}

static vmm_status sleep_run(const struct sleep_order *order, struct work *works)
{
    vmm_status status = work_wait(order);
    uint64_t tried = 0;
    for (; tried < order->count && status == VMM_OK; tried++)
        status = pool_sleep(&works[tried]);
    if (status != VMM_OK)
        sleep_undo(works, tried);
    return status;
}

static vmm_status wake_run(const struct sleep_order *order, struct work *works)
{
    vmm_status status = work_wait(order);
    for (uint64_t i = 0; i < order->count && status == VMM_OK; i++)
        status = pool_wake(&works[i]);
    for (uint64_t i = 0; i < order->count; i++) {
        works[i].sleeps = status != VMM_OK;
        if (works[i].sleeps)
            pool_rest(&works[i]);
        else
            wake_end(&works[i]);
    }
    return status;
}

/* Once its phase is set, other calls may use or destroy a pool. */
static void order_end(const struct sleep_order *order, struct work *works)
{
    vmm__fair_lock(&order->cache->grow_lock);
    for (uint64_t i = 0; i < order->count; i++) {
        phase_set_locked(order->pools[i], works[i].sleeps ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE);
        work_end(&works[i]);
    }
    vmm__fair_unlock(&order->cache->grow_lock);
}

vmm_status vmm__sleep_run(const struct sleep_order *order)
{
    struct work *works = vmm__host_alloc(order->count + 1, sizeof *works);
    if (works == NULL) {
        vmm__sleep_cancel(order);
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: no host memory for the work on %llu pools",
                          (unsigned long long)order->count);
    }
    for (uint64_t i = 0; i < order->count; i++)
        works[i] = work_of(order, i);
    vmm_status status = order->is_wake ? wake_run(order, works) : sleep_run(order, works);
    order_end(order, works);
    vmm__host_free(works, (order->count + 1) * sizeof *works);
    return status;
}

/* ---- The end of a pool -------------------------------------------------------------------- */

/* Releases the chunks of a pool, even if graphs have used them: nothing can use what sleeps. */
static vmm_status chunks_end_locked(struct work *work)
{
    struct pool *pool = work->pool;
    uint64_t uses = pool->uses;
    bool is_leaving = pool->is_leaving;
    pool->uses = 0;
    pool->is_leaving = false;
    vmm_status status = chunks_list_locked(work);
    if (status == VMM_OK)
        idle_drop_locked(work);
    if (status == VMM_OK && work->chunks.count > 0)
        status = vmm__error(VMM_ERR_HOST_OOM, "pool %s: no host memory to release its chunks",
                            pool->name);
    pool->uses = uses;
    pool->is_leaving = is_leaving;
    return status;
}

vmm_status vmm__sleep_end_locked(struct pool *pool)
{
    struct work work = { .cache = pool->cache, .pool = pool };
    lanes_settle_locked(&work);
    vmm__cache_counters_flush(pool->cache, NULL);
    if (vmm__stat_now(&pool->totals.active_bytes) > 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "pool %s sleeps, and freed blocks of it wait for streams: vmm_wait()",
                          pool->name);
    vmm_status status = chunks_end_locked(&work);
    work_end(&work);
    if (status == VMM_OK)
        phase_set_locked(pool, VMM_POOL_AWAKE);
    return status;
}
