/* Slots of threads: see thread_slot.h. */
#include "base/thread_slot.h"

#include <stddef.h>

/* The owner of a slot that is disabled. No thread has this identity, because identities are addresses. */
#define SLOT_DISABLED ((uintptr_t)1)

static struct thread_slot thread_slots[THREAD_SLOTS];
static _Thread_local struct thread_slot *mine;
static _Atomic int claimed_slots;

/* Claims a free slot, or one that the thread has already. A new thread inherits the slot of an ended thread with the
 * same identity. */
static bool thread_slot_claim(struct thread_slot *thread_slot, uintptr_t self)
{
    uintptr_t thread = atomic_load_explicit(&thread_slot->thread, memory_order_relaxed);
    if (thread == self)
        return true;
    if (thread != 0 ||
        !atomic_compare_exchange_strong_explicit(&thread_slot->thread, &thread, self,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    int number = atomic_fetch_add_explicit(&claimed_slots, 1, memory_order_relaxed);
    atomic_store_explicit(&thread_slot->number, number, memory_order_relaxed);
    return true;
}

void vmm__thread_slots_leave(void)
{
    for (int i = 0; i < THREAD_SLOTS; i++) {
        if (atomic_load_explicit(&thread_slots[i].thread, memory_order_relaxed) != 0)
            atomic_store_explicit(&thread_slots[i].thread, SLOT_DISABLED, memory_order_relaxed);
    }
    mine = NULL;
}

struct thread_slot *vmm__thread_slot_mine(void)
{
    uintptr_t self = vmm__thread_self();
    uint64_t hash = (uint64_t)self * UINT64_C(0x9E3779B97F4A7C15) >> 32; /* hint: a hash */
    for (uint64_t i = 0; mine == NULL && i < THREAD_SLOTS; i++) { /* hint: any free slot will do */
        struct thread_slot *thread_slot = &thread_slots[(hash + i) % THREAD_SLOTS];
        if (thread_slot_claim(thread_slot, self))
            mine = thread_slot;
    }
    return mine;
}

int vmm__thread_slot_number(void)
{
    if (mine == NULL || !vmm__thread_slot_is_mine(mine))
        return -1;
    return atomic_load_explicit(&mine->number, memory_order_relaxed);
}

/* Claims a slot first if the thread has none: the slot of an ended thread with its identity may exist and be enabled,
 * and a slot that the thread claimed later would be enabled. */
void vmm__thread_slot_leave(void)
{
    struct thread_slot *thread_slot = vmm__thread_slot_mine();
    if (thread_slot != NULL)
        atomic_store_explicit(&thread_slot->thread, SLOT_DISABLED, memory_order_relaxed);
}

void vmm__thread_slot_return(void)
{
    if (mine != NULL)
        atomic_store_explicit(&mine->thread, vmm__thread_self(), memory_order_relaxed);
}
