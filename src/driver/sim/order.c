/*
 * Streams and events of the sim driver: the order between pieces of work, and what the host has observed.
 *
 * Owns: sim->order except its queue, and sim->events. Uses vector clocks, as race detectors do: see
 * I2 of internal.h. A slot is reused only after the host has observed the end of all its work, so
 * no old epoch is mistaken for one of the new stream. The number of streams is therefore unlimited,
 * but at most SIM_STREAMS can have work that the host has not observed as complete: an idle stream
 * gives up its slot and gets another with its next work.
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <string.h>

static void clock_merge(uint64_t *clock, const uint64_t *other, uint32_t count)
{
    for (uint32_t index = 0; index < count; index++)
        clock[index] = vmm__max(clock[index], other[index]);
}

/* ---- Streams --------------------------------------------------------------------------------- */

enum { SLOT_PROBES = 4 };

/* True if the host has observed the end of all work of the slot and, if a stream still uses it, of all work that
 * precedes the stream's next work: the stream then loses no information with its slot. */
static bool slot_is_idle(const struct sim_order *order, uint32_t index)
{
    const struct sim_stream *stream = order->streams[index];
    if (stream->submitted > order->observed[index])
        return false;
    if (!stream->soft.is_named)
        return true;
    for (uint32_t other = 0; other < order->count; other++) {
        if (stream->clock[other] > order->observed[other])
            return false;
    }
    return !stream->soft.is_captured;
}

/* Reuses the slot of an idle stream, after at most `probes` checks. False if it finds none. */
static bool slot_take(struct sim *sim, uint32_t probes, uint32_t *index)
{
    struct sim_order *order = &sim->order;
    for (uint32_t probe = 0; probe < probes && order->count > 0; probe++) {
        order->hand = (order->hand + 1) % order->count;
        if (!slot_is_idle(order, order->hand))
            continue;
        *index = order->hand;
        struct sim_stream *idle = order->streams[*index];
        order->has_forgotten = order->has_forgotten || idle->soft.is_named;
        if (idle->soft.is_named)
            vmm__soft_stream_unname(&sim->soft.streams, &idle->soft);
        return true;
    }
    return false;
}

/* Returns a slot for a new stream, or SIM_STREAMS if all have work in progress. */
static uint32_t stream_slot(struct sim *sim)
{
    uint32_t index;
    uint32_t count = sim->order.count;
    if (slot_take(sim, SLOT_PROBES, &index))
        return index;
    return count < SIM_STREAMS || !slot_take(sim, count, &index) ? count : index;
}

static void stream_begin(struct sim *sim, struct sim_stream *stream, vmm_stream name)
{
    stream->observation = 0;
    vmm__sim_users_clear(&stream->after);
    memset(stream->clock, 0, sizeof stream->clock);
    stream->clock[stream->index] = stream->submitted;
    vmm__soft_stream_add(&sim->soft.streams, &stream->soft, name);
}

static vmm_status stream_new(struct sim *sim, vmm_stream name, struct sim_stream **out)
{
    struct sim_order *order = &sim->order;
    uint32_t index = stream_slot(sim);
    if (index == SIM_STREAMS)
        return vmm__error(VMM_ERR_DRIVER, "sim: stream %p: %d other streams have work in progress",
                          name, (int)SIM_STREAMS);
    if (index == order->count) {
        order->streams[index] = vmm__host_alloc(1, sizeof *order->streams[index]);
        if (order->streams[index] == NULL)
            return vmm__error(VMM_ERR_HOST_OOM, "sim: stream %p: out of host memory", name);
        order->streams[index]->index = index;
        order->count++;
    }
    stream_begin(sim, order->streams[index], name);
    *out = order->streams[index];
    return VMM_OK;
}

vmm_status vmm__sim_stream_get(struct sim *sim, const char *verb, vmm_stream name,
                               struct sim_stream **out)
{
    struct soft_stream *found;
    vmm_status status = vmm__soft_stream_get(&sim->soft, verb, name, &found);
    *out = (struct sim_stream *)found;
    return status == VMM_OK && *out == NULL ? stream_new(sim, name, out) : status;
}

vmm_status vmm__sim_stream_create(struct sim *sim, vmm_stream *stream)
{
    struct sim_stream *created;
    vmm_stream name = vmm__soft_stream_name_take(&sim->soft.streams);
    vmm_status status = stream_new(sim, name, &created);
    if (status != VMM_OK) {
        (void)vmm__soft_stream_name_drop(&sim->soft.streams, name);
        return status;
    }
    soft_charge(&sim->soft, DRIVER_CALL_stream_create, 0, NULL);
    *stream = name;
    return VMM_OK;
}

/* Once the driver has forgotten idle streams, any name that was not destroyed may be that of one. */
vmm_status vmm__sim_stream_destroy(struct sim *sim, vmm_stream stream)
{
    struct soft_stream *found;
    vmm_status status = vmm__soft_stream_get(&sim->soft, "stream destroy", stream, &found);
    if (status != VMM_OK)
        return status;
    if (found == NULL && !sim->order.has_forgotten)
        return vmm__error(VMM_ERR_DRIVER, "sim: stream destroy: no stream %p", stream);
    if (!vmm__soft_stream_name_drop(&sim->soft.streams, stream))
        return vmm__error(VMM_ERR_HOST_OOM, "sim: stream destroy: out of host memory for its name");
    if (found != NULL)
        vmm__soft_stream_unname(&sim->soft.streams, found);
    soft_charge(&sim->soft, DRIVER_CALL_stream_destroy, 0, NULL);
    return VMM_OK;
}

/* ---- Work ------------------------------------------------------------------------------------ */

/* Records that the host observed the end of everything that the clock covers. */
static void host_observe(struct sim *sim, const uint64_t *clock, uint32_t count)
{
    struct sim_order *order = &sim->order;
    clock_merge(order->finished, clock, count);
    clock_merge(order->observed, clock, count);
    order->observations++;
    vmm__sim_order_settle(sim);
}

/* Orders the stream's future work after everything the host has observed. */
static void stream_catch_up(const struct sim_order *order, struct sim_stream *stream)
{
    if (stream->observation == order->observations)
        return;
    clock_merge(stream->clock, order->observed, order->count);
    stream->observation = order->observations;
}

/* Returns the earliest end of work submitted now. A delay begins after the stream's earlier delays, unless a wait of
 * the host has ended them. */
static uint64_t work_due(const struct sim *sim, struct sim_stream *stream, uint64_t delay_ns)
{
    bool is_idle = sim->order.finished[stream->index] >= stream->submitted;
    uint64_t now = atomic_load_explicit(&sim->clock_ns, memory_order_relaxed);
    uint64_t start = is_idle ? now : vmm__max(now, stream->busy_until);
    stream->busy_until = start + vmm__min(delay_ns, UINT64_MAX - start);
    return stream->busy_until;
}

vmm_status vmm__sim_work_submit(struct sim *sim, vmm_stream name, struct sim_work *work)
{
    struct sim_order *order = &sim->order;
    struct sim_stream *stream;
    vmm_status status = vmm__sim_stream_get(sim, work->verb, name, &stream);
    if (status == VMM_OK)
        status = vmm__soft_capture_break(&sim->soft, &stream->soft, work->verb);
    if (status != VMM_OK)
        return status;
    if (!vmm__sim_queue_room(order))
        return vmm__error(VMM_ERR_HOST_OOM, "sim: %s: out of host memory to queue it", work->verb);
    stream_catch_up(order, stream);
    uint64_t due = work_due(sim, stream, work->delay_ns);
    stream->submitted++;
    stream->clock[stream->index] = stream->submitted;
    work->stream = stream;
    work->epoch = sim_epoch(stream->index, stream->submitted);
    vmm__sim_queue_add(order, stream, due);
    vmm__sim_order_settle(sim);
    vmm__sim_order_step(sim);
    return VMM_OK;
}

void vmm__sim_order_finish(struct sim *sim)
{
    struct sim_order *order = &sim->order;
    for (uint32_t index = 0; index < order->count; index++) {
        order->finished[index] = order->streams[index]->submitted;
        order->observed[index] = order->streams[index]->submitted;
    }
    order->observations++;
    vmm__sim_order_settle(sim);
}

vmm_status vmm__sim_device_wait(struct sim *sim)
{
    vmm_status status = VMM_OK;
    for (uint32_t index = 0; index < sim->order.count && status == VMM_OK; index++) {
        struct soft_stream *stream = &sim->order.streams[index]->soft;
        if (stream->is_named)
            status = vmm__soft_capture_break(&sim->soft, stream, "device wait");
    }
    if (status != VMM_OK)
        return status;
    vmm__sim_order_finish(sim);
    soft_charge(&sim->soft, DRIVER_CALL_device_wait, 0, NULL);
    return VMM_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

vmm_status vmm__sim_event_create(struct sim *sim, void **event)
{
    struct sim_event *created = vmm__host_alloc(1, sizeof *created);
    if (created == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sim: event create: out of host memory");
    soft_charge(&sim->soft, DRIVER_CALL_event_create, 0, NULL);
    created->node.key = ++sim->soft.last_id;
    vmm__map_add(&sim->events, &created->node);
    *event = (void *)(uintptr_t)created->node.key;
    return VMM_OK;
}

static vmm_status event_find(struct sim *sim, const char *verb, void *event, struct sim_event **out)
{
    *out = (struct sim_event *)vmm__map_find(&sim->events, (uint64_t)(uintptr_t)event);
    if (*out != NULL)
        return VMM_OK;
    vmm__soft_report_add(&sim->soft.violations, 1,
                         "%s of event %p, which was destroyed or never created", verb, event);
    return vmm__error(VMM_ERR_DRIVER, "sim: %s: %p is not an event", verb, event);
}

/* The same for a query of the event or a wait for it, which a captured event refuses. */
static vmm_status event_find_usable(struct sim *sim, const char *verb, void *event,
                                    struct sim_event **out)
{
    vmm_status status = event_find(sim, verb, event, out);
    return status == VMM_OK ? vmm__soft_captured_refuse(&sim->soft, (*out)->captured, verb)
                            : status;
}

static void event_free(struct map_node *node)
{
    struct sim_event *event = (struct sim_event *)node;
    vmm__host_free(event->clock, event->capacity * sizeof *event->clock);
    vmm__host_free(event, sizeof *event);
}

vmm_status vmm__sim_event_destroy(struct sim *sim, void *event)
{
    struct sim_event *found;
    vmm_status status = event_find(sim, "event destroy", event, &found);
    if (status != VMM_OK)
        return status;
    vmm__map_remove(&sim->events, &found->node);
    event_free(&found->node);
    soft_charge(&sim->soft, DRIVER_CALL_event_destroy, 0, NULL);
    return VMM_OK;
}

static bool event_room(struct sim_event *event, uint32_t count)
{
    if (event->capacity >= count)
        return true;
    uint64_t *clock =
        vmm__host_resize(event->clock, event->capacity * sizeof *clock, count * sizeof *clock);
    if (clock == NULL)
        return false;
    event->clock = clock;
    event->capacity = count;
    return true;
}

vmm_status vmm__sim_event_record(struct sim *sim, void *event, vmm_stream stream)
{
    struct sim_event *found;
    struct sim_stream *recorded;
    vmm_status status = event_find(sim, "event record", event, &found);
    if (status == VMM_OK)
        status = vmm__sim_stream_get(sim, "event record", stream, &recorded);
    if (status != VMM_OK)
        return status;
    found->captured = recorded->soft.is_captured ? &recorded->soft : NULL;
    if (!event_room(found, sim->order.count))
        return vmm__error(VMM_ERR_HOST_OOM, "sim: event record: out of host memory for its clock");
    stream_catch_up(&sim->order, recorded);
    found->count = sim->order.count;
    memcpy(found->clock, recorded->clock, found->count * sizeof *found->clock);
    soft_charge(&sim->soft, DRIVER_CALL_event_record, 0, NULL);
    return VMM_OK;
}

/* Covers all work, also that of destroyed streams, whose slots are not reused before the host has observed its end. */
vmm_status vmm__sim_clock_record(struct sim *sim, void *event)
{
    const struct sim_order *order = &sim->order;
    struct sim_event *found;
    vmm_status status = event_find(sim, "clock record", event, &found);
    if (status != VMM_OK)
        return status;
    for (uint32_t index = 0; index < order->count; index++) {
        struct soft_stream *stream = &order->streams[index]->soft;
        if (vmm__soft_capture_break(&sim->soft, stream, "clock record") != VMM_OK)
            status = VMM__PENDING;
    }
    if (status != VMM_OK)
        return status;
    if (!event_room(found, order->count))
        return vmm__error(VMM_ERR_HOST_OOM, "sim: clock record: out of host memory for its clock");
    found->captured = NULL;
    found->count = order->count;
    for (uint32_t index = 0; index < order->count; index++)
        found->clock[index] = order->streams[index]->submitted;
    soft_charge(&sim->soft, DRIVER_CALL_clock_record, 0, NULL);
    return VMM_OK;
}

static bool event_is_complete(const struct sim_order *order, const struct sim_event *event)
{
    for (uint32_t index = 0; index < event->count; index++) {
        if (event->clock[index] > order->finished[index])
            return false;
    }
    return true;
}

vmm_status vmm__sim_event_query(struct sim *sim, void *event)
{
    struct sim_event *found;
    vmm_status status = event_find_usable(sim, "event query", event, &found);
    if (status != VMM_OK)
        return status;
    soft_charge(&sim->soft, DRIVER_CALL_event_query, 0, NULL);
    vmm__sim_order_step(sim);
    if (!event_is_complete(&sim->order, found))
        return VMM__PENDING;
    host_observe(sim, found->clock, found->count);
    return VMM_OK;
}

vmm_status vmm__sim_event_wait(struct sim *sim, void *event)
{
    struct sim_event *found;
    vmm_status status = event_find_usable(sim, "event wait", event, &found);
    if (status != VMM_OK)
        return status;
    soft_charge(&sim->soft, DRIVER_CALL_event_wait, 0, NULL);
    host_observe(sim, found->clock, found->count);
    return VMM_OK;
}

/* Makes the stream's next work wait for the event's unfinished work. */
static bool stream_await(const struct sim_order *order, struct sim_stream *stream,
                         const struct sim_event *event)
{
    bool has_room = true;
    for (uint32_t index = 0; index < event->count && has_room; index++) {
        uint64_t sequence = event->clock[index];
        if (sequence > order->finished[index] && sequence > stream->clock[index])
            has_room =
                vmm__sim_users_add(&stream->after, order->finished, sim_epoch(index, sequence));
    }
    return has_room;
}

vmm_status vmm__sim_stream_wait(struct sim *sim, vmm_stream stream, void *event)
{
    struct sim_event *found;
    struct sim_stream *waiting;
    vmm_status status = event_find(sim, "stream wait", event, &found);
    if (status == VMM_OK)
        status = vmm__sim_stream_get(sim, "stream wait", stream, &waiting);
    if (status == VMM_OK)
        status = vmm__soft_capture_break(&sim->soft, &waiting->soft, "stream wait");
    if (status == VMM_OK)
        status = vmm__soft_captured_refuse(&sim->soft, found->captured, "stream wait");
    if (status != VMM_OK)
        return status;
    if (!stream_await(&sim->order, waiting, found))
        return vmm__error(VMM_ERR_HOST_OOM, "sim: stream wait: out of host memory");
    clock_merge(waiting->clock, found->clock, found->count);
    soft_charge(&sim->soft, DRIVER_CALL_stream_wait, 0, NULL);
    return VMM_OK;
}

/* ---- Captures: a clear on a stream under capture has no effect ------------------------------- */

vmm_status vmm__sim_capturing(struct sim *sim, const vmm_stream *streams, unsigned count,
                              bool *is_capturing)
{
    return vmm__soft_capturing(&sim->soft, streams, count, is_capturing);
}

vmm_status vmm__sim_capture_begin(struct sim *sim, vmm_stream stream)
{
    struct sim_stream *found;
    vmm_status status = vmm__sim_stream_get(sim, "capture begin", stream, &found);
    return status == VMM_OK ? vmm__soft_capture_begin(&sim->soft, &found->soft) : status;
}

vmm_status vmm__sim_capture_end(struct sim *sim, vmm_stream stream)
{
    return vmm__soft_capture_end(&sim->soft, stream);
}

void vmm__sim_order_free(struct sim *sim)
{
    struct sim_order *order = &sim->order;
    vmm__map_clear(&sim->events, event_free);
    vmm__sim_queue_free(order);
    vmm__soft_streams_close(&sim->soft.streams);
    for (uint32_t index = 0; index < order->count; index++)
        vmm__host_free(order->streams[index], sizeof *order->streams[index]);
}
