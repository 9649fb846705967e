/*
 * Magazines: what threads free without the lock of a lane that several threads use (Bonwick and Adams, "Magazines and
 * Vmem", USENIX ATC 2001). A lane has none until threads have waited for its lock. Then it has a fixed number, and
 * lists its blocks in the live table (lane/live_table.h). Each thread uses one, by the number of its slot, or one of
 * the next.
 *
 * A thread that cannot lock the lane on the fast path claims the entry of the block that it frees, and keeps the entry
 * in its magazine. An allocation of exactly as many bytes releases a kept entry: the block is live again. A magazine
 * that keeps enough is pending: a thread that allocates moves its blocks to its own magazine, and so does the bias
 * owner of the lane's lock, or drains it. A request that finds no free block drains all. vmm__lane_lock() closes and
 * drains all magazines. Code that grows, reuses or trims memory therefore never sees a kept block.
 *
 * A kept block gets its epoch when it is drained. That is late enough: the drain sees, through the magazine's lock, all
 * that happened before the free, and the event for the epoch is recorded after the drain. So the event covers the work
 * that was submitted before the free. A block that other streams use, or that is pinned, is not listed, so it is never
 * kept.
 *
 * Owns: what magazines keep. Invariants:
 *  1. the live table has exactly the lanes' listed blocks, which are allocated and counted as the lane sees them. A
 *     listed block whose entry is not claimed is live; otherwise a magazine keeps the entry, or a thread is freeing or
 *     allocating the block;
 *  2. `taken` holds what was allocated from the magazine since it was last added to the lane's counters.
 * May be called by: lane, cache. Locks: each magazine has a lock, after the lane's lock and before its clock's.
 * Threads only try it, but for vmm__lane_lock(), which holds all of them until vmm__lane_unlock(). Functions that end
 * in _locked expect the lane's lock.
 */
#ifndef VMM_LANE_MAGAZINE_H
#define VMM_LANE_MAGAZINE_H

#include "lane/live_table.h"

struct lane;

enum { MAGAZINES = 32, MAGAZINE_KEPT = 32 };

struct magazine {
    _Alignas(64) _Atomic bool is_locked; /* guards all below */
    uint32_t kept_count;
    uint64_t frees; /* counted for decay */
    struct {
        uint64_t requested_bytes;
        uint64_t allocated_bytes;
        uint64_t allocations;
    } taken;
    struct live_entry *kept[MAGAZINE_KEPT]; /* claimed; the last is the most recently freed */
};

struct magazines {
    _Alignas(64) _Atomic uint32_t pending; /* a bit for each magazine */
    /* The lane's lock guards both. */
    bool is_closed;   /* vmm__lane_lock() has closed them */
    bool owner_takes; /* the bias owner's last block came from its magazine */
    struct magazine each[MAGAZINES];
};

/* Makes the lane's magazines, unless host memory has run out. They last as long as the lane. */
void vmm__magazines_make_locked(struct lane *lane);

/* For vmm__lane_close(). */
void vmm__magazines_fini(struct lane *lane);

/*
 * Allocate and free in the calling thread's magazine, or in one of the next if that is locked or, for a free, full.
 * False if the lane has no magazines, if the thread has no slot or its fast path is disabled (in a child of fork(), and
 * in functions of the program that the library calls with locks held), or if none of those magazines will do. take is
 * also false if the lane is asleep or no block of exactly `bytes` is kept; give, if the block is not listed, or the
 * magazine would keep too many bytes. *frees: the magazine's count of frees before this one.
 */
bool vmm__magazine_take(struct lane *lane, uint64_t bytes, void **out);
bool vmm__magazine_give(struct lane *lane, uint64_t address, uint64_t *frees);

static inline uint32_t vmm__magazines_pending(const struct magazines *magazines)
{
    return atomic_load_explicit(&magazines->pending, memory_order_relaxed);
}

/* Drains those of the given magazines, a bit for each, whose locks are free. */
void vmm__magazines_drain_locked(struct lane *lane, struct magazines *magazines, uint32_t which);

/* Close and drain all magazines of a lane that has some, and open them again if they are closed. */
void vmm__magazines_close_locked(struct lane *lane);
void vmm__magazines_open_locked(struct lane *lane);

#endif
