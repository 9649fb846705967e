/*
 * Graph pools: memory of captured graphs. See vmm_pool_begin().
 *
 * A graph pool is an id with a count of uses. Its memory is in lanes of the cache, one for each stream that allocated
 * during its captures. These lanes are in use until the last use is released and the device has finished: until then
 * their memory is not moved, released, or given to other streams. Afterwards they have no id and are detached: other
 * streams may use their free memory, and a later capture on the same stream may reuse one that has no memory.
 *
 * Owns: the ids and the captures. Invariants:
 *  1. each graph pool has uses, or is leaving;
 *  2. each capture belongs to a graph pool that has uses; each graph pool has at most one capture;
 *  3. a lane is in use exactly while there is a graph pool with its id.
 * May be called by: cache, api.
 * Locks: the grow lock guards the ids. Captures change under the grow lock and `lock`, and are read under either.
 * `lock` is a leaf, except that capture filters run under it.
 */
#ifndef VMM_CACHE_GRAPH_GRAPH_POOLS_H
#define VMM_CACHE_GRAPH_GRAPH_POOLS_H

#include "base/mutex.h"
#include "lane/lanes.h"

struct vmm_cache;

struct graph_pool {
    struct graph_pool *next;
    vmm_pool_id id;
    uint64_t uses;
    bool is_leaving; /* its last use is released, but the device may not have finished */
};

struct capture {
    struct capture *next;
    vmm_pool_id id;
    vmm_pool_filter filter; /* NULL: every stream */
    void *context;
};

struct graph_pools {
    struct graph_pool *pools;
    struct mutex lock;
    struct capture *captures; /* newest first */
};

void vmm__graph_pools_init(struct graph_pools *graph_pools);
void vmm__graph_pools_fini(struct graph_pools *graph_pools);

/* Whether a wait for the device would break a capture: one that vmm_pool_begin() announced, or one of any stream that
 * has a lane. True also if the driver fails to say. The caller holds the grow lock, or no other thread uses the cache. */
bool vmm__graph_pools_capture(const struct vmm_cache *cache);

/* The same for a caller that reports driver errors: VMM__PENDING if there is such a capture, VMM_OK if not, or the
 * driver's error. */
vmm_status vmm__graph_pools_capture_query(const struct vmm_cache *cache);

/* Waits for the work of the device that may use the cache's memory; during a capture, only for the streams that are not
 * captured. For vmm_destroy(): the last wait before the cache is torn down. */
vmm_status vmm__graph_pools_work_wait(struct vmm_cache *cache);

/* See vmm_pool_begin(), vmm_pool_end(), vmm_pool_release(). VMM__IN_USE: a capture with this id is in progress.
 * VMM__NOT_FOUND: no such capture, or no such graph pool. They take the grow lock. */
vmm_status vmm__graph_pool_begin(struct vmm_cache *cache, const struct capture *capture);
vmm_status vmm__graph_pool_end(struct vmm_cache *cache, vmm_pool_id id);
vmm_status vmm__graph_pool_release(struct vmm_cache *cache, vmm_pool_id id);

/* The whole of vmm_wait(). Because the host waits anyway, released graph pools leave as well. Takes the grow lock. */
vmm_status vmm__graph_pool_wait(struct vmm_cache *cache);

/* The lane for a request of a stream: that of a graph pool if a capture matches the stream, otherwise the stream's own.
 * Takes the grow lock. */
vmm_status vmm__graph_pool_choose(struct vmm_cache *cache, vmm_stream stream, struct lane **out);

/*
 * Waits for the device and makes the lanes of leaving graph pools available to all streams. VMM__NOTHING if no graph
 * pool is leaving or a capture forbids the wait. The caller holds the grow lock and no lane's.
 */
vmm_status vmm__graph_pools_leave_locked(struct vmm_cache *cache);

/* Free bytes of lanes in use by graphs: not active, and not available to other streams. The caller holds the grow lock
 * and no lane's. */
uint64_t vmm__graph_pools_retained_bytes(struct vmm_cache *cache);

#endif
