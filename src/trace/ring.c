/* A ring of events: see ring.h. */
#include "trace/ring.h"
#include "base/hostmem.h"

#include <stddef.h>

bool vmm__ring_init(struct ring *ring)
{
    ring->slots = vmm__host_alloc(RING_SLOTS, sizeof *ring->slots);
    if (ring->slots == NULL)
        return false;
    for (uint64_t i = 0; i < RING_SLOTS; i++)
        atomic_init(&ring->slots[i].turn, i);
    atomic_init(&ring->head, 0);
    ring->tail = 0;
    return true;
}

void vmm__ring_fini(struct ring *ring)
{
    vmm__host_free(ring->slots, RING_SLOTS * sizeof *ring->slots);
    ring->slots = NULL;
}

bool vmm__ring_take(struct ring *ring, struct trace_event *event)
{
    struct ring_slot *slot = &ring->slots[ring->tail % RING_SLOTS];
    if (atomic_load_explicit(&slot->turn, memory_order_acquire) != ring->tail + 1)
        return false;
    *event = slot->event;
    atomic_store_explicit(&slot->turn, ring->tail + RING_SLOTS, memory_order_release);
    ring->tail++;
    return true;
}
