/*
 * A lock that is biased to the thread that takes it most, its bias owner. The bias owner takes the lock without an
 * atomic read-modify-write; every other thread pays for that with a process-wide barrier (Kawachiya et al., "Lock
 * Reservation", OOPSLA 2002). The fast path takes the lock for short work: vmm__biased_lock_fast(), below lock_fast(),
 * and if that fails vmm__biased_lock_slow(), which may make the thread the bias owner. All other callers use
 * vmm__biased_lock(). The three exclude each other.
 *
 * Owns: the mutex. Invariants:
 *  1. the holder either is the bias owner and took the lock by lock_fast() (`inside` is its thread slot); or it holds
 *     the mutex, and no other thread is the bias owner; or it has left the mutex by keep(), and no thread is the bias
 *     owner;
 *  2. the bias owner changes only under the mutex: a thread sets its own slot; or sets NULL and then waits until the
 *     former bias owner is not inside; or keep() sets a slot that is no thread's, and keep_end() sets the former one.
 * A thread that has lost the bias gets it back only after it has called lock_slow() `rebias_threshold` times in a row,
 * so that threads that alternate do not pay for a barrier each time. A thread holds one biased lock at a time by
 * lock_fast().
 * May be called by: everything above base. Locks: it is one; see lock_rank.h.
 */
#ifndef VMM_BASE_BIASED_H
#define VMM_BASE_BIASED_H

#include "base/barrier.h"
#include "base/lock_rank.h"
#include "base/thread_slot.h"

/* Other threads read `bias_owner`. So `inside`, which changes with each call of lock_fast(), is more than a cache line
 * behind it. */
struct biased_lock {
    _Atomic(struct thread_slot *) bias_owner; /* may take the lock without the mutex; NULL: none */
    pthread_mutex_t mutex;
    uintptr_t visitor; /* the thread that called lock_slow() last; guarded by the mutex */
    uint32_t visits;   /* its further calls in a row */
    uint32_t rebias_threshold;
    uint32_t waits; /* calls of lock_slow() that found the mutex taken, or another bias owner */
    bool may_bias;  /* the system has the barrier, and the lock is not disabled */
    struct thread_slot *kept_bias_owner; /* that keep_end() sets again; guarded by the mutex */
    pthread_cond_t kept_ended;
    struct thread_slot *inside; /* of a holder that used lock_fast(); NULL: no such holder */
    VMM_LOCK_CHECK_MEMBER
};

/* Has the rank of a lane's lock. */
void vmm__biased_init(struct biased_lock *lock);
void vmm__biased_fini(struct biased_lock *lock);

/* Keeps every thread from becoming the bias owner, so lock_fast() always fails. Call it before the first use. */
void vmm__biased_disable(struct biased_lock *lock);

/* For callers that are not on the fast path, or hold the lock for long. */
void vmm__biased_lock(struct biased_lock *lock);

/* As vmm__biased_lock(), for the lock of a second lane. The grow lock makes the order of the two irrelevant, but
 * ThreadSanitizer sees that both orders occur. It does not report locks that are taken by trying. */
void vmm__biased_lock_second(struct biased_lock *lock);

/*
 * A holder by vmm__biased_lock() or lock_second() leaves the mutex and stays the holder; it takes the mutex again
 * before it releases the lock. So a thread may hold the locks of any number of lanes: ThreadSanitizer ends a process in
 * which a thread holds more than 64 mutexes.
 */
void vmm__biased_keep(struct biased_lock *lock);
void vmm__biased_keep_end(struct biased_lock *lock);

/* Takes the lock for short work if the thread is the bias owner; otherwise returns false. */
static inline bool vmm__biased_lock_fast(struct biased_lock *lock)
{
    struct thread_slot *thread_slot = atomic_load_explicit(&lock->bias_owner, memory_order_acquire);
    if (thread_slot == NULL || !vmm__thread_slot_is_mine(thread_slot))
        return false;
    VMM_LOCK_ORDER(lock);
    vmm__thread_slot_inherit(thread_slot);
    atomic_store_explicit(&thread_slot->inside, lock, memory_order_relaxed);
    vmm__barrier_light();
    if (atomic_load_explicit(&lock->bias_owner, memory_order_relaxed) == thread_slot) {
        lock->inside = thread_slot;
        VMM_LOCK_TAKE(lock);
        return true;
    }
    atomic_store_explicit(&thread_slot->inside, NULL, memory_order_release);
    return false;
}

/* Takes the lock after lock_fast() failed, and may make the thread the bias owner. */
void vmm__biased_lock_slow(struct biased_lock *lock);

/* For vmm__biased_unlock(): releases a lock that was not taken by lock_fast(). */
void vmm__biased_unlock_mutex(struct biased_lock *lock);

/* Whether the caller, who holds the lock, used lock_fast(). */
static inline bool vmm__biased_is_fast(const struct biased_lock *lock)
{
    return lock->inside != NULL;
}

/* Releases the lock, however it was taken. */
static inline void vmm__biased_unlock(struct biased_lock *lock)
{
    struct thread_slot *thread_slot = lock->inside;
    VMM_LOCK_RELEASE(lock);
    if (thread_slot == NULL) {
        vmm__biased_unlock_mutex(lock);
        return;
    }
    lock->inside = NULL;
    atomic_store_explicit(&thread_slot->inside, NULL, memory_order_release);
}

#endif
