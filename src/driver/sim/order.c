/*
 * The backing of the sim driver's streams and events: the order between pieces of work, and what the host has observed.
 * See soft.h.
 *
 * Owns: sim->order except its queue. Uses vector clocks, as race detectors do: see
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
        if (idle->soft.is_named)
            vmm__soft_stream_forget(&sim->soft, &idle->soft);
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

vmm_status vmm__sim_stream_new(struct soft *soft, vmm_stream name, struct soft_stream **out)
{
    struct sim *sim = (struct sim *)soft;
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
    struct sim_stream *stream = order->streams[index];
    stream->observation = 0;
    vmm__sim_users_clear(&stream->after);
    memset(stream->clock, 0, sizeof stream->clock);
    stream->clock[index] = stream->submitted;
    *out = &stream->soft;
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
    struct soft_stream *found;
    vmm_status status = vmm__soft_stream_use(&sim->soft, work->verb, name, &found);
    if (status != VMM_OK)
        return status;
    if (!vmm__sim_queue_room(order))
        return vmm__error(VMM_ERR_HOST_OOM, "sim: %s: out of host memory to queue it", work->verb);
    struct sim_stream *stream = (struct sim_stream *)found;
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

void vmm__sim_device_wait(struct soft *soft)
{
    struct sim *sim = (struct sim *)soft;
    struct sim_order *order = &sim->order;
    for (uint32_t index = 0; index < order->count; index++) {
        order->finished[index] = order->streams[index]->submitted;
        order->observed[index] = order->streams[index]->submitted;
    }
    order->observations++;
    vmm__sim_order_settle(sim);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Of an event it has one position for each of the first streams, the sequence there. */
static uint64_t *event_clock(const struct soft_event *event)
{
    return event->positions;
}

/* All streams are also those that were destroyed, whose slots are not reused before the host has observed the end of
 * their work. */
vmm_status vmm__sim_event_record(struct soft *soft, struct soft_event *event,
                                 struct soft_stream *stream)
{
    const struct sim_order *order = &((struct sim *)soft)->order;
    struct sim_stream *one = (struct sim_stream *)stream;
    vmm_status status = vmm__soft_event_clear(soft, event, order->count);
    if (status != VMM_OK)
        return status;
    if (one != NULL)
        stream_catch_up(order, one);
    event->count = order->count;
    for (uint32_t index = 0; index < order->count; index++)
        event_clock(event)[index] =
            one != NULL ? one->clock[index] : order->streams[index]->submitted;
    return VMM_OK;
}

bool vmm__sim_event_is_complete(struct soft *soft, const struct soft_event *event)
{
    const struct sim_order *order = &((struct sim *)soft)->order;
    vmm__sim_order_step((struct sim *)soft);
    for (uint32_t index = 0; index < event->count; index++) {
        if (event_clock(event)[index] > order->finished[index])
            return false;
    }
    return true;
}

void vmm__sim_event_wait(struct soft *soft, struct soft_event *event)
{
    host_observe((struct sim *)soft, event_clock(event), event->count);
}

/* The stream's next work waits for the event's unfinished work. */
vmm_status vmm__sim_stream_wait(struct soft *soft, struct soft_stream *stream,
                                struct soft_event *event)
{
    const struct sim_order *order = &((struct sim *)soft)->order;
    struct sim_stream *waiting = (struct sim_stream *)stream;
    for (uint32_t index = 0; index < event->count; index++) {
        uint64_t sequence = event_clock(event)[index];
        if (sequence > order->finished[index] && sequence > waiting->clock[index] &&
            !vmm__sim_users_add(&waiting->after, order->finished, sim_epoch(index, sequence)))
            return vmm__error(VMM_ERR_HOST_OOM, "sim: stream wait: out of host memory");
    }
    clock_merge(waiting->clock, event_clock(event), event->count);
    return VMM_OK;
}

void vmm__sim_order_free(struct sim *sim)
{
    struct sim_order *order = &sim->order;
    vmm__soft_streams_close(&sim->soft);
    vmm__sim_queue_free(order);
    for (uint32_t index = 0; index < order->count; index++)
        vmm__host_free(order->streams[index], sizeof *order->streams[index]);
}
