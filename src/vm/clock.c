/* Clocks: see clock.h. */
#define _GNU_SOURCE
#include "vm/clock.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/time.h"
#include "vm/captures.h"

#include <time.h>

/* ---- Recording an event ---------------------------------------------------------------------- */

/* VMM__PENDING if a stream is being captured, or about to be. The joining stream may have got the handle of a stream
 * that was destroyed. */
static vmm_status stream_check(const struct clock *general, vmm_stream stream)
{
    bool is_capturing = false;
    if (vmm__captures_has_locked(stream))
        return VMM__PENDING;
    if (stream != NULL && stream == general->join)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "clock: stream %p was destroyed", stream);
    vmm_status status = vmm__driver_stream_capturing(general->driver, stream, &is_capturing);
    return status == VMM_OK && is_capturing ? VMM__PENDING : status;
}

/* A thread that announces nothing may begin a capture meanwhile, and capture the event: then nothing may query it
 * before it is recorded again. */
static vmm_status stream_record(const struct clock *general, vmm_stream stream,
                                const struct event *event)
{
    vmm_status status = stream_check(general, stream);
    if (status == VMM_OK)
        status = vmm__driver_event_record(general->driver, event->handle, stream);
    return status == VMM_OK ? stream_check(general, stream) : status;
}

/* From now on only a wait for the device tells when the work of all known streams has ended. */
static void blind_set(struct clock *general)
{
    general->is_blind = true;
    general->blinded++;
}

static void tell(const struct clock *general, const char *line)
{
    if (general->watch.tell != NULL)
        general->watch.tell(general->watch.context, line);
}

/* A capture was met that was not announced: the next one could be spoiled. What was freed until now may wait for
 * streams that the cache does not know. */
static vmm_status context_give_up(struct clock *general)
{
    blind_set(general);
    atomic_store_explicit(&general->kind, VMM_CLOCK_STREAMS, memory_order_relaxed);
    tell(general,
         "clock: a capture began that was not announced (vmm_capture_announce()); from now on the "
         "clock covers only the streams that allocate from the cache");
    return VMM__PENDING;
}

/* Whether the driver says that one of some streams is being captured. One that it does not know is not. */
static vmm_status any_capturing(struct driver *driver, const vmm_stream *streams, unsigned count)
{
    bool is_capturing = false;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__driver_capturing(driver, streams, count, &is_capturing);
    if (status == VMM_ERR_INVALID_ARGUMENT) {
        vmm__error_restore(&line);
        return VMM_OK;
    }
    return status == VMM_OK && is_capturing ? VMM__PENDING : status;
}

/* Asks about the default stream and those that `next` names: many at once, because a call costs ten times as much as
 * CUDA's answer about a stream. */
static vmm_status listed_capturing(struct clock *general, next_stream *next)
{
    enum { AT_ONCE = 128 };
    vmm_stream streams[AT_ONCE] = { NULL };
    unsigned count = 1;
    void *cursor = NULL;
    struct known_stream known;
    bool has_more = true;
    vmm_status status = VMM_OK;
    while (status == VMM_OK && has_more) {
        has_more = next != NULL && next(general->watch.context, &cursor, &known);
        if (has_more)
            streams[count++] = known.stream;
        if (has_more && count < AT_ONCE)
            continue;
        status = any_capturing(general->driver, streams, count);
        count = 0;
    }
    return status;
}

/* With events of streams, programs need not announce the captures of streams that the cache knows. */
static vmm_status known_capturing(struct clock *general)
{
    vmm_status status = listed_capturing(general, general->watch.next_live);
    bool asks_all = status == VMM_OK && !vmm__clock_is_context(general);
    return asks_all ? listed_capturing(general, general->watch.next) : status;
}

vmm_status vmm__clock_capture_query(struct clock *general)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__captures_lock();
    vmm_status status = vmm__captures_any_locked() ? VMM__PENDING : known_capturing(general);
    vmm__captures_unlock();
    if (status == VMM_OK || status == VMM__PENDING)
        vmm__error_restore(&line);
    return status;
}

static vmm_status context_record(struct clock *general, const struct event *event)
{
    if (vmm__captures_any_locked())
        return VMM__PENDING;
    vmm_status status = known_capturing(general);
    if (status == VMM_OK)
        status = vmm__driver_clock_record(general->driver, event->handle);
    return status == VMM__PENDING ? context_give_up(general) : status;
}

static vmm_status join_open(struct clock *general)
{
    return general->join != NULL ? VMM_OK
                                 : vmm__driver_stream_create(general->driver, &general->join);
}

/* Lets the joining stream, which is open, wait for the work of a stream. */
static vmm_status stream_join(const struct clock *general, vmm_stream stream,
                              const struct event *scratch)
{
    vmm_status status = stream_record(general, stream, scratch);
    return status == VMM_OK
               ? vmm__driver_stream_wait(general->driver, general->join, scratch->handle)
               : status;
}

static vmm_status known_join(struct clock *general, const struct known_stream *known,
                             const struct event *scratch)
{
    vmm_status status = stream_join(general, known->stream, scratch);
    if (status == VMM_ERR_INVALID_ARGUMENT) {
        if (!atomic_exchange_explicit(known->is_gone, true, memory_order_relaxed))
            blind_set(general);
        return VMM_OK;
    }
    if (status == VMM_OK)
        atomic_store_explicit(known->is_gone, false, memory_order_relaxed);
    return status;
}

static vmm_status streams_join(struct clock *general, const struct event *scratch)
{
    const struct clock_watch *watch = &general->watch;
    void *cursor = NULL;
    struct known_stream known;
    vmm_status status = join_open(general);
    while (status == VMM_OK && watch->next != NULL && watch->next(watch->context, &cursor, &known))
        status = known_join(general, &known, scratch);
    return status == VMM_OK && general->is_blind ? VMM__PENDING : status;
}

static vmm_status streams_record(struct clock *general, const struct event *event)
{
    struct event *scratch;
    struct error_line line;
    vmm_status status = vmm__event_take(general->events, &scratch);
    if (status != VMM_OK)
        return status;
    vmm__error_save(&line);
    status = streams_join(general, scratch);
    if (status == VMM_OK)
        status = vmm__driver_event_record(general->driver, event->handle, general->join);
    if (status == VMM_OK || status == VMM__PENDING)
        vmm__error_restore(&line); /* drops the line about a stream that the driver does not know */
    vmm__event_drop(general->events, scratch);
    return status;
}

static vmm_status general_record(struct clock *general, const struct event *event)
{
    vmm_status status = vmm__clock_is_context(general) ? context_record(general, event)
                                                       : streams_record(general, event);
    if (status == VMM__PENDING)
        vmm__count(&general->driver->counts.clock_pauses, 1);
    return status;
}

/* A lane's clock whose stream has ended, or that the driver does not know, covers all work. */
static vmm_status epoch_record(struct clock *clock, const struct event *event, bool *covers_all)
{
    struct error_line line;
    vmm_stream stream = atomic_load_explicit(&clock->stream, memory_order_relaxed);
    vmm_status status =
        VMM_ERR_INVALID_ARGUMENT; /* as for a stream that the driver does not know */
    vmm__error_save(&line);
    if (!atomic_load_explicit(&clock->covers_all, memory_order_relaxed))
        status = stream_record(clock->general, stream, event);
    *covers_all = status == VMM_ERR_INVALID_ARGUMENT;
    if (!*covers_all)
        return status;
    vmm__error_restore(&line);
    return general_record(clock->general, event);
}

/* ---- The ring -------------------------------------------------------------------------------- */

static struct clock_event *event_at(struct clock *clock, unsigned position)
{
    return &clock->ring[(clock->oldest + position) % CLOCK_EVENTS];
}

static uint64_t newest_epoch(struct clock *clock)
{
    if (clock->count == 0)
        return vmm__clock_passed(clock);
    return event_at(clock, clock->count - 1)->epoch;
}

/* Under the lock that guards `passed`. */
static void passed_set(_Atomic uint64_t *passed, uint64_t epoch)
{
    if (epoch > atomic_load_explicit(passed, memory_order_relaxed))
        atomic_store_explicit(passed, epoch, memory_order_release);
}

static void oldest_drop(struct clock *clock)
{
    struct clock_event *oldest = event_at(clock, 0);
    passed_set(&clock->passed, oldest->epoch);
    vmm__event_drop(clock->events, oldest->event);
    clock->oldest = (clock->oldest + 1) % CLOCK_EVENTS;
    clock->count--;
}

/* Queries the oldest events until one is pending. */
static vmm_status ring_poll(struct clock *clock)
{
    while (clock->count > 0) {
        const struct event *event = event_at(clock, 0)->event;
        vmm_status status = vmm__driver_event_query(clock->driver, event->handle);
        if (status != VMM_OK)
            return status == VMM__PENDING ? VMM_OK : status;
        oldest_drop(clock);
    }
    return VMM_OK;
}

static vmm_status ring_open(struct clock *clock)
{
    if (clock->ring == NULL)
        clock->ring = vmm__host_alloc(CLOCK_EVENTS, sizeof *clock->ring);
    return clock->ring != NULL
               ? VMM_OK
               : vmm__error(VMM_ERR_HOST_OOM, "clock: no host memory for its events");
}

/* First moves on, then records: see invariant 2. */
static vmm_status event_add(struct clock *clock, bool *covers_all)
{
    struct event *event;
    vmm_status status = ring_open(clock);
    if (status == VMM_OK)
        status = vmm__event_take(clock->events, &event);
    if (status != VMM_OK)
        return status;
    vmm__captures_lock();
    uint64_t epoch = vmm__clock_advance(clock);
    status = epoch_record(clock, event, covers_all);
    vmm__captures_unlock();
    if (status != VMM_OK) {
        vmm__event_drop(clock->events, event);
        return status;
    }
    *event_at(clock, clock->count++) =
        (struct clock_event){ .event = event, .epoch = epoch, .covers_all = *covers_all };
    vmm__count(&clock->driver->counts.clock_ticks, 1);
    return VMM_OK;
}

/* VMM__PENDING also if the ring is full: what is freed now then passes with a later event. */
static vmm_status tick_locked(struct clock *clock)
{
    bool covers_all;
    VMM_ASSERT_HELD(&clock->lock);
    vmm_status status = clock->count == CLOCK_EVENTS ? ring_poll(clock) : VMM_OK;
    if (status == VMM_OK && clock->count == CLOCK_EVENTS)
        status = VMM__PENDING;
    return status == VMM_OK ? event_add(clock, &covers_all) : status;
}

static vmm_status query_locked(struct clock *clock, uint64_t epoch)
{
    VMM_ASSERT_HELD(&clock->lock);
    if (epoch <= vmm__clock_passed(clock))
        return VMM_OK;
    bool is_new = epoch > newest_epoch(clock);
    vmm_status status = is_new ? tick_locked(clock) : VMM_OK;
    if (status == VMM_OK || status == VMM__PENDING)
        status = ring_poll(clock);
    bool has_passed = epoch <= vmm__clock_passed(clock);
    if (status != VMM_OK)
        return status;
    clock->prompt = has_passed ? (unsigned)vmm__min(clock->prompt + is_new, CLOCK_PROMPT) : 0;
    return has_passed ? VMM_OK : VMM__PENDING;
}

/* The earliest event that covers a pending epoch. */
static const struct clock_event *event_covering(struct clock *clock, uint64_t epoch)
{
    unsigned position = 0;
    while (position + 1 < clock->count && event_at(clock, position)->epoch < epoch)
        position++;
    return event_at(clock, position);
}

/* Makes room for an event. An event covers all earlier work of its stream, so the new one may replace the newest. But
 * if the newest covers all streams, and the new one will cover only the lane's, then the one before the newest goes:
 * the newest covers it. */
static void ring_room_make(struct clock *clock)
{
    struct clock_event *newest = event_at(clock, clock->count - 1);
    struct clock_event *before = event_at(clock, clock->count - 2);
    bool covers_all = atomic_load_explicit(&clock->covers_all, memory_order_relaxed);
    struct clock_event *dropped = newest->covers_all && !covers_all ? before : newest;
    vmm__event_drop(clock->events, dropped->event);
    if (dropped != newest)
        *dropped = *newest;
    clock->count--;
}

/* Records an event for all that was freed so far, also if the ring is full. */
static vmm_status tick_replacing_locked(struct clock *clock, bool *covers_all)
{
    VMM_ASSERT_HELD(&clock->lock);
    vmm_status status = ring_poll(clock);
    if (status == VMM_OK && clock->count == CLOCK_EVENTS)
        ring_room_make(clock);
    return status == VMM_OK ? event_add(clock, covers_all) : status;
}

static vmm_status tick_replacing(struct clock *clock, bool *covers_all)
{
    vmm__mutex_lock(&clock->lock);
    vmm_status status = tick_replacing_locked(clock, covers_all);
    vmm__mutex_unlock(&clock->lock);
    return status;
}

/* The event that a stream may wait for on the device; NULL: none. With clocks of lanes, a stream may wait for the one
 * whose memory it takes, but not for all work: the program may have made some of it wait for either of the two. */
static const struct event *event_to_follow(struct clock *clock, uint64_t epoch)
{
    const struct clock_event *found =
        epoch <= newest_epoch(clock) ? event_covering(clock, epoch) : NULL;
    bool may_follow = found != NULL && !(vmm__clock_is_own(clock) && found->covers_all);
    return may_follow ? found->event : NULL;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void clock_open(struct clock *clock, struct clock *general, vmm_stream stream)
{
    clock->general = general;
    atomic_init(&clock->stream, stream);
    atomic_init(&clock->now, 1);
    vmm__mutex_init_ranked(&clock->lock, LOCK_RANK_CLOCK);
}

void vmm__clock_init(struct clock *clock, struct driver *driver, struct events *events,
                     const struct clock_watch *watch, vmm_clock_kind kind)
{
    bool has_all = driver->has_clock && kind != VMM_CLOCK_STREAMS;
    *clock = (struct clock){ .driver = driver, .events = events };
    if (watch != NULL)
        clock->watch = *watch;
    atomic_init(&clock->covers_all, true);
    atomic_init(&clock->kind, has_all ? VMM_CLOCK_CONTEXT : VMM_CLOCK_STREAMS);
    clock_open(clock, clock, NULL);
}

void vmm__clock_init_own(struct clock *clock, struct clock *general, vmm_stream stream)
{
    *clock = (struct clock){ .driver = general->driver, .events = general->events };
    clock_open(clock, general, stream);
}

vmm_status vmm__clock_fini(struct clock *clock)
{
    vmm_status status = VMM_OK;
    while (clock->count > 0)
        oldest_drop(clock);
    if (clock->join != NULL)
        status = vmm__driver_stream_end(clock->driver, clock->join);
    vmm__host_free(clock->ring, CLOCK_EVENTS * sizeof *clock->ring);
    vmm__mutex_fini(&clock->lock);
    return status;
}

/* ---- Ticks and queries ----------------------------------------------------------------------- */

void vmm__clock_tick(struct clock *clock)
{
    VMM_QUIET();
    atomic_store_explicit(&clock->is_due, false, memory_order_relaxed);
    vmm__mutex_lock(&clock->lock);
    (void)tick_locked(clock);
    vmm__mutex_unlock(&clock->lock);
}

/* Whether a tick ahead of a question may be of use. */
static bool may_tick_ahead(struct clock *clock, const vmm_stream *stream)
{
    VMM_QUIET();
    bool is_captured = stream != NULL && any_capturing(clock->driver, stream, 1) != VMM_OK;
    if (is_captured)
        return false;
    vmm__mutex_lock(&clock->lock);
    bool may = clock->count < CLOCK_EVENTS && clock->prompt < CLOCK_PROMPT;
    vmm__mutex_unlock(&clock->lock);
    return may;
}

void vmm__clock_tick_due(struct clock *clock, const vmm_stream *stream)
{
    if (!vmm__clock_is_due(clock))
        return;
    if (may_tick_ahead(clock, stream))
        vmm__clock_tick(clock);
    else
        atomic_store_explicit(&clock->is_due, false, memory_order_relaxed);
}

vmm_status vmm__clock_query(struct clock *clock, uint64_t epoch)
{
    if (epoch <= vmm__clock_passed(clock))
        return VMM_OK;
    vmm__mutex_lock(&clock->lock);
    vmm_status status = query_locked(clock, epoch);
    vmm__mutex_unlock(&clock->lock);
    return status;
}

vmm_status vmm__clock_query_all(struct clock *general, uint64_t epoch)
{
    bool is_context = vmm__clock_is_context(general);
    vmm_status status = is_context ? vmm__clock_query(general, epoch) : VMM__PENDING;
    is_context = is_context && vmm__clock_is_context(general); /* still: so were the events */
    if (is_context || (status != VMM_OK && status != VMM__PENDING))
        return status;
    uint64_t passed = atomic_load_explicit(&general->passed_all, memory_order_acquire);
    return epoch <= passed ? VMM_OK : VMM__PENDING;
}

void vmm__clock_pass(struct clock *clock, uint64_t epoch)
{
    vmm__mutex_lock(&clock->lock);
    while (clock->count > 0 && event_at(clock, 0)->epoch <= epoch)
        oldest_drop(clock);
    passed_set(&clock->passed, epoch);
    vmm__mutex_unlock(&clock->lock);
}

/* ---- Waits of the host ----------------------------------------------------------------------- */

/* A pause is this part of the wait so far, so it adds little to any wait; below SPIN_NS the kernel would make it as
 * long as that. */
enum { LONG_WAIT_NS = 1000000000, SPIN_NS = 50000, PAUSE_PART = 32 };

/* Asks for a second, then says what it waits for. A simulated device does not run meanwhile. */
static void wait_watch(const struct clock *clock, const struct event *event)
{
    uint64_t begin_ns = vmm__time_ns();
    uint64_t waited_ns = 0;
    if (clock->driver->ops->clock != NULL || clock->general->watch.tell == NULL)
        return;
    while (vmm__driver_event_query(clock->driver, event->handle) == VMM__PENDING) {
        struct timespec pause = { .tv_nsec = (long)(waited_ns / PAUSE_PART) };
        if (waited_ns > LONG_WAIT_NS) {
            tell(clock->general,
                 "clock: a call has waited for a second until earlier work ends; "
                 "vmm_config.reuse = VMM_REUSE_DECLARED waits for the streams of the memory only");
            return;
        }
        if (waited_ns > SPIN_NS)
            (void)nanosleep(&pause, NULL);
        waited_ns = vmm__time_ns() - begin_ns;
    }
}

vmm_status vmm__clock_event_wait(struct clock *clock, const struct event *event)
{
    wait_watch(clock, event);
    return vmm__driver_event_wait(clock->driver, event->handle);
}

/* Waits without the lock, so that other threads can query. Held, the event is not recorded again: if it is still the
 * oldest, it has passed, whatever the driver answers to a query. */
static vmm_status event_await_locked(struct clock *clock, struct event *event)
{
    VMM_ASSERT_HELD(&clock->lock);
    vmm__event_hold(clock->events, event);
    vmm__mutex_unlock(&clock->lock);
    vmm_status status = vmm__clock_event_wait(clock, event);
    vmm__mutex_lock(&clock->lock);
    if (status == VMM_OK && clock->count > 0 && event_at(clock, 0)->event == event)
        oldest_drop(clock);
    vmm__event_drop(clock->events, event);
    return status;
}

/* Whether only a wait for the device helps. */
static bool needs_device_wait(struct clock *general)
{
    vmm__captures_lock();
    bool is_blind = general->is_blind;
    vmm__captures_unlock();
    return is_blind;
}

/* CUDA has no wait for all streams that spoils no capture: one that begins meanwhile is lost. VMM__PENDING: one is
 * under way. */
static vmm_status device_wait(struct clock *general)
{
    vmm_status status = vmm__clock_capture_query(general);
    if (status != VMM_OK)
        return status;
    uint64_t epoch = vmm__clock_advance(general);
    vmm__captures_lock();
    uint64_t blinded = general->blinded;
    vmm__captures_unlock();
    status = vmm__driver_device_wait(general->driver);
    if (status != VMM_OK)
        return status;
    vmm__captures_lock();
    if (general->blinded == blinded) /* not during the wait */
        general->is_blind = false;
    passed_set(&general->passed_all, epoch); /* another thread may have waited for a later one */
    vmm__captures_unlock();
    vmm__clock_pass(general, epoch);
    return VMM_OK;
}

static vmm_status blind_wait_locked(struct clock *clock, uint64_t epoch)
{
    VMM_ASSERT_HELD(&clock->lock);
    if (!needs_device_wait(clock->general))
        return VMM__PENDING;
    vmm__mutex_unlock(&clock->lock);
    vmm_status status = device_wait(clock->general);
    if (status == VMM_OK)
        vmm__clock_pass(clock, epoch);
    vmm__mutex_lock(&clock->lock);
    return status;
}

/* One step towards an epoch that is pending. The first waits for the event that covers the epoch. Events of different
 * streams need not pass in order, so an older one may be pending then: each later step waits for the oldest. */
static vmm_status wait_step_locked(struct clock *clock, uint64_t epoch, bool is_first)
{
    VMM_ASSERT_HELD(&clock->lock);
    bool has_event = epoch <= newest_epoch(clock);
    if (has_event && is_first)
        return event_await_locked(clock, event_covering(clock, epoch)->event);
    if (has_event || clock->count == CLOCK_EVENTS)
        return event_await_locked(clock, event_at(clock, 0)->event);
    return blind_wait_locked(clock, epoch);
}

/* `epoch` may be the current one: then it ends, so that it can pass. */
vmm_status vmm__clock_wait(struct clock *clock, uint64_t epoch)
{
    vmm__mutex_lock(&clock->lock);
    bool has_event = true;
    bool is_first = true;
    vmm_status status = query_locked(clock, epoch);
    while (status == VMM__PENDING && has_event) {
        status = wait_step_locked(clock, epoch, is_first);
        has_event = status == VMM_OK;
        is_first = false;
        if (has_event)
            status = query_locked(clock, epoch);
    }
    vmm__mutex_unlock(&clock->lock);
    return status;
}

vmm_status vmm__clock_wait_recorded(struct clock *clock)
{
    vmm__mutex_lock(&clock->lock);
    uint64_t epoch = newest_epoch(clock);
    vmm__mutex_unlock(&clock->lock);
    return vmm__clock_wait(clock, epoch);
}

vmm_status vmm__clock_wait_all(struct clock *general)
{
    if (!vmm__clock_is_context(general))
        return device_wait(general);
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__clock_wait(general, vmm__clock_now(general));
    if (vmm__clock_is_context(general))
        return status;
    vmm__error_restore(&line); /* it has met a capture meanwhile: what it says does not count */
    return device_wait(general);
}

/* ---- One stream ------------------------------------------------------------------------------ */

vmm_status vmm__clock_mark(struct clock *clock, vmm_stream stream, const _Atomic uint64_t *ends,
                           uint64_t seen, struct event **out)
{
    struct event *event;
    vmm_status status = vmm__event_take(clock->events, &event);
    if (status != VMM_OK)
        return status;
    vmm__captures_lock();
    if (ends != NULL && atomic_load_explicit(ends, memory_order_acquire) != seen)
        status = VMM_ERR_INVALID_ARGUMENT;
    if (status == VMM_OK)
        status = stream_record(clock->general, stream, event);
    vmm__captures_unlock();
    if (status == VMM_OK)
        *out = event;
    else
        vmm__event_drop(clock->events, event);
    return status;
}

/* Threads that have read such a stream as open make their call of the driver about it under the lock. */
void vmm__clock_streams_sync(void)
{
    vmm__captures_lock();
    vmm__captures_unlock();
}

/* A capturing stream cannot follow: its graph would not wait again at each launch. submits: also the wait. */
static vmm_status event_follow(struct clock *clock, const struct event *event, vmm_stream stream,
                               bool submits)
{
    vmm__captures_lock();
    vmm_status status = stream_check(clock->general, stream);
    vmm__captures_unlock();
    return status == VMM_OK && submits
               ? vmm__driver_stream_wait(clock->driver, stream, event->handle)
               : status;
}

vmm_status vmm__clock_event_follow(struct clock *clock, const struct event *event,
                                   vmm_stream stream)
{
    return event_follow(clock, event, stream, true);
}

vmm_status vmm__clock_stream_wait(struct clock *clock, vmm_stream stream)
{
    struct event *event;
    vmm_status status = vmm__clock_mark(clock, stream, NULL, 0, &event);
    if (status != VMM_OK)
        return status;
    status = vmm__clock_event_wait(clock, event);
    vmm__event_drop(clock->events, event);
    return status;
}

/* If the ring of a lane's clock is full, replaces an event in it, so that the other stream has one to wait for. */
static vmm_status epoch_follow(struct clock *clock, uint64_t epoch, vmm_stream stream, bool submits)
{
    bool covers_all;
    vmm__mutex_lock(&clock->lock);
    vmm_status status = query_locked(clock, epoch);
    bool is_full = clock->count == CLOCK_EVENTS && epoch > newest_epoch(clock);
    if (status == VMM__PENDING && vmm__clock_is_own(clock) && is_full) {
        vmm_status added = tick_replacing_locked(clock, &covers_all);
        status = added == VMM_OK ? VMM__PENDING : added;
    }
    const struct event *event = status == VMM__PENDING ? event_to_follow(clock, epoch) : NULL;
    if (event != NULL)
        status = event_follow(clock, event, stream, submits);
    vmm__mutex_unlock(&clock->lock);
    return status;
}

vmm_status vmm__clock_follow(struct clock *clock, uint64_t epoch, vmm_stream stream)
{
    return epoch_follow(clock, epoch, stream, true);
}

vmm_status vmm__clock_follow_check(struct clock *clock, uint64_t epoch, vmm_stream stream)
{
    return epoch_follow(clock, epoch, stream, false);
}

/* An event of the stream must be recorded before its end; one of all work can be recorded later. */
vmm_status vmm__clock_end_begin(struct clock *clock)
{
    bool covers_all = false;
    if (atomic_load_explicit(&clock->covers_all, memory_order_relaxed))
        return VMM_OK;
    vmm_status status = tick_replacing(clock, &covers_all);
    return status == VMM__PENDING && covers_all ? VMM_OK : status;
}

void vmm__clock_end(struct clock *clock)
{
    atomic_store_explicit(&clock->covers_all, true, memory_order_relaxed);
}

void vmm__clock_stream_end(struct clock *general, vmm_stream stream)
{
    struct event *scratch = NULL;
    if (vmm__clock_is_context(general))
        return;
    VMM_QUIET();
    vmm_status status = vmm__event_take(general->events, &scratch);
    vmm__captures_lock();
    if (status == VMM_OK)
        status = join_open(general);
    if (status == VMM_OK)
        status = stream_join(general, stream, scratch);
    if (status != VMM_OK)
        blind_set(general);
    vmm__captures_unlock();
    vmm__event_drop(general->events, scratch);
}

bool vmm__clock_move(struct clock *clock, vmm_stream stream)
{
    bool covers_all;
    if (!vmm__clock_is_own(clock))
        return true;
    VMM_QUIET();
    bool is_covered = tick_replacing(clock, &covers_all) == VMM_OK;
    if (!is_covered)
        return false;
    atomic_store_explicit(&clock->stream, stream, memory_order_relaxed);
    atomic_store_explicit(&clock->covers_all, false, memory_order_relaxed);
    return true;
}

vmm_status vmm__clock_check(struct clock *clock)
{
    vmm__mutex_lock(&clock->lock);
    uint64_t before = vmm__clock_passed(clock);
    bool rising = true;
    for (unsigned i = 0; i < clock->count; i++) {
        rising = rising && event_at(clock, i)->epoch > before;
        before = event_at(clock, i)->epoch;
    }
    rising = rising && before < vmm__clock_now(clock);
    vmm__mutex_unlock(&clock->lock);
    if (!rising)
        return vmm__error(VMM_ERR_INTERNAL, "clock: invariant 1: epochs do not rise");
    return VMM_OK;
}
