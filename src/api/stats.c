/* Reads the statistics of a cache: see internal.h and vmm_stats_get(). */
#include "api/internal.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/claim.h"
#include "cache/idle/idle_scan.h"
#include "cache/pool/backup.h"
#include "cache/pool/pool_backup.h"

#include <string.h>

static void heap_read(const struct vm *memory, const struct heap *heap, vmm_stats *stats)
{
    struct idle_sum sum = vmm__idle_sum(memory, heap);
    stats->largest_free_bytes = vmm__max(stats->largest_free_bytes, sum.largest_bytes);
    stats->idle_bytes += sum.idle_bytes;
    stats->pinned_bytes += sum.pinned_bytes;
}

/* The free memory of a retained pool counts neither as idle nor as pinned: it stays. */
static void lane_read(const struct vm *memory, const struct lane *lane, vmm_stats *stats)
{
    stats->occupied_bytes += lane->large.occupied_bytes;
    stats->unmovable_bytes += vmm__heap_unmovable(&lane->large) + vmm__heap_unmovable(&lane->small);
    if (vmm__pool_is_asleep(lane->owner.pool))
        return;
    uint64_t slab_bytes = vmm__slabs_free_bytes(&lane->slabs);
    if (vmm__lane_is_retained(lane)) {
        stats->retained_bytes += lane->large.free_bytes + lane->small.free_bytes + slab_bytes;
        return;
    }
    stats->pinned_bytes += slab_bytes; /* no slab is empty: the caller has drained the lane */
    heap_read(memory, &lane->large, stats);
    heap_read(memory, &lane->small, stats);
}

/* Reads the reserved blocks of a pool; NULL: of all. The memory of a freed one stays for its retained pool. */
static void reserves_read(const struct vmm_cache *cache, const struct pool *pool, vmm_stats *stats)
{
    for (const struct reserved *block = cache->reserves; block != NULL; block = block->next) {
        uint64_t bytes = block->committed_granules << cache->vm.arena.granule_shift;
        if (pool != NULL && pool != block->lane->owner.pool)
            continue;
        vmm__biased_lock(&block->lane->lock); /* vmm_pin() takes only that one */
        stats->unmovable_bytes += block->block.pins != 0 ? bytes : 0;
        vmm__biased_unlock(&block->lane->lock);
        bool is_there = !vmm__pool_is_asleep(block->lane->owner.pool);
        stats->retained_bytes += vmm__reserved_is_freed(block) && is_there ? bytes : 0;
    }
}

/* Reads the lanes of a pool, and flushes their counters; NULL: of all. */
static void lanes_read(struct vmm_cache *cache, const struct pool *pool, vmm_stats *stats)
{
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if ((pool != NULL && pool != lane->owner.pool) || lane->owner.is_imported)
            continue;
        vmm__lane_lock(lane);
        vmm__lane_counters_flush(lane);
        lane_read(&cache->vm, lane, stats);
        vmm__lane_unlock(lane);
    }
    reserves_read(cache, pool, stats);
    stats->free_bytes = stats->idle_bytes + stats->pinned_bytes + stats->retained_bytes;
    for (const struct lane *lane = cache->lanes.first; lane != NULL; lane = lane->next) {
        bool is_counted = pool == NULL || pool == lane->owner.pool;
        stats->streams += is_counted ? 1 : 0;
    }
}

/* ---- What is counted ------------------------------------------------------------------------ */

/* Where a cache or a pool counts each statistic of VMM_STAT_MAP: in its totals, or with its physical memory. */
#define WHERE_requested_bytes(totals, memory) (totals)->requested_bytes
#define WHERE_allocated_bytes(totals, memory) (totals)->allocated_bytes
#define WHERE_active_bytes(totals, memory)    (totals)->active_bytes
#define WHERE_allocations(totals, memory)     (totals)->allocations
#define WHERE_reserved_bytes(totals, memory)  (memory)->reserved_bytes
#define WHERE_chunks(totals, memory)          (memory)->chunks

static void counts_add(const struct counts *counts, vmm_stats *stats)
{
#define COUNT_ADD(name, ...) stats->name += vmm__count_read(&counts->name);
    VMM_VALUE_MAP(COUNT_ADD)
}

static void driver_read(const struct driver *driver, vmm_stats *stats)
{
    counts_add(&driver->counts, stats);
    stats->stream_waits = vmm__driver_calls(driver, DRIVER_CALL_stream_wait);
    stats->reserve_calls = vmm__driver_calls(driver, DRIVER_CALL_reserve);
    stats->address_free_calls = vmm__driver_calls(driver, DRIVER_CALL_address_free);
    stats->create_calls = vmm__driver_calls(driver, DRIVER_CALL_create);
    stats->map_calls = vmm__driver_calls(driver, DRIVER_CALL_map);
    stats->access_calls = vmm__driver_calls(driver, DRIVER_CALL_access);
    stats->unmap_calls = vmm__driver_calls(driver, DRIVER_CALL_unmap);
    stats->release_calls = vmm__driver_calls(driver, DRIVER_CALL_release);
    for (int call = DRIVER_CALL_event_create; call <= DRIVER_CALL_stream_wait; call++)
        stats->event_calls += vmm__driver_calls(driver, (enum driver_call)call);
}

/* Every allocation in a view takes a turn; those that needed a stitch found no view before. */
void vmm__stats_counted(const struct vmm_cache *cache, vmm_stats *out)
{
    uint64_t allocations = atomic_load_explicit(&cache->views.turn, memory_order_relaxed);
    out->struct_size = sizeof *out;
#define STAT_READ(name, ...) out->name = vmm__stat_read(&WHERE_##name(&cache->totals, &cache->vm));
    VMM_STAT_MAP(STAT_READ)
    counts_add(&cache->counts, out);
    counts_add(&cache->vm.counts, out);
    driver_read(cache->driver, out);
    out->view_hits = allocations - vmm__min(allocations, out->stitches);
    out->limit_bytes = cache->vm.limit_bytes;
    out->clock_kind = atomic_load_explicit(&cache->clock.kind, memory_order_relaxed);
    out->imported_bytes = vmm__stat_now(&cache->imports.account.reserved_bytes);
    out->host_bytes = vmm__host_record_bytes();
}

void vmm__pool_stats_counted(const struct pool *pool, vmm_stats *out)
{
    out->struct_size = sizeof *out;
#define POOL_READ(name, ...)                                                                       \
    out->name = vmm__stat_read(&WHERE_##name(&pool->totals, &pool->account));
    VMM_STAT_MAP(POOL_READ)
    counts_add(&pool->account.counts, out);
    out->limit_bytes = pool->account.limit_bytes;
}

/* ---- All ------------------------------------------------------------------------------------ */

void vmm__stats_read(struct vmm_cache *cache, vmm_stats *out)
{
    *out = (vmm_stats){ .struct_size = 0 };
    VMM_HOLD_FAIR(&cache->grow_lock);
    lanes_read(cache, NULL, out);
    vmm__stats_counted(cache, out);
    out->views = vmm__views_rows(&cache->views);
    out->backup_bytes = vmm__pool_backup_bytes(cache);
}

static void pool_stats_read(struct pool *pool, vmm_stats *out)
{
    *out = (vmm_stats){ .struct_size = 0 };
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    lanes_read(pool->cache, pool, out);
    vmm__pool_stats_counted(pool, out);
    out->backup_bytes = pool->backup == NULL ? 0 : pool->backup->bytes;
}

static vmm_status size_check(const char *function, size_t size)
{
    if (size >= sizeof size + sizeof(vmm_stat) && size <= STRUCT_BYTES_MOST)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "%s: struct_size is %zu; set it to sizeof(vmm_stats)", function, size);
}

/* Writes the statistics that the caller knows. */
static void stats_copy(const vmm_stats *stats, vmm_stats *out)
{
    size_t size = out->struct_size;
    memcpy(out, stats, vmm__min(size, sizeof *stats));
    out->struct_size = size;
}

vmm_status vmm_stats_get(vmm_cache *cache, vmm_stats *out)
{
    vmm_stats stats;
    vmm_status status = vmm__api_admit(cache, "vmm_stats_get", out, "out");
    if (status == VMM_OK)
        status = size_check("vmm_stats_get", out->struct_size);
    if (status != VMM_OK)
        return status;
    vmm__stats_read(cache, &stats);
    stats_copy(&stats, out);
    return VMM_OK;
}

vmm_status vmm_pool_stats_get(vmm_pool *handle, vmm_stats *out)
{
    vmm_stats stats;
    struct pool *pool;
    vmm_status status = vmm__api_pool(handle, "vmm_pool_stats_get", out, "out", &pool);
    if (status == VMM_OK)
        status = size_check("vmm_pool_stats_get", out->struct_size);
    if (status != VMM_OK)
        return status;
    pool_stats_read(pool, &stats);
    stats_copy(&stats, out);
    return VMM_OK;
}

static void pool_peaks_reset(struct pool *pool)
{
#define POOL_RESET_PEAK(name, ...)                                                                 \
    vmm__stat_reset_peak(&WHERE_##name(&pool->totals, &pool->account));
    VMM_STAT_MAP(POOL_RESET_PEAK)
}

vmm_status vmm_stats_reset_peak(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_stats_reset_peak");
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__lanes_counters_flush(&cache->lanes, NULL);
#define STAT_RESET_PEAK(name, ...) vmm__stat_reset_peak(&WHERE_##name(&cache->totals, &cache->vm));
    VMM_STAT_MAP(STAT_RESET_PEAK)
    pool_peaks_reset(&cache->pool);
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        pool_peaks_reset(pool);
    return VMM_OK;
}

const vmm_stat_description *vmm_stat_describe(unsigned number)
{
    enum { OF_CACHE = 0, OF_POOL = 1 };
#define DESCRIPTION(name, unit, kind, of, label, text)                                             \
    { #name, VMM_UNIT_##unit, VMM_STAT_##kind, OF_##of, offsetof(vmm_stats, name), label, text },
    static const vmm_stat_description descriptions[] = { VMM_STAT_MAP(DESCRIPTION)
                                                             VMM_VALUE_MAP(DESCRIPTION) };
    return number < sizeof descriptions / sizeof *descriptions ? &descriptions[number] : NULL;
}

vmm_status vmm_device_memory(vmm_cache *cache, uint64_t *free_bytes, uint64_t *total_bytes)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_device_memory");
    if (status != VMM_OK)
        return status;
    if (free_bytes == NULL || total_bytes == NULL)
        return vmm__cache_missing("vmm_device_memory",
                                  free_bytes == NULL ? "free_bytes" : "total_bytes");
    uint64_t free_now;
    uint64_t total_now;
    status = vmm__driver_memory_info(cache->driver, &free_now, &total_now);
    if (status == VMM_OK) {
        *free_bytes = free_now;
        *total_bytes = total_now;
    }
    return status;
}
