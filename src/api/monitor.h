/*
 * Publishes the statistics of the process's caches for vmmtop: VMM_MONITOR. A thread of the library reads them twice a
 * second and writes them to the segment (monitor/segment.h).
 *
 * The thread never waits for a call of the program, and calls only wait for it in vmm_create(), vmm_destroy(),
 * vmm_pool_create() and vmm_pool_destroy(), for microseconds: it takes neither the grow lock nor a lane's. So the
 * figures are right also while a request waits for the device. A figure that is read while it changes may be off until
 * the next time. The fast path does not know of any of this.
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

/* Does what that does as far as it needs no cache: reads VMM_MONITOR. */
vmm_status vmm__monitor_check(void);

/* Ends that, before anything of the cache is destroyed. */
void vmm__monitor_end(struct vmm_cache *cache);

/* Writes the records of a cache, of up to `room` bytes. Returns their end; NULL: not even the first fits. */
char *vmm__monitor_read(struct vmm_cache *cache, char *at, size_t room);

#endif
