/*
 * Seats: one for each thread, where others see which biased lock it is inside. A seat belongs to a thread's
 * identity for ever, so that a thread which was held up at the wrong moment disturbs nobody but itself. After
 * fork() the parent's seats are nobody's in the child, so that nobody there enters a lock of the parent's by one.
 *
 * Owns: the table of seats, which is shared by all caches of the process.
 * May be called by: base. Locks: none.
 */
#ifndef VMM_BASE_SEAT_H
#define VMM_BASE_SEAT_H

#include "base/sanitizer.h"
#include "base/thread.h"

#include <stdatomic.h>

enum { SEATS = 1024 };

struct seat {
    _Alignas(64) _Atomic uintptr_t thread; /* 0: free */
    _Atomic(const void *) inside;          /* the lock; or it is about to see whether it may be */
};

/* In a child of fork(), by its only thread: leaves all seats that are taken to nobody. */
void vmm__seats_leave(void);

/* The calling thread's seat, given to it now if it has none; NULL if all are taken. */
struct seat *vmm__seat_mine(void);

/* Whether the calling thread is on its seat; false if it is away, or has none yet. */
bool vmm__seat_is_taken(void);

/* The calling thread is away from its seat, which stays its own, until it returns: it enters no lock. One that has no
 * seat yet gets one to be away from. */
void vmm__seat_leave(void);
void vmm__seat_return(void);

static inline bool vmm__seat_is_mine(const struct seat *seat)
{
    return atomic_load_explicit(&seat->thread, memory_order_relaxed) == vmm__thread_self();
}

/* What a thread of the same identity did before it ended came before this one was made, but
 * ThreadSanitizer does not see that. */
static inline void vmm__seat_inherit(const struct seat *seat)
{
#ifdef VMM_THREAD_SANITIZER
    (void)atomic_load_explicit(&seat->inside, memory_order_acquire);
#else
    (void)seat;
#endif
}

#endif
