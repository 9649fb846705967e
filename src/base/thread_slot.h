/*
 * Thread slots: each thread has one, in which other threads see which biased lock it is inside. A slot belongs to the
 * identity of its thread for ever. So a thread that is delayed between reading a bias owner and storing to its slot can
 * disturb only itself. In a child of fork() the parent's slots are disabled, so no thread of the child takes a lock of
 * the parent by lock_fast().
 *
 * Owns: the table of slots, which all caches of the process share.
 * May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_THREAD_SLOT_H
#define VMM_BASE_THREAD_SLOT_H

#include "base/sanitizer.h"
#include "base/thread.h"

#include <stdatomic.h>

enum { THREAD_SLOTS = 1024 };

struct thread_slot {
    _Alignas(64) _Atomic uintptr_t thread; /* 0: free */
    _Atomic(const void *) inside; /* the lock that lock_fast() has taken, or tries to take */
    _Atomic int number;           /* in the order in which the slots were claimed */
};

/* Disables all slots in use. The only thread of a child of fork() calls it. */
void vmm__thread_slots_leave(void);

/* Returns the calling thread's slot, and claims one if it has none; NULL if all slots are in use. */
struct thread_slot *vmm__thread_slot_mine(void);

/* Returns the number of the calling thread's slot; -1 if it has none, or its slot is disabled. Threads that claimed
 * their slots one after another have consecutive numbers. */
int vmm__thread_slot_number(void);

/* Disables the calling thread's slot, until it returns to it: lock_fast() fails meanwhile. A thread without a slot
 * claims one first. */
void vmm__thread_slot_leave(void);
void vmm__thread_slot_return(void);

static inline bool vmm__thread_slot_is_mine(const struct thread_slot *thread_slot)
{
    return atomic_load_explicit(&thread_slot->thread, memory_order_relaxed) == vmm__thread_self();
}

/* Everything that an ended thread of the same identity did happened before this thread began. ThreadSanitizer does not
 * see that order, so it needs an acquire load. */
static inline void vmm__thread_slot_inherit(const struct thread_slot *thread_slot)
{
#ifdef VMM_THREAD_SANITIZER
    (void)atomic_load_explicit(&thread_slot->inside, memory_order_acquire);
#else
    (void)thread_slot;
#endif
}

#endif
