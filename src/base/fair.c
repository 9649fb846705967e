/* A lock in the order of requests: see fair.h. */
#include "base/fair.h"

#include <stddef.h>

struct fair_waiter {
    pthread_cond_t received;
    bool has_lock;
    struct fair_waiter *next;
};

void vmm__fair_init(struct fair_lock *lock)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
    lock->is_taken = false;
    lock->first = NULL;
    lock->last = NULL;
    VMM_LOCK_SET_RANK(lock, LOCK_RANK_GROW);
}

void vmm__fair_fini(struct fair_lock *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

/* Waits at the end of the queue until a holder passes the lock to this thread. */
static void queue_wait_locked(struct fair_lock *lock)
{
    struct fair_waiter waiter = { .has_lock = false };
    (void)pthread_cond_init(&waiter.received, NULL);
    if (lock->first == NULL)
        lock->first = &waiter;
    else
        lock->last->next = &waiter;
    lock->last = &waiter;
    while (!waiter.has_lock)
        (void)pthread_cond_wait(&waiter.received, &lock->mutex);
    (void)pthread_cond_destroy(&waiter.received);
}

void vmm__fair_lock(struct fair_lock *lock)
{
    VMM_LOCK_ORDER(lock);
    (void)pthread_mutex_lock(&lock->mutex);
    if (lock->is_taken)
        queue_wait_locked(lock);
    lock->is_taken = true;
    (void)pthread_mutex_unlock(&lock->mutex);
    VMM_LOCK_TAKE(lock);
}

bool vmm__fair_try_lock(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    bool was_free = !lock->is_taken;
    lock->is_taken = true;
    (void)pthread_mutex_unlock(&lock->mutex);
    if (was_free)
        VMM_LOCK_TAKE(lock);
    return was_free;
}

void vmm__fair_unlock(struct fair_lock *lock)
{
    VMM_LOCK_RELEASE(lock);
    (void)pthread_mutex_lock(&lock->mutex);
    struct fair_waiter *next = lock->first;
    lock->is_taken = next != NULL;
    if (next != NULL) {
        lock->first = next->next;
        next->has_lock = true;
        /* The waiter, with its place in the queue, is gone once it gets the mutex. */
        (void)pthread_cond_signal(&next->received);
    }
    (void)pthread_mutex_unlock(&lock->mutex);
}
