/*
 * Creates and destroys the pools of a cache, the default one with it. See vmm_pool_create().
 *
 * Owns: nothing. May be called by: grow, api. Locks: each function takes the grow lock, except init and fini, which a
 * thread calls before or after all others use the cache, and close, after which only the library's thread still polls.
 */
#ifndef VMM_CACHE_POOL_LIFE_H
#define VMM_CACHE_POOL_LIFE_H

#include "cache/cache.h"

/* Opens the default pool of a cache. ERR_HOST_OOM. */
vmm_status vmm__pools_init(struct vmm_cache *cache);

/* Frees all pools; their lanes are closed. */
void vmm__pools_fini(struct vmm_cache *cache);

/* Closes the handles of all pools, so that nothing finds them any longer. */
void vmm__pools_close(struct vmm_cache *cache);

/* See vmm_pool_create(), vmm_pool_find() and vmm_pool_destroy(). */
vmm_status vmm__pool_create(struct vmm_cache *cache, const vmm_pool_options *options,
                            vmm_pool **out);
vmm_pool *vmm__pool_find(struct vmm_cache *cache, vmm_pool_id id);
vmm_status vmm__pool_destroy(struct pool *pool, bool adopts);

/* For a pool with a source: makes the checks of its destruction, and ends the pool's own use, so that its memory can be
 * released. If vmm__pool_destroy() then fails, the use begins again. */
vmm_status vmm__pool_unretain(struct pool *pool);

#endif
