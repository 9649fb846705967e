/* Private pools, captures, graphs and their launches. See engine.h. */
#include "engine.h"

/*
 * The first pools belong to graphs, each of which is captured on one stream, and to nothing else: what other
 * streams freed in one is not ordered before later launches. The others are for streams at work.
 */
static unsigned plain_pool(uint8_t value)
{
    return ENGINE_GRAPH_POOLS + value % (MODEL_POOLS - ENGINE_GRAPH_POOLS);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static int stream_passes(void *context, vmm_stream stream)
{
    const struct engine_filter *filter = context;
    for (unsigned i = 0; i < MODEL_STREAMS; i++) {
        if (filter->handles[i] == stream)
            return (filter->streams >> i & 1) != 0;
    }
    return 0;
}

static bool pool_begin(struct engine *engine, unsigned number, unsigned streams)
{
    struct model *model = &engine->model;
    struct model_pool *pool = &model->pools[number];
    struct engine_filter *filter = &engine->filters[number];
    bool is_begun = pool->begun != 0;
    if (!is_begun)
        *filter = (struct engine_filter){ .handles = engine->streams, .streams = streams };
    engine_enter(engine);
    vmm_status status = vmm_pool_begin(engine->cache, model_pool_id(number),
                                       streams != 0 ? stream_passes : NULL, filter);
    engine_leave(engine);
    unsigned legal = is_begun ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    unsigned faulty = is_begun ? 0 : STATUS_BIT(ERR_HOST_OOM);
    if (!engine_expect(engine, "vmm_pool_begin", status, legal, faulty))
        return false;
    pool->begun = ++model->begins;
    pool->streams = streams;
    pool->uses++;
    return true;
}

static void pool_end(struct engine *engine, unsigned number)
{
    struct model_pool *pool = &engine->model.pools[number];
    unsigned legal = pool->begun == 0 ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    engine_enter(engine);
    vmm_status status = vmm_pool_end(engine->cache, model_pool_id(number));
    engine_leave(engine);
    if (engine_expect(engine, "vmm_pool_end", status, legal, 0))
        pool->begun = 0;
}

/* If the wait for the device fails, the use has ended all the same. */
static void pool_release(struct engine *engine, unsigned number)
{
    struct model_pool *pool = &engine->model.pools[number];
    bool is_in_use = pool->uses > 0;
    engine_enter(engine);
    vmm_status status = vmm_pool_release(engine->cache, model_pool_id(number));
    engine_leave(engine);
    unsigned legal = is_in_use ? STATUS_BIT(OK) : STATUS_BIT(ERR_INVALID_ARGUMENT);
    (void)engine_expect(engine, "vmm_pool_release", status, legal, is_in_use ? STATUS_FAULTS : 0);
    if (is_in_use && --pool->uses == 0)
        model_pool_ended(&engine->model, number);
}

void operation_pool_begin(struct engine *engine, const struct operation *operation)
{
    (void)pool_begin(engine, plain_pool(operation->a), operation->b);
}

void operation_pool_end(struct engine *engine, const struct operation *operation)
{
    pool_end(engine, plain_pool(operation->a));
}

void operation_pool_release(struct engine *engine, const struct operation *operation)
{
    pool_release(engine, plain_pool(operation->a));
}

/* ---- Captures -------------------------------------------------------------------------------- */

static void capture_begin(struct engine *engine, unsigned stream)
{
    engine_expect_ok(engine, "capture begin",
                     vmm__driver_capture_begin(engine->driver, engine->streams[stream]));
    engine->captured |= 1U << stream;
}

static void capture_end(struct engine *engine, unsigned stream)
{
    vmm_status status = vmm__driver_capture_end(engine->driver, engine->streams[stream]);
    if (!engine->is_lost)
        engine_expect_ok(engine, "capture end", status);
    engine->captured &= ~(1U << stream);
}

/* The cache can be careful only of streams that it knows. */
void operation_capture_begin(struct engine *engine, const struct operation *operation)
{
    unsigned stream = operand_made_stream(engine, operation->a);
    bool is_known = (engine->known >> stream & 1) != 0;
    if (is_known && !engine_is_captured(engine, 1U << stream))
        capture_begin(engine, stream);
}

void operation_capture_end(struct engine *engine, const struct operation *operation)
{
    unsigned stream = operand_made_stream(engine, operation->a);
    if (((engine->captured & ~engine->graph_bound) >> stream & 1) != 0)
        capture_end(engine, stream);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static struct engine_graph *operand_graph(struct engine *engine, uint8_t value)
{
    return &engine->graphs[value % ENGINE_GRAPHS];
}

void operation_graph_begin(struct engine *engine, const struct operation *operation)
{
    struct engine_graph *graph = operand_graph(engine, operation->a);
    unsigned pool = operation->b % ENGINE_GRAPH_POOLS;
    unsigned stream = operand_made_stream(engine, operation->c);
    if (graph->state != GRAPH_NONE || engine_is_captured(engine, 1U << stream) ||
        !pool_begin(engine, pool, 1U << stream))
        return;
    *graph = (struct engine_graph){ .state = GRAPH_CAPTURED, .pool = pool, .stream = stream };
    capture_begin(engine, stream);
    engine->graph_bound |= 1U << stream;
}

static void graph_capture_end(struct engine *engine, struct engine_graph *graph)
{
    capture_end(engine, graph->stream);
    engine->graph_bound &= ~(1U << graph->stream);
    pool_end(engine, graph->pool);
    graph->state = GRAPH_READY;
}

void operation_graph_end(struct engine *engine, const struct operation *operation)
{
    struct engine_graph *graph = operand_graph(engine, operation->a);
    if (graph->state == GRAPH_CAPTURED)
        graph_capture_end(engine, graph);
}

static struct engine_graph *graph_of(struct engine *engine, const struct model_block *block)
{
    return block->graph == 0 ? NULL : &engine->graphs[block->graph - 1];
}

/* The capture under way that a request of a stream belongs to. */
static struct engine_graph *graph_under_way(struct engine *engine, unsigned stream, unsigned pool)
{
    for (unsigned i = 0; i < ENGINE_GRAPHS; i++) {
        struct engine_graph *graph = &engine->graphs[i];
        if (graph->state == GRAPH_CAPTURED && graph->stream == stream && graph->pool == pool)
            return graph;
    }
    return NULL;
}

void engine_graph_take(struct engine *engine, unsigned slot, struct model_block *block)
{
    struct engine_graph *graph = graph_under_way(engine, block->stream, block->pool);
    if (graph == NULL)
        return;
    block->graph = 1 + (unsigned)(graph - engine->graphs);
    if (graph->count == ENGINE_STEPS)
        return;
    graph->steps[graph->count++] = (struct engine_step){ .address = block->address,
                                                         .bytes = block->requested_bytes,
                                                         .word = ++engine->words,
                                                         .slot = slot,
                                                         .is_live = true };
}

/* The step that fills the block; NULL: the graph had no room for it, or is gone. */
static struct engine_step *step_find(struct engine_graph *graph, const struct model_block *block)
{
    for (unsigned i = 0; i < graph->count; i++) {
        struct engine_step *step = &graph->steps[i];
        if (step->is_live && step->address == block->address)
            return step;
    }
    return NULL;
}

void engine_graph_give(struct engine *engine, const struct model_block *block)
{
    struct engine_graph *graph = graph_of(engine, block);
    struct engine_step *step = graph == NULL ? NULL : step_find(graph, block);
    if (step == NULL)
        return;
    step->is_live = false;
    if (graph->state != GRAPH_CAPTURED || graph->count == ENGINE_STEPS)
        return;
    graph->steps[graph->count] = *step;
    graph->steps[graph->count++].is_check = true;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static void step_run(struct engine *engine, const struct engine_step *step, unsigned stream,
                     bool is_check)
{
    vmm_stream on = engine->streams[stream];
    if (step->bytes == 0)
        return;
    if (is_check)
        engine_expect_ok(
            engine, "check of a launch",
            vmm__driver_check(engine->driver, step->address, step->bytes, step->word, on));
    else
        engine_expect_ok(
            engine, "fill of a launch",
            vmm__driver_fill(engine->driver, step->address, step->bytes, step->word, on));
}

/* Graphs of one pool share its memory: their launches come one after the other. */
void operation_graph_launch(struct engine *engine, const struct operation *operation)
{
    struct engine_graph *graph = operand_graph(engine, operation->a);
    unsigned stream = operand_stream(engine, operation->b);
    unsigned *launched = &engine->model.pools[graph->pool].launched;
    if (graph->state != GRAPH_READY || engine->is_lost ||
        engine_is_captured(engine, 1U << stream | 1U << *launched))
        return;
    engine_stream_follows(engine, stream, *launched);
    *launched = stream;
    for (unsigned i = 0; i < graph->count; i++)
        step_run(engine, &graph->steps[i], stream, graph->steps[i].is_check);
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->steps[i].is_live)
            step_run(engine, &graph->steps[i], stream, true);
    }
    engine->has_launched = true;
    engine->sums.launches++;
}

/* Blocks that are still live are given back by whoever has their slots. */
static void graph_release(struct engine *engine, struct engine_graph *graph)
{
    pool_release(engine, graph->pool);
    graph->state = GRAPH_NONE;
    graph->count = 0;
}

void operation_graph_release(struct engine *engine, const struct operation *operation)
{
    struct engine_graph *graph = operand_graph(engine, operation->a);
    if (graph->state == GRAPH_READY)
        graph_release(engine, graph);
}

/* ---- The end --------------------------------------------------------------------------------- */

void engine_captures_end(struct engine *engine)
{
    for (unsigned i = 0; i < ENGINE_GRAPHS; i++) {
        if (engine->graphs[i].state == GRAPH_CAPTURED)
            graph_capture_end(engine, &engine->graphs[i]);
    }
    for (unsigned stream = 0; stream < MODEL_STREAMS; stream++) {
        if (engine_is_captured(engine, 1U << stream))
            capture_end(engine, stream);
    }
}

void engine_pools_end(struct engine *engine)
{
    engine_captures_end(engine);
    for (unsigned i = 0; i < MODEL_POOLS; i++) {
        struct model_pool *pool = &engine->model.pools[i];
        if (pool->begun != 0 && !engine_is_troubled(engine))
            pool_end(engine, i);
        while (pool->uses > 0 && !engine_is_troubled(engine))
            pool_release(engine, i);
    }
}
