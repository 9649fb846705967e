/* A lock biased to one thread: see biased.h. */
#include "base/biased.h"

#include <sched.h>
#include <stddef.h>

/* A barrier costs as much as a few hundred visits. */
enum { PATIENCE_FIRST = 16, PATIENCE_MOST = 1024 };

void vmm__biased_init(struct biased_lock *lock)
{
    *lock = (struct biased_lock){ .may_favour = vmm__barrier_is_ready() };
    (void)pthread_mutex_init(&lock->mutex, NULL);
}

void vmm__biased_fini(struct biased_lock *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

void vmm__biased_deny(struct biased_lock *lock)
{
    lock->may_favour = false;
}

/* Makes nobody the favourite, with the mutex held. What is done between enter() and drop() is short. */
static void favourite_dismiss(struct biased_lock *lock, struct seat *seat)
{
    atomic_store_explicit(&lock->favourite, NULL, memory_order_relaxed);
    vmm__barrier_all();
    for (unsigned i = 0; atomic_load_explicit(&seat->inside, memory_order_acquire) == lock; i++)
        vmm__barrier_pause(i);
    uint32_t patience = lock->patience == 0 ? PATIENCE_FIRST : lock->patience * 2;
    lock->patience = patience < PATIENCE_MOST ? patience : PATIENCE_MOST;
    lock->visits = 0;
}

/* The mutex is held; from here on its holder is alone. */
static void others_exclude(struct biased_lock *lock)
{
    struct seat *seat = atomic_load_explicit(&lock->favourite, memory_order_relaxed);
    if (seat != NULL && !vmm__seat_is_mine(seat))
        favourite_dismiss(lock, seat);
}

void vmm__biased_take(struct biased_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    others_exclude(lock);
}

void vmm__biased_take_second(struct biased_lock *lock)
{
#ifdef VMM_THREAD_SANITIZER
    while (pthread_mutex_trylock(&lock->mutex) != 0)
        (void)sched_yield();
    others_exclude(lock);
#else
    vmm__biased_take(lock);
#endif
}

void vmm__biased_visit(struct biased_lock *lock)
{
    bool waited = pthread_mutex_trylock(&lock->mutex) != 0;
    if (waited)
        (void)pthread_mutex_lock(&lock->mutex);
    others_exclude(lock);
    lock->waits += waited;
    uintptr_t self = vmm__thread_self();
    lock->visits = lock->visitor == self ? lock->visits + 1 : 0;
    lock->visitor = self;
    if (lock->may_favour && lock->visits >= lock->patience)
        atomic_store_explicit(&lock->favourite, vmm__seat_mine(), memory_order_release);
}

void vmm__biased_leave(struct biased_lock *lock)
{
    (void)pthread_mutex_unlock(&lock->mutex);
}
