/*
 * A clock says when the work that was submitted before some moment has finished.
 *
 * Moments are epochs. A free stamps memory with the current epoch, which costs one load. Code that wants to use the
 * memory elsewhere asks whether the epoch has passed. If there is no event for it, the clock ticks: it begins a new
 * epoch, and then records an event for the one that ended.
 *
 * The clock of a cache covers all work of the device that can reach the memory, on whatever stream, declared or not. A
 * lane has a clock of its own if vmm_config.reuse is DECLARED or STREAM_WAIT: it covers the work of the lane's stream.
 * Once that stream has ended, or the driver does not know it, the events of the lane's clock cover all work, too.
 *
 * Owns: which events cover which epochs. Invariants:
 *  1. passed < epoch of the oldest event < ... < epoch of the newest event < now;
 *  2. if passed >= e, all work that the clock covers and that was submitted before something was stamped e has
 *     finished. To record an event for epoch e, `now` first moves beyond e, and the event is recorded after that: every
 *     stamp of e was therefore read before the event was recorded. `now` may advance without an event at any time;
 *  3. an event that covers an epoch, or that a thread waits for, is not recorded again;
 *  4. an event of all work is recorded only while no capture is announced, and neither the default stream nor one of
 *     the latest streams that have live blocks or make a request is being captured: the record would spoil the capture
 *     (vm/captures.h);
 *  5. an event of one stream is recorded only while no capture of that stream is announced or under way.
 *
 * Where the driver has no events of all work, or vmm_config.clock_kind is STREAMS, and for good once a capture was
 * met that was not announced, the cache's clock records the events of all streams that the cache knows, and joins
 * them on a stream of its own. A stream that the driver then rejects makes the clock blind: it cannot say when that
 * stream's work ends. So no epoch passes until a wait for the device. The change itself makes it blind, too: memory
 * that was freed before may wait for other streams.
 *
 * While a capture forbids an event, a call that needs one returns VMM__PENDING.
 * May be called by: vm, lane, cache, debug, api. Locks: its own. Under it only that of the captures, that of the events
 * and the driver's are taken, and the functions of the watch are called; no thread waits for the device.
 */
#ifndef VMM_VM_CLOCK_H
#define VMM_VM_CLOCK_H

#include "base/mutex.h"
#include "driver/driver.h"
#include "vm/events.h"

/* A clock is due when a CLOCK_SHARES-th of the pool's memory was freed (lane/lane.h), and questions tick, too: so
 * CLOCK_EVENTS events cover all memory whose work is unfinished. Measured in docs/results/clock.md. */
enum { CLOCK_SHARES = 64, CLOCK_EVENTS = 2 * CLOCK_SHARES, CLOCK_PROMPT = 16 };

/* A stream that the cache knows. */
struct known_stream {
    vmm_stream stream;
    _Atomic bool *is_gone; /* the driver has rejected it: the clock became blind then */
};

typedef bool next_stream(void *context, void **cursor, struct known_stream *out);

/* What a cache tells its clock. Called with locks held. */
struct clock_watch {
    /* The stream after *cursor, which begins as NULL; next_live: of the latest that have live blocks or make
     * a request. False: there is none. */
    next_stream *next;
    next_stream *next_live;
    void (*tell)(void *context, const char *line); /* something for the log */
    void *context;
};

struct clock_event {
    struct event *event;
    uint64_t epoch;
    bool covers_all; /* the work of all streams */
};

struct clock {
    struct driver *driver;
    struct events *events;
    struct clock *general;      /* the cache's; itself, if it is that one */
    _Atomic(vmm_stream) stream; /* of a lane's clock: whose work it covers, unless covers_all */
    _Atomic bool covers_all;    /* it covers the work of all streams */
    _Atomic uint64_t now;
    _Atomic uint64_t passed;
    _Atomic bool is_due;      /* much was freed since the last tick */
    struct mutex lock;        /* guards the ring */
    unsigned prompt;          /* questions in a row that needed a new event, which passed at once */
    struct clock_event *ring; /* of CLOCK_EVENTS; NULL: there never was one */
    unsigned oldest;
    unsigned count;
    /* Of the general clock only. `watch` is constant; the lock of the captures guards changes of the next five. */
    struct clock_watch watch;
    _Atomic(vmm_clock_kind) kind;
    bool is_blind;               /* see above */
    uint64_t blinded;            /* how often it became blind */
    vmm_stream join;             /* NULL: none yet */
    _Atomic uint64_t passed_all; /* of all streams: raised by waits for the device */
};

/* Opens the clock of a cache. It joins events of streams if kind is STREAMS or the driver has no events of all work. */
void vmm__clock_init(struct clock *clock, struct driver *driver, struct events *events,
                     const struct clock_watch *watch, vmm_clock_kind kind);

/* Opens the clock of a lane. */
void vmm__clock_init_own(struct clock *clock, struct clock *general, vmm_stream stream);

/* Drops its events, even if work is pending. Returns the first driver error. */
vmm_status vmm__clock_fini(struct clock *clock);

/* The current epoch: the stamp for memory that is freed now. */
static inline uint64_t vmm__clock_now(const struct clock *clock)
{
    return atomic_load_explicit(&clock->now, memory_order_acquire);
}

/* Begins a new epoch without an event, and returns the one that ended: earlier stamps are not
 * later than it, and all further stamps are. */
static inline uint64_t vmm__clock_advance(struct clock *clock)
{
    return atomic_fetch_add_explicit(&clock->now, 1, memory_order_seq_cst);
}

/* The latest epoch that is known to have passed. Does not ask the driver. */
static inline uint64_t vmm__clock_passed(const struct clock *clock)
{
    return atomic_load_explicit(&clock->passed, memory_order_acquire);
}

/* Whether the events of a cache's clock cover all work, not only that of the streams that the cache knows. */
static inline bool vmm__clock_is_context(const struct clock *general)
{
    return atomic_load_explicit(&general->kind, memory_order_relaxed) == VMM_CLOCK_CONTEXT;
}

/* Whether it is a lane's own clock. */
static inline bool vmm__clock_is_own(const struct clock *clock)
{
    return clock->general != clock;
}

/* Much was freed: the next call that may ask the driver ticks, if the clock is_due still. */
static inline void vmm__clock_due(struct clock *clock)
{
    atomic_store_explicit(&clock->is_due, true, memory_order_relaxed);
}

static inline bool vmm__clock_is_due(const struct clock *clock)
{
    return atomic_load_explicit(&clock->is_due, memory_order_relaxed);
}

/* Ticks, so that what was freed until now passes as early as possible. tick_due: if the clock is due, and `stream`,
 * which may be NULL, is not being captured; but neither into a full ring, nor where the last CLOCK_PROMPT questions
 * were answered at once, for which a tick ahead is of no use. A driver error is dropped: a later call meets it
 * again. */
void vmm__clock_tick(struct clock *clock);
void vmm__clock_tick_due(struct clock *clock, const vmm_stream *stream);

/* VMM_OK if `epoch` has passed, VMM__PENDING if not; ticks if there is no event for it. Epoch 0 has always passed. */
vmm_status vmm__clock_query(struct clock *clock, uint64_t epoch);

/* The same for the cache's clock and all work of the device, also of streams that the cache does not know. */
vmm_status vmm__clock_query_all(struct clock *general, uint64_t epoch);

/* Makes the host wait until `epoch` has passed. VMM__PENDING: a capture forbids the event. Other threads may use the
 * clock meanwhile, but not close it. After a second the log says so. */
vmm_status vmm__clock_wait(struct clock *clock, uint64_t epoch);

/* Makes the host wait for the newest event of the clock, such as the one that it recorded at an announcement. */
vmm_status vmm__clock_wait_recorded(struct clock *clock);

/* Makes the host wait for all work that was submitted, on all streams, also those that the cache does not know.
 * VMM__PENDING: a capture is announced, or the cache can see one. */
vmm_status vmm__clock_wait_all(struct clock *general);

/* VMM__PENDING if a capture is announced, or the cache can see one: of a stream that waits for the default stream, or
 * of one of the latest streams that have live blocks or make a request. Where the clock joins events of
 * streams, it asks all that the cache knows. */
vmm_status vmm__clock_capture_query(struct clock *general);

/* Makes later work of `stream` wait, on the device, until `epoch` has passed. VMM__PENDING: there is no event for it,
 * the event of a lane's clock covers all work, or the stream is being captured. follow_check: whether follow would
 * succeed; submits no wait. */
vmm_status vmm__clock_follow(struct clock *clock, uint64_t epoch, vmm_stream stream);
vmm_status vmm__clock_follow_check(struct clock *clock, uint64_t epoch, vmm_stream stream);

/* Marks `epoch` as passed. The caller guarantees that all work of the device that was submitted
 * up to its end has finished. */
void vmm__clock_pass(struct clock *clock, uint64_t epoch);

/* The stream of a lane's clock is about to end: records an event for what was freed before. VMM__PENDING: a capture of
 * the stream is announced or under way. Until end, the clock goes on as before. */
vmm_status vmm__clock_end_begin(struct clock *clock);

/* The stream has ended: what is freed later waits for all work. */
void vmm__clock_end(struct clock *clock);

/* A stream that the cache knows is about to end: where the clock joins events of streams, it joins one of all its work
 * now. If it cannot, it becomes blind. */
void vmm__clock_stream_end(struct clock *general, vmm_stream stream);

/* Gives a lane's clock to another stream. False: an event for what was freed before cannot be recorded now. */
bool vmm__clock_move(struct clock *clock, vmm_stream stream);

/* Records an event of one stream, which the caller drops. VMM__PENDING: a capture of the stream is announced or under
 * way. ERR_INVALID_ARGUMENT: the driver does not know the stream, or *ends is no longer `seen`: the stream has
 * ended. */
vmm_status vmm__clock_mark(struct clock *clock, vmm_stream stream, const _Atomic uint64_t *ends,
                           uint64_t seen, struct event **out);

/* Returns once no thread is in a call of the driver about a stream that the caller has marked as ended. */
void vmm__clock_streams_sync(void);

/* Makes later work of `stream` wait for an event. VMM__PENDING: the stream is being captured. */
vmm_status vmm__clock_event_follow(struct clock *clock, const struct event *event,
                                   vmm_stream stream);

/* Makes the host wait for an event, or for the work that a stream has now. After a second the log says so. */
vmm_status vmm__clock_event_wait(struct clock *clock, const struct event *event);
vmm_status vmm__clock_stream_wait(struct clock *clock, vmm_stream stream);

vmm_status vmm__clock_check(struct clock *clock);

#endif
