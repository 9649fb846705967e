/* When a stream's earlier work is done: see timeline.h. */
#include "memory/timeline.h"
#include "base/arith.h"
#include "base/error.h"

static struct timeline_mark *mark_at(struct timeline *timeline, unsigned position)
{
    return &timeline->marks[(timeline->oldest + position) % TIMELINE_MARKS];
}

static uint64_t newest_epoch(struct timeline *timeline)
{
    if (timeline->count == 0)
        return timeline->passed;
    return mark_at(timeline, timeline->count - 1)->epoch;
}

static void oldest_drop(struct timeline *timeline)
{
    timeline->passed = mark_at(timeline, 0)->epoch;
    timeline->oldest = (timeline->oldest + 1) % TIMELINE_MARKS;
    timeline->count--;
}

/* Asks the oldest marks until one has not passed. */
static vmm_status marks_poll(struct timeline *timeline)
{
    while (timeline->count > 0) {
        vmm_status status = vmm__driver_event_query(timeline->driver, mark_at(timeline, 0)->event);
        if (status != VMM_OK)
            return status == VMM_NOT_READY ? VMM_OK : status;
        oldest_drop(timeline);
    }
    return VMM_OK;
}

/*
 * What a refusal by the driver to ask or mark a stream comes to: of one that was destroyed nothing can be told
 * until somebody waits for the device, which is no failure.
 */
static vmm_status stream_refused(struct timeline *timeline, vmm_status status,
                                 const struct error_line *line)
{
    if (status != VMM_ERR_INVALID_ARGUMENT)
        return status;
    vmm__error_restore(line);
    atomic_store_explicit(&timeline->is_gone, true, memory_order_release);
    return VMM_NOT_READY;
}

/* VMM_NOT_READY if a stream is being captured: an event would become part of the graph, and tell nothing. */
static vmm_status stream_ask(struct timeline *timeline, vmm_stream stream)
{
    bool is_capturing = false;
    vmm_status status = vmm__driver_capturing(timeline->driver, stream, &is_capturing);
    return status == VMM_OK && is_capturing ? VMM_NOT_READY : status;
}

/*
 * A full ring records its newest mark again: later than need be, never too early. A capture that another thread
 * began meanwhile may have the event: then nobody must ask for it before it is recorded again.
 */
static vmm_status mark_record(struct timeline *timeline)
{
    vmm_status asked = stream_ask(timeline, timeline->stream);
    if (asked != VMM_OK)
        return asked;
    bool full = timeline->count == TIMELINE_MARKS;
    struct timeline_mark *mark = mark_at(timeline, full ? timeline->count - 1 : timeline->count);
    vmm_status status = VMM_OK;
    if (mark->event == NULL)
        status = vmm__driver_event_create(timeline->driver, &mark->event);
    if (status != VMM_OK)
        return status;
    uint64_t epoch = atomic_fetch_add_explicit(&timeline->now, 1, memory_order_acq_rel);
    status = vmm__driver_event_record(timeline->driver, mark->event, timeline->stream);
    if (status != VMM_OK)
        return status;
    timeline->count -= full ? 1 : 0;
    status = stream_ask(timeline, timeline->stream);
    if (status != VMM_OK)
        return status;
    mark->epoch = epoch;
    timeline->count++;
    atomic_store_explicit(&timeline->is_gone, false, memory_order_release);
    return VMM_OK;
}

static vmm_status mark_add(struct timeline *timeline)
{
    struct error_line line;
    vmm__error_save(&line);
    return stream_refused(timeline, mark_record(timeline), &line);
}

/* Of a stream that has ended: its newest mark covers what is stamped later, too. */
static void mark_extend(struct timeline *timeline)
{
    uint64_t epoch = vmm__timeline_advance(timeline);
    if (timeline->count == 0)
        timeline->passed = epoch;
    else
        mark_at(timeline, timeline->count - 1)->epoch = epoch;
}

static vmm_status mark_locked(struct timeline *timeline, uint64_t epoch)
{
    if (epoch <= newest_epoch(timeline))
        return VMM_OK;
    if (!vmm__timeline_has_ended(timeline))
        return mark_add(timeline);
    mark_extend(timeline);
    return VMM_OK;
}

static vmm_status query_locked(struct timeline *timeline, uint64_t epoch)
{
    if (epoch <= timeline->passed)
        return VMM_OK;
    vmm_status status = mark_locked(timeline, epoch);
    if (status == VMM_OK)
        status = marks_poll(timeline);
    if (status == VMM_OK && epoch > timeline->passed)
        status = VMM_NOT_READY;
    return status;
}

/* The earliest mark that covers an epoch which has not passed. */
static struct timeline_mark *mark_covering(struct timeline *timeline, uint64_t epoch)
{
    unsigned position = 0;
    while (position + 1 < timeline->count && mark_at(timeline, position)->epoch < epoch)
        position++;
    return mark_at(timeline, position);
}

/* A graph would not wait again each time that it is launched. */
static vmm_status stream_follow(struct timeline *timeline, uint64_t epoch, vmm_stream stream)
{
    vmm_status status = stream_ask(timeline, stream);
    if (status != VMM_OK)
        return status;
    return vmm__driver_stream_wait(timeline->driver, stream, mark_covering(timeline, epoch)->event);
}

void vmm__timeline_init(struct timeline *timeline, struct driver *driver, vmm_stream stream)
{
    *timeline = (struct timeline){ .driver = driver };
    atomic_init(&timeline->stream, stream);
    atomic_init(&timeline->now, 1);
    vmm__lock_init(&timeline->lock);
}

/* What the driver refuses is tried once more. */
static vmm_status event_end(struct driver *driver, void *event)
{
    vmm_status status = event == NULL ? VMM_OK : vmm__driver_event_destroy(driver, event);
    return status == VMM_OK ? VMM_OK : vmm__driver_event_destroy(driver, event);
}

vmm_status vmm__timeline_fini(struct timeline *timeline)
{
    vmm_status first = VMM_OK;
    for (unsigned i = 0; i < TIMELINE_MARKS; i++) {
        vmm_status status = event_end(timeline->driver, timeline->marks[i].event);
        first = first == VMM_OK ? status : first;
    }
    vmm__lock_fini(&timeline->lock);
    return first;
}

vmm_status vmm__timeline_mark(struct timeline *timeline, uint64_t epoch)
{
    vmm__lock_take(&timeline->lock);
    vmm_status status = mark_locked(timeline, epoch);
    vmm__lock_drop(&timeline->lock);
    return status;
}

vmm_status vmm__timeline_query(struct timeline *timeline, uint64_t epoch)
{
    vmm__lock_take(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    vmm__lock_drop(&timeline->lock);
    return status;
}

/* Without the lock meanwhile, so that others can ask. The event may come to stand for a later mark, but only after it
 * has passed for this one. */
static vmm_status event_await(struct timeline *timeline, void *event)
{
    vmm__lock_drop(&timeline->lock);
    vmm_status status = vmm__driver_event_wait(timeline->driver, event);
    vmm__lock_take(&timeline->lock);
    return status == VMM_OK ? marks_poll(timeline) : status;
}

vmm_status vmm__timeline_wait(struct timeline *timeline, uint64_t epoch)
{
    vmm__lock_take(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    if (status == VMM_NOT_READY && epoch <= newest_epoch(timeline))
        status = event_await(timeline, mark_covering(timeline, epoch)->event);
    vmm__lock_drop(&timeline->lock);
    return status;
}

vmm_status vmm__timeline_follow(struct timeline *timeline, uint64_t epoch, vmm_stream stream)
{
    vmm__lock_take(&timeline->lock);
    vmm_status status = query_locked(timeline, epoch);
    if (status == VMM_NOT_READY && epoch <= newest_epoch(timeline))
        status = stream_follow(timeline, epoch, stream);
    vmm__lock_drop(&timeline->lock);
    return status;
}

/* Marks of what has passed are asked for no more; their events are used again. */
void vmm__timeline_pass(struct timeline *timeline, uint64_t epoch)
{
    vmm__lock_take(&timeline->lock);
    while (timeline->count > 0 && mark_at(timeline, 0)->epoch <= epoch)
        oldest_drop(timeline);
    timeline->passed = vmm__max(timeline->passed, epoch);
    vmm__lock_drop(&timeline->lock);
}

void vmm__timeline_end(struct timeline *timeline)
{
    vmm__lock_take(&timeline->lock);
    atomic_store_explicit(&timeline->has_ended, true, memory_order_release);
    vmm__lock_drop(&timeline->lock);
}

static vmm_status resume_locked(struct timeline *timeline, vmm_stream stream)
{
    vmm_status status = marks_poll(timeline);
    if (status == VMM_OK && timeline->count > 0)
        status = stream_follow(timeline, newest_epoch(timeline), stream);
    return status;
}

vmm_status vmm__timeline_resume(struct timeline *timeline, vmm_stream stream)
{
    vmm__lock_take(&timeline->lock);
    vmm_status status = resume_locked(timeline, stream);
    if (status == VMM_OK) {
        atomic_store_explicit(&timeline->stream, stream, memory_order_relaxed);
        atomic_store_explicit(&timeline->has_ended, false, memory_order_release);
    }
    vmm__lock_drop(&timeline->lock);
    return status;
}

vmm_status vmm__timeline_outwait(struct timeline *timeline)
{
    uint64_t epoch = vmm__timeline_advance(timeline);
    vmm_status status = vmm__driver_device_wait(timeline->driver);
    if (status == VMM_OK) {
        vmm__timeline_pass(timeline, epoch);
        atomic_store_explicit(&timeline->is_gone, false, memory_order_release);
    }
    return status;
}

vmm_status vmm__timeline_check(struct timeline *timeline)
{
    vmm__lock_take(&timeline->lock);
    uint64_t before = timeline->passed;
    bool rising = true;
    for (unsigned i = 0; i < timeline->count; i++) {
        rising = rising && mark_at(timeline, i)->epoch > before;
        before = mark_at(timeline, i)->epoch;
    }
    rising = rising && before < vmm__timeline_now(timeline);
    vmm__lock_drop(&timeline->lock);
    if (!rising)
        return vmm__error(VMM_ERR_INTERNAL, "timeline: invariant 1: epochs do not rise");
    return VMM_OK;
}
