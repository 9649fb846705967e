/*
 * Events of the host driver, and blocking waits of host threads.
 *
 * Owns: the events. Each waiting thread keeps its own record on its stack. An event is a position in a stream: the
 * stream it was recorded on and the number of pieces submitted until then; or, if it is of all work, one in each
 * stream. Recording queues nothing; the event is complete once that many pieces have finished. Called by: the
 * driver table, any thread; work.c. work.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

struct host_event {
    struct map_node node;            /* its key is the event's address */
    struct host_position *positions; /* none: never recorded, or recorded without any work */
    uint64_t count;
    uint64_t capacity;
    struct soft_stream *captured; /* under capture when it was recorded: never query or wait */
};

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
    position.stream->references++;
    while (!vmm__host_is_reached(position))
        (void)vmm__mutex_wait(&work->lock, &waiter.reached, NULL);
    struct host_waiter **link = &work->waiters;
    while (*link != &waiter)
        link = &(*link)->next;
    *link = waiter.next;
    vmm__host_stream_release_locked(work, position.stream);
    (void)pthread_cond_destroy(&waiter.reached);
}

/* Streams that appear meanwhile are inserted before the first and are not waited for. */
void vmm__host_all_wait_locked(struct host_work *work)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_stream *stream = work->streams;
    while (stream != NULL) {
        stream->references++;
        vmm__host_wait_locked(work, (struct host_position){ stream, stream->submitted });
        struct host_stream *next = stream->next;
        vmm__host_stream_release_locked(work, stream);
        stream = next;
    }
}

vmm_status vmm__host_device_wait_locked(struct host_work *work)
{
    VMM_ASSERT_HELD(&work->lock);
    vmm_status status = VMM_OK;
    for (struct host_stream *stream = work->streams; stream != NULL; stream = stream->next) {
        if (stream->soft.is_named && status == VMM_OK)
            status = vmm__soft_capture_break(work->soft, &stream->soft, "device_wait");
    }
    if (status == VMM_OK)
        vmm__host_all_wait_locked(work);
    return status;
}

vmm_status vmm__host_mismatches_locked(struct host_work *work, uint64_t *places)
{
    VMM_ASSERT_HELD(&work->lock);
    vmm__host_all_wait_locked(work);
    *places = work->mismatches;
    return VMM_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

vmm_status vmm__host_event_create_locked(struct host_work *work, void **event)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_event *created = vmm__host_alloc(1, sizeof *created);
    if (created == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "event_create: out of host memory for the record");
    created->node.key = (uint64_t)(uintptr_t)created;
    vmm__map_add(&work->events, &created->node);
    *event = created;
    return VMM_OK;
}

static void event_clear_locked(struct host_work *work, struct host_event *event)
{
    VMM_ASSERT_HELD(&work->lock);
    while (event->count > 0)
        vmm__host_stream_release_locked(work, event->positions[--event->count].stream);
    event->captured = NULL;
}

static bool event_room(struct host_event *event, uint64_t count)
{
    bool has_room = true;
    while (event->capacity < count && has_room)
        has_room = vmm__host_array_grow((void **)&event->positions, &event->capacity,
                                        event->capacity, sizeof *event->positions);
    return has_room;
}

/* Adds the work that a stream has now. The event has room. */
static void event_add(struct host_event *event, struct host_stream *stream)
{
    event->positions[event->count++] = (struct host_position){ stream, stream->submitted };
    stream->references++;
}

static void event_free(struct map_node *node)
{
    struct host_event *event = (struct host_event *)node;
    vmm__host_free(event->positions, event->capacity * sizeof *event->positions);
    vmm__host_free(event, sizeof *event);
}

/* Streams that wait for the event keep its position. */
vmm_status vmm__host_event_destroy_locked(struct host_work *work, void *event)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_event *destroyed = event;
    event_clear_locked(work, destroyed);
    vmm__map_remove(&work->events, &destroyed->node);
    event_free(&destroyed->node);
    return VMM_OK;
}

void vmm__host_events_close(struct host_work *work)
{
    vmm__map_clear(&work->events, event_free);
}

vmm_status vmm__host_event_record_locked(struct host_work *work, void *event, vmm_stream stream)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_event *recorded = event;
    struct soft_stream *found;
    vmm_status status = vmm__soft_stream_get(work->soft, "event_record", stream, &found);
    if (status == VMM_OK && !event_room(recorded, 1))
        status = vmm__error(VMM_ERR_HOST_OOM, "event_record: out of host memory for its position");
    if (status != VMM_OK)
        return status;
    event_clear_locked(work, recorded);
    if (found != NULL)
        event_add(recorded, (struct host_stream *)found);
    recorded->captured = found != NULL && found->is_captured ? found : NULL;
    return VMM_OK;
}

/* VMM__PENDING, and all captures are broken, if there is one. Counts the streams. */
static vmm_status captures_break_locked(struct host_work *work, uint64_t *count)
{
    VMM_ASSERT_HELD(&work->lock);
    vmm_status status = VMM_OK;
    *count = 0;
    for (struct host_stream *stream = work->streams; stream != NULL; stream = stream->next) {
        if (vmm__soft_capture_break(work->soft, &stream->soft, "clock_record") != VMM_OK)
            status = VMM__PENDING;
        ++*count;
    }
    return status;
}

vmm_status vmm__host_clock_record_locked(struct host_work *work, void *event)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_event *recorded = event;
    uint64_t count;
    vmm_status status = captures_break_locked(work, &count);
    if (status == VMM_OK && !event_room(recorded, count))
        status = vmm__error(VMM_ERR_HOST_OOM, "clock_record: out of host memory for its positions");
    if (status != VMM_OK)
        return status;
    event_clear_locked(work, recorded);
    for (struct host_stream *stream = work->streams; stream != NULL; stream = stream->next) {
        if (stream->finished < stream->submitted)
            event_add(recorded, stream);
    }
    return VMM_OK;
}

/* The first position that is not reached; NULL: all are. */
static const struct host_position *event_unreached(const struct host_event *event)
{
    for (uint64_t i = 0; i < event->count; i++) {
        if (!vmm__host_is_reached(event->positions[i]))
            return &event->positions[i];
    }
    return NULL;
}

vmm_status vmm__host_event_query_locked(struct host_work *work, void *event)
{
    VMM_ASSERT_HELD(&work->lock);
    const struct host_event *queried = event;
    vmm_status status = vmm__soft_captured_refuse(work->soft, queried->captured, "event_query");
    if (status == VMM_OK && event_unreached(queried) != NULL)
        status = VMM__PENDING;
    return status;
}

vmm_status vmm__host_event_wait_locked(struct host_work *work, void *event)
{
    VMM_ASSERT_HELD(&work->lock);
    const struct host_event *awaited = event;
    const struct host_position *position;
    vmm_status status = vmm__soft_captured_refuse(work->soft, awaited->captured, "event_wait");
    while (status == VMM_OK && (position = event_unreached(awaited)) != NULL)
        vmm__host_wait_locked(work, *position);
    return status;
}

/* A position that is reached, or in the waiting stream itself, needs no wait. */
vmm_status vmm__host_stream_wait_locked(struct host_work *work, vmm_stream stream, void *event)
{
    VMM_ASSERT_HELD(&work->lock);
    const struct host_event *awaited = event;
    struct host_piece piece = { .kind = HOST_PIECE_WAIT };
    struct soft_stream *waiting;
    vmm_status status = vmm__soft_stream_get(work->soft, "stream_wait", stream, &waiting);
    if (status == VMM_OK && waiting != NULL)
        status = vmm__soft_capture_break(work->soft, waiting, "stream_wait");
    if (status == VMM_OK)
        status = vmm__soft_captured_refuse(work->soft, awaited->captured, "stream_wait");
    for (uint64_t i = 0; i < awaited->count && status == VMM_OK; i++) {
        piece.position = awaited->positions[i];
        if (!vmm__host_is_reached(piece.position) && &piece.position.stream->soft != waiting)
            status = vmm__host_submit_locked(work, &piece, stream);
    }
    return status;
}
