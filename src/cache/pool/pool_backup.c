/* The backups of pools: see pool_backup.h. */
#include "cache/pool/pool_backup.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/pool/backup.h"
#include "lane/block_ref.h"

/* Whether a live block of the pool contains an address. */
static bool is_live(const struct pool *pool, uint64_t address)
{
    const struct vmm_cache *cache = pool->cache;
    struct block_ref ref;
    struct heap *heap = vmm__cache_heap_of(cache, address);
    if (heap == NULL || heap->lane->owner.pool != pool)
        return false;
    vmm__lane_lock(heap->lane);
    bool lives = vmm__block_ref_around(heap, address, &ref) && vmm__block_ref_is_live(&ref);
    vmm__lane_unlock(heap->lane);
    return lives;
}

/* Whether a wake restores an entry. After a sleep that failed halfway, memory that was not released keeps its contents,
 * which the backup may not have. */
static bool has_slept(const struct vm *vm, const struct backup_entry *entry)
{
    uint64_t at = vmm__arena_granule(&vm->arena, entry->address);
    uint64_t end = vmm__arena_granule(&vm->arena, entry->address + entry->bytes - 1);
    bool is_whole = true;
    while (at <= end && is_whole) {
        const struct chunk *chunk = vmm__vm_chunk(vm, at);
        is_whole = chunk->has_slept;
        at = vmm__chunk_mapping(vm, chunk, at) + chunk->granules;
    }
    return is_whole;
}

static vmm_status find_locked(struct pool *pool, uint64_t address, void **host)
{
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    if (pool->phase != VMM_POOL_ASLEEP)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_backup_find: pool %s is not asleep",
                          pool->name);
    const struct backup_entry *entry =
        pool->backup == NULL ? NULL : vmm__backup_find(pool->backup, address);
    if (entry == NULL || !is_live(pool, address) || !has_slept(&pool->cache->vm, entry))
        return VMM__NOT_FOUND;
    *host = pool->backup->memory + entry->offset + (address - entry->address);
    return VMM_OK;
}

vmm_status vmm__pool_backup_find(struct pool *pool, uint64_t address, void **host)
{
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    return find_locked(pool, address, host);
}

static vmm_status take_locked(struct pool *pool, struct backup **out)
{
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    if (pool->phase != VMM_POOL_AWAKE)
        return vmm__error(VMM_ERR_ASLEEP, "vmm_backup_drop: pool %s needs its backup to wake",
                          pool->name);
    *out = pool->backup;
    pool->backup = NULL;
    return VMM_OK;
}

static void backup_keep(struct vmm_cache *cache, struct backup *backup)
{
    backup->next = cache->kept_backups;
    cache->kept_backups = backup;
}

/* Returns a backup that the driver refused to unpin. If the pool has slept meanwhile, the cache keeps it: while a pool
 * is not awake, only the call that changes its phase uses pool->backup. */
static void return_locked(struct pool *pool, struct backup *backup)
{
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    if (pool->phase == VMM_POOL_AWAKE && pool->backup == NULL)
        pool->backup = backup;
    else
        backup_keep(pool->cache, backup);
}

/* Unpins without the lock, because that takes long. */
vmm_status vmm__pool_backup_drop(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    struct backup *backup = NULL;
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = take_locked(pool, &backup);
    vmm__fair_unlock(&cache->grow_lock);
    if (backup == NULL)
        return status;
    status = vmm__backup_drop(backup, cache->driver);
    if (status == VMM_OK) {
        vmm__host_free(backup, sizeof *backup);
        return VMM_OK;
    }
    vmm__fair_lock(&cache->grow_lock);
    return_locked(pool, backup);
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}

/* The line of an earlier failure stays. */
static void drop_quietly(struct vmm_cache *cache, struct backup *backup)
{
    VMM_QUIET();
    (void)vmm__backup_drop(backup, cache->driver);
}

struct backup *vmm__pool_backup_leave(struct pool *pool)
{
    struct backup *backup = pool->backup;
    pool->backup = NULL;
    return backup;
}

void vmm__pool_backup_end(struct vmm_cache *cache, struct backup *backup)
{
    if (backup == NULL)
        return;
    drop_quietly(cache, backup);
    if (backup->memory == NULL) {
        vmm__host_free(backup, sizeof *backup);
        return;
    }
    VMM_HOLD_FAIR(&cache->grow_lock);
    backup_keep(cache, backup);
}

void vmm__pool_backups_fini(struct vmm_cache *cache)
{
    while (cache->kept_backups != NULL) {
        struct backup *backup = cache->kept_backups;
        cache->kept_backups = backup->next;
        drop_quietly(cache, backup);
        if (backup->memory != NULL) /* still pinned: the address must not be used again */
            vmm__host_table_abandon(backup->bytes);
        vmm__host_free(backup, sizeof *backup);
    }
}

uint64_t vmm__pool_backup_bytes(const struct vmm_cache *cache)
{
    uint64_t bytes = cache->pool.backup == NULL ? 0 : cache->pool.backup->bytes;
    for (const struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        bytes += pool->backup == NULL ? 0 : pool->backup->bytes;
    return bytes;
}
