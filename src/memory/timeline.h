/*
 * A stream's timeline: tells when work that was submitted to a stream before some moment is done,
 * with events recorded only when somebody asks.
 *
 * Moments are epochs. Whoever frees memory stamps it with the epoch that is current then, which
 * costs one load. Whoever later wants that memory elsewhere asks whether the epoch has passed; only
 * then a mark (an event) is recorded, and a new epoch begins.
 *
 * Owns: the events of its marks.
 * Invariants:
 *  1. passed < epoch of the oldest mark < ... < epoch of the newest mark < now;
 *  2. all work that was submitted before something was stamped e is done once passed >= e.
 *     To make a mark for epoch e, `now` first moves beyond e and the event is recorded after that:
 *     a stamp of e was therefore read before the event was recorded. `now` may move on without a
 *     mark at any time.
 *  3. once the stream has ended its newest mark covers all that is stamped later, too, because no more
 *     work comes; and the driver is asked nothing about the stream.
 * On a stream that is being captured no mark can be made: what needs one is VMM_NOT_READY until the
 * capture has ended, waiting and following too. The same goes for a stream that is gone, one that was
 * destroyed and that the driver does not know any more: only a wait for the device tells when its work
 * is done.
 * May be called by: memory (limbo), heap, policy.
 * Locks: its own, a leaf: nothing else is taken while it is held, and nobody waits for the device with it.
 */
#ifndef VMM_MEMORY_TIMELINE_H
#define VMM_MEMORY_TIMELINE_H

#include "base/lock.h"
#include "driver/driver.h"

enum { TIMELINE_MARKS = 8 };

struct timeline_mark {
    void *event; /* kept for the next mark once it has passed */
    uint64_t epoch;
};

struct timeline {
    struct driver *driver;
    _Atomic(vmm_stream) stream; /* changes with resume */
    _Atomic uint64_t now;
    _Atomic bool has_ended; /* the stream: see invariant 3 */
    _Atomic bool is_gone;   /* the driver did not know the stream when it was asked last */
    struct lock lock;       /* guards all below */
    uint64_t passed;
    struct timeline_mark marks[TIMELINE_MARKS]; /* a ring; the oldest is at `oldest` */
    unsigned oldest;
    unsigned count;
};

void vmm__timeline_init(struct timeline *timeline, struct driver *driver, vmm_stream stream);

/* Destroys the events, each tried twice. Work need not be done. Returns the first error and goes on. */
vmm_status vmm__timeline_fini(struct timeline *timeline);

/* The epoch to stamp what is given up now. */
static inline uint64_t vmm__timeline_now(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->now, memory_order_acquire);
}

/* Begins a new epoch without an event, and returns the one that ended: what was stamped before is not
 * later than that, what is stamped from now on is. */
static inline uint64_t vmm__timeline_advance(struct timeline *timeline)
{
    return atomic_fetch_add_explicit(&timeline->now, 1, memory_order_acq_rel);
}

/* Makes sure that a mark for `epoch` is on its way, so that it can be asked for, waited for and
 * followed. Epoch 0 has always passed. VMM_NOT_READY: see above; asking later makes the mark. */
vmm_status vmm__timeline_mark(struct timeline *timeline, uint64_t epoch);

/* VMM_OK if `epoch` has passed, VMM_NOT_READY if not; records a mark if there is none for it. */
vmm_status vmm__timeline_query(struct timeline *timeline, uint64_t epoch);

/* Makes the host wait until `epoch` has passed. Others may use the timeline meanwhile, but not end it. */
vmm_status vmm__timeline_wait(struct timeline *timeline, uint64_t epoch);

/* Makes later work of `stream` wait until `epoch` has passed. The host does not wait. */
vmm_status vmm__timeline_follow(struct timeline *timeline, uint64_t epoch, vmm_stream stream);

/* For who knows that all work of the device has ended since `epoch` was current: it has passed. */
void vmm__timeline_pass(struct timeline *timeline, uint64_t epoch);

/* Ends the stream: no more work comes. The last mark was made before this, and after its last work. */
void vmm__timeline_end(struct timeline *timeline);

static inline bool vmm__timeline_has_ended(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->has_ended, memory_order_acquire);
}

/*
 * Goes on with a stream after another one has ended: its later work is made to wait for the mark of that one,
 * on the device, if it has not passed. VMM_NOT_READY: the stream is being captured, or gone. A failure leaves
 * everything as it was.
 */
vmm_status vmm__timeline_resume(struct timeline *timeline, vmm_stream stream);

static inline bool vmm__timeline_is_gone(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->is_gone, memory_order_acquire);
}

/* Waits for the device, and so for all that was submitted to a stream that is gone. */
vmm_status vmm__timeline_outwait(struct timeline *timeline);

vmm_status vmm__timeline_check(struct timeline *timeline);

#endif
