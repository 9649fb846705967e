/*
 * Private pools: memory of captured graphs. See vmm_pool_begin().
 *
 * A private pool is a name and a number of uses; its memory is in pools of the cache, one for each stream that
 * allocated while a capture for it was under way. Those are held until its last use has ended and the
 * device has finished: nothing of them goes to anybody else, moves or goes back. Then they lose their name and
 * are pools like others, which no stream finds; a later capture on the same stream takes one that is
 * empty.
 *
 * Owns: the names and the captures. Invariants:
 *  1. each private pool has uses, or is leaving;
 *  2. a capture is of a private pool that has uses, and there is at most one of each;
 *  3. a pool is held exactly as long as there is a private pool of its id.
 * May be called by: policy, entry.
 * Locks: the grow lock guards the names; captures change under it and `lock`, and are read under
 * `lock`, a leaf but for the filters.
 */
#ifndef VMM_POLICY_PRIVATES_H
#define VMM_POLICY_PRIVATES_H

#include "base/lock.h"
#include "heap/pools.h"

struct vmm_cache;

struct private_pool {
    struct private_pool *next;
    vmm_pool_id id;
    uint64_t uses;
    bool is_leaving; /* its last use has ended, and the device may not have finished */
};

struct capture {
    struct capture *next;
    vmm_pool_id id;
    vmm_pool_filter filter; /* NULL: every stream */
    void *context;
};

struct privates {
    struct private_pool *pools;
    struct lock lock;
    struct capture *captures; /* the one that was begun last is first */
};

void vmm__privates_init(struct privates *privates);
void vmm__privates_fini(struct privates *privates);

/* Whether a capture is under way that a wait for the device would break: one that began, or of any stream
 * that has a pool. The caller holds the grow lock, or nobody else calls. */
bool vmm__privates_capture(const struct vmm_cache *cache);

/* Waits for the work of the device that may touch the cache's memory; while captures are under way for
 * that of the streams that are not captured. The last call before the end. */
vmm_status vmm__privates_work_wait(struct vmm_cache *cache);

/* See vmm_pool_begin(), vmm_pool_end(), vmm_pool_release(). VMM_NOT_READY: the id is not of a kind that the
 * call wants. They take the grow lock. */
vmm_status vmm__private_begin(struct vmm_cache *cache, const struct capture *capture);
vmm_status vmm__private_end(struct vmm_cache *cache, vmm_pool_id id);
vmm_status vmm__private_release(struct vmm_cache *cache, vmm_pool_id id);

/* See vmm_wait(): as the host waits anyway, what released private pools hold goes as well. Takes the grow lock. */
vmm_status vmm__private_wait(struct vmm_cache *cache);

/* The pool for a request of a stream while captures are under way: of a private pool, or the
 * stream's own. Takes the grow lock. */
vmm_status vmm__private_pool(struct vmm_cache *cache, vmm_stream stream, struct pool **out);

/*
 * Lets go of what leaving private pools hold, unless a capture forbids to wait for the device; waits for it.
 * VMM_NOT_READY if there was nothing to let go. The caller holds the grow lock and no pool's.
 */
vmm_status vmm__privates_leave_locked(struct vmm_cache *cache);

/* Bytes that are free in pools that are held: not active, and of no use to anybody else. The caller holds
 * the grow lock and no pool's. */
uint64_t vmm__privates_kept_bytes(struct vmm_cache *cache);

#endif
