/* Graph pools that begin, end or are released in the wrong order. */
#include "negative.h"
#include "support/pool_calls.h"

#define BEGUN     "has a route already"
#define NOT_BEGUN "has no route"
#define NO_POOL   "is not a pool, or was destroyed"

static const vmm_pool_id one = { 1, 0 };
static const vmm_pool_id other = { 0, 7 };

static vmm_status begin(struct stage *stage, vmm_pool_id id)
{
    return graph_pool_begin(stage->cache, id, NULL, NULL);
}

/* Replaces one of the stage's blocks by a block of the pool, with the same contents. */
static void prepare_begun(struct stage *stage, uint64_t is_ended)
{
    must_ok(begin(stage, one));
    must_ok(vmm_free(stage->cache, stage->blocks[4].address));
    stage->blocks[4].address = stage_take(stage, stage->blocks[4].bytes, 0);
    stage->blocks[4].stream = 0;
    must_ok(vmm__driver_fill(stage->driver, (uintptr_t)stage->blocks[4].address,
                             stage->blocks[4].bytes, stage->blocks[4].word, NULL));
    if (is_ended)
        must_ok(graph_pool_end(stage->cache, one));
}

static void prepare_released(struct stage *stage, uint64_t value)
{
    prepare_begun(stage, value);
    must_ok(graph_pool_release(stage->cache, one));
}

/* A case's call that ignores its value. */
#define POOL_CALL(function, call)                                                                  \
    static vmm_status function(struct stage *stage, uint64_t value)                                \
    {                                                                                              \
        (void)value;                                                                               \
        return call;                                                                               \
    }

POOL_CALL(begin_one, begin(stage, one))
POOL_CALL(end_one, graph_pool_end(stage->cache, one))
POOL_CALL(end_other, graph_pool_end(stage->cache, other))
POOL_CALL(release_one, graph_pool_release(stage->cache, one))
POOL_CALL(release_other, graph_pool_release(stage->cache, other))

/* The pool goes on serving the requests that are led to it. */
static vmm_status release_while_begun(struct stage *stage, uint64_t value)
{
    (void)value;
    must_be(VMM_ERR_INVALID_ARGUMENT, graph_pool_release(stage->cache, one));
    vmm_item item = VMM_ITEM_INIT;
    void *block = stage_take(stage, 70000, 0);
    must_ok(vmm_find(stage->cache, block, &item));
    must(item.pool_id.first == one.first && item.pool_id.second == one.second);
    must_ok(vmm_free(stage->cache, block));
    must_ok(graph_pool_end(stage->cache, one));
    return graph_pool_release(stage->cache, one);
}

static vmm_status release_too_often(struct stage *stage, uint64_t uses)
{
    for (uint64_t i = 1; i < uses; i++) {
        must_ok(begin(stage, one));
        must_ok(graph_pool_end(stage->cache, one));
    }
    for (uint64_t i = 0; i < uses; i++)
        must_ok(graph_pool_release(stage->cache, one));
    return graph_pool_release(stage->cache, one);
}

/* The pools are never ended nor released; vmm_destroy() releases them. */
static vmm_status leave_many_begun(struct stage *stage, uint64_t pools)
{
    for (uint64_t i = 1; i <= pools; i++) {
        must_ok(begin(stage, (vmm_pool_id){ i, i }));
        (void)stage_take(stage, 512, (unsigned)(i % STAGE_STREAMS));
    }
    return VMM_OK;
}

static const struct negative_case cases[] = {
    WRONG_AFTER(prepare_begun, "begun twice", begin_one, 0, BEGUN),
    WRONG_AFTER(NULL, "ended, never begun", end_one, 0, NO_POOL),
    WRONG_AFTER(prepare_begun, "ended twice", end_one, 1, NOT_BEGUN),
    WRONG_AFTER(prepare_begun, "ended, another is begun", end_other, 0, NO_POOL),
    WRONG_AFTER(prepare_released, "ended after its release", end_one, 1, NO_POOL),
    WRONG_AFTER(NULL, "released, never begun", release_one, 0, NO_POOL),
    WRONG_AFTER(prepare_begun, "released, another is begun", release_other, 0, NO_POOL),
    WRONG_AFTER(prepare_released, "released twice", release_one, 1, NO_POOL),
    { "released more often than begun", prepare_begun, release_too_often, 3,
      VMM_ERR_INVALID_ARGUMENT, NO_POOL, true },
    { "released while begun", prepare_begun, release_while_begun, 0, VMM_OK, NULL, true },
    { "never ended nor released", NULL, leave_many_begun, 40, VMM_OK, NULL, true },
};

NEGATIVE_GROUP(negative_graph_pools, "graph pools");
