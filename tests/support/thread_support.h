/*
 * Threads: one that runs to its end, and none at all. threads_prevent() makes pthread_create() fail, as on a machine
 * without memory: the default stack size exceeds the address space. The test must be the only thread that starts
 * threads.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_THREAD_SUPPORT_H
#define VMM_THREAD_SUPPORT_H

#include "support/test_support.h"

#include <pthread.h>

/* Runs a function in a thread of its own until it ends; returns its result. */
static inline void *thread_run(void *(*function)(void *context), void *context)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, function, context), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
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
