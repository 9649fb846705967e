/* Captured graphs for API tests: see graph_support.h. */
#include "support/graph_support.h"
#include "support/pool_calls.h"

int graph_filter(void *context, vmm_stream stream)
{
    return *(const vmm_stream *)context == stream;
}

void graph_begin(struct cache_test *test, struct graph *graph, uint64_t id, unsigned stream)
{
    *graph = (struct graph){ .id = { id, 1 }, .stream = stream };
    graph->filtered = test->streams[stream];
    assert_ok(graph_pool_begin(test->cache, graph->id, graph_filter, &graph->filtered));
    capture_begin(test, stream);
}

void graph_end(struct cache_test *test, struct graph *graph)
{
    capture_end(test, graph->stream);
    assert_ok(graph_pool_end(test->cache, graph->id));
}

void graph_release(struct cache_test *test, const struct graph *graph)
{
    assert_ok(graph_pool_release(test->cache, graph->id));
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static uint32_t step_word(const struct graph *graph)
{
    return (uint32_t)(graph->id.first << 12 | graph->count) | 1U << 31;
}

static void step_add(struct graph *graph, struct graph_step step)
{
    assert_true(graph->count < GRAPH_STEPS);
    graph->steps[graph->count++] = step;
}

/* The step that fills the block as it is now; NULL if it was given back since. */
static struct graph_step *step_find(struct graph *graph, const void *block)
{
    for (unsigned i = graph->count; i-- > 0;) {
        struct graph_step *step = &graph->steps[i];
        if (step->block == block)
            return step->is_check ? NULL : step;
    }
    return NULL;
}

void *graph_try_alloc(struct cache_test *test, struct graph *graph, size_t bytes)
{
    void *block = NULL;
    vmm_status status = vmm_alloc(test->cache, bytes, test->streams[graph->stream], &block);
    if (status == VMM_ERR_DEVICE_OOM)
        return NULL;
    assert_ok(status);
    step_add(graph,
             (struct graph_step){ .block = block, .bytes = bytes, .word = step_word(graph) });
    return block;
}

void *graph_alloc(struct cache_test *test, struct graph *graph, size_t bytes)
{
    void *block = graph_try_alloc(test, graph, bytes);
    if (block == NULL)
        fail_msg("no memory for a graph: %s", vmm_last_error());
    return block;
}

void graph_free(struct cache_test *test, struct graph *graph, void *block)
{
    const struct graph_step *filled = step_find(graph, block);
    assert_non_null(filled);
    struct graph_step checked = *filled;
    checked.is_check = true;
    step_add(graph, checked);
    block_free(test, block);
}

static void step_replayed(struct cache_test *test, const struct graph_step *step, unsigned stream)
{
    if (step->is_check)
        block_check(test, step->block, step->bytes, step->word, stream);
    else
        block_fill(test, step->block, step->bytes, step->word, stream);
}

void graph_replay(struct cache_test *test, const struct graph *graph, unsigned stream)
{
    struct graph whole = *graph;
    for (unsigned i = 0; i < graph->count; i++)
        step_replayed(test, &graph->steps[i], stream);
    for (unsigned i = 0; i < graph->count; i++) {
        const struct graph_step *step = &whole.steps[i];
        if (step_find(&whole, step->block) == step)
            block_check(test, step->block, step->bytes, step->word, stream);
    }
}

void graph_empty(struct cache_test *test, struct graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++) {
        struct graph_step *step = &graph->steps[i];
        if (step_find(graph, step->block) == step)
            block_free(test, step->block);
    }
}

/* ---- Scenes --------------------------------------------------------------------------------- */

const size_t mixed_sizes[MIXED] = { 8 * MIB, 512, 3 * MIB, 100000, 8192, MIB };

void graph_mix(struct cache_test *test, struct graph *graph, uint64_t id, unsigned stream)
{
    graph_begin(test, graph, id, stream);
    for (int i = 0; i < 2 * MIXED; i++) {
        void *block = graph_alloc(test, graph, mixed_sizes[i % MIXED]);
        if (i % 2 == 0)
            graph_free(test, graph, block);
    }
    graph_end(test, graph);
}

void memory_exhaust(struct cache_test *test, const struct graph *graph)
{
    enum { MOST = 4096 };
    void **blocks = calloc(MOST, sizeof *blocks);
    unsigned count = 0;
    unsigned refused = 0;
    for (unsigned i = 0; refused < 3 * MIXED && count < MOST; i++) {
        size_t bytes = mixed_sizes[i % MIXED];
        unsigned stream = i / MIXED % CACHE_STREAMS;
        if (test->captured[stream])
            continue;
        vmm_status status = vmm_alloc(test->cache, bytes, test->streams[stream], &blocks[count]);
        refused += status == VMM_ERR_DEVICE_OOM ? 1 : 0;
        if (status == VMM_ERR_DEVICE_OOM)
            continue;
        assert_ok(status);
        assert_false(graph_overlaps(graph, blocks[count], bytes));
        block_fill(test, blocks[count], bytes, count, stream);
        count++;
    }
    assert_true(refused > 0);
    cache_verify(test);
    while (count > 0)
        block_free(test, blocks[--count]);
    free(blocks);
}

/* ---- Looking -------------------------------------------------------------------------------- */

bool graph_overlaps(const struct graph *graph, const void *block, size_t bytes)
{
    uintptr_t low = (uintptr_t)block;
    for (unsigned i = 0; i < graph->count; i++) {
        uintptr_t start = (uintptr_t)graph->steps[i].block;
        if (low < start + graph->steps[i].bytes && start < low + bytes)
            return true;
    }
    return false;
}

void stream_finish(struct cache_test *test, unsigned stream)
{
    void *event;
    assert_ok(vmm__driver_event_create(test->driver, &event));
    assert_ok(vmm__driver_event_record(test->driver, event, test->streams[stream]));
    assert_ok(vmm__driver_event_wait(test->driver, event));
    assert_ok(vmm__driver_event_destroy(test->driver, event));
}

vmm_item block_find(struct cache_test *test, const void *block)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, block, &item));
    assert_int_equal(item.address, (uintptr_t)block);
    return item;
}
