/*
 * A lock that is biased to the thread that takes it most: that thread takes it without an atomic
 * read-modify-write, and all others pay for it (Kawachiya et al., "Lock Reservation", OOPSLA 2002).
 * Two ways in: enter(), or else visit(), for short work on a fast path, and take() for all else; they
 * exclude each other.
 *
 * Owns: the mutex. Invariants:
 *  1. whoever is inside is the favourite and came by enter() (`inside` is its seat), or holds the mutex
 *     while nobody else is the favourite;
 *  2. favourite changes only under the mutex: to a thread's seat by that thread, and to NULL by a
 *     thread that then waits until the former favourite is not inside.
 * A thread that has lost the bias gets it back only when it has come `patience` times in a row, so
 * that threads which take turns do not pay for a barrier each time. A thread is inside one biased lock at a
 * time by enter().
 * May be called by: everything above base.
 */
#ifndef VMM_BASE_BIASED_H
#define VMM_BASE_BIASED_H

#include "base/barrier.h"
#include "base/seat.h"

struct biased_lock {
    _Atomic(struct seat *) favourite; /* may enter without the mutex; NULL: nobody */
    struct seat *inside;              /* who is inside by enter(); NULL: not by enter() */
    pthread_mutex_t mutex;
    uintptr_t visitor;
    uint32_t visits; /* of `visitor`, in a row, by the mutex */
    uint32_t patience;
    uint32_t waits;  /* visits that found the mutex taken */
    bool may_favour; /* the system has what it takes, and it is wanted */
};

void vmm__biased_init(struct biased_lock *lock);
void vmm__biased_fini(struct biased_lock *lock);

/* Nobody becomes the favourite, so nobody enters. Before the first use. */
void vmm__biased_deny(struct biased_lock *lock);

/* For whoever is not on the fast path, or stays inside for long. */
void vmm__biased_take(struct biased_lock *lock);

/*
 * As vmm__biased_take(), for a second pool's lock. The grow lock makes the order of the two irrelevant,
 * but ThreadSanitizer sees only that both orders occur; of locks that are tried it does not complain.
 */
void vmm__biased_take_second(struct biased_lock *lock);

/* Takes the lock for a short time if the thread is the favourite; false if it is not. */
static inline bool vmm__biased_enter(struct biased_lock *lock)
{
    struct seat *seat = atomic_load_explicit(&lock->favourite, memory_order_acquire);
    if (seat == NULL || !vmm__seat_is_mine(seat))
        return false;
    vmm__seat_inherit(seat);
    atomic_store_explicit(&seat->inside, lock, memory_order_relaxed);
    vmm__barrier_light();
    if (atomic_load_explicit(&lock->favourite, memory_order_relaxed) == seat) {
        lock->inside = seat;
        return true;
    }
    atomic_store_explicit(&seat->inside, NULL, memory_order_release);
    return false;
}

/* Takes the lock for whoever could not enter, who may become the favourite by that. */
void vmm__biased_visit(struct biased_lock *lock);

/* For drop(): of who is not the favourite. */
void vmm__biased_leave(struct biased_lock *lock);

/* Drops the lock, however it was taken. */
static inline void vmm__biased_drop(struct biased_lock *lock)
{
    struct seat *seat = lock->inside;
    if (seat == NULL) {
        vmm__biased_leave(lock);
        return;
    }
    lock->inside = NULL;
    atomic_store_explicit(&seat->inside, NULL, memory_order_release);
}

#endif
