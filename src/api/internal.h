/*
 * Shared by the files of the public functions:
 *
 *   lifecycle.c     vmm_create(), vmm_destroy()
 *   config.c        the configuration, from the program and the environment
 *   limit.c         VMM_LIMIT and the limit of MPS
 *   environment.c   misspelt environment variables; the list of those that exist
 *   alloc.c         allocate, free, trim, compact, wait; the listener, the log
 *   grow.c          alignment, reserved blocks, resizes
 *   find.c          the block at an address
 *   waits.c         freed blocks that other streams still use
 *   pool.c          pools
 *   sleep.c         sleep and wake
 *   peers.c         devices that get access
 *   share.c         shares
 *   parts.c         the physical parts of a block, and descriptors of them
 *   debug.c         debug mode
 *   stats.c         statistics
 *   summary.c       a table of them
 *   monitor.c       VMM_MONITOR
 *   monitor_read.c  what it publishes
 *   neighbours.c    other processes on the device
 *   walk.c          chunks and blocks
 *   leaks.c         the blocks that are live at the end
 *   trace.c         starts and stops recordings
 *   record.c        calls that are recorded
 *
 * Owns: nothing. May be called by: api. Locks: the functions take the locks that they need, up to the grow lock and the
 * lanes', except where stated.
 */
#ifndef VMM_API_INTERNAL_H
#define VMM_API_INTERNAL_H

#include "cache/api_call.h"
#include "cache/cache.h"
#include "cache/reserve/reserve.h"

struct block_ref;

/* Where the program called a public function, and the call that the function hands down. Only in the body of a public
 * function: in a helper they name a place of the library. */
#define API_CALLER __builtin_return_address(0)
#define API_CALL(of, name)                                                                         \
    ((struct api_call){ .cache = (of), .function = (name), .caller = API_CALLER })

/* See vmm__cache_admit(). Also refuses an argument that is NULL. */
static inline vmm_status vmm__api_admit(const vmm_cache *cache, const char *function,
                                        const void *argument, const char *name)
{
    vmm_status status = vmm__cache_admit(cache, function);
    return status == VMM_OK && argument == NULL ? vmm__cache_missing(function, name) : status;
}

/* The same for a call that needs the device. */
static inline vmm_status vmm__api_admit_work(const vmm_cache *cache, const char *function,
                                             const void *argument, const char *name)
{
    vmm_status status = vmm__api_admit(cache, function, argument, name);
    return status == VMM_OK ? vmm__cache_admit_work(cache, function) : status;
}

/* As the two above, for calls that name a pool. *out is NULL if there is no such pool. */
vmm_status vmm__api_pool(vmm_pool *handle, const char *function, const void *argument,
                         const char *name, struct pool **out);
vmm_status vmm__api_pool_work(vmm_pool *handle, const char *function, const void *argument,
                              const char *name, struct pool **out);

/* The error for an address that no heap owns, nor a reserved block. */
vmm_status vmm__api_unknown_pointer(vmm_cache *cache, const char *function, const void *ptr);

/* With no_caching, releases all idle memory. For calls after which there may be some: a free, a resize, the end of a
 * use of a pool, or of a share. If that fails, a later call retries. */
void vmm__api_trim_without_caching(vmm_cache *cache);

/* Logs environment variables that begin with VMM_ and that neither the library nor its tests and tools read. Only the
 * first cache of the process with a log does so. */
void vmm__environment_check(struct vmm_cache *cache);

/* Logs the number of live blocks, their bytes and the largest blocks. Logs nothing if no block is live. */
void vmm__leaks_log(struct vmm_cache *cache);

/* The item of a block or object of a heap, at its inner address (vm/vm.h). The caller holds the lane's lock. */
vmm_item vmm__block_item(const struct heap *heap, const struct block_ref *ref);

/* Reads the statistics. Flushes the lanes' counters, which can raise peaks; changes nothing else. */
void vmm__stats_read(struct vmm_cache *cache, vmm_stats *out);

/* Sets the statistics that are counted: all but those of VMM_STAT_SCAN and streams, without what lanes have not
 * flushed. Takes no lock. *out has zeros there. */
void vmm__stats_counted(const struct vmm_cache *cache, vmm_stats *out);
void vmm__pool_stats_counted(const struct pool *pool, vmm_stats *out);

/* vmm__walk() of the whole cache. The caller holds the grow lock and all lanes' locks. */
void vmm__walk_locked(struct vmm_cache *cache, vmm_visitor visit, void *context);

/* Does what vmm_walk() does, or vmm_pool_walk() for `only`, without their checks; works also during vmm_destroy(). */
void vmm__walk(struct vmm_cache *cache, const struct pool *only, vmm_visitor visit, void *context);

/* Whether calls do more than allocate and free: they are recorded, or debug mode or NVTX sees them. */
bool vmm__api_is_watched(const vmm_cache *cache);

/* vmm_alloc(), or vmm_alloc_from() where `pool` is not NULL, off the fast path. `caller`: the address it returns to. */
vmm_status vmm__api_alloc_slow(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                               vmm_stream stream, void **out, const void *caller);

/* Allocates a block for a call that may be watched. */
vmm_status vmm__api_alloc(const struct api_call *call, struct request *request, void **out);

/* vmm__api_alloc() when nothing is recorded, and while the call is recorded. */
vmm_status vmm__api_alloc_unrecorded(const struct api_call *call, struct request *request,
                                     void **out);
vmm_status vmm__recorded_alloc(struct recorder *recorder, const struct api_call *call,
                               struct request *request, void **out);

/* Frees in a lane that the calling thread can lock on the fast path, and records the free. VMM__NO_FIT if it cannot, or
 * if nothing is recorded. */
vmm_status vmm__recorded_free_fast(struct vmm_cache *cache, uint64_t address, bool *should_poll);

/* Record other calls. They do nothing if nothing is recorded. A failure is noted as `what` and the error line. */
void vmm__record_new_block(const struct api_call *call, const struct request *request,
                           const void *block);
void vmm__record_use(struct vmm_cache *cache, const void *block, vmm_stream stream);
void vmm__record_name(struct vmm_cache *cache, const void *block, const char *name);
void vmm__record_pool(struct vmm_cache *cache, vmm_pool *pool);
void vmm__record_failure(struct vmm_cache *cache, const char *what, vmm_status status);
void vmm__record_note(struct vmm_cache *cache, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Starts a recording if VMM_TRACE asks for it. ERR_INVALID_ARGUMENT, ERR_HOST_OOM. */
vmm_status vmm__trace_environment(struct vmm_cache *cache);

/* Ends the recording of a cache that is being destroyed. */
void vmm__trace_end(struct vmm_cache *cache);

#endif
