/*
 * Mutual exclusion. Two kinds of locks exist in a cache, taken in this order: first the cache's
 * grow lock, then pools' locks (base/biased.h). A thread holds a second pool's lock only while it holds the grow
 * lock, so no two threads can wait for each other.
 */
#ifndef VMM_BASE_LOCK_H
#define VMM_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

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

/* False if somebody else has it. */
static inline bool vmm__lock_try(struct lock *lock)
{
    return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void vmm__lock_drop(struct lock *lock)
{
    (void)pthread_mutex_unlock(&lock->mutex);
}

#endif
