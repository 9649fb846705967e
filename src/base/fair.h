/*
 * A lock that is had in the order of asking. A mutex may be taken again by who has just dropped it before
 * one that waits has woken up: a thread that grows and trims all the time kept others waiting for seconds.
 *
 * Owns: nothing; who waits keeps its place in the line on its own stack. Invariants:
 *  1. somebody waits only while the lock is taken;
 *  2. a drop with a line hands the lock to the first, and wakes nobody else.
 * May be called by: all. Locks: `mutex` guards the rest, for moments.
 */
#ifndef VMM_BASE_FAIR_H
#define VMM_BASE_FAIR_H

#include <pthread.h>
#include <stdbool.h>

struct fair_waiter;

struct fair_lock {
    pthread_mutex_t mutex;
    bool is_taken;
    struct fair_waiter *first; /* who waits */
    struct fair_waiter *last;
};

void vmm__fair_init(struct fair_lock *lock);
void vmm__fair_fini(struct fair_lock *lock);

void vmm__fair_take(struct fair_lock *lock);

/* False if somebody else has it. */
bool vmm__fair_try(struct fair_lock *lock);

void vmm__fair_drop(struct fair_lock *lock);

#endif
