/*
 * Publishes the statistics of the process's caches for vmmtop: VMM_MONITOR. A thread of the library reads them twice a
 * second and writes them to the segment (monitor/segment.h).
 *
 * The thread takes neither the grow lock nor a lane's, so the figures are right also while a request waits for the
 * device. A call waits for the thread only where it creates or destroys a cache, or adds a pool to the list or removes
 * one, which a poll or a refill may do after the pool was destroyed; for microseconds. A figure that is read while it
 * changes may be off until the next time. The fast path does not know of any of this.
 *
 * Owns: the segment, the thread and the list of published caches. Invariants:
 *  1. the segment and the thread exist while there is a published cache;
 *  2. a child of fork() has no published caches of its parent.
 * May be called by: api. Locks: its own. One orders calls; the other guards the list and the segment, and the lock of a
 * cache's list of pools is taken inside.
 */
#ifndef VMM_API_MONITOR_H
#define VMM_API_MONITOR_H

#include "cache/cache.h"
#include "monitor/format.h"

/* Publishes a cache if VMM_MONITOR asks for it. ERR_INVALID_ARGUMENT: the segment cannot be made; ERR_HOST_OOM. */
vmm_status vmm__monitor_environment(struct vmm_cache *cache);

/* Checks VMM_MONITOR, without a cache. ERR_INVALID_ARGUMENT. */
vmm_status vmm__monitor_check(void);

/* Stops publishing a cache, before anything of it is destroyed. */
void vmm__monitor_end(struct vmm_cache *cache);

/* Writes the records of a cache, of up to `room` bytes. Returns their end; NULL: not even the first fits. */
char *vmm__monitor_read(struct vmm_cache *cache, char *at, size_t room);

#endif
