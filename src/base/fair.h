/*
 * A lock that threads get in the order in which they ask for it. A thread that unlocks a plain mutex may lock it again
 * before a waiting thread has woken up: one thread that grew and trimmed all the time made others wait for seconds.
 *
 * Owns: nothing; each waiting thread keeps its place in the queue on its own stack. Invariants:
 *  1. a thread waits only while the lock is taken;
 *  2. unlocking with a queue passes the lock to the first thread in it, and wakes no other thread.
 * May be called by: everything. Locks: `mutex` guards the other fields, for short sections.
 */
#ifndef VMM_BASE_FAIR_H
#define VMM_BASE_FAIR_H

#include "base/lock_rank.h"

#include <pthread.h>
#include <stdbool.h>

struct fair_waiter;

struct fair_lock {
    pthread_mutex_t mutex;
    bool is_taken;
    struct fair_waiter *first; /* the queue */
    struct fair_waiter *last;
    VMM_LOCK_CHECK_MEMBER
};

/* Has the rank of a grow lock. */
void vmm__fair_init(struct fair_lock *lock);
void vmm__fair_fini(struct fair_lock *lock);

void vmm__fair_lock(struct fair_lock *lock);

/* Returns false, without waiting, if the lock is taken. */
bool vmm__fair_try_lock(struct fair_lock *lock);

void vmm__fair_unlock(struct fair_lock *lock);

static inline void vmm__fair_held_end(struct fair_lock *const *lock)
{
    vmm__fair_unlock(*lock);
}

/* Locks until the block ends: see VMM_HOLD(). */
#define VMM_HOLD_FAIR(lock)                                                                        \
    __attribute__((cleanup(vmm__fair_held_end))) struct fair_lock *const held_fair = (lock);       \
    vmm__fair_lock(held_fair)

#endif
