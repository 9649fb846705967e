/*
 * The cache: its memory, lanes and settings, and what all of src/cache shares.
 *
 * Owns: virtual memory, directory and lanes; the driver if vmm_create() opened it.
 * Lock order: grow_lock, then lanes' locks (a second lane's only under grow_lock), then clocks'.
 * grow_lock guards the virtual memory, the set of lanes and every policy decision. The fast path never takes it, and
 * vmm__poll() only tries it.
 * May be called by: cache, debug, api. Locks: as said at each function.
 */
#ifndef VMM_CACHE_CACHE_H
#define VMM_CACHE_CACHE_H

#include "base/error.h"
#include "base/fair.h"
#include "base/fork.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/ticker.h"
#include "cache/decay.h"
#include "lane/lanes.h"
#include "lane/views.h"
#include "trace/recorder.h"
#include "vm/vm.h"

struct neighbours; /* see claim.h */
struct nvtx;       /* see debug/nvtx.h */
struct debug;
struct route;    /* see pool/route.h */
struct reserved; /* see reserve/reserve.h */

/* What reports and reclaim need of src/debug, which lies above src/cache. The first two may be called with any locks
 * held: they take only a leaf lock of debug mode. */
struct debug_view {
    /* Turns the item of a live or waiting block into the program's allocation, or into a free item if the program has
     * none there, as in quarantine. */
    void (*show)(struct debug *debug, vmm_item *item);
    /* As vmm_block_bytes(), for a request that fits in the arena. */
    uint64_t (*block_bytes)(const struct debug *debug, uint64_t bytes);
    /* For reclaim, without locks: returns the blocks in quarantine to their lanes. Returns the count of blocks ever
     * returned. */
    uint64_t (*give)(struct debug *debug);
};

/* A stream of the library, for copies between device and host. Opened under the grow lock, at its first use. */
struct transfers {
    bool is_open;
    vmm_stream stream;
};

/* Why no request takes the fast path, in bits. */
enum slow_path {
    SLOW_PATH_ONLY = 1,    /* each must make the checks of the slow path */
    SLOW_PATH_RECORDED = 2 /* each is recorded: see api/record.c */
};

/* The last compaction that gained nothing: see compact/compact.c. The grow lock guards it. */
struct compacted {
    uint64_t without_gain;   /* change_count() at its end; 0: there was none */
    const struct pool *pool; /* that it compacted; NULL: all */
};

/* ---- What its modules keep in it -------------------------------------------------------------- */

/* The offered pool that a claim puts to sleep now: see pool/sleep.h. The grow lock and its own one guard it; either is
 * enough to read it. */
struct claimed {
    struct mutex lock;
    pthread_cond_t ended;
    struct pool *pool; /* NULL: none */
    uintptr_t thread;  /* that carries it out */
};

/* See pool/pools.h. */
struct pools {
    struct pool *first; /* linked by next */
    uint64_t created;
    uint64_t leaving;
    uint64_t keeping;
    struct mutex list_lock; /* held when the list changes: a reader needs this lock only */
    struct claimed claimed;
};

/* See pool/route.h. */
struct routes {
    struct mutex lock;
    struct route *first; /* newest first */
    uint64_t pushes;     /* the grow lock guards it */
};

struct vmm_cache {
    struct driver *driver;
    int device;          /* its ordinal */
    uint64_t generation; /* of the process that created the cache: see base/fork.h */
    struct lost_listener lost_listener;
    struct nvtx *nvtx; /* NULL: no NVTX annotations; otherwise no lane is locked on the fast path */
    bool owns_driver;
    bool no_caching;
    bool zeroes;    /* memory that a block gets contains zeros: see vmm_config.zero */
    bool has_views; /* a heap may map its chunks at further addresses: see lane/views.h */
    uint32_t footprint_permille; /* of the peak of active bytes: see grow/target.c */
    vmm_reuse reuse;
    bool announces_captures; /* see vmm_config */
    vmm_switch compaction;
    vmm_log_fn log;
    void *log_context;
    vmm_pressure_fn pressure; /* NULL: none */
    void *pressure_context;
    struct neighbours *neighbours; /* NULL: the cache has none */
    FILE *log_file;                /* opened for VMM_LOG; NULL if not */
    /* NULL: neither vmm_config.debug nor zero is on. If one is, no lane is locked on the fast path, so that the fast
     * path need not check. */
    struct debug *debug;
    const struct debug_view *debug_view;
    bool has_guard_pages; /* see grow/guard_page.h */
    /* The granule where the search for the next guard page starts; grow_lock guards it. */
    uint64_t guard_page_next;

    struct fair_lock grow_lock;
    struct events events;
    struct clock clock; /* covers all work: see vm/clock.h */
    struct vm vm;
    struct directory directory;
    struct views views;
    void *plan_table; /* see grow/plan.h; grow_lock guards it */
    struct totals totals;
    struct counts counts;
    struct lanes lanes;
    struct pool pool;    /* the default pool */
    struct pools pools;  /* all others, but for the pool of imported memory */
    struct pool imports; /* the pool of imported memory: see share/import.h */
    _Atomic bool has_freed_imports;
    struct map exports; /* shares by block: see share/export.h; grow_lock guards it */
    struct routes routes;
    struct reserved *reserves;  /* linked by next: see reserve/reserve.h; grow_lock guards it */
    struct transfers transfers; /* of contents of pools that sleep or wake: see pool/pool_sleep.h */
    struct backup *kept_backups; /* that no pool has, and that stay pinned; grow_lock guards them */
    struct ticket *tickets;      /* linked by next; grow_lock guards both lists */
    struct ticket *ended_tickets; /* their records */
    /* The lane that vmm__cache_lane_activate() made active last; NULL: there was none, or the totals are shared. */
    _Atomic(struct lane *) active_lane;
    _Atomic uint8_t slow_path;     /* not 0: no request takes the fast path: see alloc/alloc.h */
    _Atomic bool is_multithreaded; /* more than one thread has called */
    bool has_trim_target;          /* see idle/trim.h; grow_lock guards it and the next */
    uint32_t trims;                /* calls of vmm_trim() that are not done */
    uint64_t refills;              /* so far; grow_lock guards it */
    struct lane *scanned;     /* the lanes, all locked, that a request searches, by scan_next */
    uint64_t slow_operations; /* counted for VMM_CHECK only */
    _Atomic uintptr_t first_thread; /* the thread that called first; 0: none has yet */
    struct compacted compacted;
    _Atomic uint64_t unpins;
    struct decay decay;
    struct mutex recorder_lock;     /* orders calls that start and stop a recording */
    struct recorder *recorder;      /* NULL: none was started; `directory.recorder` records now */
    struct vmm_cache *monitor_next; /* see api/monitor.h, as is the next */
    uint64_t monitor_serial;        /* 0: the cache is not published */
    struct ticker ticker; /* calls vmm__poll() from a thread of the library, if configured */
    uint64_t trim_target_keep_bytes; /* of the last vmm_trim() */
};

/*
 * Whether a public call may proceed. ERR_INVALID_ARGUMENT if `cache` is NULL, is not a cache or was destroyed, or if
 * the call comes from a callback that the cache runs with its locks held. ERR_FORKED if the cache belongs to a parent
 * process: nothing in it may be touched. vmm__cache_admit_work() also returns ERR_LOST once the device is lost.
 */
vmm_status vmm__cache_admit(const struct vmm_cache *cache, const char *function);
vmm_status vmm__cache_admit_work(const struct vmm_cache *cache, const char *function);

/* The error for an argument that may not be NULL. */
vmm_status vmm__cache_missing(const char *function, const char *argument);

/* Writes one line to the log function and the log file, if there are any. */
void vmm__cache_log(struct vmm_cache *cache, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Checks the numbered invariants of src/cache (check.c), and those of chunks (vm/check.c) and lanes (lane/check.c);
 * ERR_INTERNAL names the one that is broken. The caller holds the grow lock and no lane's. */
vmm_status vmm__cache_check_locked(struct vmm_cache *cache);

/*
 * VMM_CHECK, set when the library is built, makes slow operations check all invariants at their end: 0 none; 1 each
 * trim and compaction; 2 also one in 16 of the other slow operations, such as refills, commits and imports; 3 all of
 * them. A broken invariant turns the operation's status into ERR_INTERNAL.
 */
enum { /* one operation in so many; 0: none */
       CHECK_TRIM_EVERY = VMM_CHECK >= 1 ? 1 : 0,
       CHECK_REFILL_EVERY = VMM_CHECK >= 3   ? 1
                            : VMM_CHECK == 2 ? 16
                                             : 0
};

static inline vmm_status vmm__cache_checked(struct vmm_cache *cache, uint64_t every,
                                            vmm_status status)
{
    if (every == 0 || ++cache->slow_operations % every != 0)
        return status;
    vmm_status check = vmm__cache_check_locked(cache);
    return check == VMM_OK ? status : check;
}

/* Chunks that a call releases, puts to sleep or wakes while it holds the grow lock: about 3 ms of driver time. A call
 * that has more then lets others have their turn. */
enum { CHUNKS_AT_ONCE = 64 };

/* Unlocks the grow lock for the calls that wait for it, and takes it again. */
static inline void vmm__cache_grow_turn(struct vmm_cache *cache)
{
    vmm__fair_unlock(&cache->grow_lock);
    vmm__fair_lock(&cache->grow_lock);
}

/* Sets or clears a bit of cache->slow_path. */
static inline void vmm__slow_path_set(struct vmm_cache *cache, enum slow_path bit, bool is_set)
{
    if (is_set)
        atomic_fetch_or_explicit(&cache->slow_path, bit, memory_order_seq_cst);
    else
        atomic_fetch_and_explicit(&cache->slow_path, (uint8_t)~bit, memory_order_seq_cst);
}

static inline bool vmm__slow_path_is_only(const struct vmm_cache *cache)
{
    return (atomic_load_explicit(&cache->slow_path, memory_order_acquire) & SLOW_PATH_ONLY) != 0;
}

/* The heap that owns an address, which may lie outside the arena; NULL: none. Needs no lock. */
static inline struct heap *vmm__cache_heap_of(const struct vmm_cache *cache, uint64_t address)
{
    if (!vmm__arena_contains(&cache->vm.arena, address))
        return NULL;
    return vmm__directory_heap(&cache->directory, address);
}

/* Notes which thread calls. With more than one, the totals are shared and refills pass over busy lanes. */
static inline void vmm__cache_thread_note(struct vmm_cache *cache)
{
    uintptr_t self = vmm__thread_self();
    uintptr_t first = atomic_load_explicit(&cache->first_thread, memory_order_relaxed);
    if (first == self)
        return;
    if (first != 0 ||
        !atomic_compare_exchange_strong_explicit(&cache->first_thread, &first, self,
                                                 memory_order_relaxed, memory_order_relaxed))
        atomic_store_explicit(&cache->is_multithreaded, true, memory_order_relaxed);
}

/*
 * Makes a lane the active one. Flushes the counters of the lane that was active before, so that the totals stay exact;
 * or shares the totals, if more than one thread calls. The caller holds no lane's lock.
 */
void vmm__cache_lane_activate(struct vmm_cache *cache, struct lane *lane);

/*
 * Locks a lane to allocate or free in it. The fast way succeeds if the lock is biased to the calling thread and the
 * lane's is_fast is set. The slow way always succeeds.
 */
static inline bool vmm__cache_lane_lock_fast(struct lane *lane)
{
    return atomic_load_explicit(&lane->is_fast, memory_order_relaxed) &&
           vmm__biased_lock_fast(&lane->lock);
}

void vmm__cache_lane_lock_slow(struct vmm_cache *cache, struct lane *lane);

/* Drop the grow lock and the lock of a lane while the program's function runs, and take them again: everything may have
 * changed. */
void vmm__cache_locks_drop(struct vmm_cache *cache, struct lane *held);
void vmm__cache_locks_take(struct vmm_cache *cache, struct lane *held);

/* Lock every lane but `held`, which the caller has locked (NULL: none), and unlock them. */
void vmm__cache_lanes_lock(struct vmm_cache *cache, const struct lane *held);
void vmm__cache_lanes_unlock(struct vmm_cache *cache, const struct lane *held);

/*
 * Makes the host wait for the copies of live bytes that were started on the default stream. Needed also after a
 * failure: the copies read and write memory that the cache may allocate next.
 */
vmm_status vmm__cache_copies_wait(struct vmm_cache *cache);

/* Makes the host wait for all work that the cache's clock covers; while a capture forbids that, for the work of the
 * streams that the cache knows and that are not being captured. Takes the grow lock, but not while it waits. */
vmm_status vmm__cache_wait(struct vmm_cache *cache);

/* Makes the host wait for all work of the device; while a capture forbids that, for what vmm__cache_wait() waits for.
 * Where the clock joins events of streams, it spoils a capture on a stream that the cache does not know, so only calls
 * that the program makes between its work may use it. */
vmm_status vmm__cache_wait_all(struct vmm_cache *cache);

/* The device's free bytes; UINT64_MAX if the driver fails to report them. */
uint64_t vmm__cache_device_bytes(const struct vmm_cache *cache);

/* The bytes of the block that serves a request of `bytes`; more than any arena has if they cannot be rounded up. */
static inline uint64_t vmm__cache_block_bytes(const struct vmm_cache *cache, uint64_t bytes)
{
    uint64_t block_bytes = vmm__lane_block_bytes(bytes);
    if (cache->no_caching)
        (void)vmm__align_up_checked(block_bytes, cache->vm.arena.granule_bytes, &block_bytes);
    return block_bytes;
}

/* The lanes that a request searches for memory of other streams before it grows. A bound, so that the cost does not
 * depend on the number of streams; programs with up to 64 streams have all searched. */
enum { LANES_USUAL = 64 };

/* Rotates the list of stocked lanes by LANES_USUAL, if it is longer, so that the next request searches others. */
void vmm__cache_lanes_rotate(struct vmm_cache *cache);

/* Shrinks lanes that have no memory left to a small record. The caller holds the grow lock and no lane's. */
void vmm__cache_lanes_vacate(struct vmm_cache *cache);

#endif
