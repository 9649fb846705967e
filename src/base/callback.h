/*
 * Functions of the program that the library calls: which of them this thread is in, and whose. One that is
 * called with locks held must not call its cache, which would wait for itself, or find it half changed.
 * Entry points refuse such calls. The fast path does not ask: meanwhile the thread is away from its seat,
 * so that it enters no biased lock, and whoever cannot enter takes the way on which it is asked.
 *
 * Owns: a list for each thread, on its stack. Invariants:
 *  1. the thread is away from its seat as long as any function on its list is called with locks held.
 * May be called by: everything. Locks: none (thread-local).
 */
#ifndef VMM_BASE_CALLBACK_H
#define VMM_BASE_CALLBACK_H

#include <stdbool.h>

struct callback {
    const void *owner; /* the cache */
    bool holds_locks;
    const struct callback *outer;
};

/* Around the call of such a function; `callback` lies on the caller's stack. */
void vmm__callback_begin(struct callback *callback, const void *owner, bool holds_locks);
void vmm__callback_end(const struct callback *callback);

/* Whether the thread is in a function of this owner that was called with locks held; without. */
bool vmm__callback_is_in(const void *owner, bool holds_locks);

#endif
