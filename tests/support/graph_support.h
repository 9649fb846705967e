/*
 * Captured graphs for API tests: what is allocated and freed while a stream is captured, and what a launch
 * would do to it.
 *
 * A stream that is being captured takes no work here. The test notes what the graph does instead: it fills
 * each block after it was taken and checks it before it is given back, in that order; those that are
 * never given back are checked in the end. A replay does all that on any stream.
 */
#ifndef VMM_GRAPH_SUPPORT_H
#define VMM_GRAPH_SUPPORT_H

#include "support/cache_support.h"

enum { GRAPH_STEPS = 256, MIXED = 6 };

extern const size_t mixed_sizes[MIXED]; /* the first is the largest */

struct graph_step {
    void *block; /* NULL: it is told as a check further on */
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

/* The pool begins, and so does the capture; both end. Streams that are not captured by the graph are not its. */
void graph_begun(struct cache_test *test, struct graph *graph, uint64_t id, unsigned stream);
void graph_ended(struct cache_test *test, struct graph *graph);

/* A filter; its context is a vmm_stream. */
int graph_filter(void *context, vmm_stream stream);

/* Blocks of the stream that is being captured. graph_wanted() returns NULL if there is no memory. */
void *graph_wanted(struct cache_test *test, struct graph *graph, size_t bytes);
void *graph_taken(struct cache_test *test, struct graph *graph, size_t bytes);
void graph_given(struct cache_test *test, struct graph *graph, void *block);

/* Does what the graph does, on a stream. */
void graph_replayed(struct cache_test *test, const struct graph *graph, unsigned stream);

/* Frees what the graph has not given back. */
void graph_emptied(struct cache_test *test, struct graph *graph);

void graph_released(struct cache_test *test, const struct graph *graph);

/* A graph with two blocks of each of the mixed sizes, the half of which it gave back. */
void graph_mixed(struct cache_test *test, struct graph *graph, uint64_t id, unsigned stream);

/* Takes blocks of all streams that are not captured until there are no more, none of which may be the
 * graph's, and frees them. */
void memory_exhausted(struct cache_test *test, const struct graph *graph);

/* Whether any byte of a block was ever the graph's. */
bool graph_meets(const struct graph *graph, const void *block, size_t bytes);

/* Waits for all work of a stream that is not being captured, while others are. */
void stream_finished(struct cache_test *test, unsigned stream);

/* What vmm_find() says about a block. */
vmm_item block_found(struct cache_test *test, const void *block);

static inline bool pool_id_is(vmm_pool_id id, uint64_t first, uint64_t second)
{
    return id.first == first && id.second == second;
}

#endif
