/*
 * Children of fork(). A child has a copy of its parent's records, but not the threads that may have been changing them,
 * and no CUDA. Objects store the generation of the process that created them, so that a child leaves its parent's
 * objects alone.
 *
 * Owns: the generation of the process, and the list of functions that a child calls. Invariants:
 *  1. the generation is 1 in the process that loaded the library, and one more in each child;
 *  2. the child's only thread changes it and calls the functions before fork() returns in the child.
 * Processes that clone(), vfork() or _Fork() create are not covered: they must not use the library before exec().
 * May be called by: everything. Locks: its own, only to register a function; a child takes none.
 */
#ifndef VMM_BASE_FORK_H
#define VMM_BASE_FORK_H

#include "vmmcache/vmmcache.h"

#include <stdatomic.h>
#include <stdint.h>

typedef void (*fork_fn)(void);

/* Of a function that a child calls: it is the only thread, but ThreadSanitizer remembers those of the parent. */
#define VMM_FORK_CHILD __attribute__((no_sanitize("thread")))

extern _Atomic uint64_t vmm__fork_generations;

static inline uint64_t vmm__fork_generation(void)
{
    return atomic_load_explicit(&vmm__fork_generations, memory_order_relaxed);
}

/* From now on each child raises the generation and calls child_begin() unless that is NULL. A function that is
 * registered twice is called once. It must take no lock. ERR_HOST_OOM. Any thread. */
vmm_status vmm__fork_watch(fork_fn child_begin);

/* Returns ERR_FORKED, with an error line, for a call of `function` on a parent's object. */
vmm_status vmm__fork_refuse(const char *function);

#endif
