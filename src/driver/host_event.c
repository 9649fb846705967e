/*
 * Events of the host driver, and waits of the host for work.
 *
 * Owns: the events; the records of waiting threads lie on their stacks.
 * An event is a mark: the stream it was recorded on and how many pieces had been submitted to it by
 * then. Nothing is queued to record it; it has passed when that many pieces have finished.
 * Called by: the driver table, any thread; host_work.c. Everything is guarded by work.lock.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host_internal.h"

struct host_event {
    struct host_event *next;
    struct host_event *previous;
    struct host_mark mark; /* no stream: never recorded, or on a stream that had no work yet */
    bool is_captured;      /* it was recorded into a capture of that stream, and tells nothing */
};

struct host_waiter {
    struct host_waiter *next;
    struct host_mark mark;
    pthread_cond_t reached;
};

/* ---- Waits of the host ----------------------------------------------------------------------- */

void vmm__host_wake_locked(struct host_work *work, const struct host_stream *stream)
{
    for (struct host_waiter *waiter = work->waiters; waiter != NULL; waiter = waiter->next)
        if (waiter->mark.stream == stream && vmm__host_is_reached(waiter->mark))
            pthread_cond_signal(&waiter->reached);
}

void vmm__host_wait_locked(struct host_work *work, struct host_mark mark)
{
    if (vmm__host_is_reached(mark))
        return;
    struct host_waiter waiter = { .next = work->waiters,
                                  .mark = mark,
                                  .reached = PTHREAD_COND_INITIALIZER };
    work->waiters = &waiter;
    mark.stream->references++;
    while (!vmm__host_is_reached(mark))
        pthread_cond_wait(&waiter.reached, &work->lock);
    struct host_waiter **link = &work->waiters;
    while (*link != &waiter)
        link = &(*link)->next;
    *link = waiter.next;
    vmm__host_stream_release_locked(work, mark.stream);
    (void)pthread_cond_destroy(&waiter.reached);
}

/* Streams that come to be known meanwhile stand before the first and are not waited for. */
static void all_wait_locked(struct host_work *work)
{
    struct host_stream *stream = work->streams;
    while (stream != NULL) {
        stream->references++;
        vmm__host_wait_locked(work, (struct host_mark){ stream, stream->submitted });
        struct host_stream *next = stream->next;
        vmm__host_stream_release_locked(work, stream);
        stream = next;
    }
}

vmm_status vmm__host_device_wait(struct driver *driver)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    vmm_status status = VMM_OK;
    pthread_mutex_lock(&work->lock);
    for (struct host_stream *stream = work->streams; stream != NULL; stream = stream->next) {
        if (stream->named && status == VMM_OK)
            status = vmm__host_capture_spoil_locked(stream, "device_wait");
    }
    if (status == VMM_OK)
        all_wait_locked(work);
    pthread_mutex_unlock(&work->lock);
    return status;
}

vmm_status vmm__host_mismatches(struct driver *driver, uint64_t *places)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    pthread_mutex_lock(&work->lock);
    all_wait_locked(work);
    *places = work->mismatches;
    pthread_mutex_unlock(&work->lock);
    return VMM_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

vmm_status vmm__host_event_create(struct driver *driver, void **event)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    struct host_event *made = vmm__host_alloc(1, sizeof *made);
    if (made == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "event_create: no memory for the record");
    pthread_mutex_lock(&work->lock);
    made->next = work->events;
    if (made->next != NULL)
        made->next->previous = made;
    work->events = made;
    pthread_mutex_unlock(&work->lock);
    *event = made;
    return VMM_OK;
}

static void event_mark_locked(struct host_work *work, struct host_event *event,
                              struct host_stream *stream)
{
    struct host_stream *before = event->mark.stream;
    event->mark = (struct host_mark){ .stream = stream };
    if (stream != NULL) {
        event->mark.sequence = stream->submitted;
        stream->references++;
    }
    if (before != NULL)
        vmm__host_stream_release_locked(work, before);
}

static void event_delete_locked(struct host_work *work, struct host_event *event)
{
    event_mark_locked(work, event, NULL);
    if (event->next != NULL)
        event->next->previous = event->previous;
    if (event->previous != NULL)
        event->previous->next = event->next;
    else
        work->events = event->next;
    vmm__host_free(event, sizeof *event);
}

/* Streams that wait for it keep their marks. */
vmm_status vmm__host_event_destroy(struct driver *driver, void *event)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    pthread_mutex_lock(&work->lock);
    event_delete_locked(work, event);
    pthread_mutex_unlock(&work->lock);
    return VMM_OK;
}

void vmm__host_events_close(struct host_work *work)
{
    while (work->events != NULL)
        event_delete_locked(work, work->events);
}

vmm_status vmm__host_event_record(struct driver *driver, void *event, vmm_stream stream)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    pthread_mutex_lock(&work->lock);
    struct host_event *recorded = event;
    struct host_stream *found = vmm__host_stream_find_locked(work, stream);
    vmm_status status = VMM_OK;
    if (found == NULL)
        status = vmm__stream_names_check(&work->names, "event_record", stream);
    if (status == VMM_OK) {
        event_mark_locked(work, recorded, found);
        recorded->is_captured = found != NULL && found->is_captured;
    }
    pthread_mutex_unlock(&work->lock);
    return status;
}

/* Called for what asks or waits for an event: the capture is lost. */
static vmm_status captured_spoil_locked(const struct host_event *event, const char *verb)
{
    if (!event->is_captured)
        return VMM_OK;
    (void)vmm__host_capture_spoil_locked(event->mark.stream, verb);
    return vmm__error(VMM_ERR_DRIVER, "%s: the event was captured on stream %p", verb,
                      event->mark.stream->name);
}

vmm_status vmm__host_event_query(struct driver *driver, void *event)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    const struct host_event *queried = event;
    pthread_mutex_lock(&work->lock);
    vmm_status status = captured_spoil_locked(queried, "event_query");
    if (status == VMM_OK && !vmm__host_is_reached(queried->mark))
        status = VMM_NOT_READY;
    pthread_mutex_unlock(&work->lock);
    return status;
}

vmm_status vmm__host_event_wait(struct driver *driver, void *event)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    const struct host_event *awaited = event;
    pthread_mutex_lock(&work->lock);
    vmm_status status = captured_spoil_locked(awaited, "event_wait");
    if (status == VMM_OK)
        vmm__host_wait_locked(work, awaited->mark);
    pthread_mutex_unlock(&work->lock);
    return status;
}

/* A mark that was reached, or lies on the waiting stream itself, orders nothing. */
vmm_status vmm__host_stream_wait(struct driver *driver, vmm_stream stream, void *event)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    const struct host_event *awaited = event;
    struct host_piece piece = { .kind = HOST_PIECE_WAIT };
    pthread_mutex_lock(&work->lock);
    piece.mark = awaited->mark;
    struct host_stream *waiting = vmm__host_stream_find_locked(work, stream);
    bool orders = !vmm__host_is_reached(piece.mark) && piece.mark.stream != waiting;
    vmm_status status = VMM_OK;
    if (waiting != NULL)
        status = vmm__host_capture_spoil_locked(waiting, "stream_wait");
    else
        status = vmm__stream_names_check(&work->names, "stream_wait", stream);
    if (status == VMM_OK)
        status = captured_spoil_locked(awaited, "stream_wait");
    if (status == VMM_OK && orders)
        status = vmm__host_submit_locked(work, &piece, stream);
    pthread_mutex_unlock(&work->lock);
    return status;
}
