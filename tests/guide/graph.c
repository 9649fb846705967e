/* Memory of a captured CUDA graph. */
#include "gpu.h"

enum { BYTES = 4 << 20 };

/* [graph] */
/* Requests of the captured stream come from the graph's pool, all others from elsewhere. */
static int is_captured(void *context, vmm_stream stream)
{
    return stream == *(vmm_stream *)context;
}

static struct gpu_graph *capture(vmm_cache *cache, vmm_pool *pool, vmm_stream stream, void **result)
{
    void *scratch;
    check(vmm_pool_route(pool, is_captured, &stream));
    check(vmm_capture_announce(cache, stream));
    gpu_capture_begin(stream);
    check(vmm_alloc(cache, BYTES, stream, &scratch));
    check(vmm_alloc(cache, BYTES, stream, result));
    gpu_fill(scratch, 1, BYTES, stream);
    gpu_fill(*result, 2, BYTES, stream);
    check(vmm_free(cache, scratch)); /* stays the graph's: each launch writes there again */
    struct gpu_graph *graph = gpu_capture_end(stream);
    check(vmm_capture_retract(cache, stream));
    check(vmm_pool_unroute(pool));
    return graph;
}
/* [end] */

struct listed {
    void *address;
    size_t bytes;
    vmm_stream stream;
};

/* Lists the first live block. */
static int block_list(void *context, const vmm_item *item)
{
    struct listed *listed = context;
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        return 0;
    *listed = (struct listed){ .address = (void *)(uintptr_t)item->address,
                               .bytes = (size_t)item->requested_bytes,
                               .stream = item->stream };
    return 1;
}

/* [restore] */
/* The program's list has the address, requested_bytes and stream of each block that vmm_pool_walk() showed as live. */
static void pool_restore(vmm_pool *pool, const struct listed *blocks, int count)
{
    for (int i = 0; i < count; i++)
        check(vmm_pool_place(pool, blocks[i].address, blocks[i].bytes, blocks[i].stream));
}
/* [end] */

int main(void)
{
    vmm_cache *cache;
    vmm_pool *pool;
    void *result;
    check(vmm_create(NULL, &cache));
    vmm_stream stream = gpu_stream_create();
    /* [create] */
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.kind = VMM_POOL_GRAPH;
    check(vmm_pool_create(cache, &options, &pool));
    struct gpu_graph *graph = capture(cache, pool, stream, &result);
    /* [end] */

    void *other;
    check(vmm_alloc(cache, BYTES, stream, &other)); /* never the graph's scratch memory */
    gpu_fill(other, 7, BYTES, stream);
    gpu_graph_launch(graph, stream);
    EXPECT(gpu_byte(result, stream) == 2);
    EXPECT(gpu_byte(other, stream) == 7);

    struct listed listed = { .address = NULL };
    check(vmm_pool_walk(pool, block_list, &listed));
    EXPECT(listed.address == result);
    check(vmm_free(cache, result));
    pool_restore(pool, &listed, 1);
    gpu_graph_launch(graph, stream);
    EXPECT(gpu_byte(result, stream) == 2);

    /* [release] */
    gpu_graph_destroy(graph);
    check(vmm_free(cache, result));
    check(vmm_pool_destroy(pool, 0)); /* now its memory serves all requests */
    /* [end] */
    check(vmm_free(cache, other));
    check(vmm_wait(cache));
    check(vmm_trim(cache, 0, NULL));
    vmm_stats stats = VMM_STATS_INIT;
    check(vmm_stats_get(cache, &stats));
    EXPECT(stats.reserved_bytes.current == 0);
    check(vmm_destroy(cache));
    gpu_stream_destroy(stream);
    return 0;
}
