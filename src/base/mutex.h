/*
 * A mutex for short sections. A cache has two further kinds of locks: its grow lock (base/fair.h) and the locks of its
 * lanes (base/biased.h). base/lock_rank.h states the order in which a thread takes them all.
 *
 * Owns: nothing. May be called by: everything. Locks: it is one.
 */
#ifndef VMM_BASE_MUTEX_H
#define VMM_BASE_MUTEX_H

#include "base/lock_rank.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct mutex {
    pthread_mutex_t mutex;
    VMM_LOCK_CHECK_MEMBER
};

/* Of a lock without rank, such as a static one: its order is not checked. */
#define VMM_MUTEX_INIT                                                                             \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                         \
    }

/* Cannot fail with default attributes on the systems that the library supports. */
static inline void vmm__mutex_init_ranked(struct mutex *lock, enum lock_rank rank)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
    (void)rank;
    VMM_LOCK_SET_RANK(lock, rank);
}

/* A leaf: its holder takes no further lock. */
static inline void vmm__mutex_init(struct mutex *lock)
{
    vmm__mutex_init_ranked(lock, LOCK_RANK_LEAF);
}

static inline void vmm__mutex_fini(struct mutex *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

static inline void vmm__mutex_lock(struct mutex *lock)
{
    VMM_LOCK_ORDER(lock);
    (void)pthread_mutex_lock(&lock->mutex);
    VMM_LOCK_TAKE(lock);
}

static inline void vmm__mutex_unlock(struct mutex *lock)
{
    VMM_LOCK_RELEASE(lock);
    (void)pthread_mutex_unlock(&lock->mutex);
}

/* Returns false, without waiting, if the lock is taken. */
static inline bool vmm__mutex_try_lock(struct mutex *lock)
{
    if (pthread_mutex_trylock(&lock->mutex) != 0)
        return false;
    VMM_LOCK_TAKE(lock);
    return true;
}

static inline void vmm__mutex_held_end(struct mutex *const *lock)
{
    vmm__mutex_unlock(*lock);
}

/* Locks until the end of the block; a value that the block returns is computed before the unlock. At most once in a
 * block. Functions that go on after the unlock call lock and unlock instead. */
#define VMM_HOLD(lock)                                                                             \
    __attribute__((cleanup(vmm__mutex_held_end))) struct mutex *const held = (lock);               \
    vmm__mutex_lock(held)

/* Unlocks, waits for the condition, and locks again. Returns false if the time `until` came first; NULL sets none. */
static inline bool vmm__mutex_wait(struct mutex *lock, pthread_cond_t *condition,
                                   const struct timespec *until)
{
    int waited = 0;
    VMM_LOCK_RELEASE(lock);
    if (until == NULL)
        waited = pthread_cond_wait(condition, &lock->mutex);
    else
        waited = pthread_cond_timedwait(condition, &lock->mutex, until);
    VMM_LOCK_TAKE(lock);
    return waited != ETIMEDOUT;
}

#endif
