/*
 * Mutual exclusion. Two kinds of locks exist in a cache, taken in this order: first the cache's
 * grow lock, then pools' locks (base/biased.h). A thread holds a second pool's lock only while it
 * holds the grow lock, so no two threads can wait for each other.
 */
#ifndef VMM_BASE_LOCK_H
#define VMM_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
    pthread_mutex_t mutex;
};

/* Cannot fail with default attributes on the systems that we build for. */
static inline void vmm__lock_init(struct lock *lock)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
}

static inline void vmm__lock_fini(struct lock *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

static inline void vmm__lock_take(struct lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
}

static inline void vmm__lock_drop(struct lock *lock)
{
    (void)pthread_mutex_unlock(&lock->mutex);
}

/*
 * A lock that is had in the order of asking. A mutex may be taken again by who has just dropped it before
 * one that waits has woken up: a thread that grows and trims all the time kept others waiting for seconds.
 */
struct fair_lock {
    pthread_mutex_t mutex; /* guards all below, for moments */
    pthread_cond_t changed;
    uint64_t asked; /* how many have asked, and how many have had it */
    uint64_t served;
};

static inline void vmm__fair_init(struct fair_lock *lock)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
    (void)pthread_cond_init(&lock->changed, NULL);
    lock->asked = 0;
    lock->served = 0;
}

static inline void vmm__fair_fini(struct fair_lock *lock)
{
    (void)pthread_cond_destroy(&lock->changed);
    (void)pthread_mutex_destroy(&lock->mutex);
}

static inline void vmm__fair_take(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    uint64_t number = lock->asked++;
    while (lock->served != number)
        (void)pthread_cond_wait(&lock->changed, &lock->mutex);
    (void)pthread_mutex_unlock(&lock->mutex);
}

/* False if somebody else has it. */
static inline bool vmm__fair_try(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    bool is_free = lock->served == lock->asked;
    lock->asked += is_free;
    (void)pthread_mutex_unlock(&lock->mutex);
    return is_free;
}

static inline void vmm__fair_drop(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    lock->served++;
    (void)pthread_cond_broadcast(&lock->changed);
    (void)pthread_mutex_unlock(&lock->mutex);
}

#endif
