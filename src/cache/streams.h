/*
 * The streams that a cache knows, and their lanes: those of the default pool are made here, and those of streams that
 * ended are closed and given to others. See vmm_stream_end().
 *
 * vmm_stream_end() closes a stream. Its lane keeps its blocks and is detached: requests of no stream use it. What is
 * free in it passes to others as all memory does, by the clock. Once the lane has no memory it goes to another stream.
 * So, except for lanes with memory, there are never more lanes than streams existed at once.
 *
 * A stream that the program destroyed without vmm_stream_end() keeps its lane, whose memory passes to others in the
 * same way, unless the clock joins events of streams: see vm/clock.h. The next stream with its handle gets the lane.
 *
 * Invariants:
 *  1. a lane that is not pooled is detached exactly while its stream has ended.
 * Owns: nothing. May be called by: cache, debug, api. Locks: the caller holds the grow lock, except where said.
 */
#ifndef VMM_CACHE_STREAMS_H
#define VMM_CACHE_STREAMS_H

#include "cache/cache.h"

/* Replaces the legacy stream's handle by that of the default stream. ERR_INVALID_ARGUMENT for the per-thread default
 * stream, which is a different stream on each thread. Needs no lock. */
vmm_status vmm__stream_resolve(const char *function, vmm_stream *stream);

/* What the clock asks for: see struct clock_watch. Needs no lock. */
struct clock_watch vmm__streams_watch(struct vmm_cache *cache);

/* See vmm_stream_end(). VMM__PENDING: its lane's own clock needs an event, and a capture of the stream is announced or
 * under way. On failure the stream is open, as before. Takes the grow lock. */
vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream);

/* Gives a stream that has no lane the lane of a stream that ended. False if each of these has memory. */
bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct lane **out);

/* Whether a lane of another pool than the default one may serve requests of a stream. If its own stream has ended, the
 * lane goes to the other one, once it has no blocks and all that was freed in it has passed. */
bool vmm__stream_serves(struct lanes *lanes, struct lane *lane, vmm_stream stream);

/* Ticks all clocks, so that what was freed until now can pass while a capture forbids further events. */
void vmm__streams_tick(struct vmm_cache *cache);

/* Creates a lane and adds it to no list yet. */
vmm_status vmm__stream_lane_open(struct vmm_cache *cache, struct pool *pool, vmm_stream stream,
                                 struct lane **out);

/* The stream's lane in the default pool; creates it on first use. Takes the grow lock if the stream has none. */
vmm_status vmm__stream_lane(struct vmm_cache *cache, vmm_stream stream, struct lane **out);

#endif
