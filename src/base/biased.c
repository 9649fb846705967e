/* A lock biased to one thread: see biased.h. */
#include "base/biased.h"

#include <sched.h>
#include <stddef.h>

/* A barrier costs as much as a few hundred calls of lock_slow(). */
enum { REBIAS_THRESHOLD_FIRST = 16, REBIAS_THRESHOLD_MOST = 1024 };

void vmm__biased_init(struct biased_lock *lock)
{
    *lock = (struct biased_lock){ .may_bias = vmm__barrier_is_ready() };
    (void)pthread_mutex_init(&lock->mutex, NULL);
    (void)pthread_cond_init(&lock->kept_ended, NULL);
    VMM_LOCK_SET_RANK(lock, LOCK_RANK_LANE);
}

void vmm__biased_fini(struct biased_lock *lock)
{
    (void)pthread_cond_destroy(&lock->kept_ended);
    (void)pthread_mutex_destroy(&lock->mutex);
}

void vmm__biased_disable(struct biased_lock *lock)
{
    lock->may_bias = false;
}

/* Removes the bias and waits until the former bias owner is not inside. That wait is short: so is the work of
 * holders that used lock_fast(). */
static void bias_revoke_locked(struct biased_lock *lock, struct thread_slot *thread_slot)
{
    atomic_store_explicit(&lock->bias_owner, NULL, memory_order_relaxed);
    vmm__barrier_all();
    for (unsigned i = 0; atomic_load_explicit(&thread_slot->inside, memory_order_acquire) == lock;
         i++)
        vmm__barrier_pause(i);
    uint32_t threshold =
        lock->rebias_threshold == 0 ? REBIAS_THRESHOLD_FIRST : lock->rebias_threshold * 2;
    lock->rebias_threshold = threshold < REBIAS_THRESHOLD_MOST ? threshold : REBIAS_THRESHOLD_MOST;
    lock->visits = 0;
}

/* Stands for the bias owner of a lock whose holder has left the mutex. It is the slot of no thread. */
static struct thread_slot kept_slot;

/* Waits for a holder that has left the mutex, or ends the bias of another thread. */
static void other_end_locked(struct biased_lock *lock, struct thread_slot *bias_owner)
{
    while (bias_owner == &kept_slot) {
        (void)pthread_cond_wait(&lock->kept_ended, &lock->mutex);
        bias_owner = atomic_load_explicit(&lock->bias_owner, memory_order_relaxed);
    }
    if (bias_owner != NULL && !vmm__thread_slot_is_mine(bias_owner))
        bias_revoke_locked(lock, bias_owner);
}

/* Makes the holder of the mutex the only holder of the lock. Returns whether there was another, or another bias
 * owner. */
static bool others_exclude_locked(struct biased_lock *lock)
{
    struct thread_slot *thread_slot = atomic_load_explicit(&lock->bias_owner, memory_order_relaxed);
    bool is_others = thread_slot != NULL && !vmm__thread_slot_is_mine(thread_slot);
    if (is_others)
        other_end_locked(lock, thread_slot);
    VMM_LOCK_TAKE(lock);
    return is_others;
}

void vmm__biased_lock(struct biased_lock *lock)
{
    VMM_LOCK_ORDER(lock);
    (void)pthread_mutex_lock(&lock->mutex);
    (void)others_exclude_locked(lock);
}

static void mutex_lock_second(struct biased_lock *lock)
{
#ifdef VMM_THREAD_SANITIZER
    while (pthread_mutex_trylock(&lock->mutex) != 0)
        (void)sched_yield();
#else
    (void)pthread_mutex_lock(&lock->mutex);
#endif
}

void vmm__biased_lock_second(struct biased_lock *lock)
{
    VMM_LOCK_ORDER(lock);
    mutex_lock_second(lock);
    (void)others_exclude_locked(lock);
}

void vmm__biased_lock_slow(struct biased_lock *lock)
{
    VMM_LOCK_ORDER(lock);
    bool waited = pthread_mutex_trylock(&lock->mutex) != 0;
    if (waited)
        (void)pthread_mutex_lock(&lock->mutex);
    waited |= others_exclude_locked(lock);
    lock->waits += waited;
    uintptr_t self = vmm__thread_self();
    lock->visits = lock->visitor == self ? lock->visits + 1 : 0;
    lock->visitor = self;
    if (lock->may_bias && lock->visits >= lock->rebias_threshold)
        atomic_store_explicit(&lock->bias_owner, vmm__thread_slot_mine(), memory_order_release);
}

void vmm__biased_keep(struct biased_lock *lock)
{
    lock->kept_bias_owner = atomic_load_explicit(&lock->bias_owner, memory_order_relaxed);
    atomic_store_explicit(&lock->bias_owner, &kept_slot, memory_order_relaxed);
    (void)pthread_mutex_unlock(&lock->mutex);
}

void vmm__biased_keep_end(struct biased_lock *lock)
{
    mutex_lock_second(lock);
    atomic_store_explicit(&lock->bias_owner, lock->kept_bias_owner, memory_order_release);
    (void)pthread_cond_broadcast(&lock->kept_ended);
}

void vmm__biased_unlock_mutex(struct biased_lock *lock)
{
    (void)pthread_mutex_unlock(&lock->mutex);
}
