/*
 * Callbacks: the functions of the program that the library calls, and which of them this thread is in. A callback that
 * runs while locks are held must not call its own cache: the call would wait for itself, or find the cache half
 * changed. Entry points refuse such calls. The fast path does not check for them. Instead the callback disables the
 * thread's slot, so vmm__biased_lock_fast() fails and the call takes the slow path, which checks.
 *
 * Owns: for each thread, a list on its stack. Invariants:
 *  1. the thread's slot is disabled as long as its list has a callback that runs with locks held.
 * May be called by: everything. Locks: none (thread-local).
 */
#ifndef VMM_BASE_CALLBACK_H
#define VMM_BASE_CALLBACK_H

#include "base/lock_rank.h"

#include <stdbool.h>

struct callback {
    const void *owner; /* the cache */
    bool holds_locks;
    const struct callback *outer;
    VMM_LOCK_CHECK_MEMBER
};

/* Call these around a callback; `callback` lies on the caller's stack. */
void vmm__callback_begin(struct callback *callback, const void *owner, bool holds_locks);
void vmm__callback_end(const struct callback *callback);

/* Returns whether the thread is in a callback of this owner that runs with, or without, locks held. */
bool vmm__callback_is_in(const void *owner, bool holds_locks);

#endif
