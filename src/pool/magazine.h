/*
 * Magazines: when many threads share a pool, each thread keeps the few blocks that it freed last
 * (Bonwick and Adams, "Magazines and Vmem", USENIX ATC 2001), and takes them again without the
 * pool's lock. A pool has no magazines until it is contended. "Block" here means a block or a
 * slab object.
 *
 * A thread keeps only blocks that it took itself. Its table holds what a free needs to know about
 * some of them, so that neither keeping nor taking a block touches shared data. vmm__pool_lock()
 * drains all magazines: their threads then use the pool's lock, the kept blocks become free
 * memory, and the tables become empty. Code that grows, reuses or trims memory therefore never
 * sees a block that a magazine keeps.
 *
 * Owns: its entries. Invariants:
 *  1. a block with a nonzero cached_by is allocated as the pool sees it. If that magazine's
 *     table has it, it is live, and only the table says how many bytes were requested;
 *     otherwise the magazine keeps it;
 *  2. without the lock, only the magazine's thread fills or clears a table entry; with the
 *     lock, any thread may clear one. Only the thread that cleared an entry may touch its
 *     block, because two threads may free one block at the same time;
 *  3. unless has_entries is set, the table is empty and the magazine keeps nothing;
 *  4. requested_bytes, allocated_bytes and allocations hold what the thread took and freed
 *     through the magazine since they were last added to the pool's counters.
 * Callers: the pool module, src/cache. Locks: vmm__magazine_take() and vmm__magazine_give() need
 * none, and only the magazine's thread may call them; functions that end in _locked expect the
 * pool's lock.
 */
#ifndef VMM_POOL_MAGAZINE_H
#define VMM_POOL_MAGAZINE_H

#include "pool/block_ref.h"
#include "pool/counters.h"

struct pool;
struct thread_slot;

enum { MAGAZINE_KEPT = 8, MAGAZINE_ENTRY_BITS = 6, MAGAZINE_ENTRIES = 1 << MAGAZINE_ENTRY_BITS };

struct magazine_kept {
    uint64_t address;
    uint64_t bytes;
    struct block_ref ref;
};

struct magazine_entry {
    _Atomic uint64_t address; /* 0: the entry is free */
    _Atomic uint64_t requested_bytes;
    struct block_ref ref;
};

struct magazine {
    _Atomic bool is_entered; /* the thread uses it, or is about to check is_closed */
    _Atomic bool is_closed;  /* by vmm__pool_lock(): the thread must use the pool's lock */
    uint8_t number;          /* from 1 */
    bool has_entries; /* an entry was added since the last drain; the pool's lock guards it */
    uint32_t kept_count;
    uint64_t retained_bytes;
    struct counter_change requested_bytes;
    struct counter_change allocated_bytes;
    struct counter_change allocations;
    uintptr_t thread;
    const struct thread_slot *thread_slot;           /* of the owning thread */
    uint64_t frees;                                  /* counted for decay, by the thread */
    struct magazine *next;                           /* of the pool's */
    struct magazine_kept kept[MAGAZINE_KEPT];        /* the last is the most recently freed */
    struct magazine_entry entries[MAGAZINE_ENTRIES]; /* by address; some of what it took */
};

/* The calling thread's magazine of a pool. NULL if it has none, if it is not among the thread's
 * recent ones, or if the thread's fast path is disabled: in a child of fork(), and in functions of
 * the program that the library calls with locks held. */
struct magazine *vmm__magazine_mine(const struct pool *pool);

/* The calling thread's magazine, created on first use. NULL if host memory or thread slots ran
 * out, or the pool has too many magazines. */
struct magazine *vmm__magazine_find_locked(struct pool *pool);

/* Takes a kept block of exactly block_bytes. False if there is none, if its table entry is
 * occupied, or while the magazine is closed. */
bool vmm__magazine_take(struct magazine *magazine, uint64_t block_bytes, uint64_t bytes,
                        void **out);

/* Frees the block at an address into the magazine. False if the table does not have it, if other
 * streams may use it or it may be pinned, or if the magazine is full or closed. */
bool vmm__magazine_give(struct magazine *magazine, const struct pool *pool, uint64_t address);

/* Adds a block that the thread has just taken from a heap of the pool to the table. */
void vmm__magazine_add_locked(struct magazine *magazine, const struct heap *heap, uint64_t address);

/* Frees all kept blocks to the pool, and adds the held-back counts to the pool's counters. */
void vmm__magazine_empty_locked(struct magazine *magazine, struct pool *pool);

/* Removes a block with a nonzero cached_by from its magazine's table. False if the magazine keeps
 * the block, which is not live then. */
bool vmm__magazines_forget_locked(struct pool *pool, struct block_ref *ref, uint64_t address);

/* Close and drain all magazines of a pool, and open them again. */
void vmm__magazines_close_locked(struct pool *pool);
void vmm__magazines_open_locked(struct pool *pool);

/* Frees all magazines. For vmm__pool_close(). */
void vmm__magazines_fini(struct pool *pool);

#endif
