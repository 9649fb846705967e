/*
 * Imports: memory of other caches, of this process or another, mapped into this cache's arena. See vmm_share_import().
 *
 * Imported memory lies in lanes of a pool of its own, one for each stream, so that vmm_free(), vmm_record_stream(),
 * vmm_find() and vmm_walk() treat it as any block. The pool is retained: nothing moves its memory, releases it or gives
 * it to another lane. Only vmm__import_release() and vmm__import_poll() put what is free there into limbo.
 *
 * Owns: cache->imports, which no sum over all pools counts; imported_bytes is what its account has reserved. Invariant:
 *  1. imported memory is in lanes of this pool, which have no fast path and no other memory.
 * May be called by: alloc, debug, api. Locks: the grow lock, except where stated.
 */
#ifndef VMM_CACHE_SHARE_IMPORT_H
#define VMM_CACHE_SHARE_IMPORT_H

#include "cache/cache.h"
#include "cache/share/share.h"

/* Opens and closes the pool of a cache; its lanes are closed. ERR_HOST_OOM. */
vmm_status vmm__import_open(struct vmm_cache *cache);
void vmm__import_close(struct vmm_cache *cache);

/* Imports the memory of a share for use on `stream`. Takes the grow lock. */
vmm_status vmm__import(struct vmm_cache *cache, const struct share *share, vmm_stream stream,
                       void **out);

/* Puts imported memory that was freed into limbo: for a trim, which then drains limbo and counts what that releases.
 * vmm__import_poll() also unmaps what no work uses any longer, and only tries to take the grow lock. Cannot fail: a
 * later call continues. */
void vmm__import_release(struct vmm_cache *cache);
void vmm__import_poll(struct vmm_cache *cache);

/* Whether an address lies in imported memory. Needs no lock. */
bool vmm__import_owns(const struct vmm_cache *cache, uint64_t address);

#endif
