/* Timelines: see timeline.h. */
#include "vm/timeline.h"
#include "base/arith.h"
#include "base/error.h"

static unsigned slot_at(const struct timeline *timeline, unsigned position)
{
    return (timeline->oldest + position) % TIMELINE_EVENTS;
}

static struct timeline_event *event_at(struct timeline *timeline, unsigned position)
{
    return &timeline->events[slot_at(timeline, position)];
}

static bool is_awaited(const struct timeline *timeline, unsigned position)
{
    return timeline->waiters[slot_at(timeline, position)] > 0;
}

static uint64_t newest_epoch(struct timeline *timeline)
{
    if (timeline->count == 0)
        return timeline->passed;
    return event_at(timeline, timeline->count - 1)->epoch;
}

static void oldest_drop(struct timeline *timeline)
{
    timeline->passed = event_at(timeline, 0)->epoch;
    timeline->oldest = (timeline->oldest + 1) % TIMELINE_EVENTS;
    timeline->count--;
}

/* Queries the oldest events until one is pending. */
static vmm_status events_poll(struct timeline *timeline)
{
    while (timeline->count > 0) {
        vmm_status status = vmm__driver_event_query(timeline->driver, event_at(timeline, 0)->event);
        if (status != VMM_OK)
            return status == VMM__PENDING ? VMM_OK : status;
        oldest_drop(timeline);
    }
    return VMM_OK;
}

static void stale_set(struct timeline *timeline, bool is_stale)
{
    atomic_store_explicit(&timeline->is_stale, is_stale, memory_order_release);
    atomic_store_explicit(&timeline->is_unknown, is_stale, memory_order_release);
}

/*
 * Translates a driver refusal for a stream. A destroyed stream is no failure: nothing is known
 * about it until a device wait, so it is VMM__PENDING.
 */
static vmm_status stream_refused(struct timeline *timeline, vmm_status status,
                                 const struct error_line *line)
{
    if (status != VMM_ERR_INVALID_ARGUMENT)
        return status;
    vmm__error_restore(line);
    stale_set(timeline, true);
    return VMM__PENDING;
}

static uint64_t watch_changes(const struct timeline *timeline)
{
    const struct capture_watch *watch = timeline->watch;
    return watch == NULL ? 0 : atomic_load_explicit(&watch->changes, memory_order_acquire);
}

/* VMM__PENDING if a stream is capturing, or about to: an event would become part of the graph and say nothing
 * about the stream. */
static vmm_status capture_check(struct timeline *timeline, vmm_stream stream)
{
    const struct capture_watch *watch = timeline->watch;
    bool is_capturing = false;
    if (watch != NULL && watch->is_announced(watch->context, stream))
        return VMM__PENDING;
    vmm_status status = vmm__driver_capturing(timeline->driver, stream, &is_capturing);
    return status == VMM_OK && is_capturing ? VMM__PENDING : status;
}

static void events_swap(struct timeline *timeline, unsigned a, unsigned b)
{
    uint16_t *waiters = timeline->waiters;
    struct timeline_event event = *event_at(timeline, a);
    uint16_t event_waiters = waiters[slot_at(timeline, a)];
    *event_at(timeline, a) = *event_at(timeline, b);
    waiters[slot_at(timeline, a)] = waiters[slot_at(timeline, b)];
    *event_at(timeline, b) = event;
    waiters[slot_at(timeline, b)] = event_waiters;
}

/* Makes room in the ring if it is full of pending events: drops every other one, unless a host wait needs it. What a
 * dropped event covered passes with the next event, which is later than necessary but never too early. The oldest event
 * stays, so that the ring moves on. */
static vmm_status events_thin(struct timeline *timeline)
{
    if (timeline->count < TIMELINE_EVENTS)
        return VMM_OK;
    vmm_status status = events_poll(timeline);
    if (status != VMM_OK || timeline->count < TIMELINE_EVENTS)
        return status;
    timeline->count = 1;
    for (unsigned i = 1; i < TIMELINE_EVENTS; i++) {
        if (i % 2 == 0 || is_awaited(timeline, i))
            events_swap(timeline, timeline->count++, i);
    }
    return VMM_OK;
}

/* Finds an event that can be recorded, and puts it behind the pending ones. VMM__PENDING: host waits need all of
 * them. */
static vmm_status event_choose(struct timeline *timeline, struct timeline_event **out)
{
    vmm_status status = events_thin(timeline);
    if (status != VMM_OK)
        return status;
    unsigned at = timeline->count;
    while (at < TIMELINE_EVENTS && is_awaited(timeline, at))
        at++;
    if (at == TIMELINE_EVENTS)
        return VMM__PENDING;
    events_swap(timeline, timeline->count, at);
    *out = event_at(timeline, timeline->count);
    return VMM_OK;
}

/* Another thread may begin a capture meanwhile and capture the event; then nothing may query it before it is recorded
 * again. */
static vmm_status event_record(struct timeline *timeline)
{
    struct timeline_event *newest;
    uint64_t changes = watch_changes(timeline);
    vmm_status status = capture_check(timeline, timeline->stream);
    if (status == VMM_OK)
        status = event_choose(timeline, &newest);
    if (status != VMM_OK)
        return status;
    if (newest->event == NULL)
        status = vmm__driver_event_create(timeline->driver, &newest->event);
    if (status != VMM_OK)
        return status;
    uint64_t epoch = atomic_fetch_add_explicit(&timeline->now, 1, memory_order_acq_rel);
    status = vmm__driver_event_record(timeline->driver, newest->event, timeline->stream);
    if (status != VMM_OK)
        return status;
    status = capture_check(timeline, timeline->stream);
    if (status == VMM_OK && watch_changes(timeline) != changes)
        status = VMM__PENDING;
    if (status != VMM_OK)
        return status;
    newest->epoch = epoch;
    timeline->count++;
    stale_set(timeline, false);
    return VMM_OK;
}

static vmm_status event_add(struct timeline *timeline)
{
    struct error_line line;
    vmm__error_save(&line);
    return stream_refused(timeline, event_record(timeline), &line);
}

/* On a closed stream, the newest event covers everything that is stamped later, too. */
static void event_extend(struct timeline *timeline)
{
    uint64_t epoch = vmm__timeline_advance(timeline);
    if (timeline->count == 0)
        timeline->passed = epoch;
    else
        event_at(timeline, timeline->count - 1)->epoch = epoch;
}

static vmm_status event_record_locked(struct timeline *timeline, uint64_t epoch)
{
    VMM_ASSERT_HELD(&timeline->lock);
    if (epoch <= newest_epoch(timeline))
        return VMM_OK;
    if (!vmm__timeline_has_ended(timeline))
        return event_add(timeline);
    event_extend(timeline);
    return VMM_OK;
}

static vmm_status query_locked(struct timeline *timeline, uint64_t epoch)
{
    VMM_ASSERT_HELD(&timeline->lock);
    if (epoch <= timeline->passed)
        return VMM_OK;
    vmm_status status = event_record_locked(timeline, epoch);
    if (status == VMM_OK)
        status = events_poll(timeline);
    if (status == VMM_OK && epoch > timeline->passed)
        status = VMM__PENDING;
    return status;
}

/* The earliest event that covers a pending epoch. */
static struct timeline_event *event_covering(struct timeline *timeline, uint64_t epoch)
{
    unsigned position = 0;
    while (position + 1 < timeline->count && event_at(timeline, position)->epoch < epoch)
        position++;
    return event_at(timeline, position);
}

/* A capturing stream cannot follow: its graph would not wait again at each launch. */
static vmm_status stream_follow(struct timeline *timeline, uint64_t epoch, vmm_stream stream)
{
    vmm_status status = capture_check(timeline, stream);
    if (status != VMM_OK)
        return status;
    return vmm__driver_stream_wait(timeline->driver, stream,
                                   event_covering(timeline, epoch)->event);
}

void vmm__timeline_init(struct timeline *timeline, struct driver *driver, vmm_stream stream)
{
    *timeline = (struct timeline){ .driver = driver };
    atomic_init(&timeline->stream, stream);
    atomic_init(&timeline->now, 1);
    vmm__mutex_init_ranked(&timeline->lock, LOCK_RANK_TIMELINE);
}

/* If the driver refuses, tries once more. */
static vmm_status event_destroy(struct driver *driver, void *event)
{
    vmm_status status = event == NULL ? VMM_OK : vmm__driver_event_destroy(driver, event);
    return status == VMM_OK ? VMM_OK : vmm__driver_event_destroy(driver, event);
}

void vmm__timeline_shrink(struct timeline *timeline)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__mutex_lock(&timeline->lock);
    (void)events_poll(timeline);
    for (unsigned i = timeline->count; i < TIMELINE_EVENTS; i++) {
        struct timeline_event *unused = event_at(timeline, i);
        if (!is_awaited(timeline, i) && event_destroy(timeline->driver, unused->event) == VMM_OK)
            unused->event = NULL;
    }
    vmm__mutex_unlock(&timeline->lock);
    vmm__error_restore(&line);
}

vmm_status vmm__timeline_fini(struct timeline *timeline)
{
    vmm_status first = VMM_OK;
    for (unsigned i = 0; i < TIMELINE_EVENTS; i++) {
        vmm_status status = event_destroy(timeline->driver, timeline->events[i].event);
        first = first == VMM_OK ? status : first;
    }
    vmm__mutex_fini(&timeline->lock);
    return first;
}

vmm_status vmm__timeline_record(struct timeline *timeline, uint64_t epoch)
{
    vmm__mutex_lock(&timeline->lock);
    vmm_status status = event_record_locked(timeline, epoch);
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

vmm_status vmm__timeline_record_last(struct timeline *timeline)
{
    vmm__mutex_lock(&timeline->lock);
    const struct capture_watch *watch = timeline->watch;
    timeline->watch = NULL;
    vmm_status status = event_record_locked(timeline, vmm__timeline_now(timeline));
    timeline->watch = watch;
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

uint64_t vmm__timeline_passed(struct timeline *timeline)
{
    vmm__mutex_lock(&timeline->lock);
    uint64_t passed = timeline->passed;
    vmm__mutex_unlock(&timeline->lock);
    return passed;
}

vmm_status vmm__timeline_query(struct timeline *timeline, uint64_t epoch)
{
    vmm__mutex_lock(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

/* The place of an event in `events`. */
static unsigned slot_of(const struct timeline *timeline, const void *event)
{
    unsigned slot = 0;
    while (timeline->events[slot].event != event)
        slot++;
    return slot;
}

/* Waits without the lock, so that other threads can query. The event may move in the ring meanwhile. */
static vmm_status event_await(struct timeline *timeline, void *event)
{
    timeline->waiters[slot_of(timeline, event)]++;
    vmm__mutex_unlock(&timeline->lock);
    vmm_status status = vmm__driver_event_wait(timeline->driver, event);
    vmm__mutex_lock(&timeline->lock);
    timeline->waiters[slot_of(timeline, event)]--;
    return status == VMM_OK ? events_poll(timeline) : status;
}

/* Whether host waits need all events, so that none can be recorded for a later epoch. */
static bool is_out_of_events(const struct timeline *timeline)
{
    unsigned at = 0;
    while (at < TIMELINE_EVENTS && timeline->waiters[at] > 0)
        at++;
    return at == TIMELINE_EVENTS;
}

vmm_status vmm__timeline_wait(struct timeline *timeline, uint64_t epoch)
{
    vmm__mutex_lock(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    while (status == VMM__PENDING && epoch > newest_epoch(timeline) && is_out_of_events(timeline)) {
        status = event_await(timeline, event_at(timeline, TIMELINE_EVENTS - 1)->event);
        if (status == VMM_OK)
            status = query_locked(timeline, epoch);
    }
    if (status == VMM__PENDING && epoch <= newest_epoch(timeline))
        status = event_await(timeline, event_covering(timeline, epoch)->event);
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

vmm_status vmm__timeline_follow(struct timeline *timeline, uint64_t epoch, vmm_stream stream)
{
    vmm__mutex_lock(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    if (status == VMM__PENDING && epoch <= newest_epoch(timeline))
        status = stream_follow(timeline, epoch, stream);
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

vmm_status vmm__timeline_follow_check(struct timeline *timeline, uint64_t epoch, vmm_stream stream)
{
    vmm__mutex_lock(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    if (status == VMM__PENDING && epoch <= newest_epoch(timeline))
        status = capture_check(timeline, stream);
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

/* Passed events are not queried again; they are reused. */
void vmm__timeline_pass(struct timeline *timeline, uint64_t epoch)
{
    vmm__mutex_lock(&timeline->lock);
    while (timeline->count > 0 && event_at(timeline, 0)->epoch <= epoch)
        oldest_drop(timeline);
    timeline->passed = vmm__max(timeline->passed, epoch);
    vmm__mutex_unlock(&timeline->lock);
}

void vmm__timeline_end(struct timeline *timeline)
{
    vmm__mutex_lock(&timeline->lock);
    atomic_store_explicit(&timeline->has_ended, true, memory_order_release);
    vmm__mutex_unlock(&timeline->lock);
}

static vmm_status resume_locked(struct timeline *timeline, vmm_stream stream)
{
    VMM_ASSERT_HELD(&timeline->lock);
    vmm_status status = events_poll(timeline);
    if (status == VMM_OK && timeline->count > 0)
        status = stream_follow(timeline, newest_epoch(timeline), stream);
    return status;
}

vmm_status vmm__timeline_resume(struct timeline *timeline, vmm_stream stream)
{
    vmm__mutex_lock(&timeline->lock);
    vmm_status status = resume_locked(timeline, stream);
    if (status == VMM_OK) {
        atomic_store_explicit(&timeline->stream, stream, memory_order_relaxed);
        atomic_store_explicit(&timeline->has_ended, false, memory_order_release);
        stale_set(timeline, false);
    }
    vmm__mutex_unlock(&timeline->lock);
    return status;
}

void vmm__timeline_pass_stale(struct timeline *timeline, uint64_t epoch)
{
    vmm__timeline_pass(timeline, epoch);
    atomic_store_explicit(&timeline->is_stale, false, memory_order_release);
}

vmm_status vmm__timeline_wait_stale(struct timeline *timeline)
{
    uint64_t epoch = vmm__timeline_advance(timeline);
    vmm_status status = vmm__driver_device_wait(timeline->driver);
    if (status == VMM_OK)
        vmm__timeline_pass_stale(timeline, epoch);
    return status;
}

vmm_status vmm__timeline_check(struct timeline *timeline)
{
    vmm__mutex_lock(&timeline->lock);
    uint64_t before = timeline->passed;
    bool rising = true;
    for (unsigned i = 0; i < timeline->count; i++) {
        rising = rising && event_at(timeline, i)->epoch > before;
        before = event_at(timeline, i)->epoch;
    }
    rising = rising && before < vmm__timeline_now(timeline);
    vmm__mutex_unlock(&timeline->lock);
    if (!rising)
        return vmm__error(VMM_ERR_INTERNAL, "timeline: invariant 1: epochs do not rise");
    return VMM_OK;
}
