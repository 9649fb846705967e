/*
 * A memory barrier that one thread makes all threads of the process execute. It serves a pair of code paths: the
 * frequent one orders its accesses for the compiler only, and the rare one pays for both (membarrier(2), "private
 * expedited"; the idea is that of user-space RCU, Desnoyers et al., IEEE TPDS 2012).
 *
 * ThreadSanitizer does not know membarrier(), so under it the frequent path uses a fence, too.
 * Owns: one flag, whether the system has the barrier. May be called by: base, lane. Locks: none (atomics).
 */
#ifndef VMM_BASE_BARRIER_H
#define VMM_BASE_BARRIER_H

#include "base/sanitizer.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Returns whether the system has the barrier. The first call registers the process. Any thread. */
bool vmm__barrier_is_ready(void);

/* Makes every thread of the process execute a full barrier before this call returns. Requires is_ready(). */
void vmm__barrier_all(void);

/* Lets other threads run while this one polls; `round` counts from 0. It yields first and sleeps in later rounds,
 * because a thread of real-time priority never yields to one of lower priority. */
void vmm__barrier_pause(unsigned round);

/* For the frequent path: orders a store before a later load, as seen by a thread that calls vmm__barrier_all(). */
static inline void vmm__barrier_light(void)
{
#ifdef VMM_THREAD_SANITIZER
    atomic_thread_fence(memory_order_seq_cst);
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

#endif
