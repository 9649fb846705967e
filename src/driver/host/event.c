/*
 * The backing of the host driver's events, and blocking waits of host threads. See soft.h.
 *
 * Owns: nothing. Each waiting thread keeps its own record on its stack. A position is a stream and a number of its
 * pieces: an event has one in the stream that it was recorded on or, if it is of all work, one in each stream that has
 * unfinished work. Recording queues nothing. Called by: soft, any thread; work.c. work.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/list.h"
#include "driver/host/internal.h"

struct host_waiter {
    struct host_waiter *next;
    struct host_position position;
    pthread_cond_t reached;
};

/* ---- Blocking waits of host threads ---------------------------------------------------------- */

void vmm__host_wake_locked(struct host_work *work, const struct host_stream *stream)
{
    VMM_ASSERT_HELD(&work->lock);
    for (struct host_waiter *waiter = work->waiters; waiter != NULL; waiter = waiter->next)
        if (waiter->position.stream == stream && vmm__host_is_reached(waiter->position))
            pthread_cond_signal(&waiter->reached);
}

void vmm__host_wait_locked(struct host_work *work, struct host_position position)
{
    VMM_ASSERT_HELD(&work->lock);
    if (vmm__host_is_reached(position))
        return;
    struct host_waiter waiter = { .next = work->waiters,
                                  .position = position,
                                  .reached = PTHREAD_COND_INITIALIZER };
    work->waiters = &waiter;
    while (!vmm__host_is_reached(position))
        (void)vmm__mutex_wait(&work->lock, &waiter.reached, NULL);
    VMM_LIST_REMOVE(&work->waiters, &waiter, next);
    (void)pthread_cond_destroy(&waiter.reached);
}

/* Streams that appear meanwhile are inserted before the first and are not waited for. */
void vmm__host_device_wait(struct soft *soft)
{
    struct host_work *work = host_work_of(soft);
    VMM_ASSERT_HELD(&work->lock);
    for (struct host_stream *stream = work->streams; stream != NULL; stream = stream->next)
        vmm__host_wait_locked(work, (struct host_position){ stream, stream->submitted });
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Adds the work that a stream has now. The event has room. */
static void event_add(struct soft_event *event, struct host_stream *stream)
{
    struct host_position *positions = event->positions;
    positions[event->count++] = (struct host_position){ stream, stream->submitted };
}

vmm_status vmm__host_event_record(struct soft *soft, struct soft_event *event,
                                  struct soft_stream *stream)
{
    struct host_work *work = host_work_of(soft);
    VMM_ASSERT_HELD(&work->lock);
    vmm_status status = vmm__soft_event_clear(soft, event, stream == NULL ? work->stream_count : 1);
    if (status != VMM_OK)
        return status;
    if (stream != NULL) {
        event_add(event, (struct host_stream *)stream);
        return VMM_OK;
    }
    for (struct host_stream *each = work->streams; each != NULL; each = each->next) {
        if (each->finished < each->submitted)
            event_add(event, each);
    }
    return VMM_OK;
}

/* The first position that is not reached; NULL: all are. */
static const struct host_position *event_unreached(const struct soft_event *event)
{
    const struct host_position *positions = event->positions;
    for (uint32_t i = 0; i < event->count; i++) {
        if (!vmm__host_is_reached(positions[i]))
            return &positions[i];
    }
    return NULL;
}

bool vmm__host_event_is_complete(struct soft *soft, const struct soft_event *event)
{
    (void)soft;
    return event_unreached(event) == NULL;
}

void vmm__host_event_wait(struct soft *soft, struct soft_event *event)
{
    const struct host_position *position;
    while ((position = event_unreached(event)) != NULL)
        vmm__host_wait_locked(host_work_of(soft), *position);
}

/* A position that is reached, or in the waiting stream itself, needs no wait. */
vmm_status vmm__host_stream_wait(struct soft *soft, struct soft_stream *stream,
                                 struct soft_event *event)
{
    struct host_work *work = host_work_of(soft);
    VMM_ASSERT_HELD(&work->lock);
    struct host_stream *waiting = (struct host_stream *)stream;
    struct host_piece piece = { .kind = HOST_PIECE_WAIT };
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < event->count && status == VMM_OK; i++) {
        piece.position = ((const struct host_position *)event->positions)[i];
        if (!vmm__host_is_reached(piece.position) && piece.position.stream != waiting)
            status = vmm__host_piece_queue_locked(work, &piece, waiting);
    }
    return status;
}
