/* Graph pools, captures, graphs and their launches. See stress.h. */
#include "stress.h"
#include "support/pool_calls.h"

/*
 * The first pools serve only graphs, one captured stream each: frees of other streams in such a pool would not be
 * ordered before later launches. The other pools serve streams that execute work.
 */
static unsigned plain_pool(uint8_t value)
{
    return STRESS_GRAPH_POOLS + value % (STRESS_OPEN_POOL - STRESS_GRAPH_POOLS);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static int stream_passes(void *context, vmm_stream stream)
{
    const struct stress_filter *filter = context;
    for (unsigned i = 0; i < filter->count; i++) {
        if (filter->handles[i] == stream)
            return (filter->streams >> i & 1) != 0;
    }
    return 0;
}

static bool pool_begin(struct stress *stress, unsigned number, uint64_t streams)
{
    struct model *model = &stress->model;
    struct model_pool *pool = &model->pools[number];
    struct stress_filter *filter = &stress->filters[number];
    bool is_begun = pool->begun != 0;
    if (!is_begun)
        *filter = (struct stress_filter){ .handles = stress->streams,
                                          .count = stress->stream_count,
                                          .streams = streams };
    stress_enter(stress);
    vmm_status status =
        graph_pool_begin(stress->cache, pool->id, streams != 0 ? stream_passes : NULL, filter);
    stress_leave(stress);
    unsigned legal = is_begun ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    unsigned faulty = is_begun ? 0 : STATUS_BIT(ERR_HOST_OOM);
    if (!stress_expect(stress, "vmm_pool_begin", status, legal, faulty))
        return false;
    pool->begun = ++model->begins;
    stress->may_stall = true; /* to release it waits for the device */
    pool->streams = streams;
    pool->uses++;
    return true;
}

static void pool_end(struct stress *stress, unsigned number)
{
    struct model_pool *pool = &stress->model.pools[number];
    unsigned legal = pool->begun == 0 ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    stress_enter(stress);
    vmm_status status = graph_pool_end(stress->cache, pool->id);
    stress_leave(stress);
    if (stress_expect(stress, "vmm_pool_end", status, legal, 0))
        pool->begun = 0;
}

/* The last use does not end while a route leads to the pool. The pool is released even if the wait for the device
 * fails. */
static void pool_release(struct stress *stress, unsigned number)
{
    struct model_pool *pool = &stress->model.pools[number];
    bool is_in_use = pool->uses > 1 || (pool->uses > 0 && pool->begun == 0);
    stress_enter(stress);
    vmm_status status = graph_pool_release(stress->cache, pool->id);
    stress_leave(stress);
    unsigned legal = is_in_use ? STATUS_BIT(OK) : STATUS_BIT(ERR_INVALID_ARGUMENT);
    (void)stress_expect(stress, "vmm_pool_release", status, legal, is_in_use ? STATUS_FAULTS : 0);
    if (is_in_use && --pool->uses == 0)
        model_pool_ended(&stress->model, number);
}

void operation_pool_begin(struct stress *stress, const struct operation *operation)
{
    (void)pool_begin(stress, plain_pool(operation->a), operation->b);
}

void operation_pool_end(struct stress *stress, const struct operation *operation)
{
    pool_end(stress, plain_pool(operation->a));
}

void operation_pool_release(struct stress *stress, const struct operation *operation)
{
    pool_release(stress, plain_pool(operation->a));
}

/* ---- Captures -------------------------------------------------------------------------------- */

/* One in three announcements ends by itself, unless the driver may refuse for ever to say whether the stream is being
 * captured. CUDA may crash when asked about a stream that has ended. */
static bool is_retracted(const struct stress *stress, unsigned stream)
{
    bool may_refuse = stress->points != NULL || stress->faults.for_ever;
    return stress->kind == VMM_DRIVER_CUDA || may_refuse || stream % 3 != 0;
}

static bool capture_announce(struct stress *stress, unsigned stream)
{
    stress_enter(stress);
    vmm_status status = control_announce(&stress->control, stress->cache, stress->streams[stream]);
    stress_leave(stress);
    return stress_expect(stress, "vmm_capture_announce", status, STATUS_BIT(OK), STATUS_FAULTS);
}

static void capture_retract(struct stress *stress, unsigned stream)
{
    if (stress->cache == NULL || !is_retracted(stress, stream))
        return;
    stress_enter(stress);
    vmm_status status = vmm_capture_retract(stress->cache, stress->streams[stream]);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_capture_retract", status, STATUS_BIT(OK), 0);
}

/* False: a fault has hindered the announcement. */
static bool capture_begin(struct stress *stress, unsigned stream)
{
    stress_own_follow(stress, stream);
    stress_undeclared_leave(stress, stream);
    if (!capture_announce(stress, stream))
        return false;
    stress_expect_ok(stress, "capture begin",
                     vmm__driver_capture_begin(stress->driver, stress->streams[stream]));
    stress->captured |= STREAM_BIT(stream);
    return true;
}

static void capture_end(struct stress *stress, unsigned stream)
{
    vmm_status status = vmm__driver_capture_end(stress->driver, stress->streams[stream]);
    if (!stress->is_lost)
        stress_expect_ok(stress, "capture end", status);
    stress->captured &= ~(STREAM_BIT(stream));
    capture_retract(stress, stream);
    stress_own_follow(stress, stream);
}

/* The cache can be careful only of streams that it knows. */
void operation_capture_begin(struct stress *stress, const struct operation *operation)
{
    unsigned stream = operand_made_stream(stress, operation->a);
    bool is_known = (stress->known >> stream & 1) != 0;
    if (is_known && !stress_is_captured(stress, STREAM_BIT(stream)))
        (void)capture_begin(stress, stream);
}

void operation_capture_end(struct stress *stress, const struct operation *operation)
{
    unsigned stream = operand_made_stream(stress, operation->a);
    if (((stress->captured & ~stress->graph_bound) >> stream & 1) != 0)
        capture_end(stress, stream);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* A worker has one stream to capture, and one graph. */
static struct stress_graph *operand_graph(struct stress *stress, uint8_t value)
{
    return &stress->graphs[stress->shared != NULL ? 0 : value % STRESS_GRAPHS];
}

/*
 * A pool that takes every stream's requests is this graph's alone: what others freed in it is ordered by their
 * streams, and not for launches of a later graph. So it has a new name each time.
 */
static unsigned graph_pool_draw(struct stress *stress, uint8_t value)
{
    enum { OPEN_LEAST = 224 };
    struct model_pool *open = &stress->model.pools[STRESS_OPEN_POOL];
    if (value < OPEN_LEAST || open->uses > 0 || stress->captured != 0 || stress->shared != NULL)
        return value % STRESS_GRAPH_POOLS;
    open->id = (vmm_pool_id){ .first = STRESS_OPEN_POOL, .second = 2 + ++stress->opens };
    return STRESS_OPEN_POOL;
}

void operation_graph_begin(struct stress *stress, const struct operation *operation)
{
    struct stress_graph *graph = operand_graph(stress, operation->a);
    unsigned stream = operand_made_stream(stress, operation->c);
    unsigned pool = graph_pool_draw(stress, operation->b);
    bool is_open = pool == STRESS_OPEN_POOL;
    if (graph->state != GRAPH_NONE || stress_is_captured(stress, STREAM_BIT(stream)) ||
        !pool_begin(stress, pool, is_open ? 0 : STREAM_BIT(stream)))
        return;
    if (!capture_begin(stress, stream)) {
        pool_end(stress, pool);
        return;
    }
    *graph = (struct stress_graph){ .state = GRAPH_CAPTURED, .pool = pool, .stream = stream };
    stress->graph_bound |= STREAM_BIT(stream);
}

static void graph_capture_end(struct stress *stress, struct stress_graph *graph)
{
    capture_end(stress, graph->stream);
    stress->graph_bound &= ~(STREAM_BIT(graph->stream));
    pool_end(stress, graph->pool);
    graph->state = GRAPH_READY;
}

void operation_graph_end(struct stress *stress, const struct operation *operation)
{
    struct stress_graph *graph = operand_graph(stress, operation->a);
    if (graph->state == GRAPH_CAPTURED)
        graph_capture_end(stress, graph);
}

static struct stress_graph *graph_of(struct stress *stress, const struct model_block *block)
{
    return block->graph == 0 ? NULL : &stress->graphs[block->graph - 1];
}

/* The capture under way that a request of a stream belongs to. */
static struct stress_graph *graph_under_way(struct stress *stress, unsigned stream, unsigned pool)
{
    for (unsigned i = 0; i < STRESS_GRAPHS; i++) {
        struct stress_graph *graph = &stress->graphs[i];
        if (graph->state == GRAPH_CAPTURED && graph->stream == stream && graph->pool == pool)
            return graph;
    }
    return NULL;
}

void stress_graph_take(struct stress *stress, unsigned slot, struct model_block *block)
{
    struct stress_graph *graph = graph_under_way(stress, block->stream, block->pool);
    if (graph == NULL)
        return;
    block->graph = 1 + (unsigned)(graph - stress->graphs);
    if (graph->count == STRESS_STEPS)
        return;
    graph->steps[graph->count++] = (struct stress_step){ .address = block->address,
                                                         .bytes = block->requested_bytes,
                                                         .word = stress_word(stress),
                                                         .slot = slot,
                                                         .is_live = true };
}

/* The step that fills the block; NULL: the graph had no room for it, or is gone. */
static struct stress_step *step_find(struct stress_graph *graph, const struct model_block *block)
{
    for (unsigned i = 0; i < graph->count; i++) {
        struct stress_step *step = &graph->steps[i];
        if (step->is_live && step->address == block->address)
            return step;
    }
    return NULL;
}

void stress_graph_give(struct stress *stress, const struct model_block *block)
{
    struct stress_graph *graph = graph_of(stress, block);
    struct stress_step *step = graph == NULL ? NULL : step_find(graph, block);
    if (step == NULL)
        return;
    step->is_live = false;
    if (graph->state != GRAPH_CAPTURED || graph->count == STRESS_STEPS)
        return;
    graph->steps[graph->count] = *step;
    graph->steps[graph->count++].is_check = true;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static bool step_run(struct stress *stress, const struct stress_step *step, unsigned stream,
                     bool is_check)
{
    vmm_stream on = stress->streams[stream];
    vmm_status status;
    if (step->bytes == 0)
        return true;
    stress_work_enter(stress);
    if (is_check)
        status = vmm__driver_check(stress->driver, step->address, step->bytes, step->word, on);
    else
        status = vmm__driver_fill(stress->driver, step->address, step->bytes, step->word, on);
    return stress_work_leave(stress, is_check ? "check of a launch" : "fill of a launch", status);
}

/* A fill that could not be done makes what follows unknown. */
static void graph_run(struct stress *stress, const struct stress_graph *graph, unsigned stream)
{
    bool is_done = true;
    for (unsigned i = 0; i < graph->count && is_done; i++)
        is_done = step_run(stress, &graph->steps[i], stream, graph->steps[i].is_check);
    for (unsigned i = 0; i < graph->count && is_done; i++) {
        if (graph->steps[i].is_live)
            is_done = step_run(stress, &graph->steps[i], stream, true);
    }
}

/* Graphs of one pool share its memory: their launches come one after the other. */
void operation_graph_launch(struct stress *stress, const struct operation *operation)
{
    struct stress_graph *graph = operand_graph(stress, operation->a);
    unsigned stream = operand_stream(stress, operation->b);
    unsigned *launched = &stress->model.pools[graph->pool].launched;
    if (graph->state != GRAPH_READY || stress_is_unusable(stress) ||
        stress_is_captured(stress, STREAM_BIT(stream) | STREAM_BIT(*launched)))
        return;
    stress_stream_follows(stress, stream, *launched);
    *launched = stream;
    graph_run(stress, graph, stream);
    stress->has_launched = true;
    stress->sums.launches++;
}

/* Blocks that are still live keep their slots; later operations on those slots free them. */
static void graph_release(struct stress *stress, struct stress_graph *graph)
{
    pool_release(stress, graph->pool);
    graph->state = GRAPH_NONE;
    graph->count = 0;
}

void operation_graph_release(struct stress *stress, const struct operation *operation)
{
    struct stress_graph *graph = operand_graph(stress, operation->a);
    if (graph->state == GRAPH_READY)
        graph_release(stress, graph);
}

/* ---- The end --------------------------------------------------------------------------------- */

void stress_captures_end(struct stress *stress)
{
    for (unsigned i = 0; i < STRESS_GRAPHS; i++) {
        if (stress->graphs[i].state == GRAPH_CAPTURED)
            graph_capture_end(stress, &stress->graphs[i]);
    }
    for (unsigned stream = 0; stream < stress->stream_count; stream++) {
        if (stress_is_captured(stress, STREAM_BIT(stream)))
            capture_end(stress, stream);
    }
}

/* Each graph is launched once more. */
void stress_pools_end(struct stress *stress)
{
    stress_captures_end(stress);
    for (uint8_t i = 0; i < STRESS_GRAPHS; i++)
        operation_graph_launch(stress,
                               &(struct operation){ .code = OPERATION_graph_launch, .a = i });
    for (unsigned i = 0; i < MODEL_POOLS; i++) {
        struct model_pool *pool = &stress->model.pools[i];
        if (pool->begun != 0 && !stress_is_troubled(stress))
            pool_end(stress, i);
        while (pool->uses > 0 && !stress_is_troubled(stress))
            pool_release(stress, i);
    }
}
