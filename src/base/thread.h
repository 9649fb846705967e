/*
 * The identity of the calling thread: unique among the threads that are alive.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_THREAD_H
#define VMM_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

static inline uintptr_t vmm__thread_self(void)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define VMM_THREAD_POINTER 1
#endif
#endif
#ifdef VMM_THREAD_POINTER
    return (uintptr_t)__builtin_thread_pointer();
#else
    return (uintptr_t)pthread_self();
#endif
}

#endif
