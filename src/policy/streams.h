/*
 * Streams that end: what becomes of their pools. See vmm_stream_end().
 *
 * A pool whose stream has ended stays, with its blocks, and no stream finds it. Its free memory goes to others once the
 * stream's last mark has passed. Another stream takes it over: the one whose handle is the same, which is
 * made to wait for that mark; or any one, once the mark has passed and the pool is empty. So there are never more
 * pools than there were streams at once, but for those with blocks.
 *
 * A stream that was destroyed without a word is gone as soon as the driver says so: see timeline.h.
 *
 * Invariant: a pool that is not private is apart exactly as long as its timeline has ended.
 * May be called by: policy, entry. Locks: the grow lock, but where said.
 */
#ifndef VMM_POLICY_STREAMS_H
#define VMM_POLICY_STREAMS_H

#include "policy/cache.h"

/* See vmm_stream_end(). VMM_NOT_READY: the stream is being captured; or gone, and *is_gone. Takes the grow
 * lock. */
vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream, bool *is_gone);

/* Finds a pool for a stream that has none, among those whose streams have ended. */
bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct pool **out);

/* Whether a private pool may serve its stream's handle: it has not ended, or the work of the stream that had the
 * handle before has. */
bool vmm__stream_serves(struct pool *pool);

/* Waits for the device on behalf of a stream that is gone. VMM_NOT_READY if a capture forbids it. Takes the grow
 * lock, but not while it waits. */
vmm_status vmm__stream_outwait(struct vmm_cache *cache, struct pool *pool);

/* The same for all that are gone; holds the lock while it waits. VMM_NOT_READY if none is. */
vmm_status vmm__streams_outwait_locked(struct vmm_cache *cache);

#endif
