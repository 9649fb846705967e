/*
 * A lane: the memory that one stream may reuse at once, in two heaps (small and large blocks) and
 * slabs, and the clock that says when other streams may reuse it.
 *
 * Requests of up to 8 KiB become objects of slabs, up to 1 MiB blocks of the small heap, and
 * larger ones blocks of the large heap. So one live kilobyte never retains a large chunk.
 *
 * Owns: its heaps, slabs, notes, magazines, and its clock unless that is the cache's. Invariants:
 *  1. the size of every live or waiting block, unless it is a misfit, decides its heap; with caching off, in a pool
 *     whose blocks have chunks of their own, and in imported memory, all blocks are in the large heap;
 *  2. the counters are the sums over the live and waiting blocks, less what debug mode hides;
 *  3. the epochs in `trimmed`, `decayed` and `period_epoch` have ended; decay expires
 *     nothing later than the last period.
 * May be called by: cache, debug, api. Locks: functions that end in _locked expect the lane's lock; stream and clock
 * need none. The alloc and free paths, calls that name one block, and flushes of the counters take only the biased
 * lock. Code that looks for free memory uses vmm__lane_lock(), which settles the last freed blocks, drains all
 * magazines, and returns lone empty slabs to the heap; or vmm__lane_lock_for_scan(), which leaves a busy lane as it is.
 */
#ifndef VMM_LANE_LANE_H
#define VMM_LANE_LANE_H

#include "base/biased.h"
#include "base/error.h"
#include "lane/counters.h"
#include "lane/magazine.h"
#include "lane/notes.h"
#include "lane/pool.h"
#include "lane/slab.h"

/* A block of a large heap is never as small as one of a small heap, even after a resize. */
enum { LANE_SMALL_LARGEST_BYTES = 1 << 20, LANE_LARGE_LEAST_BYTES = LANE_SMALL_LARGEST_BYTES + 1 };

/* Expired memory: everything freed up to an epoch is to be released once its work has finished. */
struct expired {
    uint64_t latest_epoch; /* 0: nothing is expired */
    uint64_t stuck_epoch;  /* nothing of it can be released before this epoch passes; 0: unknown */
};

/*
 * The last allocation. Programs often free it first, and finding it again would cost a chain of
 * dependent loads. It may be stale, so its use is checked; its block record stays readable as
 * long as the heap lives.
 */
struct last_allocated {
    uint64_t address;
    struct heap *heap;
    struct block *block; /* for an object: the block of its slab; never NULL */
};

/* The last scan for idle memory that visited the lane, and how many allocations the lane had made until
 * then. */
struct last_scan {
    uint64_t scan;
    uint64_t taken;
    bool is_idle; /* the lane allocated nothing between the last two scans */
};

/*
 * How often lanes take idle memory of other lanes. A take costs 2 to 5 us; new memory costs as much as some dozens of
 * takes. So streams that take the same memory from each other again and again should have more. A take is hasty in two
 * cases. If the latest takes of the pool, by whatever lanes, were less than TAKES_APART_US apart in the mean, takes
 * cost some percent of the time, however many streams take turns. If its thread had to queue for the grow lock, takes
 * delay other threads; such a take counts as TAKES_QUEUED hasty ones, because with 16 threads half of them wait during
 * a take on average.
 *
 * After TAKES_HOARD hasty takes a lane keeps what it has: it no longer gathers, others do not gather from it, and it
 * takes only what a request needs. After TAKES_GROW hasty takes it grows beyond the footprint target, by one request.
 * docs/results/holes.md says how near traces of GPU programs come to these bounds.
 */
enum { TAKES_APART_US = 25, TAKES_QUEUED = 8, TAKES_HOARD = 32, TAKES_GROW = 64 };

struct block_ref;
struct lane_list;

struct lane {
    struct owner owner;
    bool is_in_table; /* of its pool */
    uint32_t exports; /* of its blocks: how many are exported; guarded by `lock` */
    /* Its pool is not awake: no request is served. Changes under both locks, with the magazines closed. */
    bool is_asleep;
    bool stays_awake; /* its pool adopted it when it was not awake; guarded by the grow lock */
    _Atomic bool is_detached; /* not in the default pool's table: of another pool, or hidden */
    uint64_t serial;          /* never reused */
    /* The fast path may lock it: it is the active lane, or totals are shared; and its clock is not due. */
    _Atomic bool is_fast;
    /* All lanes of the cache, in order of creation. Atomic, as lanes.first is: a thread may read the list without a
     * lock. */
    _Atomic(struct lane *) next;
    _Atomic(struct lane *) next_in_bucket; /* see pool.h; the grow lock guards all links below */
    struct map_node by_stream;             /* its key is the stream; in lanes.pooled_streams */
    struct lane *next_of_pool;             /* the lanes of a pool; guarded by the grow lock */
    struct lane **pool_link;               /* what points to this one */
    struct lane_list *list;                /* the list that contains it; NULL: none */
    struct lane *list_prev;
    struct lane *list_next;
    struct clock *clock;                   /* the cache's, or its own: see vm/clock.h */
    _Atomic bool has_ended;                /* its stream has: see cache/streams.h */
    _Atomic uint64_t ends;                 /* changes when its stream ends: see lane/notes.h */
    _Atomic bool is_gone;                  /* see struct known_stream */
    _Atomic(struct magazines *) magazines; /* NULL: it never was contended; set once */
    struct biased_lock lock;               /* guards all below */
    uint64_t until_due_bytes; /* to free until its clock is due: see vmm__lane_clock_arm_locked() */
    uint64_t due_bytes;       /* to free from then on until it is due again */
    uint64_t gather_bytes;    /* smaller requests do not gather first: see cache/idle/gather.h */
    _Atomic uint32_t refills; /* refills under way: their requests need not gather again */
    uint32_t
        hasty_takes; /* since a take that was not hasty, or a trim; the grow lock guards it, too */
    struct counters counters;
    struct last_allocated last;
    struct last_scan last_scan;
    uint64_t frees; /* counted for decay */
    struct slabs slabs;
    struct notes notes;
    struct heap small;
    struct heap large;
    struct expired trimmed;     /* by the last trim; the grow lock guards this and all below */
    struct expired decayed;     /* by decay, at the end of the last period */
    uint64_t period_epoch;      /* ended with the last period */
    struct lane *scan_next;     /* see vmm_cache.scanned */
    struct heap *reserved;      /* for reserved blocks: see heap.h; NULL: it never had any */
    uint64_t reserved_granules; /* with memory, of those blocks */
};

vmm_status vmm__lane_open(vmm_stream stream, struct directory *directory, struct pool *pool,
                          struct lane **out);
/* Frees the lane in any case. Returns the first driver error. */
vmm_status vmm__lane_close(struct lane *lane);

/* Moves a lane to a pool, out of the pool that has it. The caller holds the grow lock. */
void vmm__lane_join(struct lane *lane, struct pool *pool);

/* Flushes the counters of a lane that has no memory, and frees what only a lane with memory
 * needs. The caller also holds the grow lock. */
void vmm__lane_vacate_locked(struct lane *lane);

/* Adds what the lane's counters have changed since the last flush to the totals. */
static inline void vmm__lane_counters_flush(struct lane *lane)
{
    vmm__counters_flush(&lane->counters, &lane->owner.pool->totals);
}

/* Whether its memory stays where it is, and serves no other lane: see pool.h. The caller holds the grow lock. */
static inline bool vmm__lane_is_retained(const struct lane *lane)
{
    return vmm__pool_is_retained(lane->owner.pool);
}

/* Count a take of other lanes' idle memory (has_queued: its thread had to wait for the grow lock), and a growth that
 * replaces further takes. */
void vmm__lane_takes_count(struct lane *lane, bool has_queued);
static inline void vmm__lane_takes_lower(struct lane *lane)
{
    lane->hasty_takes = TAKES_HOARD;
}

/* Whether the lane takes no more idle memory than a request needs, and whether it grows instead: see TAKES_HOARD. */
static inline bool vmm__lane_hoards(const struct lane *lane)
{
    return lane->hasty_takes >= TAKES_HOARD;
}
static inline bool vmm__lane_rather_grows(const struct lane *lane)
{
    return lane->hasty_takes >= TAKES_GROW;
}

/* Whether a request gathers before it uses the lane's own memory. One that a free block fits exactly need not: threads
 * with streams of their own would gather each other's blocks for ever. The caller holds the lane's lock. */
bool vmm__lane_should_gather_locked(struct lane *lane, struct heap *heap, uint64_t block_bytes);

/* ERR_ASLEEP if the pool of a lane is not awake. The caller holds the lane's lock or the grow lock. */
static inline vmm_status vmm__lane_asleep_check(const char *call, const struct lane *lane)
{
    if (!lane->is_asleep)
        return VMM_OK;
    return vmm__error(VMM_ERR_ASLEEP, "%s: pool %s sleeps: wake it first", call,
                      lane->owner.pool->name);
}

/* VMM__NOT_FOUND if the lane no longer belongs to the pool of `handle`, which was destroyed; handle NULL: any pool will
 * do. The caller holds the lane's lock. */
static inline vmm_status vmm__lane_check_of(const struct lane *lane, const vmm_pool *handle)
{
    bool is_of = handle == NULL ||
                 atomic_load_explicit(&lane->owner.pool->handle, memory_order_relaxed) == handle;
    return is_of ? VMM_OK : VMM__NOT_FOUND;
}

/* Whether idle memory of a lane may go to another one. The caller holds the grow lock. */
static inline bool vmm__lane_may_give(const struct lane *from, const struct lane *to)
{
    bool is_one_pool = from->owner.pool == to->owner.pool;
    return !vmm__lane_is_retained(from) && (is_one_pool || (vmm__pool_shares(from->owner.pool) &&
                                                            vmm__pool_shares(to->owner.pool)));
}

/* Whether the stream of a lane has ended: no more work comes on it, and the same handle may name another one. */
static inline bool vmm__lane_has_ended(const struct lane *lane)
{
    return atomic_load_explicit(&lane->has_ended, memory_order_acquire);
}

/* Whether two lanes belong to the same stream, which has one in each pool that it uses. */
static inline bool vmm__lane_is_of(const struct lane *lane, const struct lane *other)
{
    return lane == other ||
           (lane->owner.stream == other->owner.stream && !vmm__lane_has_ended(lane));
}

/* The stream of a lane, as a user of other lanes' blocks. */
static inline struct user vmm__lane_user(const struct lane *lane)
{
    vmm_stream stream = atomic_load_explicit(&lane->owner.stream, memory_order_relaxed);
    return (struct user){ .stream = stream, .ends = &lane->ends };
}

/* Whether the lane has memory, or addresses that may get some. The caller holds the grow lock. */
static inline bool vmm__lane_has_memory(const struct lane *lane)
{
    return lane->large.bytes > 0 || lane->small.bytes > 0 ||
           (lane->reserved != NULL && lane->reserved->bytes > 0);
}

/* Locks a lane, settles its last freed blocks, drains its magazines, and returns its lone empty
 * slabs. A second lane may be locked only under the grow lock. */
void vmm__lane_lock(struct lane *lane);
void vmm__lane_lock_second(struct lane *lane);

/*
 * Locks a second lane for a scan for idle memory. Settles and drains it only if it has allocated
 * nothing since an earlier scan: otherwise threads that allocate and free the same block in a
 * loop would take it from each other, and both would wait for the barrier of the lock each time.
 */
void vmm__lane_lock_for_scan(struct lane *lane, uint64_t scan);

void vmm__lane_unlock(struct lane *lane);

/* For a thread that holds the locks of many lanes: keep leaves the mutex of a locked lane, and the thread goes on
 * holding the lane's lock; unlock_kept takes the mutex again and unlocks the lane (base/biased.h). */
static inline void vmm__lane_keep(struct lane *lane)
{
    vmm__biased_keep(&lane->lock);
}

static inline void vmm__lane_unlock_kept(struct lane *lane)
{
    vmm__biased_keep_end(&lane->lock);
    vmm__lane_unlock(lane);
}

/* Lock and unlock a lane, unless it is `held`, which the caller has locked. */
static inline void vmm__lane_lock_beside(struct lane *lane, const struct lane *held)
{
    if (lane != held)
        vmm__lane_lock_second(lane);
}

static inline void vmm__lane_unlock_beside(struct lane *lane, const struct lane *held)
{
    if (lane != held)
        vmm__lane_unlock(lane);
}

/* Finds the heap for a request, and the bytes of the block that it needs there (for a tiny
 * request: of the block of a new slab). False if the size cannot be rounded up. */
bool vmm__lane_need(struct lane *lane, uint64_t bytes, struct heap **heap, uint64_t *block_bytes);

/* The size of the block or object for a request, as vmm__block_ref_bytes() returns it; UINT64_MAX
 * if it cannot be rounded up. */
uint64_t vmm__lane_block_bytes(uint64_t bytes);

/* Allocate from mapped memory after a quick search. VMM__NO_FIT if it finds nothing, or if the request should gather
 * first; ERR_HOST_OOM. The second is for a lane with magazines: those that keep enough blocks are drained first, and
 * the new block is listed in the live table. */
vmm_status vmm__lane_take_plain_locked(struct lane *lane, uint64_t bytes, void **out);
vmm_status vmm__lane_take_listed_locked(struct lane *lane, uint64_t bytes, void **out);
static inline vmm_status vmm__lane_take_locked(struct lane *lane, uint64_t bytes, void **out)
{
    if (atomic_load_explicit(&lane->magazines, memory_order_relaxed) == NULL)
        return vmm__lane_take_plain_locked(lane, bytes, out);
    return vmm__lane_take_listed_locked(lane, bytes, out);
}

/* Allocates from mapped memory after a search of all of it, whatever a block strands. Drains the magazines, and lists
 * the block, if the lane has any. VMM__NO_FIT if nothing fits; ERR_HOST_OOM. */
vmm_status vmm__lane_take_whole_locked(struct lane *lane, uint64_t bytes, void **out);

/* Searches all of it, too, for when memory has run out: if nothing fits, the request becomes a misfit, in a hole that
 * is not for its size: an object of a slab with few objects, or of a slab of a larger class, or a block of the other
 * heap. A misfit is never listed. VMM__NO_FIT; ERR_HOST_OOM. */
vmm_status vmm__lane_take_any_locked(struct lane *lane, uint64_t bytes, void **out);

/* Allocates a free block of the large heap, all but its first skip_bytes, for a request of `bytes`. ERR_HOST_OOM. */
vmm_status vmm__lane_take_block_locked(struct lane *lane, struct block *block, uint64_t skip_bytes,
                                       uint64_t bytes, void **out);

/* Allocates block_bytes, or an object, at an address of a heap. VMM__NOT_FOUND if no such block begins there;
 * VMM__NO_FIT if some of its bytes are not free; ERR_HOST_OOM. */
vmm_status vmm__lane_place_locked(struct lane *lane, struct heap *heap, uint64_t address,
                                  uint64_t bytes, uint64_t block_bytes);

/* Allocates block_bytes of a free block at its first multiple of `alignment`. ERR_HOST_OOM. */
vmm_status vmm__lane_take_aligned_locked(struct lane *lane, struct heap *heap,
                                         const struct block *free_block, uint64_t bytes,
                                         uint64_t block_bytes, uint64_t alignment, void **out);

/* Whether `address` is the last allocation, and may still be live. Its block's record may have been reused for another
 * block, so it must be in use, and contain the address. */
static inline bool vmm__lane_is_last(const struct lane *lane, uint64_t address)
{
    const struct block *block = lane->last.block;
    return lane->last.address == address && address - block->address < block->node.size &&
           (block->state == BLOCK_LIVE || block->state == BLOCK_SLAB);
}

/* The heap of the last allocation, if `address` is that one; otherwise NULL. */
static inline struct heap *vmm__lane_last_heap(const struct lane *lane, uint64_t address)
{
    return vmm__lane_is_last(lane, address) ? lane->last.heap : NULL;
}

/* Frees the live block at an address that `heap`, of this lane, owns; it becomes the last freed
 * block. See vmm_free(). VMM__NOT_FOUND: it is a reserved one, which takes more locks. */
vmm_status vmm__lane_give_locked(struct lane *lane, struct heap *heap, uint64_t address);

/* Finds a live block or object, which from then on is not listed. False if it is not live, or was freed without the
 * lock. */
bool vmm__lane_find_live_locked(struct lane *lane, const struct heap *heap, uint64_t address,
                                struct block_ref *ref);

/* Another stream is about to search the lane for idle memory whose work has finished. From now on its clock is due
 * whenever a 64th of the pool's memory was freed: the next allocation on the lane takes the slow path, and ticks. So a
 * later search finds an event that is not much later than the free. */
void vmm__lane_clock_arm_locked(struct lane *lane);

/* Frees the block of a claimed entry, which a magazine has kept. */
void vmm__lane_give_kept_locked(struct lane *lane, struct live_entry *entry);

/* Records that another stream uses the live block at an address. See vmm_record_stream(). */
vmm_status vmm__lane_use_locked(struct lane *lane, struct heap *heap, uint64_t address,
                                const struct lane *other);

/* Pins or unpins the live block at an address. See vmm_pin(). */
vmm_status vmm__lane_pin_locked(struct heap *heap, uint64_t address, bool pinned);

/* Names the live block at an address; text NULL: removes its name. See vmm_name(). */
vmm_status vmm__lane_name_locked(struct heap *heap, uint64_t address, const char *text);

/*
 * Marks the live block at an address as exported: it is not moved, and after its free it waits, also for
 * vmm__lane_unexport_locked(). VMM__NO_FIT: it is a reserved one.
 */
vmm_status vmm__lane_export_locked(struct lane *lane, struct heap *heap, uint64_t address,
                                   uint64_t *bytes, uint64_t *requested_bytes);
void vmm__lane_unexport_locked(struct lane *lane, struct heap *heap, uint64_t address);

/*
 * Frees blocks whose waits are over, among the `most` oldest waits. VMM_OK if any was freed,
 * VMM__NOTHING if none was.
 */
vmm_status vmm__lane_poll_locked(struct lane *lane, unsigned most);

/* Ends the wait of a freed block whose uses have ended, as the caller knows. False: it does not wait. */
bool vmm__lane_wait_end_locked(struct lane *lane, uint64_t address);

/*
 * Frees blocks whose waits are over and returns empty slabs to the heap. Then begins a new epoch,
 * and returns the one that ended, which is the latest of all idle memory.
 */
uint64_t vmm__lane_settle_locked(struct lane *lane);

/* Makes sure that the lane has a heap for reserved blocks. The caller holds the grow lock. ERR_HOST_OOM. */
vmm_status vmm__lane_reserved_keep(struct lane *lane);

vmm_status vmm__lane_check_locked(struct lane *lane);

#endif
