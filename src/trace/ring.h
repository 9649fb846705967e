/*
 * A ring of events, from the threads that record them to the one that writes them.
 *
 * Owns: its slots. A push claims a position and publishes its slot; positions are the order of the events. The reader
 * takes slots in that order and releases each. Invariant: the turn of a slot is the position that may use it next, or
 * that position + 1 while it holds an event (Vyukov's bounded queue).
 * May be called by: trace. Locks: none; any thread may push, and one at a time may take.
 */
#ifndef VMM_TRACE_RING_H
#define VMM_TRACE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_SLOTS = 1 << 16 };

enum trace_kind {
    TRACE_ALLOC,
    TRACE_FOUND, /* a block that was live when the recording began */
    TRACE_FREE,
    TRACE_WAIT, /* the block is freed, and other streams still use it */
    TRACE_DONE, /* such a block became free */
    TRACE_MAP,
    TRACE_UNMAP,
    TRACE_HOME,  /* a chunk was mapped */
    TRACE_PLACE, /* it was mapped at further addresses, in a view */
    TRACE_GONE,  /* one of these mappings ended */
    TRACE_USE,   /* of a block, by another stream */
    TRACE_NAME,  /* of a block */
    TRACE_POOL,  /* the name of a pool */
    TRACE_NOTE
};

struct trace_event {
    enum trace_kind kind;
    uint64_t address;
    uint64_t bytes;
    uint64_t time_us;
    uint64_t stream; /* HOME, PLACE: the number of the chunk */
    uint64_t pool;   /* its handle; 0: none */
    void *attached;  /* ALLOC: struct stack; NAME, POOL, NOTE: struct trace_text; NULL: none */
};

struct ring_slot {
    _Atomic uint64_t turn;
    struct trace_event event;
};

struct ring {
    struct ring_slot *slots;
    _Alignas(64) _Atomic uint64_t head; /* the next position to claim */
    _Alignas(64) uint64_t tail;         /* the next position to take; only the reader uses it */
};

/* False: no host memory. */
bool vmm__ring_init(struct ring *ring);
void vmm__ring_fini(struct ring *ring);

/* Claims a slot for the event that the caller writes into it and publishes; its turn is its position. NULL: the ring is
 * full. */
static inline struct ring_slot *vmm__ring_claim(struct ring *ring)
{
    uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    struct ring_slot *slot;
    do {
        slot = &ring->slots[at % RING_SLOTS];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        if (turn < at)
            return NULL;
        if (turn > at) { /* another thread has claimed it */
            at = atomic_load_explicit(&ring->head, memory_order_relaxed);
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&ring->head, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return slot;
    } while (true);
}

static inline void vmm__ring_publish(struct ring_slot *slot)
{
    uint64_t at = atomic_load_explicit(&slot->turn, memory_order_relaxed);
    atomic_store_explicit(&slot->turn, at + 1, memory_order_release);
}

/* The oldest event, until it is released. NULL if there is none, or if its push has not ended. */
static inline const struct trace_event *vmm__ring_first(struct ring *ring)
{
    struct ring_slot *slot = &ring->slots[ring->tail % RING_SLOTS];
    bool is_there = atomic_load_explicit(&slot->turn, memory_order_acquire) == ring->tail + 1;
    return is_there ? &slot->event : NULL;
}

static inline void vmm__ring_release(struct ring *ring)
{
    struct ring_slot *slot = &ring->slots[ring->tail % RING_SLOTS];
    atomic_store_explicit(&slot->turn, ring->tail + RING_SLOTS, memory_order_release);
    ring->tail++;
}

#endif
