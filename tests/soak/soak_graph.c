/* The soak's graphs: captured, launched on any stream, released. See soak.h. */
#include "soak.h"

/* ---- Names ----------------------------------------------------------------------------------- */

static vmm_pool_id name_of(unsigned name)
{
    return (vmm_pool_id){ .first = 1 + name, .second = name % 2 };
}

static unsigned name_number(const struct soak_graph *graph)
{
    return (unsigned)graph->id.first - 1;
}

/* Whether a capture for a name is under way. */
static bool name_is_begun(const struct soak *soak, unsigned name)
{
    for (unsigned i = 0; i < SOAK_GRAPHS; i++) {
        if (soak->graphs[i].state == GRAPH_CAPTURED && name_number(&soak->graphs[i]) == name)
            return true;
    }
    return false;
}

/* ---- Captures -------------------------------------------------------------------------------- */

static int stream_passes(void *context, vmm_stream stream)
{
    return *(const vmm_stream *)context == stream;
}

/*
 * A pool that takes every stream's requests is this graph's alone: what others freed in it is ordered by their
 * streams, and not for launches of a later graph.
 */
static vmm_pool_filter filter_drawn(struct soak *soak, struct soak_graph *graph)
{
    if (soak->captured != 0 || !soak_dice(soak, 8))
        return stream_passes;
    graph->id = (vmm_pool_id){ .first = 1 + SOAK_NAMES, .second = 1 + soak->sums.captures };
    return NULL;
}

static void capture_begin(struct soak *soak, struct soak_graph *graph)
{
    unsigned stream = (unsigned)random_between(&soak->random, 1, soak->settings.streams - 1);
    unsigned name = (unsigned)(random_next(&soak->random) % SOAK_NAMES);
    if (soak_is_captured(soak, 1U << stream) || name_is_begun(soak, name))
        return;
    *graph = (struct soak_graph){ .state = GRAPH_CAPTURED, .id = name_of(name), .stream = stream };
    vmm_pool_filter filter = filter_drawn(soak, graph);
    soak_expect(soak, "vmm_pool_begin",
                vmm_pool_begin(soak->cache, graph->id, filter, &soak->streams[stream]));
    soak_expect(soak, "capture begin",
                vmm__driver_capture_begin(soak->driver, soak->streams[stream]));
    soak->captured |= 1U << stream;
    soak->sums.captures++;
}

static void capture_end(struct soak *soak, struct soak_graph *graph)
{
    soak_expect(soak, "capture end",
                vmm__driver_capture_end(soak->driver, soak->streams[graph->stream]));
    soak->captured &= ~(1U << graph->stream);
    soak_expect(soak, "vmm_pool_end", vmm_pool_end(soak->cache, graph->id));
    graph->state = GRAPH_READY;
}

static void step_take(struct soak *soak, struct soak_graph *graph)
{
    uint64_t bytes = soak_bytes_drawn(soak);
    if (soak->live_bytes + bytes > soak->settings.live_bytes)
        return;
    void *address;
    vmm_status status = vmm_alloc(soak->cache, bytes, soak->streams[graph->stream], &address);
    soak->sums.allocations++;
    bool is_shortage = status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
    if (is_shortage && soak->settings.may_fail)
        return;
    soak_expect(soak, "vmm_alloc for a graph", status);
    if (status != VMM_OK)
        return;
    graph->steps[graph->count++] = (struct soak_step){
        .address = address, .bytes = bytes, .word = ++soak->words, .is_live = true
    };
    soak->live_blocks++;
    soak->live_bytes += bytes;
}

static void step_free(struct soak *soak, struct soak_step *step)
{
    soak_expect(soak, "vmm_free of a graph's block", vmm_free(soak->cache, step->address));
    step->is_live = false;
    soak->live_blocks--;
    soak->live_bytes -= step->bytes;
}

/* Told of its own stream's use, or of that of one that does not use it: neither changes anything. */
static void step_use(struct soak *soak, const struct soak_step *step)
{
    unsigned user = (unsigned)(random_next(&soak->random) % soak->settings.streams);
    if (soak_dice(soak, 4))
        soak_expect(soak, "vmm_use of a graph's block",
                    vmm_use(soak->cache, step->address, soak->streams[user]));
}

static void step_give(struct soak *soak, struct soak_graph *graph)
{
    struct soak_step *step = &graph->steps[random_next(&soak->random) % graph->count];
    if (!step->is_live)
        return;
    step_use(soak, step);
    step_free(soak, step);
    graph->steps[graph->count] = *step;
    graph->steps[graph->count++].is_check = true;
}

static void capture_go_on(struct soak *soak, struct soak_graph *graph)
{
    if (graph->count == SOAK_STEPS || soak_dice(soak, 24))
        capture_end(soak, graph);
    else if (graph->count > 0 && soak_dice(soak, 3))
        step_give(soak, graph);
    else
        step_take(soak, graph);
}

/* ---- Launches -------------------------------------------------------------------------------- */

static void step_run(struct soak *soak, const struct soak_step *step, unsigned stream,
                     bool is_check)
{
    uint64_t address = (uintptr_t)step->address;
    vmm_stream on = soak->streams[stream];
    if (is_check)
        soak_expect(soak, "check of a launch",
                    vmm__driver_check(soak->driver, address, step->bytes, step->word, on));
    else
        soak_expect(soak, "fill of a launch",
                    vmm__driver_fill(soak->driver, address, step->bytes, step->word, on));
}

/* Graphs of one pool share its memory: their launches come one after the other. */
static void graph_launch(struct soak *soak, const struct soak_graph *graph)
{
    unsigned stream = (unsigned)(random_next(&soak->random) % SOAK_STREAMS);
    unsigned *launched = &soak->launched[name_number(graph)];
    if (soak_is_captured(soak, 1U << stream | 1U << *launched))
        return;
    soak_stream_follows(soak, stream, *launched);
    *launched = stream;
    for (unsigned i = 0; i < graph->count; i++)
        step_run(soak, &graph->steps[i], stream, graph->steps[i].is_check);
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->steps[i].is_live)
            step_run(soak, &graph->steps[i], stream, true);
    }
    soak->sums.launches++;
}

/* Its blocks go before the release, when nobody else has them, or behind it, when launches have ended or the
 * release waits. */
static void graph_release(struct soak *soak, struct soak_graph *graph)
{
    bool goes_first = soak_dice(soak, 2);
    if (!goes_first)
        soak_expect(soak, "vmm_pool_release", vmm_pool_release(soak->cache, graph->id));
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->steps[i].is_live)
            step_free(soak, &graph->steps[i]);
    }
    if (goes_first)
        soak_expect(soak, "vmm_pool_release", vmm_pool_release(soak->cache, graph->id));
    graph->state = GRAPH_NONE;
}

void soak_graph_operation(struct soak *soak)
{
    struct soak_graph *graph = &soak->graphs[random_next(&soak->random) % SOAK_GRAPHS];
    if (graph->state == GRAPH_NONE)
        capture_begin(soak, graph);
    else if (graph->state == GRAPH_CAPTURED)
        capture_go_on(soak, graph);
    else if (soak_dice(soak, 10))
        graph_release(soak, graph);
    else
        graph_launch(soak, graph);
}

void soak_graphs_end(struct soak *soak)
{
    for (unsigned i = 0; i < SOAK_GRAPHS; i++) {
        if (soak->graphs[i].state == GRAPH_CAPTURED)
            capture_end(soak, &soak->graphs[i]);
        if (soak->graphs[i].state == GRAPH_READY)
            graph_release(soak, &soak->graphs[i]);
    }
}
