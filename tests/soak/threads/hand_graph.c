/* Graphs of the soak of threads: captured beside everything else, launched, released. See thread_soak.h. */
#include "thread_soak.h"

enum { GRAPH_BLOCKS = 12, LAUNCHES = 2 };

/* Small ones: what a graph has is out of everybody's reach. */
#define GRAPH_LEAST_BYTES 512U
#define GRAPH_MOST_BYTES  (2 * MIB)

struct graph {
    vmm_pool_id id;
    unsigned count;
    struct crew_block blocks[GRAPH_BLOCKS];
};

static int stream_passes(void *context, vmm_stream stream)
{
    return *(const vmm_stream *)context == stream;
}

static void graph_take(struct hand *hand, struct graph *graph)
{
    struct crew_block *block = &graph->blocks[graph->count];
    uint64_t bytes = hand_bytes_drawn(hand, GRAPH_LEAST_BYTES, GRAPH_MOST_BYTES);
    vmm_status status = vmm_alloc(hand->crew->cache, bytes, hand->graph_stream, &block->address);
    hand->sums.allocations++;
    if (status == VMM_ERR_DEVICE_OOM) {
        hand->sums.refusals++;
        return;
    }
    crew_expect(hand->crew, "vmm_alloc for a graph", status);
    if (status != VMM_OK)
        return;
    block->bytes = bytes;
    graph->count++;
}

static void graph_give(struct hand *hand, struct graph *graph)
{
    struct crew_block *block = &graph->blocks[--graph->count];
    crew_expect(hand->crew, "vmm_free of a graph's block",
                vmm_free(hand->crew->cache, block->address));
}

static void graph_captured(struct hand *hand, struct graph *graph)
{
    struct crew *crew = hand->crew;
    hand_does(hand, "vmm_pool_begin");
    crew_expect(crew, "vmm_pool_begin",
                vmm_pool_begin(crew->cache, graph->id, stream_passes, &hand->graph_stream));
    hand_does(hand, "a capture");
    crew_expect(crew, "capture begin", vmm__driver_capture_begin(crew->driver, hand->graph_stream));
    for (unsigned i = 0; i < GRAPH_BLOCKS; i++) {
        if (graph->count > 0 && hand_dice(hand, 3))
            graph_give(hand, graph);
        else
            graph_take(hand, graph);
    }
    crew_expect(crew, "capture end", vmm__driver_capture_end(crew->driver, hand->graph_stream));
    hand_does(hand, "vmm_pool_end");
    crew_expect(crew, "vmm_pool_end", vmm_pool_end(crew->cache, graph->id));
    hand->sums.captures++;
}

static void graph_launched(struct hand *hand, struct graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++) {
        graph->blocks[i].word = hand_word(hand, hand->crew->settings.streams - 1);
        hand_fill(hand, &graph->blocks[i], hand->graph_stream);
    }
    for (unsigned i = 0; i < graph->count; i++)
        hand_check(hand, &graph->blocks[i], hand->graph_stream);
}

static void graph_released(struct hand *hand, struct graph *graph)
{
    hand_does(hand, "vmm_pool_release");
    crew_expect(hand->crew, "vmm_pool_release", vmm_pool_release(hand->crew->cache, graph->id));
    for (unsigned i = 0; i < graph->count; i++)
        hand_check(hand, &graph->blocks[i], hand->graph_stream);
    while (graph->count > 0)
        graph_give(hand, graph);
}

void hand_graph(struct hand *hand)
{
    struct graph graph = { .id = { .first = 1 + hand->number, .second = 1 } };
    graph_captured(hand, &graph);
    for (unsigned i = 0; i < LAUNCHES; i++)
        graph_launched(hand, &graph);
    graph_released(hand, &graph);
}
