/*
 * The cache as policy sees it: everything below, and the settings that decide.
 *
 * Owns: memory, directory and pools; the driver if it opened it.
 * Lock order: grow_lock, then pools' locks (a second pool's only under grow_lock), then timelines'.
 * grow_lock guards memory, the adding of pools and every decision; the fast path never takes it, and
 * what is done in passing only tries it.
 * May be called by: policy, report, entry.
 */
#ifndef VMM_POLICY_CACHE_H
#define VMM_POLICY_CACHE_H

#include "base/error.h"
#include "base/fair.h"
#include "base/fork.h"
#include "base/thread.h"
#include "base/ticker.h"
#include "heap/pools.h"
#include "memory/memory.h"
#include "policy/decay.h"
#include "policy/privates.h"

struct marks; /* of the entry floor */
struct guard;

/* What others need of a guard. Reports, with any locks held, as they take none but a leaf of the guard's: */
struct guard_view {
    /* Makes the item of a block that is live or waits what the program knows of it; free, if that is nothing. */
    void (*show)(struct guard *guard, vmm_item *item);
    /* As vmm_block_bytes(), of bytes that the arena has. */
    uint64_t (*block_bytes)(const struct guard *guard, uint64_t bytes);
    /* And the ladder, without locks: gives the pools back what is in quarantine. Returns how many blocks ever were. */
    uint64_t (*give)(struct guard *guard);
};

struct vmm_cache {
    struct driver *driver;
    uint64_t generation; /* of the process that made it: see base/fork.h */
    struct lost_watch lost_watch;
    struct marks
        *marks; /* NULL: no tool is told of blocks; else nobody enters a pool the fast way */
    bool owns_driver;
    bool no_caching;
    bool is_fine;    /* chunks are small: see target.c; grow_lock guards it and the next */
    bool is_passing; /* the supply under way leaves alone what other threads use */
    uint32_t largest_chunk_granules; /* see grow.c */
    uint32_t footprint_permille;     /* of the peak of active bytes: see grow.c */
    vmm_sharing sharing;
    vmm_compaction compaction;
    vmm_log_fn log;
    void *log_context;
    vmm_pressure_fn pressure; /* NULL: none */
    void *pressure_context;
    FILE *log_file; /* opened for VMM_LOG; NULL if not */
    struct guard
        *guard; /* what stands between the program and handout; NULL: nothing. No pool is entered
                            then, all are visited, so the fast path never asks */
    const struct guard_view *guard_view;
    bool has_fences;     /* see fence.h; grow_lock guards the next */
    uint64_t fence_next; /* granule to look at first for a block that lies apart */

    struct fair_lock grow_lock;
    struct memory memory;
    struct directory directory;
    struct ledger ledger;
    struct pools pools;
    struct privates privates;
    /* The pool that was entered last; NULL: none was, or the ledger is shared. */
    _Atomic(struct pool *) turn;
    _Atomic bool has_detour;  /* no request enters its stream's pool the fast way: see handout.c */
    _Atomic bool has_callers; /* of more than one thread */
    bool order_stands;        /* of the last trim: see trim.h; grow_lock guards it */
    struct timeline copies;   /* of live bytes, on the default stream: see compact.h */
    uint64_t kept_bytes;      /* free in pools that are held; as of the supply under way */
    uint64_t supplies;        /* so far; grow_lock guards it and the one before */
    uint64_t slow_operations; /* counted for VMM_CHECK only */
    _Atomic uintptr_t caller; /* the thread that called first; 0: none has yet */
    uint64_t compacted_in_vain; /* when; see compact.c */
    _Atomic uint64_t unpins;
    _Atomic uint64_t compactions;
    struct decay decay;
    struct ticker ticker;      /* calls vmm__tick() if a thread of the library is to */
    uint64_t order_keep_bytes; /* of the last trim */
    _Atomic uint64_t retries;
    _Atomic uint64_t ooms;
    _Atomic uint64_t pressure_calls;
};

/*
 * Whether a public call may go on: ERR_INVALID_ARGUMENT if there is no cache, or none any more, or if the program
 * calls it from a function that it calls itself with locks held; ERR_FORKED for one of a parent process, of which
 * nothing may be touched. The second is for calls that are of no use once the device is lost: ERR_LOST then.
 */
vmm_status vmm__cache_admit(const struct vmm_cache *cache, const char *function);
vmm_status vmm__cache_admit_work(const struct vmm_cache *cache, const char *function);

/* The rest of what NULL may not be. */
vmm_status vmm__cache_missing(const char *function, const char *argument);

/* Writes one line to whoever listens. */
void vmm__cache_log(struct vmm_cache *cache, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Checks every numbered invariant; ERR_INTERNAL with the one that is broken. The caller holds the grow
 * lock and no pool's.
 */
vmm_status vmm__cache_check_locked(struct vmm_cache *cache);

/*
 * What VMM_CHECK, set when the library is built, makes of the end of a slow operation: 0 nothing; 1
 * checks after each trim; 2 also after every 16th supply; 3 after every one. A broken invariant turns
 * the operation's status into ERR_INTERNAL.
 */
#ifndef VMM_CHECK
#define VMM_CHECK 0
#endif
static inline vmm_status vmm__cache_checked(struct vmm_cache *cache, uint64_t every,
                                            vmm_status status)
{
    if (every == 0 || ++cache->slow_operations % every != 0)
        return status;
    vmm_status check = vmm__cache_check_locked(cache);
    return check == VMM_OK ? status : check;
}

/* Notes which thread calls: compaction wants to know whether there is more than one. */
static inline void vmm__cache_called(struct vmm_cache *cache)
{
    uintptr_t self = vmm__thread_self();
    uintptr_t caller = atomic_load_explicit(&cache->caller, memory_order_relaxed);
    if (caller == self)
        return;
    if (caller != 0 ||
        !atomic_compare_exchange_strong_explicit(&cache->caller, &caller, self,
                                                 memory_order_relaxed, memory_order_relaxed))
        atomic_store_explicit(&cache->has_callers, true, memory_order_relaxed);
}

/*
 * Whose turn it is changes, if it was not the pool's: posts the pool whose it was, so that the ledger
 * stays exact; or shares the ledger, if more than one thread calls. The caller holds no pool.
 */
void vmm__cache_turn(struct vmm_cache *cache, struct pool *pool);

/*
 * The two ways to enter a pool, to allocate or free in it. The fast one succeeds if the thread is the
 * favourite of the pool's lock and it is the pool's turn, or the ledger is shared.
 */
static inline bool vmm__cache_enter(struct vmm_cache *cache, struct pool *pool)
{
    bool has_turn = atomic_load_explicit(&cache->turn, memory_order_acquire) == pool ||
                    atomic_load_explicit(&pool->is_watched, memory_order_relaxed);
    return has_turn && vmm__biased_enter(&pool->lock);
}

void vmm__cache_visit(struct vmm_cache *cache, struct pool *pool);

/* Posts every pool; the caller has locked `held` (NULL: none). */
void vmm__cache_post(struct vmm_cache *cache, const struct pool *held);

/* Locks every pool but one that the caller has locked already (NULL: none); and back. */
void vmm__cache_pools_lock(struct vmm_cache *cache, const struct pool *held);
void vmm__cache_pools_lock_supplying(struct vmm_cache *cache, const struct pool *held);
void vmm__cache_pools_unlock(struct vmm_cache *cache, const struct pool *held);

/*
 * Makes the host wait for the copies of live bytes that were started. They must not be left under way,
 * also when what they were for has failed: they read and write memory that may be handed out next.
 */
vmm_status vmm__cache_copies_wait(struct vmm_cache *cache);

/* Makes the host wait for the work of all streams that are not being captured. Takes the grow lock, but not while it
 * waits. */
vmm_status vmm__cache_wait(struct vmm_cache *cache);

/* The bytes of the block that a request of so many gets. */
static inline uint64_t vmm__cache_block_bytes(const struct vmm_cache *cache, uint64_t bytes)
{
    uint64_t block_bytes = vmm__pool_place_bytes(bytes);
    return cache->no_caching ? vmm__align_up(block_bytes, cache->memory.arena.granule_bytes)
                             : block_bytes;
}

/* A new pool, which belongs to nobody yet. */
vmm_status vmm__cache_pool_open(struct vmm_cache *cache, vmm_stream stream, struct pool **out);

/* The stream's pool, made with its first use. Takes the grow lock. */
vmm_status vmm__cache_pool(struct vmm_cache *cache, vmm_stream stream, struct pool **out);

/* Locks a pool unless it is `held`, which the caller has locked already; and back. */
static inline void vmm__pool_lock_beside(struct pool *pool, const struct pool *held)
{
    if (pool != held)
        vmm__pool_lock_second(pool);
}

/* The same for a supply: see vmm__pool_lock_passing(). */
static inline void vmm__pool_lock_supplying(const struct vmm_cache *cache, struct pool *pool,
                                            const struct pool *held)
{
    if (pool != held && cache->is_passing)
        vmm__pool_lock_passing(pool, cache->supplies);
    else
        vmm__pool_lock_beside(pool, held);
}

static inline void vmm__pool_unlock_beside(struct pool *pool, const struct pool *held)
{
    if (pool != held)
        vmm__pool_unlock(pool);
}

#endif
