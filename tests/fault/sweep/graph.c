/* The workload's graphs: captured, launched on any stream, released. See run.h. */
#include "run.h"

#include "point.h"

/* ---- Names ------------------------------------------------------------------------------------- */

static vmm_pool_id name_of(unsigned name)
{
    return (vmm_pool_id){ .first = 1 + name, .second = name % 2 };
}

static unsigned name_number(const struct graph *graph)
{
    return (unsigned)graph->id.first - 1;
}

static bool name_is_begun(const struct run *run, unsigned name)
{
    for (unsigned i = 0; i < RUN_GRAPHS; i++) {
        if (run->graphs[i].state == GRAPH_CAPTURED && name_number(&run->graphs[i]) == name)
            return true;
    }
    return false;
}

/* ---- Captures ---------------------------------------------------------------------------------- */

static int stream_passes(void *context, vmm_stream stream)
{
    return *(const vmm_stream *)context == stream;
}

/* A pool that takes every stream's requests is this graph's alone: see the soak. */
static vmm_pool_filter filter_drawn(struct run *run, struct graph *graph)
{
    if (run->captured != 0 || !run_dice(run, 6))
        return stream_passes;
    graph->id = (vmm_pool_id){ .first = 1 + RUN_NAMES, .second = 1 + run->captures };
    return NULL;
}

static void capture_begin(struct run *run, struct graph *graph)
{
    unsigned stream = (unsigned)random_between(&run->random, 1, run->chapter->streams - 1);
    unsigned name = (unsigned)(random_next(&run->random) % RUN_NAMES);
    if (run_is_captured(run, 1U << stream) || name_is_begun(run, name))
        return;
    struct graph begun = { .state = GRAPH_CAPTURED, .id = name_of(name), .stream = stream };
    vmm_pool_filter filter = filter_drawn(run, &begun);
    if (!CALL(run, STATUS_BIT(VMM_ERR_HOST_OOM),
              vmm_pool_begin(run->cache, begun.id, filter, &run->streams[stream])))
        return;
    if (run->is_latched)
        return;
    sweep_sleep();
    run_expect(run, "capture begin", vmm__driver_capture_begin(run->driver, run->streams[stream]));
    sweep_wake();
    *graph = begun;
    run->captured |= 1U << stream;
    run->captures++;
}

static void capture_end(struct run *run, struct graph *graph)
{
    if (run->is_latched)
        return;
    sweep_sleep();
    run_expect(run, "capture end",
               vmm__driver_capture_end(run->driver, run->streams[graph->stream]));
    sweep_wake();
    run->captured &= ~(1U << graph->stream);
    (void)CALL(run, 0, vmm_pool_end(run->cache, graph->id));
    graph->state = GRAPH_READY;
}

static void step_take(struct run *run, struct graph *graph)
{
    uint64_t bytes = run_bytes_drawn(run);
    void *address;
    if (bytes == 0 || run->live_bytes + bytes > run->chapter->live_bytes)
        return;
    if (!CALL(run, ALLOC_STATUSES,
              vmm_alloc(run->cache, bytes, run->streams[graph->stream], &address)))
        return;
    graph->steps[graph->count++] =
        (struct step){ .address = address, .bytes = bytes, .word = ++run->words, .is_live = true };
    run->live_bytes += bytes;
}

static bool step_free(struct run *run, struct step *step)
{
    if (!CALL(run, DRIVER_STATUSES, vmm_free(run->cache, step->address)))
        return false;
    step->is_live = false;
    run->live_bytes -= step->bytes;
    return true;
}

static void step_give(struct run *run, struct graph *graph)
{
    struct step *step = &graph->steps[random_next(&run->random) % graph->count];
    unsigned user = (unsigned)(random_next(&run->random) % run->chapter->streams);
    if (!step->is_live)
        return;
    if (run_dice(run, 4))
        (void)CALL(run, STATUS_BIT(VMM_ERR_HOST_OOM),
                   vmm_use(run->cache, step->address, run->streams[user]));
    if (!step_free(run, step))
        return;
    graph->steps[graph->count] = *step;
    graph->steps[graph->count++].is_check = true;
}

static void capture_go_on(struct run *run, struct graph *graph)
{
    if (graph->count == RUN_STEPS || run_dice(run, 12))
        capture_end(run, graph);
    else if (graph->count > 0 && run_dice(run, 3))
        step_give(run, graph);
    else
        step_take(run, graph);
}

/* ---- Launches ---------------------------------------------------------------------------------- */

/* A fill that could not be done makes what follows unknown. */
static void graph_run(struct run *run, const struct graph *graph, unsigned stream)
{
    for (unsigned i = 0; i < graph->count; i++) {
        const struct step *step = &graph->steps[i];
        uint32_t word = step->word;
        if (step->is_check)
            run_check(run, step->address, step->bytes, word, stream);
        else
            run_fill(run, step->address, step->bytes, &word, stream);
        if (word == 0)
            return;
    }
    for (unsigned i = 0; i < graph->count; i++) {
        const struct step *step = &graph->steps[i];
        if (step->is_live)
            run_check(run, step->address, step->bytes, step->word, stream);
    }
}

/* Graphs of one pool share its memory: their launches come one after the other. */
static void graph_launch(struct run *run, const struct graph *graph)
{
    unsigned stream = (unsigned)(random_next(&run->random) % RUN_STREAMS);
    unsigned *launched = &run->launched[name_number(graph)];
    if (run_is_captured(run, 1U << stream | 1U << *launched))
        return;
    run_follow(run, stream, *launched);
    *launched = stream;
    graph_run(run, graph, stream);
}

/* False if one could not be freed. */
static bool steps_free(struct run *run, struct graph *graph)
{
    bool all = true;
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->steps[i].is_live)
            all = step_free(run, &graph->steps[i]) && all;
    }
    return all;
}

/* The use has ended, also if the wait for the device failed. */
static void pool_release(struct run *run, struct graph *graph)
{
    (void)CALL(run, DRIVER_STATUSES, vmm_pool_release(run->cache, graph->id));
    graph->state = GRAPH_RELEASED;
}

/* Its blocks go before the release or behind it. What could not be freed is tried again. */
static void graph_release(struct run *run, struct graph *graph)
{
    bool goes_first = run_dice(run, 2);
    if (!goes_first && graph->state == GRAPH_READY)
        pool_release(run, graph);
    if (!steps_free(run, graph))
        return;
    if (graph->state == GRAPH_READY)
        pool_release(run, graph);
    graph->state = GRAPH_NONE;
}

void graph_operation(struct run *run)
{
    struct graph *graph = &run->graphs[random_next(&run->random) % RUN_GRAPHS];
    if (run->is_latched)
        return; /* nothing can be captured any more */
    if (graph->state == GRAPH_NONE)
        capture_begin(run, graph);
    else if (graph->state == GRAPH_CAPTURED)
        capture_go_on(run, graph);
    else if (graph->state == GRAPH_RELEASED || run_dice(run, 6))
        graph_release(run, graph);
    else
        graph_launch(run, graph);
}

void graphs_end(struct run *run)
{
    for (unsigned i = 0; i < RUN_GRAPHS; i++) {
        struct graph *graph = &run->graphs[i];
        if (graph->state == GRAPH_CAPTURED)
            capture_end(run, graph);
        for (unsigned attempt = 0; attempt < 3 && graph->state != GRAPH_NONE; attempt++)
            graph_release(run, graph);
    }
}
