/*
 * A timeline says when the work that was submitted to a stream before some moment has finished.
 *
 * Moments are epochs. A free stamps memory with the current epoch, which costs one load. Code
 * that later wants to use the memory elsewhere asks whether the epoch has passed. If there is no
 * event for it, the timeline records one and begins a new epoch. A lane whose memory other streams
 * search also records events as it frees: see vmm__lane_lend_locked() for when. When the ring of events is
 * full, every other one is dropped, except those that a host wait needs.
 *
 * Owns: its events. Invariants:
 *  1. passed < epoch of the oldest event < ... < epoch of the newest event < now;
 *  2. if passed >= e, all work that was submitted before something was stamped e has
 *     finished. To record an event for epoch e, `now` first moves beyond e, and the event is
 *     recorded after that: every stamp of e was therefore read before the event was
 *     recorded. `now` may advance without an event at any time;
 *  3. once the stream is closed, its newest event covers everything stamped later, too,
 *     because no more work comes, and the driver is not asked about the stream.
 * A capturing stream can record no event: a call that needs one returns VMM__PENDING until the
 * capture has ended, also for waiting and following. So it is for a stream whose capture was
 * announced: a capture that begins and ends while an event is recorded would go unnoticed, and
 * CUDA does not survive every query of an event that a capture contains. The same holds for a stale stream, which was
 * destroyed and is unknown to the driver: only a device wait says when its work has finished.
 * May be called by: vm, lane, cache, debug, api. Locks: its own. Under it only the lock of the routes (is_announced)
 * and the driver's are taken, and no thread waits for the device.
 */
#ifndef VMM_VM_TIMELINE_H
#define VMM_VM_TIMELINE_H

#include "base/mutex.h"
#include "driver/driver.h"

enum { TIMELINE_EVENTS = 16 };

/* Captures that the program has announced. */
struct capture_watch {
    /* Whether a stream may be captured. Called with locks held. */
    bool (*is_announced)(void *context, vmm_stream stream);
    void *context;
    _Atomic uint64_t changes; /* of what is announced */
};

struct timeline_event {
    void *event; /* reused after it has passed */
    uint64_t epoch;
};

struct timeline {
    struct driver *driver;
    const struct capture_watch *watch; /* NULL: none is announced */
    _Atomic(vmm_stream) stream;        /* changes in vmm__timeline_resume() */
    _Atomic uint64_t now;
    _Atomic bool has_ended;      /* the stream is closed: see invariant 3 */
    _Atomic bool is_stale;       /* the driver did not know the stream at the last call */
    _Atomic bool is_unknown;     /* the driver did not; a device wait ends is_stale only */
    _Atomic uint64_t references; /* records that name it: uses, and chunks in limbo */
    struct mutex lock;           /* guards all below */
    uint64_t passed;
    struct timeline_event events[TIMELINE_EVENTS]; /* a ring; the oldest is at `oldest` */
    unsigned oldest;
    unsigned count;
    /* By place in `events`: host waits under way. Such an event is neither dropped, reused nor destroyed. */
    uint16_t waiters[TIMELINE_EVENTS];
};

void vmm__timeline_init(struct timeline *timeline, struct driver *driver, vmm_stream stream);

/* Destroys the events, even if work is pending. Tries each twice, and returns the first error. */
vmm_status vmm__timeline_fini(struct timeline *timeline);

/* Count a record that names the timeline, and uncount it. The timeline may be NULL. */
static inline void vmm__timeline_refer(struct timeline *timeline)
{
    if (timeline != NULL)
        atomic_fetch_add_explicit(&timeline->references, 1, memory_order_relaxed);
}

static inline void vmm__timeline_forget(struct timeline *timeline)
{
    if (timeline != NULL)
        atomic_fetch_sub_explicit(&timeline->references, 1, memory_order_release);
}

/* Whether no record names the timeline. */
static inline bool vmm__timeline_is_unreferenced(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->references, memory_order_acquire) == 0;
}

/* Destroys the events that are not in use. An event that the driver refuses to destroy is
 * reused. */
void vmm__timeline_shrink(struct timeline *timeline);

/* The current epoch: the stamp for memory that is freed now. */
static inline uint64_t vmm__timeline_now(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->now, memory_order_acquire);
}

/* Begins a new epoch without an event, and returns the one that ended: earlier stamps are not
 * later than it, and all further stamps are. */
static inline uint64_t vmm__timeline_advance(struct timeline *timeline)
{
    return atomic_fetch_add_explicit(&timeline->now, 1, memory_order_acq_rel);
}

/* Makes sure that an event for `epoch` is recorded, so that it can be queried, waited for and
 * followed. Epoch 0 has always passed. VMM__PENDING: see the head of this file; a later call
 * records the event. */
vmm_status vmm__timeline_record(struct timeline *timeline, uint64_t epoch);

/* Records the last event of a stream, which no thread captures any longer, whatever was announced. */
vmm_status vmm__timeline_record_last(struct timeline *timeline);

/* The latest epoch that is known to have passed. Does not ask the driver. */
uint64_t vmm__timeline_passed(struct timeline *timeline);

/* VMM_OK if `epoch` has passed, VMM__PENDING if not; records an event if there is none for it. */
vmm_status vmm__timeline_query(struct timeline *timeline, uint64_t epoch);

/* Makes the host wait until `epoch` has passed. Other threads may use the timeline meanwhile, but
 * not destroy it. */
vmm_status vmm__timeline_wait(struct timeline *timeline, uint64_t epoch);

/* Makes later work of `stream` wait until `epoch` has passed. The host does not wait. */
vmm_status vmm__timeline_follow(struct timeline *timeline, uint64_t epoch, vmm_stream stream);

/* Whether vmm__timeline_follow() would succeed now: VMM__PENDING if `epoch` has not passed, and one of the two streams
 * is capturing, or the timeline's is stale. Submits no wait. */
vmm_status vmm__timeline_follow_check(struct timeline *timeline, uint64_t epoch, vmm_stream stream);

/* Marks `epoch` as passed. The caller guarantees that all work of the device that was submitted
 * up to its end has finished. */
void vmm__timeline_pass(struct timeline *timeline, uint64_t epoch);

/* Closes the stream: no more work comes. The newest event was recorded before this call and after
 * the last work. */
void vmm__timeline_end(struct timeline *timeline);

static inline bool vmm__timeline_has_ended(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->has_ended, memory_order_acquire);
}

/*
 * Attaches the timeline to a new stream after its stream was closed. If the newest event is
 * pending, the new stream waits for it on the device. VMM__PENDING: the new stream is capturing,
 * or stale. A failure changes nothing.
 */
vmm_status vmm__timeline_resume(struct timeline *timeline, vmm_stream stream);

static inline bool vmm__timeline_is_stale(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->is_stale, memory_order_acquire);
}

/* Whether the driver did not know the stream at the last call, regardless of device waits since. */
static inline bool vmm__timeline_is_unknown(const struct timeline *timeline)
{
    return atomic_load_explicit(&timeline->is_unknown, memory_order_acquire);
}

/* Waits for the device, and so for all work of a stale stream. */
vmm_status vmm__timeline_wait_stale(struct timeline *timeline);

/* Marks `epoch` as passed, and the stream as no longer stale. The caller has waited for the
 * device after the end of `epoch`. */
void vmm__timeline_pass_stale(struct timeline *timeline, uint64_t epoch);

vmm_status vmm__timeline_check(struct timeline *timeline);

#endif
