/*
 * Whether a stream is being captured. While one is, the cache does not wait for the device, because that would break
 * the capture.
 *
 * Owns: nothing. May be called by: cache, debug, api. Locks: the caller holds the grow lock, or no other thread uses
 * the cache.
 */
#ifndef VMM_CACHE_POOL_CAPTURE_H
#define VMM_CACHE_POOL_CAPTURE_H

#include "cache/cache.h"

/* Whether a wait for the device would break a capture: one that a route to a graph pool announced, or one of any stream
 * that has a lane. True also if the driver fails to say. */
bool vmm__capture_is_under_way(const struct vmm_cache *cache);

/* The same for a caller that reports driver errors: VMM__PENDING if there is such a capture, VMM_OK if not, or the
 * driver's error. */
vmm_status vmm__capture_query(const struct vmm_cache *cache);

/* Waits for the work of the device that may use the cache's memory; during a capture, only for the streams that are not
 * captured. For vmm_destroy(): the last wait before the cache is torn down. */
vmm_status vmm__capture_work_wait(struct vmm_cache *cache);

/* Records an event on every stream, because none can be recorded during a capture: memory that was freed before the
 * capture can then be reused in it. */
void vmm__capture_streams_record(struct vmm_cache *cache);

#endif
