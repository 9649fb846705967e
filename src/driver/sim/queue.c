/*
 * Submitted work that may not have finished, and the order in which it finishes: by lag or as a test chooses. See I3 of
 * internal.h.
 *
 * Owns: order->ring, and the sets of work that its pieces wait for.
 * Invariants: pieces are numbered from 1 in submission order; the ring holds those from ring_first on; the pieces of a
 * stream are linked in order, from its first one that may not have finished.
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/hostmem.h"

static struct sim_pending *ring_at(const struct sim_order *order, uint64_t number)
{
    return &order->ring[number & (order->ring_capacity - 1)];
}

bool vmm__sim_queue_room(struct sim_order *order)
{
    if (order->ring_count < order->ring_capacity)
        return true;
    uint64_t capacity = vmm__max(64, order->ring_capacity * 2);
    struct sim_pending *ring = vmm__host_alloc(capacity, sizeof *ring);
    if (ring == NULL)
        return false;
    for (uint64_t place = 0; place < order->ring_count; place++) {
        uint64_t number = order->ring_first + place;
        ring[number & (capacity - 1)] = *ring_at(order, number);
    }
    vmm__host_free(order->ring, order->ring_capacity * sizeof *ring);
    order->ring = ring;
    order->ring_capacity = capacity;
    return true;
}

/* Numbers begin at 1; 0 means none. */
static uint64_t ring_end(struct sim_order *order)
{
    order->ring_first = vmm__max(order->ring_first, 1);
    return order->ring_first + order->ring_count;
}

void vmm__sim_queue_add(struct sim_order *order, struct sim_stream *stream, uint64_t due)
{
    uint64_t number = ring_end(order);
    *ring_at(order, number) = (struct sim_pending){
        .epoch = sim_epoch(stream->index, stream->submitted), .due = due, .after = stream->after
    };
    stream->after = (struct sim_users){ 0 };
    order->ring_count++;
    if (stream->first_pending == 0)
        stream->first_pending = number;
    else
        ring_at(order, stream->last_pending)->next = number;
    stream->last_pending = number;
}

/* Removes the first piece from its stream's list. */
static void stream_pop(struct sim_order *order, struct sim_stream *stream)
{
    struct sim_pending *piece = ring_at(order, stream->first_pending);
    vmm__sim_users_clear(&piece->after);
    stream->first_pending = piece->next;
}

/* Removes finished work from the front of the ring, which always holds the most recent work. */
void vmm__sim_order_settle(struct sim *sim)
{
    struct sim_order *order = &sim->order;
    uint64_t now = atomic_load_explicit(&sim->clock_ns, memory_order_relaxed);
    while (order->ring_count > 0) {
        const struct sim_pending *oldest = ring_at(order, order->ring_first);
        uint64_t epoch = oldest->epoch;
        struct sim_stream *stream = order->streams[sim_epoch_stream(epoch)];
        if (!sim_epoch_covered(epoch, order->finished)) {
            if (order->choose != NULL || order->ring_count <= order->lag || oldest->due > now)
                return;
            order->finished[stream->index] = sim_epoch_sequence(epoch);
        }
        if (stream->first_pending == order->ring_first)
            stream_pop(order, stream);
        order->ring_first++;
        order->ring_count--;
    }
}

/* Returns the number of the stream's next piece if it may finish now, else 0. */
static uint64_t stream_next(struct sim *sim, struct sim_stream *stream)
{
    struct sim_order *order = &sim->order;
    while (stream->first_pending != 0 &&
           sim_epoch_covered(ring_at(order, stream->first_pending)->epoch, order->finished))
        stream_pop(order, stream);
    if (stream->first_pending == 0)
        return 0;
    const struct sim_pending *piece = ring_at(order, stream->first_pending);
    bool is_due = piece->due <= atomic_load_explicit(&sim->clock_ns, memory_order_relaxed);
    bool waits = vmm__sim_users_uncovered(&piece->after, order->finished) != 0;
    return is_due && !waits ? stream->first_pending : 0;
}

static uint32_t choices_list(struct sim *sim, struct sim_choice *choices, uint32_t *streams)
{
    uint32_t count = 0;
    for (uint32_t index = 0; index < sim->order.count; index++) {
        struct sim_stream *stream = sim->order.streams[index];
        uint64_t number = stream_next(sim, stream);
        if (number == 0)
            continue;
        streams[count] = index;
        choices[count++] =
            (struct sim_choice){ .stream = soft_stream_name(&stream->soft), .number = number };
    }
    return count;
}

void vmm__sim_order_step(struct sim *sim)
{
    struct sim_order *order = &sim->order;
    struct sim_choice choices[SIM_STREAMS];
    uint32_t streams[SIM_STREAMS];
    if (order->choose == NULL)
        return;
    uint32_t count = choices_list(sim, choices, streams);
    while (count > 0) {
        uint32_t chosen = order->choose(order->choose_context, choices, count);
        if (chosen >= count)
            break;
        struct sim_stream *stream = order->streams[streams[chosen]];
        const struct sim_pending *piece = ring_at(order, stream->first_pending);
        order->finished[stream->index] = sim_epoch_sequence(piece->epoch);
        stream_pop(order, stream);
        count = choices_list(sim, choices, streams);
    }
    vmm__sim_order_settle(sim);
}

void vmm__sim_queue_free(struct sim_order *order)
{
    for (uint64_t place = 0; place < order->ring_count; place++)
        vmm__sim_users_clear(&ring_at(order, order->ring_first + place)->after);
    for (uint32_t index = 0; index < order->count; index++)
        vmm__sim_users_clear(&order->streams[index]->after);
    vmm__host_free(order->ring, order->ring_capacity * sizeof *order->ring);
}
