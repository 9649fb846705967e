/* The sleep or the wake of one pool: see pool_sleep.h. */
#include "cache/pool/pool_sleep.h"
#include "base/arith.h"
#include "base/callback.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/idle/trim.h"
#include "cache/pool/pools.h"
#include "cache/reserve/reserve.h"

#include <stdlib.h>

/* Contents that are copied before their memory is released. Large enough for full speed, small against the pool. */
#define STAGING_BYTES (UINT64_C(256) << 20)

/* Copies that are under way: those of the chunks before `end`. */
struct stage {
    struct event *copied; /* NULL: not all copies were submitted */
    uint64_t end;
};

/* ---- Chunks -------------------------------------------------------------------------------- */

static struct lane *lane_of(const struct pool_sleep *job, const struct chunk *chunk)
{
    const struct vmm_cache *cache = job->cache;
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    return vmm__directory_heap(&cache->directory, address)->lane;
}

static int by_home(const void *a, const void *b)
{
    const struct chunk *left = *(struct chunk *const *)a;
    const struct chunk *right = *(struct chunk *const *)b;
    return left->first < right->first ? -1 : left->first > right->first;
}

/* Blocks that the pool adopts on its way to sleep stay awake: the request did not name them, and they may be
 * exported. */
static bool is_listed(const struct pool_sleep *job, const struct chunk *chunk)
{
    return chunk->state == CHUNK_HELD && !lane_of(job, chunk)->stays_awake;
}

static vmm_status chunks_list_locked(struct pool_sleep *job)
{
    struct vm *vm = &job->cache->vm;
    struct chunk_list *chunks = &job->chunks;
    VMM_ASSERT_HELD(&job->cache->grow_lock);
    if (!vmm__pool_is_used(job->pool))
        vmm__reserves_end_locked(job->cache, job->pool);
    chunks->count = 0;
    for (uint32_t id = job->pool->account.newest; id != 0; id = vm->records[id].older) {
        struct chunk *chunk = &vm->records[id];
        if (!is_listed(job, chunk))
            continue;
        if (!vmm__host_array_grow((void **)&chunks->items, &chunks->capacity, chunks->count,
                                  sizeof(struct chunk *)))
            return vmm__error(VMM_ERR_HOST_OOM, "pool %s: no host memory for the list of chunks",
                              job->pool->name);
        chunks->items[chunks->count++] = chunk;
    }
    if (chunks->count > 1)
        qsort(chunks->items, chunks->count, sizeof(struct chunk *), by_home);
    return VMM_OK;
}

/* Releases a chunk without a block, with its addresses. False if it has one. */
static bool chunk_drop_locked(struct pool_sleep *job, const struct chunk *chunk)
{
    struct vmm_cache *cache = job->cache;
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    uint64_t bytes = vmm__chunk_bytes(&cache->vm, chunk);
    struct heap *heap = vmm__directory_heap(&cache->directory, address);
    struct block *block = vmm__heap_cover(heap, address);
    bool is_idle = block->state == BLOCK_FREE && vmm__block_end(block) >= address + bytes;
    if (!is_idle || vmm__heap_detach(heap, block, address, bytes) != VMM_OK)
        return false;
    vmm__vm_discard(&cache->vm, chunk->first, chunk->granules, NULL, 0);
    return true;
}

/* Unmaps the places of a chunk that no block uses. */
static void places_drop_locked(struct pool_sleep *job, struct chunk *chunk)
{
    const struct views *views = &job->cache->views;
    struct heap *heap = &lane_of(job, chunk)->large;
    for (uint64_t at = chunk->place; at != NO_GRANULE;) {
        uint64_t next = job->cache->vm.next_places[at];
        if (views->places[at].users == 0 && !chunk->is_asleep && chunk->unmapped == 0)
            (void)vmm__views_place_unmap(heap, chunk, at);
        at = next;
    }
}

/* Releases a chunk without a block, or the places that no block uses. Returns whether the chunk has gone. */
static bool chunk_shrink_locked(struct pool_sleep *job, struct chunk *chunk)
{
    struct lane *lane = lane_of(job, chunk);
    if (!chunk->is_mapped) /* its remap is pending */
        return false;
    vmm__lane_lock(lane);
    bool is_dropped = chunk_drop_locked(job, chunk);
    if (!is_dropped && chunk->places > 0)
        places_drop_locked(job, chunk);
    vmm__lane_unlock(lane);
    return is_dropped;
}

/* Shrinks the listed chunks from `from` up to `end`, unless graphs may use them. Those that stay are moved behind the
 * first `kept` of the list; returns how many it keeps then. */
static uint64_t chunks_shrink_locked(struct pool_sleep *job, uint64_t from, uint64_t end,
                                     uint64_t kept)
{
    VMM_ASSERT_HELD(&job->cache->grow_lock);
    bool is_used = vmm__pool_is_used(job->pool);
    VMM_QUIET();
    for (uint64_t i = from; i < end; i++) {
        if (is_used || !chunk_shrink_locked(job, job->chunks.items[i]))
            job->chunks.items[kept++] = job->chunks.items[i];
    }
    (void)vmm__limbo_drain(&job->cache->vm, NULL);
    return kept;
}

/* Gives the driver chunks and places that no block uses, and what is in limbo. The work on them has finished. */
static void idle_drop(struct pool_sleep *job)
{
    uint64_t from = 0;
    uint64_t kept = 0;
    do {
        uint64_t end = vmm__min(job->chunks.count, from + CHUNKS_AT_ONCE);
        vmm__fair_lock(&job->cache->grow_lock);
        kept = chunks_shrink_locked(job, from, end, kept);
        vmm__fair_unlock(&job->cache->grow_lock);
        from = end;
    } while (from < job->chunks.count);
    job->chunks.count = kept;
}

/* ---- Contents ------------------------------------------------------------------------------ */

static vmm_status contents_list_locked(struct pool_sleep *job)
{
    vmm_status status = VMM_OK;
    VMM_ASSERT_HELD(&job->cache->grow_lock);
    for (uint64_t i = 0; i < job->chunks.count && status == VMM_OK; i++) {
        const struct chunk *chunk = job->chunks.items[i];
        struct lane *lane = lane_of(job, chunk);
        vmm__lane_lock(lane);
        status = vmm__chunk_list(job->cache, chunk, job->pool->backup);
        vmm__lane_unlock(lane);
    }
    return status;
}

/* Submits the copies of the chunks from `from` on, up to `bytes`, and returns where it stopped in *end. */
static vmm_status contents_copy(struct pool_sleep *job, uint64_t from, uint64_t limit,
                                uint64_t bytes, uint64_t *end)
{
    vmm_status status = VMM_OK;
    uint64_t start_bytes = job->copy.bytes;
    for (*end = from; *end < limit && status == VMM_OK && job->copy.bytes - start_bytes < bytes;
         ++*end) {
        const struct chunk *chunk = job->chunks.items[*end];
        vmm__fair_lock(&job->cache->grow_lock);
        struct lane *lane = lane_of(job, chunk);
        vmm__lane_lock(lane);
        if (job->copy.way == CHUNK_SAVE || chunk->has_slept)
            status = vmm__chunk_copy(&job->copy, chunk);
        vmm__lane_unlock(lane);
        vmm__fair_unlock(&job->cache->grow_lock);
    }
    return status;
}

/* Waits for all copies that were submitted. */
static vmm_status copies_wait(struct pool_sleep *job)
{
    vmm_status status = vmm__clock_stream_wait(&job->cache->clock, job->copy.stream);
    job->has_unfinished = status != VMM_OK;
    return status;
}

/* The same after a failure, whose line stays. */
static void copies_wait_quietly(struct pool_sleep *job)
{
    VMM_QUIET();
    (void)copies_wait(job);
}

/* Makes copies possible. */
static vmm_status transfers_open(struct pool_sleep *job)
{
    struct transfers *transfers = &job->cache->transfers;
    vmm_status status = VMM_OK;
    VMM_HOLD_FAIR(&job->cache->grow_lock);
    if (!transfers->is_open) {
        status = vmm__driver_stream_create(job->cache->driver, &transfers->stream);
        transfers->is_open = status == VMM_OK;
    }
    job->copy.stream = transfers->stream;
    job->has_contents = status == VMM_OK;
    return status;
}

vmm_status vmm__pool_sleep_transfers_close(struct vmm_cache *cache)
{
    struct transfers *transfers = &cache->transfers;
    return transfers->is_open ? vmm__driver_stream_end(cache->driver, transfers->stream) : VMM_OK;
}

/* ---- Mappings ------------------------------------------------------------------------------ */

/* Puts chunks to sleep, or wakes them, from `from` up to `end`; *done is where it stopped. Some may sleep, or be awake,
 * already. */
static vmm_status chunks_each(struct pool_sleep *job,
                              vmm_status (*change)(struct vm *, struct chunk *), uint64_t from,
                              uint64_t end, uint64_t *done)
{
    vmm_status status = VMM_OK;
    *done = from;
    while (*done < end && status == VMM_OK) {
        uint64_t stop = vmm__min(end, *done + CHUNKS_AT_ONCE);
        vmm__fair_lock(&job->cache->grow_lock);
        for (; *done < stop && status == VMM_OK; *done += status == VMM_OK ? 1 : 0)
            status = change(&job->cache->vm, job->chunks.items[*done]);
        vmm__fair_unlock(&job->cache->grow_lock);
    }
    return status;
}

static vmm_status chunks_sleep(struct pool_sleep *job, uint64_t from, uint64_t end, uint64_t *done)
{
    return chunks_each(job, vmm__chunk_sleep, from, end, done);
}

/* Tells the program of each mapping. */
static void mappings_tell(const struct pool_sleep *job, vmm_sleep_fn function)
{
    const struct vm *vm = &job->cache->vm;
    struct callback callback;
    if (function == NULL)
        return;
    vmm__callback_begin(&callback, job->cache, false);
    for (uint64_t i = 0; i < job->chunks.count; i++) {
        const struct chunk *chunk = job->chunks.items[i];
        uint64_t bytes = vmm__chunk_bytes(vm, chunk);
        void *context = job->options->context;
        function(context, job->pool->handle, vmm__chunk_address(vm, chunk), bytes);
        for (uint64_t at = chunk->place; at != NO_GRANULE; at = vm->next_places[at])
            function(context, job->pool->handle, vmm__arena_address(&vm->arena, at), bytes);
    }
    vmm__callback_end(&callback);
}

/* ---- One pool ------------------------------------------------------------------------------ */

static bool contents_are_kept(const struct pool_sleep *job)
{
    vmm_on_sleep wanted = job->options->on_sleep;
    return (wanted == VMM_ON_SLEEP_AS_POOL ? job->pool->on_sleep : wanted) == VMM_ON_SLEEP_KEEP;
}

/* Reports read the backup's size under the lock. */
static vmm_status backup_make(struct pool_sleep *job)
{
    struct pool *pool = job->pool;
    vmm__fair_lock(&job->cache->grow_lock);
    if (pool->backup == NULL)
        pool->backup = vmm__host_alloc(1, sizeof *pool->backup);
    vmm__fair_unlock(&job->cache->grow_lock);
    if (pool->backup != NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_sleep: no host memory for a backup");
}

static vmm_status backup_open(struct pool_sleep *job)
{
    vmm_status status = backup_make(job);
    if (status != VMM_OK)
        return status;
    job->copy.backup = job->pool->backup;
    job->copy.way = CHUNK_SAVE;
    return transfers_open(job);
}

void vmm__pool_sleep_free(struct pool_sleep *job)
{
    vmm__host_free(job->chunks.items, job->chunks.capacity * sizeof(struct chunk *));
}

/* Memory that is remap pending has no address from which it could be saved, or unmapped. */
static vmm_status mappings_check(const struct pool_sleep *job)
{
    uint64_t count = 0;
    vmm__fair_lock(&job->cache->grow_lock);
    for (uint64_t i = 0; i < job->chunks.count; i++)
        count += job->chunks.items[i]->is_mapped ? 0 : 1;
    vmm__fair_unlock(&job->cache->grow_lock);
    if (count == 0)
        return VMM_OK;
    return vmm__error(VMM_ERR_DRIVER, "vmm_pool_sleep: the driver refuses to map %llu live chunks",
                      (unsigned long long)count);
}

static vmm_status sleep_prepare(struct pool_sleep *job)
{
    struct vmm_cache *cache = job->cache;
    vmm__fair_lock(&cache->grow_lock);
    vmm__pool_settle(job->pool);
    vmm_status status = chunks_list_locked(job);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK) {
        idle_drop(job); /* a drain of limbo maps what is remap pending */
        status = mappings_check(job);
    }
    if (status == VMM_OK && job->pool->backup != NULL)
        vmm__backup_clear(job->pool->backup);
    if (status != VMM_OK || !contents_are_kept(job))
        return status;
    status = backup_open(job);
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    status = contents_list_locked(job);
    vmm__fair_unlock(&cache->grow_lock);
    return status == VMM_OK ? vmm__backup_lay_out(job->pool->backup, cache->driver) : status;
}

static uint64_t staging_bytes(const struct pool_sleep *job)
{
    uint64_t bytes = job->options->staging_bytes;
    return bytes != 0 ? bytes : STAGING_BYTES;
}

/* Submits the copies of one stage, and an event behind them. */
static vmm_status stage_begin(struct pool_sleep *job, uint64_t from, struct stage *stage)
{
    vmm_status status =
        contents_copy(job, from, job->chunks.count, staging_bytes(job), &stage->end);
    if (status == VMM_OK)
        status = vmm__clock_mark(&job->cache->clock, job->copy.stream, NULL, 0, &stage->copied);
    return status;
}

static vmm_status stage_wait(struct pool_sleep *job, struct stage *stage)
{
    struct clock *clock = &job->cache->clock;
    vmm_status status = vmm__clock_event_wait(clock, stage->copied);
    vmm__event_drop(clock->events, stage->copied);
    stage->copied = NULL;
    return status;
}

/* While the chunks of one stage are released, the contents of the next are copied. */
static vmm_status stages_run(struct pool_sleep *job, struct stage stages[2], uint64_t *done)
{
    vmm_status status = stage_begin(job, 0, &stages[0]);
    for (unsigned now = 0; *done < job->chunks.count && status == VMM_OK; now ^= 1) {
        uint64_t end = stages[now].end;
        if (end < job->chunks.count)
            status = stage_begin(job, end, &stages[now ^ 1]);
        if (status == VMM_OK)
            status = stage_wait(job, &stages[now]);
        if (status == VMM_OK)
            status = chunks_sleep(job, *done, end, done);
    }
    for (unsigned i = 0; i < 2; i++)
        vmm__event_drop(job->cache->clock.events, stages[i].copied);
    return status;
}

static vmm_status contents_sleep(struct pool_sleep *job, uint64_t *done)
{
    struct stage stages[2] = { { .copied = NULL } };
    vmm_status status = stages_run(job, stages, done);
    if (status == VMM_OK)
        return VMM_OK;
    copies_wait_quietly(job); /* they read memory that is about to be used again */
    return status;
}

/* What the wake still needs. */
static uint64_t asleep_bytes_locked(const struct pool_sleep *job)
{
    uint64_t bytes = 0;
    VMM_ASSERT_HELD(&job->cache->grow_lock);
    for (uint64_t i = 0; i < job->chunks.count; i++) {
        const struct chunk *chunk = job->chunks.items[i];
        bytes += chunk->is_asleep ? vmm__chunk_bytes(&job->cache->vm, chunk) : 0;
    }
    return bytes;
}

/* A chunk that has not slept stays awake: after a sleep that failed, the backup may not have its contents. */
static vmm_status chunk_sleep_again(struct vm *vm, struct chunk *chunk)
{
    return chunk->has_slept ? vmm__chunk_sleep(vm, chunk) : VMM_OK;
}

void vmm__pool_sleep_again(struct pool_sleep *job)
{
    uint64_t done;
    if (job->has_unfinished) /* the driver may refuse once */
        copies_wait_quietly(job);
    if (job->has_unfinished)
        return;
    VMM_QUIET();
    for (uint64_t from = 0; from < job->chunks.count; from = done + 1)
        (void)chunks_each(job, chunk_sleep_again, from, job->chunks.count, &done);
}

/* After the device, not a limit, has refused a chunk: claims the rest from other processes. VMM_OK: try again;
 * VMM__PENDING: a wake that gives way has to; ERR_DEVICE_OOM: the others cannot help. */
static vmm_status rest_claim(struct pool_sleep *job)
{
    struct vmm_cache *cache = job->cache;
    vmm__fair_lock(&cache->grow_lock);
    uint64_t bytes = asleep_bytes_locked(job);
    bool is_limited = vmm__account_short_bytes(&job->pool->account, bytes) > 0 ||
                      vmm__vm_short_bytes(&cache->vm, &job->pool->account, bytes) > 0;
    vmm__fair_unlock(&cache->grow_lock);
    if (is_limited || vmm__claim(cache, job->claim, NULL, bytes) != VMM_OK)
        return VMM_ERR_DEVICE_OOM;
    return job->claim->is_behind ? VMM__PENDING : VMM_OK;
}

/* Wakes what sleeps, up to `end`, and copies the contents of chunks that slept back. */
static vmm_status contents_wake(struct pool_sleep *job, uint64_t end, uint64_t *done)
{
    vmm_status status = VMM_OK;
    *done = 0;
    while (*done < end && status == VMM_OK) {
        uint64_t from = *done;
        uint64_t copied;
        status =
            chunks_each(job, vmm__chunk_wake, from, vmm__min(end, from + CHUNKS_AT_ONCE), done);
        if (status == VMM_ERR_DEVICE_OOM)
            status = rest_claim(job);
        if (status == VMM_OK && job->has_contents)
            status = contents_copy(job, from, *done, UINT64_MAX, &copied);
    }
    if (job->has_contents && status == VMM_OK)
        return copies_wait(job);
    if (job->has_contents)
        copies_wait_quietly(job);
    return status;
}

static void pool_wake_finish(struct pool_sleep *job)
{
    vmm__fair_lock(&job->cache->grow_lock);
    for (uint64_t i = 0; i < job->chunks.count; i++)
        job->chunks.items[i]->has_slept = false;
    vmm__fair_unlock(&job->cache->grow_lock);
    mappings_tell(job, job->options->mapped);
}

/* Wakes the chunks before `end` again after a failure: with their contents, or with zeros if these were discarded. */
static vmm_status pool_sleep_undo(struct pool_sleep *job, uint64_t end)
{
    uint64_t done;
    vmm_status status = VMM_OK;
    bool clears = !job->has_contents && job->cache->zeroes;
    if (clears)
        status = transfers_open(job);
    job->copy.way = clears ? CHUNK_CLEAR : CHUNK_LOAD;
    return status == VMM_OK ? contents_wake(job, end, &done) : status;
}

vmm_status vmm__pool_sleep(struct pool_sleep *job)
{
    uint64_t done = 0;
    vmm_status status = sleep_prepare(job);
    if (status != VMM_OK)
        return status;
    mappings_tell(job, job->options->unmapping);
    status = job->has_contents ? contents_sleep(job, &done)
                               : chunks_sleep(job, 0, job->chunks.count, &done);
    job->ends_asleep = status == VMM_OK;
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    job->ends_asleep = pool_sleep_undo(job, vmm__min(done + 1, job->chunks.count)) != VMM_OK;
    if (!job->ends_asleep)
        pool_wake_finish(job);
    return status;
}

/* Idle memory of other pools makes room, up to what the wake needs. */
static void room_make_locked(struct pool_sleep *job, uint64_t asleep_bytes)
{
    struct vmm_cache *cache = job->cache;
    VMM_QUIET();
    uint64_t short_bytes = vmm__vm_short_bytes(&cache->vm, &job->pool->account, asleep_bytes);
    uint64_t free_bytes = vmm__cache_device_bytes(cache);
    short_bytes = vmm__max(short_bytes, asleep_bytes - vmm__min(asleep_bytes, free_bytes));
    struct trim_request trim = {
        .bytes = short_bytes, .when = IDLE_FINISHED, .taker = job->pool, .leaves_sources = true
    };
    if (short_bytes > 0)
        (void)vmm__trim_idle(cache, &trim);
    (void)vmm__limbo_drain(&cache->vm, NULL);
}

/* Fails before any chunk wakes if a limit does not allow all of them. */
static vmm_status room_require(struct pool_sleep *job)
{
    struct vmm_cache *cache = job->cache;
    vmm__fair_lock(&cache->grow_lock);
    uint64_t bytes = asleep_bytes_locked(job);
    room_make_locked(job, bytes);
    vmm_status status = vmm__account_check(&cache->vm, &job->pool->account, bytes);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK)
        return VMM_OK;
    return vmm__error(status, "vmm_pool_wake: pool %s: %.400s", job->pool->name, vmm_last_error());
}

/* Prepares a wake. If a sleep has just failed, waits first for its copies: they may still read blocks that were freed
 * meanwhile. */
static vmm_status wake_prepare(struct pool_sleep *job)
{
    struct vmm_cache *cache = job->cache;
    vmm_status status = job->has_unfinished ? copies_wait(job) : VMM_OK;
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    status = chunks_list_locked(job);
    if (status == VMM_OK)
        vmm__pool_settle(job->pool);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK) {
        idle_drop(job);
        status = room_require(job);
    }
    bool has_backup = job->pool->backup != NULL && job->pool->backup->count > 0;
    bool clears = !has_backup && cache->zeroes;
    if (status != VMM_OK || (!has_backup && !clears))
        return status;
    job->copy.backup = job->pool->backup;
    job->copy.way = has_backup ? CHUNK_LOAD : CHUNK_CLEAR;
    return transfers_open(job);
}

vmm_status vmm__pool_wake(struct pool_sleep *job)
{
    uint64_t done = 0;
    vmm_status status = wake_prepare(job);
    if (status == VMM_OK)
        status = contents_wake(job, job->chunks.count, &done);
    vmm__headroom_look(job->cache);
    return status;
}

void vmm__pool_wake_end(struct pool_sleep *job)
{
    if (job->ends_asleep)
        vmm__pool_sleep_again(job);
    else
        pool_wake_finish(job);
}

/* ---- The end of a pool -------------------------------------------------------------------- */

/* A sleep or a wake that failed leaves chunks awake if the driver refused to wait for its copies. They may be under
 * way, from or to these chunks and the backup. */
static vmm_status copies_end_locked(const struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    const struct chunk *records = cache->vm.records;
    uint32_t id = pool->account.newest;
    VMM_ASSERT_HELD(&cache->grow_lock);
    while (id != 0 && records[id].is_asleep)
        id = records[id].older;
    if (id == 0 || !cache->transfers.is_open || vmm__driver_is_lost(cache->driver))
        return VMM_OK;
    return vmm__clock_stream_wait(&cache->clock, cache->transfers.stream);
}

/* Releases the chunks of a pool, even if graphs have used them: nothing can use what sleeps. */
static vmm_status chunks_end_locked(struct pool_sleep *job)
{
    struct pool *pool = job->pool;
    uint64_t uses = pool->uses;
    bool is_leaving = pool->is_leaving;
    pool->uses = 0;
    pool->is_leaving = false;
    vmm_status status = copies_end_locked(pool);
    if (status == VMM_OK)
        status = chunks_list_locked(job);
    if (status == VMM_OK)
        job->chunks.count = chunks_shrink_locked(job, 0, job->chunks.count, 0);
    if (status == VMM_OK && job->chunks.count > 0)
        status = vmm__error(VMM_ERR_HOST_OOM, "pool %s: no host memory to release its chunks",
                            pool->name);
    pool->uses = uses;
    pool->is_leaving = is_leaving;
    return status;
}

vmm_status vmm__pool_sleep_release_locked(struct pool *pool)
{
    struct pool_sleep job = { .cache = pool->cache, .pool = pool };
    vmm__pool_settle(pool);
    vmm__pool_counters_flush(pool);
    if (vmm__stat_now(&pool->totals.active_bytes) > 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "pool %s sleeps, and freed blocks of it wait for streams: vmm_wait()",
                          pool->name);
    vmm_status status = chunks_end_locked(&job);
    vmm__pool_sleep_free(&job);
    return status;
}
