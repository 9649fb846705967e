/*
 * Processes: a child of fork() has a copy of its parent's records, but none of the threads that may have
 * been changing them, and nothing of CUDA. So what belongs to the parent is told from what the child
 * makes itself, and left alone.
 *
 * Owns: the process's generation, and the list of functions that a child calls. Invariants:
 *  1. the generation is 1 in the process that loaded the library, and one more in each child;
 *  2. it changes, and the functions are called, before the child's fork() returns, by its only thread.
 * What is not made by fork() (clone(), vfork(), _Fork()) is no child in this sense, and must not use the
 * library before it calls exec().
 * May be called by: everything.
 */
#ifndef VMM_BASE_FORK_H
#define VMM_BASE_FORK_H

#include "vmmcache/vmmcache.h"

#include <stdatomic.h>
#include <stdint.h>

typedef void (*fork_fn)(void);

extern _Atomic uint64_t vmm__fork_generations;

static inline uint64_t vmm__fork_generation(void)
{
    return atomic_load_explicit(&vmm__fork_generations, memory_order_relaxed);
}

/* From now on children count, and call child_begins() if that is not NULL; once, however often it is asked
 * for. A child function must take no lock. ERR_HOST_OOM. Any thread. */
vmm_status vmm__fork_watch(fork_fn child_begins);

/* The status of whatever a child asks of its parent's: ERR_FORKED, and the line that says what. */
vmm_status vmm__fork_refuse(const char *function);

#endif
