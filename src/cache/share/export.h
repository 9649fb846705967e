/*
 * Exports: blocks of a cache that other processes may use. See vmm_share_export().
 *
 * An exported block does not move, and after its free it waits until the last share of it is closed: its lane
 * gives it to no other request meanwhile. Importers map whole chunks. Each block of a shareable pool has chunks of its
 * own, so they see no other block; in a shareable cache they do.
 *
 * Owns: cache->exports, and what stands for chunks (chunk->exported). Invariants:
 *  1. a block of the cache is marked as exported exactly if a share in the map names it;
 *  2. a chunk has `exported` only while a block over it is exported: the shares of these blocks use it together.
 * May be called by: debug, api. Locks: the functions take the grow lock and a lane's, except where stated.
 */
#ifndef VMM_CACHE_SHARE_EXPORT_H
#define VMM_CACHE_SHARE_EXPORT_H

#include "cache/cache.h"
#include "cache/share/share.h"

/* Exports the live block at an address. `offset` of its bytes precede the program's block, which has `bytes`; 0: all
 * that were requested. */
vmm_status vmm__export(struct vmm_cache *cache, uint64_t address, uint64_t offset, uint64_t bytes,
                       struct share **out);

/* Ends an export, and closes its share. */
void vmm__export_end(struct share *share);

/* Whether a share names the block at an address. The caller holds the grow lock. */
bool vmm__export_has_locked(const struct vmm_cache *cache, uint64_t address);

/* The cache is about to end: its shares keep only the records of their chunks. No other call on the cache is under
 * way. */
void vmm__exports_leave(struct vmm_cache *cache);

#endif
