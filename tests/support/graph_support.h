/*
 * Captured graphs for API tests: the blocks of a capture, and what a launch of the graph does to them.
 *
 * The test submits no work to a captured stream. It notes the graph's work as steps: a fill after each allocation, a
 * check before each free, and checks at the end for blocks that the graph does not free. graph_replay() submits all
 * steps to any stream.
 */
#ifndef VMM_GRAPH_SUPPORT_H
#define VMM_GRAPH_SUPPORT_H

#include "support/cache_support.h"
#include "support/pool_calls.h"

enum { GRAPH_STEPS = 256, MIXED = 6 };

extern const size_t mixed_sizes[MIXED]; /* the first is the largest */

struct graph_step {
    void *block; /* NULL: the free of this block is a check further on */
    size_t bytes;
    uint32_t word;
    bool is_check;
};

struct graph {
    vmm_pool_id id;
    unsigned stream; /* that is captured */
    vmm_stream filtered;
    unsigned count;
    struct graph_step steps[GRAPH_STEPS];
};

/* Begin and end a graph pool with a capture of one stream. The pool serves no other stream. */
void graph_begin(struct cache_test *test, struct graph *graph, uint64_t id, unsigned stream);
void graph_end(struct cache_test *test, struct graph *graph);

/* A stream filter for graph_pool_begin(); its context is a vmm_stream. */
int graph_filter(void *context, vmm_stream stream);

/* Blocks of the captured stream. graph_try_alloc() returns NULL on out of memory. */
void *graph_try_alloc(struct cache_test *test, struct graph *graph, size_t bytes);
void *graph_alloc(struct cache_test *test, struct graph *graph, size_t bytes);
void graph_free(struct cache_test *test, struct graph *graph, void *block);

/* Submits the graph's steps to a stream. */
void graph_replay(struct cache_test *test, const struct graph *graph, unsigned stream);

/* Frees the blocks that are still live. */
void graph_empty(struct cache_test *test, struct graph *graph);

void graph_release(struct cache_test *test, const struct graph *graph);

static inline void graph_discard(struct cache_test *test, struct graph *graph)
{
    graph_empty(test, graph);
    graph_release(test, graph);
}

/* Captures a graph with two blocks of each of the mixed sizes, and frees one of the two. */
void graph_mix(struct cache_test *test, struct graph *graph, uint64_t id, unsigned stream);

/* Allocates on all streams that are not captured until memory is exhausted, requires that no block overlaps the
 * graph, and frees them. */
void memory_exhaust(struct cache_test *test, const struct graph *graph);

/* Whether the block overlaps any block that the graph has used. */
bool graph_overlaps(const struct graph *graph, const void *block, size_t bytes);

/* Waits for all work of a stream that is not being captured, while others are. */
void stream_finish(struct cache_test *test, unsigned stream);

/* What vmm_find() says about a block. */
vmm_item block_find(struct cache_test *test, const void *block);

static inline bool pool_id_is(vmm_pool_id id, uint64_t first, uint64_t second)
{
    return id.first == first && id.second == second;
}

#endif
