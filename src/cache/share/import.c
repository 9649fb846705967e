/* Imports memory of other caches: see import.h. */
#include "cache/share/import.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/idle/idle_scan.h"
#include "cache/pool/pools.h"
#include "cache/streams.h"

#include <string.h>

/* ---- Life ---------------------------------------------------------------------------------- */

vmm_status vmm__import_open(struct vmm_cache *cache)
{
    struct pool *pool = &cache->imports;
    vmm_status status = vmm__lane_table_init(&pool->table, POOL_TABLE_BITS);
    if (status != VMM_OK)
        return status;
    pool->cache = cache;
    pool->uses = 1;
    (void)snprintf(pool->name, sizeof pool->name, "imports");
    pool->account.name = pool->name;
    pool->account.is_imported = true;
    vmm__account_add(&cache->vm, &pool->account);
    return VMM_OK;
}

void vmm__import_close(struct vmm_cache *cache)
{
    vmm__lane_table_fini(&cache->imports.table);
}

bool vmm__import_owns(const struct vmm_cache *cache, uint64_t address)
{
    const struct heap *heap = vmm__cache_heap_of(cache, address);
    return heap != NULL && heap->lane->owner.is_imported;
}

/* ---- Release ------------------------------------------------------------------------------- */

static void lane_release(struct vmm_cache *cache, struct lane *lane)
{
    vmm__lane_lock(lane);
    (void)vmm__lane_poll_locked(lane, UINT32_MAX);
    vmm__idle_discard_heap(cache, &lane->large);
    vmm__lane_unlock(lane);
}

/* Puts imported memory that was freed into limbo. */
static void release_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    VMM_QUIET();
    atomic_store_explicit(&cache->has_freed_imports, false, memory_order_relaxed);
    for (struct lane *lane = cache->imports.lanes; lane != NULL; lane = lane->next_of_pool) {
        if (vmm__lane_has_memory(lane))
            lane_release(cache, lane);
    }
    vmm__cache_lanes_vacate(cache);
}

/* The same, and unmaps what no work uses. */
static void unmap_locked(struct vmm_cache *cache)
{
    release_locked(cache);
    vmm__limbo_drain_quietly(&cache->vm);
}

void vmm__import_release(struct vmm_cache *cache)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    release_locked(cache);
}

void vmm__import_poll(struct vmm_cache *cache)
{
    if (!vmm__fair_try_lock(&cache->grow_lock))
        return;
    unmap_locked(cache);
    vmm__fair_unlock(&cache->grow_lock);
}

/* ---- Import -------------------------------------------------------------------------------- */

/* Refuses sizes that this device cannot map. A forged message may contain any. */
static vmm_status sizes_check(const struct vmm_cache *cache, const struct share *share)
{
    uint64_t granule_bytes = cache->vm.arena.granule_bytes;
    if (vmm__share_memory_bytes(share) > cache->vm.arena.limit_bytes)
        return vmm__error(VMM_ERR_ADDRESS_SPACE,
                          "vmm_share_import: %llu bytes are more than the arena has",
                          (unsigned long long)vmm__share_memory_bytes(share));
    for (uint32_t i = 0; i < share->head.count; i++) {
        if (!vmm__is_aligned(share->chunks[i].bytes, granule_bytes))
            return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                              "vmm_share_import: chunk %u has %llu bytes, which this device "
                              "cannot map: its granules have %llu",
                              i, (unsigned long long)share->chunks[i].bytes,
                              (unsigned long long)granule_bytes);
    }
    return VMM_OK;
}

/* Names the device that has the memory, if that explains the failure. */
static vmm_status import_refuse(const struct vmm_cache *cache, const struct share *share,
                                vmm_status status)
{
    const unsigned char *uuid = share->head.uuid;
    if (memcmp(uuid, cache->driver->uuid, DRIVER_UUID_BYTES) == 0)
        return status;
    return vmm__error(status,
                      "vmm_share_import: the memory is on another device (uuid %02x%02x%02x%02x"
                      "...) than this cache: %.280s",
                      uuid[0], uuid[1], uuid[2], uuid[3], vmm_last_error());
}

/* Maps the chunks of a share at new addresses. */
static vmm_status share_map(struct vmm_cache *cache, const struct share *share, uint64_t *granule)
{
    struct vm *vm = &cache->vm;
    uint64_t count = vmm__share_memory_bytes(share) >> vm->arena.granule_shift;
    /* a row has a free granule on either side, so it joins no other extent, and may be larger than the device */
    vmm_status status = vmm__arena_find_row(&vm->arena, count, granule);
    if (status != VMM_OK)
        return status;
    vmm__arena_take(&vm->arena, *granule, count);
    status =
        vmm__vm_import(vm, &cache->imports.account, *granule, share->chunks, share->head.count);
    if (status != VMM_OK)
        return import_refuse(cache, share, status);
    status = vmm__vm_access(vm, *granule, count);
    if (status != VMM_OK)
        vmm__vm_discard(vm, *granule, count, NULL, 0);
    return status;
}

/* Makes mapped granules one live block of a lane. */
static vmm_status block_make(struct vmm_cache *cache, const struct share *share, struct lane *lane,
                             uint64_t granule, void **out)
{
    struct vm *vm = &cache->vm;
    struct heap *heap = &lane->large;
    uint64_t address = vmm__arena_address(&vm->arena, granule);
    uint64_t bytes = vmm__share_memory_bytes(share);
    vmm__lane_lock(lane);
    vmm_status status = vmm__heap_attach(heap, address, bytes, vmm__clock_now(lane->clock));
    bool is_attached = status == VMM_OK;
    if (is_attached) { /* not before: a lane without memory would stay stocked */
        vmm__lanes_touch(&cache->lanes, lane);
        status = vmm__lane_take_block_locked(lane, vmm__heap_find(heap, address),
                                             share->head.offset, share->head.bytes, out);
    }
    vmm__lane_unlock(lane);
    if (!is_attached)
        vmm__vm_discard(vm, granule, bytes >> vm->arena.granule_shift, NULL, 0);
    return status;
}

/* Addresses that were freed are used again at once; after a failure nothing stays mapped. */
static vmm_status import_locked(struct vmm_cache *cache, const struct share *share,
                                struct lane *lane, void **out)
{
    uint64_t granule;
    unmap_locked(cache);
    vmm_status status = share_map(cache, share, &granule);
    if (status == VMM_OK)
        status = block_make(cache, share, lane, granule, out);
    if (status != VMM_OK)
        unmap_locked(cache);
    return status;
}

vmm_status vmm__import(struct vmm_cache *cache, const struct share *share, vmm_stream stream,
                       void **out)
{
    struct lane *lane;
    vmm_status status = sizes_check(cache, share);
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_share_import", &stream);
    if (status == VMM_OK)
        status = vmm__pool_lane(&cache->imports, stream, &lane);
    if (status != VMM_OK)
        return status;
    struct error_line line;
    vmm__error_save(&line);
    vmm__cache_lane_activate(cache, lane);
    vmm__fair_lock(&cache->grow_lock);
    status = import_locked(cache, share, lane, out);
    status = vmm__cache_checked(cache, CHECK_REFILL_EVERY, status);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        vmm__cache_log(cache, "import: %s", vmm_last_error());
    return vmm__error_end(&line, status);
}
