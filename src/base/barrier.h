/*
 * A memory barrier that one thread has all threads of the process execute, so that the other side of
 * an agreement between them needs none: who runs often orders its accesses for the compiler only, who
 * comes seldom pays for both (membarrier(2), "private expedited"; the idea is that of user-space RCU,
 * Desnoyers et al., IEEE TPDS 2012).
 *
 * Under ThreadSanitizer, which knows nothing of it, the side that runs often uses a fence, too.
 * Owns: nothing but whether the system has it. May be called by: base.
 */
#ifndef VMM_BASE_BARRIER_H
#define VMM_BASE_BARRIER_H

#include "base/sanitizer.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Whether the system offers it; registers the process with the first call. Any thread. */
bool vmm__barrier_is_ready(void);

/* Every thread of the process has executed a full barrier between call and return. Only if ready. */
void vmm__barrier_all(void);

/* Lets other threads run while one waits for what another does in a moment; round counts from 0. After
 * some rounds it sleeps: a thread of real-time priority never yields to one of lower. */
void vmm__barrier_pause(unsigned round);

/* The side that runs often: orders a store before a later load, as seen by who calls barrier_all. */
static inline void vmm__barrier_light(void)
{
#ifdef VMM_THREAD_SANITIZER
    atomic_thread_fence(memory_order_seq_cst);
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

#endif
