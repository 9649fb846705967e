/*
 * The recorder of a cache: threads push events into a ring, and a thread of the library writes them to a file, twice a
 * second and whenever a quarter of the ring has filled up. A thread that finds the ring full waits for the writer,
 * which takes none of the cache's locks.
 *
 * The order of events is the order of the changes, because a free is pushed before another thread can allocate the
 * memory (with the lock of the lane or magazine held), and an allocation after it was made.
 *
 * Owns: the ring, the writer and its thread; a list of all recorders, so that exit() writes what they hold. Invariants:
 *  1. events are written only from open to close; those that come later are dropped;
 *  2. the recorder lives until the cache ends, so a thread that has found it may still push.
 * May be called by: vm, lane, cache, api, preload. Locks: `lock`, a leaf, guards the writer. A push takes only the
 * ticker's lock, also a leaf: the caller may hold any lock but a leaf. The lock of the list is taken before `lock`.
 */
#ifndef VMM_TRACE_RECORDER_H
#define VMM_TRACE_RECORDER_H

#include "base/ticker.h"
#include "trace/writer.h"

enum { HURRY_SLOTS = RING_SLOTS / 4 };

struct recorder {
    struct ring ring;
    struct ticker ticker;
    struct mutex lock;
    struct writer writer; /* guarded by the lock, as is every take from the ring */
    _Atomic bool is_open; /* changes with the lock held */
    _Atomic bool has_stacks;
    struct recorder *next; /* in the list */
};

/* Makes a recorder that is closed. ERR_HOST_OOM, also if there is no thread. */
vmm_status vmm__recorder_make(struct recorder **out);
void vmm__recorder_free(struct recorder *recorder);

/* Starts to write to a file. See vmm__writer_open(). */
vmm_status vmm__recorder_open(struct recorder *recorder, const char *path,
                              struct writer_origin origin);

/* Writes the rest and closes the file. ERR_INVALID_ARGUMENT: some of it could not be written; the line says why. */
vmm_status vmm__recorder_close(struct recorder *recorder);

/* The time of events. */
uint64_t vmm__recorder_now_us(void);

/* Waits for room in a full ring. */
struct ring_slot *vmm__recorder_wait(struct recorder *recorder);

/* Adds an event with the present time. Inlined, so that an event is only ever in registers and in its slot. */
static inline void vmm__recorder_push(struct recorder *recorder, struct trace_event event)
{
    event.time_us = vmm__recorder_now_us();
    struct ring_slot *slot = vmm__ring_claim(&recorder->ring);
    if (__builtin_expect(slot == NULL, false))
        slot = vmm__recorder_wait(recorder);
    uint64_t position = atomic_load_explicit(&slot->turn, memory_order_relaxed);
    slot->event = event;
    vmm__ring_publish(slot);
    if (__builtin_expect(position % HURRY_SLOTS == 0, false))
        vmm__ticker_hurry(&recorder->ticker);
}

/* Adds an event with the first TRACE_TEXT_BYTES - 1 bytes of a text (NOTE, NAME, POOL). */
void vmm__recorder_push_text(struct recorder *recorder, struct trace_event event, const char *text);

/* Adds a block's event. */
static inline void vmm__recorder_push_block(struct recorder *recorder, enum trace_kind kind,
                                            uint64_t address)
{
    vmm__recorder_push(recorder, (struct trace_event){ .kind = kind, .address = address });
}

/* The same, if there is a recorder. */
static inline void vmm__record_block(_Atomic(struct recorder *) const *where, enum trace_kind kind,
                                     uint64_t address)
{
    struct recorder *recorder = atomic_load_explicit(where, memory_order_acquire);
    if (recorder != NULL)
        vmm__recorder_push_block(recorder, kind, address);
}

#endif
