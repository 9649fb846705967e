/*
 * Shared by the files of the public functions:
 *
 *   environment.c  misspelt environment variables; the list of those that exist
 *   leaks.c        the blocks that are live at the end
 *   stats.c        statistics
 *   walk.c         chunks and blocks
 *
 * Locks: the functions take the grow lock and the lanes' locks, except vmm__environment_check(), which takes none.
 */
#ifndef VMM_API_INTERNAL_H
#define VMM_API_INTERNAL_H

#include "cache/cache.h"

/* See vmm__cache_admit(). Also refuses an argument that is NULL. */
static inline vmm_status vmm__api_admit(const vmm_cache *cache, const char *function,
                                        const void *argument, const char *name)
{
    vmm_status status = vmm__cache_admit(cache, function);
    return status == VMM_OK && argument == NULL ? vmm__cache_missing(function, name) : status;
}

/* The same for a call that names a pool. *out is NULL if there is no such pool. */
vmm_status vmm__api_pool(vmm_pool *handle, const char *function, const void *argument,
                         const char *name, struct pool **out);

/* Logs environment variables that begin with VMM_ and that neither the library nor its tests and tools read. Only the
 * first cache of the process with a log does so. */
void vmm__environment_check(struct vmm_cache *cache);

/* Logs the number of live blocks, their bytes and the largest blocks. Logs nothing if no block is live. */
void vmm__leaks_log(struct vmm_cache *cache);

/* The item of a reserved block. */
vmm_item vmm__reserved_item(struct vmm_cache *cache, const struct reserved *block);

/* Reads the statistics. Flushes the lanes' counters, which can raise peaks; changes nothing else. */
void vmm__stats_read(struct vmm_cache *cache, vmm_stats *out);

/* Does what vmm_walk() does, or vmm_pool_walk() for `only`, without their checks; works also during vmm_destroy(). */
void vmm__walk(struct vmm_cache *cache, const struct pool *only, vmm_visitor visit, void *context);

struct debug_call;

/* Allocates without the fast path, in the pool of the call. */
vmm_status vmm__api_alloc_slow(const struct debug_call *call, size_t bytes, vmm_stream stream,
                               void **out);

#endif
