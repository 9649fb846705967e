/* Handles: see handle.h. */
#include "base/handle.h"

#include <stdatomic.h>
#include <stddef.h>

/* A handle, from its lowest bit: three zeros, as in a pointer; the kind; the slot; the uses of the slot. */
enum { KIND_SHIFT = 3, SLOT_SHIFT = 6, SLOT_BITS = 16, USES_SHIFT = SLOT_SHIFT + SLOT_BITS };
enum { SLOTS = 1 << SLOT_BITS };

/* What an open slot that has no record yet contains instead of a handle. */
#define SLOT_TAKEN UINT64_C(1)

struct slot {
    _Atomic uint64_t handle; /* 0: closed */
    _Atomic(void *) record;
    uint64_t uses; /* only the thread that has taken the slot changes it */
};

static struct slot slots[SLOTS]; /* slot 0 is never used, so that no handle is NULL */
static _Atomic uint32_t latest;  /* where the last search ended */

/* Takes a closed slot; 0: there is none. */
static uint32_t slot_take(void)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t number = (atomic_fetch_add_explicit(&latest, 1, memory_order_relaxed) + 1) % SLOTS;
        uint64_t expected = 0;
        if (number != 0 &&
            atomic_compare_exchange_strong(&slots[number].handle, &expected, SLOT_TAKEN))
            return number;
    }
    return 0;
}

void *vmm__handle_open(enum handle_kind kind, void *record)
{
    uint32_t number = slot_take();
    if (number == 0)
        return NULL;
    struct slot *slot = &slots[number];
    uint64_t handle =
        ++slot->uses << USES_SHIFT | (uint64_t)number << SLOT_SHIFT | (uint64_t)kind << KIND_SHIFT;
    atomic_store_explicit(&slot->record, record, memory_order_release); /* after SLOT_TAKEN */
    atomic_store_explicit(&slot->handle, handle, memory_order_release);
    return (void *)(uintptr_t)handle;
}

static struct slot *slot_of(const void *handle)
{
    return &slots[(uint64_t)(uintptr_t)handle >> SLOT_SHIFT & (SLOTS - 1)];
}

static enum handle_kind kind_of(const void *handle)
{
    uint64_t mask = (1 << (SLOT_SHIFT - KIND_SHIFT)) - 1;
    return (enum handle_kind)((uint64_t)(uintptr_t)handle >> KIND_SHIFT & mask);
}

void *vmm__handle_find(enum handle_kind kind, const void *handle)
{
    struct slot *slot = slot_of(handle);
    uint64_t wanted = (uint64_t)(uintptr_t)handle;
    if (wanted <= SLOT_TAKEN || kind_of(handle) != kind ||
        atomic_load_explicit(&slot->handle, memory_order_acquire) != wanted)
        return NULL;
    void *record = atomic_load_explicit(&slot->record, memory_order_acquire);
    bool is_still = atomic_load_explicit(&slot->handle, memory_order_relaxed) == wanted;
    return is_still ? record : NULL;
}

bool vmm__handle_close(const void *handle)
{
    uint64_t wanted = (uint64_t)(uintptr_t)handle;
    return wanted > SLOT_TAKEN &&
           atomic_compare_exchange_strong(&slot_of(handle)->handle, &wanted, 0);
}
