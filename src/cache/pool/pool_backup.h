/*
 * The backups of the pools of a cache, from their last sleep until they are dropped.
 *
 * Owns: nothing; the call that puts a pool to sleep makes its backup (pool_sleep.h). May be called by: cache/pool, api.
 * Locks: the calls take the grow lock, except those where it says otherwise.
 */
#ifndef VMM_CACHE_POOL_POOL_BACKUP_H
#define VMM_CACHE_POOL_POOL_BACKUP_H

#include "lane/pool.h"

/* See vmm_backup_find(), vmm_backup_drop(). VMM__NOT_FOUND: no entry. */
vmm_status vmm__pool_backup_find(struct pool *pool, uint64_t address, void **host);
vmm_status vmm__pool_backup_drop(struct pool *pool);

/* Takes the backup from a pool that ends; NULL: it has none. The caller holds the grow lock, or ends the cache. */
struct backup *vmm__pool_backup_leave(struct pool *pool);

/* Gives such a backup back; NULL: does nothing. The cache keeps it if the driver refuses to unpin it:
 * vmm__pool_backups_fini() tries again at the end of the cache. */
void vmm__pool_backup_end(struct vmm_cache *cache, struct backup *backup);
void vmm__pool_backups_fini(struct vmm_cache *cache);

/* Bytes of all backups. The caller holds the grow lock. */
uint64_t vmm__pool_backup_bytes(const struct vmm_cache *cache);

#endif
