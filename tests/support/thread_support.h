/*
 * Threads: one that runs to its end, one that stays, and none at all. threads_prevent() makes pthread_create() fail, as
 * on a machine without memory: the default stack size exceeds the address space. The test must be the only thread that
 * starts threads.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_THREAD_SUPPORT_H
#define VMM_THREAD_SUPPORT_H

#include "support/test_support.h"

#include <pthread.h>
#include <semaphore.h>

/* Runs a function in a thread of its own until it ends; returns its result. */
static inline void *thread_run(void *(*function)(void *context), void *context)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, function, context), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result;
}

/* A thread that runs a function, and lives on. */
struct staying_thread {
    void *(*function)(void *context);
    void *context;
    pthread_t thread;
    sem_t has_run;
    sem_t ends;
};

static inline void *staying_thread_main(void *context)
{
    struct staying_thread *staying = context;
    void *result = staying->function(staying->context);
    (void)sem_post(&staying->has_run);
    (void)sem_wait(&staying->ends);
    return result;
}

/* Returns once the function has. */
static inline void thread_stay(struct staying_thread *staying, void *(*function)(void *context),
                               void *context)
{
    staying->function = function;
    staying->context = context;
    assert_int_equal(sem_init(&staying->has_run, 0, 0) | sem_init(&staying->ends, 0, 0), 0);
    assert_int_equal(pthread_create(&staying->thread, NULL, staying_thread_main, staying), 0);
    (void)sem_wait(&staying->has_run);
}

/* Returns what the function returned. */
static inline void *thread_leave(struct staying_thread *staying)
{
    void *result;
    (void)sem_post(&staying->ends);
    assert_int_equal(pthread_join(staying->thread, &result), 0);
    return result;
}

/* Returns the previous default stack size. */
static inline size_t thread_stacks_set(size_t bytes)
{
    pthread_attr_t attributes;
    size_t before;
    assert_int_equal(pthread_getattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, &before), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
    assert_int_equal(pthread_setattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    return before;
}

static inline size_t threads_prevent(void)
{
    return thread_stacks_set((size_t)1 << 62);
}

static inline void threads_allow(size_t before)
{
    assert_int_equal(thread_stacks_set(before), (size_t)1 << 62);
}

#endif
