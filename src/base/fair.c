/* A lock in the order of asking: see fair.h. */
#include "base/fair.h"

#include <stddef.h>

struct fair_waiter {
    pthread_cond_t turn;
    bool has_turn;
    struct fair_waiter *next;
};

void vmm__fair_init(struct fair_lock *lock)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
    lock->is_taken = false;
    lock->first = NULL;
    lock->last = NULL;
}

void vmm__fair_fini(struct fair_lock *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

/* Waits at the end of the line, until who is before has handed the lock over. */
static void turn_wait_locked(struct fair_lock *lock)
{
    struct fair_waiter waiter = { .has_turn = false };
    (void)pthread_cond_init(&waiter.turn, NULL);
    if (lock->first == NULL)
        lock->first = &waiter;
    else
        lock->last->next = &waiter;
    lock->last = &waiter;
    while (!waiter.has_turn)
        (void)pthread_cond_wait(&waiter.turn, &lock->mutex);
    (void)pthread_cond_destroy(&waiter.turn);
}

void vmm__fair_take(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    if (lock->is_taken)
        turn_wait_locked(lock);
    lock->is_taken = true;
    (void)pthread_mutex_unlock(&lock->mutex);
}

bool vmm__fair_try(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    bool is_free = !lock->is_taken;
    lock->is_taken = true;
    (void)pthread_mutex_unlock(&lock->mutex);
    return is_free;
}

void vmm__fair_drop(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    struct fair_waiter *next = lock->first;
    lock->is_taken = next != NULL;
    if (next != NULL) {
        lock->first = next->next;
        next->has_turn = true;
        (void)pthread_cond_signal(
            &next->turn); /* it goes once it has the mutex, and its place with it */
    }
    (void)pthread_mutex_unlock(&lock->mutex);
}
