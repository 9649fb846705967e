/*
 * Compaction: live bytes move together under their own addresses, so that memory pinned by a few of
 * them goes back to the driver. Decides which chunks are re-backed (reback.h) and whether granules
 * are meshed (mesh.h); the cheapest memory first.
 *
 * The one thing in the library that touches live bytes, therefore bound to what vmm_compaction says in
 * the public header: it waits for all work of the device, and no other thread may submit work
 * meanwhile. Copies run on the default stream, timed by cache->copies.
 *
 * May be called by: ladder, trim. Locks: the grow lock, and the lock of the pool `held` if there is
 * one, which is dropped while the host waits; other pools' locks are taken inside.
 */
#ifndef VMM_POLICY_COMPACT_H
#define VMM_POLICY_COMPACT_H

#include "policy/cache.h"

/* Whether live bytes may be moved now, as far as the cache knows. */
bool vmm__compact_may(const struct vmm_cache *cache);

/* Whether all streams that the cache knows are idle. Does not wait. */
bool vmm__compact_is_quiet(struct vmm_cache *cache);

/*
 * Frees about `bytes` of memory, or as much as it can; idle memory goes, too. VMM_OK if any went back,
 * VMM_NOT_READY if none did (or it may not), else what stopped it; bytes freed before stay freed. When
 * there was nothing to gain and nothing has changed since, it is not tried again, so that requests
 * which fail in a loop do not wait for the device each time.
 */
vmm_status vmm__compact(struct vmm_cache *cache, struct pool *held, uint64_t bytes);

#endif
