/*
 * Magazines: where many threads share a pool, each keeps a few of the places that it gave back last
 * (Bonwick and Adams, "Magazines and Vmem", USENIX ATC 2001), so that it can have them again
 * without the pool's lock. A pool has none until it is crowded.
 *
 * A thread keeps only what it took itself and so knows: its table has of some live places what the
 * pool would have to be asked for, so that neither keeping nor taking touches what threads share. Whoever
 * locks the pool, not just enters it, calls all magazines in: their threads go to the pool's lock
 * then, what was kept is free memory, and nothing is known any more. So nobody ever grows, steals or
 * trims past memory that a magazine keeps, nor sees any.
 *
 * Owns: its entries. Invariants:
 *  1. a place with a knower is handed out as the pool sees it. It is live if that magazine's table has
 *     it, and only there it says how many bytes were requested; or else the magazine keeps it;
 *  2. without the lock, the magazine's thread may fill a free slot of the table, and free one; with
 *     it, any thread may free one. Only who has freed a slot may touch its place: two threads may give
 *     one back at the same time;
 *  3. unless has_known is set, a magazine knows nothing and keeps nothing;
 *  4. requested_bytes, allocated_bytes and allocations hold what the thread took and gave by way of the
 *     magazine since they were last added to the pool's account.
 * May be called by: pool, policy. Locks: take and give need none, and belong to the magazine's thread;
 * functions that end in _locked expect the pool's lock.
 */
#ifndef VMM_HEAP_MAGAZINE_H
#define VMM_HEAP_MAGAZINE_H

#include "heap/ledger.h"
#include "heap/place.h"

struct pool;
struct seat;

enum { MAGAZINE_KEPT = 8, MAGAZINE_KNOWN_BITS = 6, MAGAZINE_KNOWN = 1 << MAGAZINE_KNOWN_BITS };

struct magazine_kept {
    uint64_t address;
    uint64_t bytes;
    struct place place;
};

struct magazine_known {
    _Atomic uint64_t address; /* 0: the slot is free */
    _Atomic uint64_t requested_bytes;
    struct place place;
};

struct magazine {
    _Atomic bool is_entered; /* the thread uses it, or is about to see whether it may */
    _Atomic bool is_called;  /* in: it may not */
    uint8_t number;          /* from 1 */
    bool has_known;          /* something was noted since it was last called in; with the lock */
    uint32_t kept_count;
    uint64_t kept_bytes;
    struct account_change requested_bytes;
    struct account_change allocated_bytes;
    struct account_change allocations;
    uintptr_t thread;
    const struct seat *seat;                     /* the thread's, on which it uses the magazine */
    uint64_t frees;                              /* counted for decay, by the thread */
    struct magazine *next;                       /* of the pool's */
    struct magazine_kept kept[MAGAZINE_KEPT];    /* the last is the one given back last */
    struct magazine_known known[MAGAZINE_KNOWN]; /* by address; some of what the thread took */
};

/* The calling thread's magazine of a pool; NULL if it has none yet, is not known to have, or is away from its
 * seat: in a child of fork(), and in functions of the program that are called with locks held. */
struct magazine *vmm__magazine_mine(const struct pool *pool);

/* The same, made with its first use; NULL if there is no host memory or no seat, or there are too many. */
struct magazine *vmm__magazine_find_locked(struct pool *pool);

/* Takes a place of exactly block_bytes that is kept. False if there is none, or no slot for it in the
 * table, or while called in. */
bool vmm__magazine_take(struct magazine *magazine, uint64_t block_bytes, uint64_t bytes,
                        void **out);

/* Keeps the place at an address. False if it is not known, or may be in use elsewhere or pinned; if
 * there is no room; or while called in. */
bool vmm__magazine_give(struct magazine *magazine, const struct pool *pool, uint64_t address);

/* Notes a place that the thread has just taken of a heap of the pool. */
void vmm__magazine_know_locked(struct magazine *magazine, const struct heap *heap,
                               uint64_t address);

/* Lets all that is kept go, and adds what was counted to the pool's account. */
void vmm__magazine_empty_locked(struct magazine *magazine, struct pool *pool);

/* Makes a place with a knower an ordinary live one; false if it is not live, but kept. */
bool vmm__magazines_forget_locked(struct pool *pool, struct place *place, uint64_t address);

/* Calls all magazines of a pool in and empties them; and lets their threads go on. */
void vmm__magazines_call_locked(struct pool *pool);
void vmm__magazines_release_locked(struct pool *pool);

/* At the end of the pool. */
void vmm__magazines_fini(struct pool *pool);

#endif
