/*
 * The order in which one thread takes locks, checked in builds with VMM_CHECK >= 1.
 *
 * Each lock has a rank. Invariants:
 *  1. a thread takes locks in rising order of rank; it takes a second lane lock only while it holds a grow lock;
 *  2. a thread releases only a lock that it holds;
 *  3. a callback of the program starts afresh: it may use another cache, whatever its thread holds of this one.
 * Owns: for each thread, a list of the locks that it holds. The list runs through the locks themselves, so it needs no
 * memory. In builds without VMM_CHECK the locks have no such member and the macros below do nothing.
 * May be called by: base, and VMM_ASSERT_HELD() by everything. Locks: none (thread-local).
 */
#ifndef VMM_BASE_LOCK_RANK_H
#define VMM_BASE_LOCK_RANK_H

#include "base/assert.h"

#include <stdbool.h>

enum lock_rank {
    LOCK_RANK_NONE,    /* a static lock: its order is not checked */
    LOCK_RANK_CALL,    /* orders whole calls of the library */
    LOCK_RANK_GATE,    /* the gate of debug mode */
    LOCK_RANK_GROW,    /* a cache's grow lock */
    LOCK_RANK_LANE,    /* a lane's lock */
    LOCK_RANK_CLOCK,   /* a clock: takes those of the captures, of the events and the driver's */
    LOCK_RANK_LEAF,    /* the holder takes no further lock */
    LOCK_RANK_CALLBACK /* not a lock: a callback of the program */
};

#if VMM_CHECK >= 1

struct lock_check {
    enum lock_rank rank;
    struct lock_check *outer; /* the lock that the holder took before this one */
};

/* Asserts that the calling thread may take a lock of this rank now. Call it before the thread can block. */
void vmm__lock_check_order(const struct lock_check *check);

/* Records that the calling thread has taken, or is about to release, the lock. */
void vmm__lock_check_take(struct lock_check *check);
void vmm__lock_check_release(const struct lock_check *check);

/* Returns whether the calling thread holds the lock. */
bool vmm__lock_check_holds(const struct lock_check *check);

#define VMM_LOCK_CHECK_MEMBER          struct lock_check check;
#define VMM_LOCK_SET_RANK(lock, value) ((lock)->check = (struct lock_check){ .rank = (value) })
#define VMM_LOCK_ORDER(lock)           vmm__lock_check_order(&(lock)->check)
#define VMM_LOCK_TAKE(lock)            vmm__lock_check_take(&(lock)->check)
#define VMM_LOCK_RELEASE(lock)         vmm__lock_check_release(&(lock)->check)
#define VMM_ASSERT_HELD(lock)          VMM_ASSERT(vmm__lock_check_holds(&(lock)->check))

#else

#define VMM_LOCK_CHECK_MEMBER
#define VMM_LOCK_SET_RANK(lock, value) ((void)(lock))
#define VMM_LOCK_ORDER(lock)           ((void)(lock))
#define VMM_LOCK_TAKE(lock)            ((void)(lock))
#define VMM_LOCK_RELEASE(lock)         ((void)(lock))
#define VMM_ASSERT_HELD(lock)          ((void)(lock))

#endif

#endif
