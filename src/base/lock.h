/*
 * Mutual exclusion, for what is held for moments. A cache has two kinds of locks beside, taken in this order: first
 * its grow lock (base/fair.h), then pools' locks (base/biased.h). A thread holds a second pool's lock only while
 * it holds the grow lock, so no two threads can wait for each other.
 */
#ifndef VMM_BASE_LOCK_H
#define VMM_BASE_LOCK_H

#include <pthread.h>

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

#endif
