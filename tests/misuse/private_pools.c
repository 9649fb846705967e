/* Private pools that begin, end and are released out of turn. */
#include "misuse.h"

#define BEGUN     "is begun already, and not ended"
#define NOT_BEGUN "is not begun"
#define NO_USE    "has no use left to end"

static const vmm_pool_id one = { 1, 0 };
static const vmm_pool_id other = { 0, 7 };
static const vmm_pool_id none = { 0, 0 };

static vmm_status begin(struct stage *stage, vmm_pool_id id)
{
    return vmm_pool_begin(stage->cache, id, NULL, NULL);
}

/* A block of the pool lives on, with its bytes, among the stage's. */
static void begun(struct stage *stage, uint64_t is_ended)
{
    must_ok(begin(stage, one));
    must_ok(vmm_free(stage->cache, stage->blocks[4].address));
    stage->blocks[4].address = stage_take(stage, stage->blocks[4].bytes, 0);
    stage->blocks[4].stream = 0;
    must_ok(vmm__driver_fill(stage->driver, (uintptr_t)stage->blocks[4].address,
                             stage->blocks[4].bytes, stage->blocks[4].word, NULL));
    if (is_ended)
        must_ok(vmm_pool_end(stage->cache, one));
}

static void released(struct stage *stage, uint64_t value)
{
    begun(stage, value);
    must_ok(vmm_pool_release(stage->cache, one));
}

static vmm_status begin_one(struct stage *stage, uint64_t value)
{
    (void)value;
    return begin(stage, one);
}

static vmm_status begin_none(struct stage *stage, uint64_t value)
{
    (void)value;
    return begin(stage, none);
}

static vmm_status end_one(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_end(stage->cache, one);
}

static vmm_status end_none(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_end(stage->cache, none);
}

static vmm_status end_other(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_end(stage->cache, other);
}

static vmm_status release_one(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_release(stage->cache, one);
}

static vmm_status release_none(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_release(stage->cache, none);
}

static vmm_status release_other(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_release(stage->cache, other);
}

/* A use ends before the capture does: what is begun goes on, and what it takes is nobody's pool's. */
static vmm_status release_while_begun(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_pool_release(stage->cache, one));
    vmm_item item = VMM_ITEM_INIT;
    void *block = stage_take(stage, 70000, 0);
    must_ok(vmm_find(stage->cache, block, &item));
    must(item.pool.first == 0 && item.pool.second == 0);
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_pool_release(stage->cache, one));
    must_be(VMM_ERR_INVALID_ARGUMENT, begin(stage, one));
    must_ok(vmm_free(stage->cache, block));
    return vmm_pool_end(stage->cache, one);
}

static vmm_status one_use_too_many(struct stage *stage, uint64_t uses)
{
    for (uint64_t i = 1; i < uses; i++) {
        must_ok(begin(stage, one));
        must_ok(vmm_pool_end(stage->cache, one));
    }
    for (uint64_t i = 0; i < uses; i++)
        must_ok(vmm_pool_release(stage->cache, one));
    return vmm_pool_release(stage->cache, one);
}

/* Never ended, never released: the cache ends with them. */
static vmm_status leave_many_begun(struct stage *stage, uint64_t pools)
{
    for (uint64_t i = 1; i <= pools; i++) {
        must_ok(begin(stage, (vmm_pool_id){ i, i }));
        (void)stage_take(stage, 512, (unsigned)(i % STAGE_STREAMS));
    }
    return VMM_OK;
}

#define WRONG(name, prepare, value, misuse, words)                                                 \
    {                                                                                              \
        name, prepare, misuse, value, VMM_ERR_INVALID_ARGUMENT, words, false                       \
    }

static const struct misuse cases[] = {
    WRONG("begun twice", begun, 0, begin_one, BEGUN),
    WRONG("begun with an id of zeros", NULL, 0, begin_none, "the id is zeros"),
    WRONG("ended, never begun", NULL, 0, end_one, NOT_BEGUN),
    WRONG("ended twice", begun, 1, end_one, NOT_BEGUN),
    WRONG("ended, another is begun", begun, 0, end_other, NOT_BEGUN),
    WRONG("ended with an id of zeros", begun, 0, end_none, "the id is zeros"),
    WRONG("ended after its release", released, 1, end_one, NOT_BEGUN),
    WRONG("released, never begun", NULL, 0, release_one, NO_USE),
    WRONG("released, another is begun", begun, 0, release_other, NO_USE),
    WRONG("released with an id of zeros", begun, 1, release_none, "the id is zeros"),
    WRONG("released twice", released, 1, release_one, NO_USE),
    { "released more often than begun", begun, one_use_too_many, 3, VMM_ERR_INVALID_ARGUMENT,
      NO_USE, true },
    { "released while begun", begun, release_while_begun, 0, VMM_OK, NULL, true },
    { "never ended nor released", NULL, leave_many_begun, 40, VMM_OK, NULL, true },
};

MISUSE_GROUP(misuse_private_pools, "private pools");
