/* Where threads sit: see seat.h. */
#include "base/seat.h"

#include <stddef.h>

/* Who is on a seat that is taken while its thread is away: no thread's identity, for those are addresses. */
#define NOBODY ((uintptr_t)1)

static struct seat seats[SEATS];
static _Thread_local struct seat *mine;

/* Whether the seat is, or now becomes, the thread's. A thread that has ended leaves its seat to the next
 * one of the same identity. */
static bool seat_claim(struct seat *seat, uintptr_t self)
{
    uintptr_t thread = atomic_load_explicit(&seat->thread, memory_order_relaxed);
    return thread == self || (thread == 0 && atomic_compare_exchange_strong_explicit(
                                                 &seat->thread, &thread, self, memory_order_acq_rel,
                                                 memory_order_relaxed));
}

void vmm__seats_leave(void)
{
    for (int i = 0; i < SEATS; i++) {
        if (atomic_load_explicit(&seats[i].thread, memory_order_relaxed) != 0)
            atomic_store_explicit(&seats[i].thread, NOBODY, memory_order_relaxed);
    }
    mine = NULL;
}

struct seat *vmm__seat_mine(void)
{
    uintptr_t self = vmm__thread_self();
    uint64_t hash = (uint64_t)self * UINT64_C(0x9E3779B97F4A7C15) >> 32; /* hint: a hash */
    for (uint64_t i = 0; mine == NULL && i < SEATS; i++) { /* hint: any seat will do */
        struct seat *seat = &seats[(hash + i) % SEATS];
        if (seat_claim(seat, self))
            mine = seat;
    }
    return mine;
}

bool vmm__seat_is_taken(void)
{
    return mine != NULL && vmm__seat_is_mine(mine);
}

/* One that has none takes it now: else its identity's could be there already, or it could take one while it is away,
 * and be on it. */
void vmm__seat_leave(void)
{
    struct seat *seat = vmm__seat_mine();
    if (seat != NULL)
        atomic_store_explicit(&seat->thread, NOBODY, memory_order_relaxed);
}

void vmm__seat_return(void)
{
    if (mine != NULL)
        atomic_store_explicit(&mine->thread, vmm__thread_self(), memory_order_relaxed);
}
