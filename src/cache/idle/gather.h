/*
 * Gathers idle chunks: the requesting heap takes all of those of the pool's other streams, in place, with their places
 * in views. So while streams take turns, their idle memory is one heap's: its free blocks and runs are as long as if
 * the program had one stream, and what one stream's views have joined, the next one finds. A heap gives all of its idle
 * chunks, but those of its room (heap.h), or none: none while the work on one of them is unfinished, because a busy
 * stream reuses its own memory at once, and others must wait for it. Makes no driver calls except for events.
 *
 * Streams take turns while a gathering finds all work finished. Then a request of at least a chunk, as chunks would be
 * were no limit near, gathers before it uses its own lane's memory, if another lane may have idle memory: it so finds
 * what one stream's views have joined, and cuts no idle chunk while another stream's free memory fits better. A request
 * that a free block of the lane fits exactly has no such use for it. A gathering that finds unfinished work ends this:
 * requests gather when they miss, until one of these finds all work finished.
 *
 * Owns: nothing. May be called by: refill. Locks: the caller holds the grow lock and the requesting heap's lane lock;
 * takes the other lanes' locks.
 */
#ifndef VMM_CACHE_IDLE_GATHER_H
#define VMM_CACHE_IDLE_GATHER_H

#include "cache/idle/idle_scan.h"
#include "cache/request.h"

/* Whether the heap, a large one, got any chunk. Without host memory, or if the driver fails, chunks stay where they
 * are. Requests of at least `chunk_bytes` gather first from now on, if all work has finished. */
bool vmm__gather(struct vmm_cache *cache, const struct request *request, uint64_t chunk_bytes);

#endif
