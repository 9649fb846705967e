/*
 * The lanes of closed and stale streams. See vmm_stream_end().
 *
 * vmm_stream_end() closes a stream. Its lane keeps its blocks and is detached: requests of no stream use it. Other
 * streams may use its free memory once the stream's last event has passed. The lane is then reused: by a new stream
 * with the same handle, which waits for that event on the device; or by any new stream, once the event has passed and
 * the lane has no memory. So, except for lanes with memory, there are never more lanes than streams existed at once.
 *
 * A stream that the program destroyed without vmm_stream_end() is stale from the moment that the driver rejects its
 * handle (vm/timeline.h). Its lane is reused, too, once it has no memory and no record refers to its timeline. Whenever
 * a new stream needs a lane, the cache checks a few vacant ones for this. Until then the lane is a small record.
 *
 * Invariants:
 *  1. a lane that is not pooled is detached exactly while its timeline has ended.
 * Owns: nothing. May be called by: cache, api. Locks: the caller holds the grow lock, except where said.
 */
#ifndef VMM_CACHE_STREAMS_H
#define VMM_CACHE_STREAMS_H

#include "cache/cache.h"

/* Handles with a meaning of their own in CUDA. */
#define STREAM_LEGACY     ((vmm_stream)(uintptr_t)1) /* CU_STREAM_LEGACY: the default stream */
#define STREAM_PER_THREAD ((vmm_stream)(uintptr_t)2) /* CU_STREAM_PER_THREAD */

/* Replaces the legacy stream's handle by that of the default stream. ERR_INVALID_ARGUMENT for the per-thread default
 * stream, which is a different stream on each thread. Needs no lock. */
vmm_status vmm__stream_resolve(const char *function, vmm_stream *stream);

/* See vmm_stream_end(). VMM__PENDING if the stream is being captured or, with *is_stale set, if it is stale. Takes the
 * grow lock. */
vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream, bool *is_stale);

/* Reuses the lane of a closed or stale stream for a stream that has none. False if there is none to reuse. */
bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct lane **out);

/* Whether a lane of lanes.pooled may serve requests of a stream. If the lane's own stream was closed, its work must
 * have finished, and the lane resumes for the other one; it has no memory, unless both have the same handle. */
bool vmm__stream_serves(struct lanes *lanes, struct lane *lane, vmm_stream stream);

/* Waits for the device on behalf of a stale stream's lane. VMM__PENDING if a capture forbids the wait: `has_capture`,
 * or one that a route to a graph pool announced. Takes the grow lock, but not while it waits. */
vmm_status vmm__stream_wait_stale(struct vmm_cache *cache, struct lane *lane, bool has_capture);

/* The same for all stale streams at once. The caller holds the grow lock, also during the wait. VMM__NOTHING if no
 * stream of the pool, or with NULL of any, is stale, or a capture forbids the wait. */
vmm_status vmm__streams_wait_stale_locked(struct vmm_cache *cache, const struct pool *pool);

#endif
