/* What must not be done, or cannot be, while a stream is captured. */
#include "misuse.h"

enum { CAPTURED = 1 }; /* of the stage's streams */

static void capture_begun(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm__driver_capture_begin(stage->driver, stage->streams[CAPTURED]));
}

/* The capture must have survived what was done meanwhile. */
static vmm_status capture_ended(struct stage *stage)
{
    return vmm__driver_capture_end(stage->driver, stage->streams[CAPTURED]);
}

static vmm_status trim(struct stage *stage, uint64_t keep_bytes)
{
    must_ok(vmm_free(stage->cache, stage_take(stage, 9 * MIB, CAPTURED)));
    must_ok(vmm_trim(stage->cache, keep_bytes, NULL));
    must_ok(vmm__cache_check(stage->cache));
    return capture_ended(stage);
}

static vmm_status tick(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_free(stage->cache, stage_take(stage, 9 * MIB, CAPTURED)));
    must_ok(vmm_tick(stage->cache));
    return capture_ended(stage);
}

static vmm_status wait_for_all(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_wait(stage->cache));
    return capture_ended(stage);
}

static vmm_status use_by_a_captured_stream(struct stage *stage, uint64_t value)
{
    (void)value;
    void *block = stage_take(stage, 70000, 0);
    must_ok(vmm_use(stage->cache, block, stage->streams[CAPTURED]));
    must_ok(vmm_free(stage->cache, block));
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, block));
    return capture_ended(stage);
}

static vmm_status run_out(struct stage *stage, uint64_t value)
{
    void *out = stage;
    (void)value;
    must_be(VMM_ERR_DEVICE_OOM,
            vmm_alloc(stage->cache, STAGE_LIMIT, stage->streams[CAPTURED], &out));
    must_be(VMM_ERR_DEVICE_OOM, vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &out));
    must(out == stage);
    return capture_ended(stage);
}

static vmm_status release_a_pool(struct stage *stage, uint64_t value)
{
    vmm_pool_id id = { 3, 3 };
    (void)value;
    must_ok(vmm_pool_begin(stage->cache, id, NULL, NULL));
    void *block = stage_take(stage, 3 * MIB, CAPTURED);
    must_ok(vmm_pool_end(stage->cache, id));
    must_ok(vmm_pool_release(stage->cache, id));
    must_ok(vmm_free(stage->cache, block));
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, block));
    return capture_ended(stage);
}

static vmm_status wrong_pointers(struct stage *stage, uint64_t value)
{
    vmm_pool_id id = { 3, 3 };
    (void)value;
    must_ok(vmm_pool_begin(stage->cache, id, NULL, NULL));
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, &id));
    must_be(VMM_ERR_UNKNOWN_POINTER,
            vmm_use(stage->cache, (char *)stage->blocks[6].address + 512, NULL));
    must_ok(vmm_pool_end(stage->cache, id));
    must_ok(vmm_pool_release(stage->cache, id));
    return capture_ended(stage);
}

/* Another cache of the driver ends meanwhile, with a block that the capture took. */
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
    return capture_ended(stage);
}

#define MEANWHILE(name, misuse)                                                                    \
    {                                                                                              \
        name, capture_begun, misuse, 0, VMM_OK, NULL, true                                         \
    }

static const struct misuse cases[] = {
    MEANWHILE("a trim meanwhile", trim),
    MEANWHILE("a tick meanwhile", tick),
    MEANWHILE("a wait meanwhile", wait_for_all),
    MEANWHILE("a use by the stream", use_by_a_captured_stream),
    MEANWHILE("memory runs out meanwhile", run_out),
    MEANWHILE("a release meanwhile", release_a_pool),
    MEANWHILE("wrong pointers meanwhile", wrong_pointers),
    MEANWHILE("a cache ends meanwhile", destroy),
};

MISUSE_GROUP(misuse_captures, "captures");
