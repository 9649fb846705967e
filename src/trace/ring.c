/* A ring of events: see ring.h. */
#include "trace/ring.h"
#include "base/hostmem.h"

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
