/* Calls that are wrong, or cannot do their work, while a stream is captured. */
#include "negative.h"
#include "support/pool_calls.h"

enum { CAPTURED = 1 }; /* of the stage's streams */

static void capture_start(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm__driver_capture_begin(stage->driver, stage->streams[CAPTURED]));
}

/* Ends the capture, which must not have been invalidated meanwhile. */
static vmm_status capture_stop(struct stage *stage)
{
    return vmm__driver_capture_end(stage->driver, stage->streams[CAPTURED]);
}

static vmm_status trim(struct stage *stage, uint64_t keep_bytes)
{
    must_ok(vmm_free(stage->cache, stage_take(stage, 9 * MIB, CAPTURED)));
    must_ok(vmm_trim(stage->cache, keep_bytes, NULL));
    must_ok(vmm__cache_check(stage->cache));
    return capture_stop(stage);
}

static vmm_status tick(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_free(stage->cache, stage_take(stage, 9 * MIB, CAPTURED)));
    must_ok(vmm_poll(stage->cache));
    return capture_stop(stage);
}

static vmm_status wait_for_all(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_wait(stage->cache));
    return capture_stop(stage);
}

static vmm_status use_by_a_captured_stream(struct stage *stage, uint64_t value)
{
    (void)value;
    void *block = stage_take(stage, 70000, 0);
    must_ok(vmm_record_stream(stage->cache, block, stage->streams[CAPTURED]));
    must_ok(vmm_free(stage->cache, block));
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, block));
    return capture_stop(stage);
}

static vmm_status run_out(struct stage *stage, uint64_t value)
{
    void *out = stage;
    (void)value;
    must_be(VMM_ERR_DEVICE_OOM,
            vmm_alloc(stage->cache, STAGE_LIMIT, stage->streams[CAPTURED], &out));
    must_be(VMM_ERR_DEVICE_OOM, vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &out));
    must(out == stage);
    return capture_stop(stage);
}

static vmm_status release_a_pool(struct stage *stage, uint64_t value)
{
    vmm_pool_id id = { 3, 3 };
    (void)value;
    must_ok(graph_pool_begin(stage->cache, id, NULL, NULL));
    void *block = stage_take(stage, 3 * MIB, CAPTURED);
    must_ok(graph_pool_end(stage->cache, id));
    must_ok(graph_pool_release(stage->cache, id));
    must_ok(vmm_free(stage->cache, block));
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, block));
    return capture_stop(stage);
}

static vmm_status wrong_pointers(struct stage *stage, uint64_t value)
{
    vmm_pool_id id = { 3, 3 };
    (void)value;
    must_ok(graph_pool_begin(stage->cache, id, NULL, NULL));
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, &id));
    must_be(VMM_ERR_UNKNOWN_POINTER,
            vmm_record_stream(stage->cache, (char *)stage->blocks[6].address + 512, NULL));
    must_ok(graph_pool_end(stage->cache, id));
    must_ok(graph_pool_release(stage->cache, id));
    return capture_stop(stage);
}

/* Only sleep and wake are refused. */
static vmm_status use_a_pool(struct stage *stage, uint64_t value)
{
    vmm_sleep_options offer = VMM_SLEEP_OPTIONS_INIT;
    vmm_pool *pool;
    void *block;
    (void)value;
    offer.on_claim = 1;
    (void)stage_take(stage, 4096, CAPTURED);
    must_ok(vmm_pool_create(stage->cache, NULL, &pool));
    must_ok(vmm_pool_push(pool));
    must_ok(vmm_alloc(stage->cache, 3 * MIB, stage->streams[0], &block));
    must_ok(vmm_pool_pop(pool));
    must_ok(vmm_pool_retain(pool));
    must_ok(vmm_pool_limit_set(pool, 8 * MIB));
    must_ok(vmm_pool_drop(pool));
    must_ok(vmm_pool_trim(pool, 0, NULL));
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_pool_sleep(&pool, 1, NULL, NULL));
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_pool_sleep(&pool, 1, &offer, NULL));
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_pool_wake(&pool, 1, NULL, NULL));
    must_ok(vmm_backup_drop(pool));
    must_ok(vmm_pool_destroy(pool, 1));
    must_ok(vmm_free(stage->cache, block));
    return capture_stop(stage);
}

/* Another cache on the driver is destroyed, with a block that was allocated in the capture. */
static vmm_status destroy(struct stage *stage, uint64_t value)
{
    void *block;
    (void)value;
    vmm_config config = VMM_CONFIG_INIT;
    config.arena_bytes = STAGE_ARENA;
    must_ok(vmm__cache_create_on(&config, stage->driver, &stage->other));
    must_ok(vmm_alloc(stage->other, 3 * MIB, stage->streams[CAPTURED], &block));
    vmm_status status = vmm_destroy(stage->other);
    stage->other = NULL;
    must(status == VMM_OK);
    return capture_stop(stage);
}

#define DURING_CAPTURE(name, call)                                                                 \
    {                                                                                              \
        name, capture_start, call, 0, VMM_OK, NULL, true                                           \
    }

static const struct negative_case cases[] = {
    DURING_CAPTURE("a trim during a capture", trim),
    DURING_CAPTURE("a tick during a capture", tick),
    DURING_CAPTURE("a wait during a capture", wait_for_all),
    DURING_CAPTURE("a use by the captured stream", use_by_a_captured_stream),
    DURING_CAPTURE("memory runs out during a capture", run_out),
    DURING_CAPTURE("a pool is released during a capture", release_a_pool),
    DURING_CAPTURE("a pool is used during a capture", use_a_pool),
    DURING_CAPTURE("wrong pointers during a capture", wrong_pointers),
    DURING_CAPTURE("a cache is destroyed during a capture", destroy),
};

NEGATIVE_GROUP(negative_captures, "captures");
