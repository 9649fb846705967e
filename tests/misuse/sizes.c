/* Sizes and limits beyond reason. */
#include "misuse.h"

#define TOO_MANY "are more than the arena has"

static vmm_status take(struct stage *stage, uint64_t bytes)
{
    void *out = stage;
    vmm_status status = vmm_alloc(stage->cache, bytes, NULL, &out);
    must(status == VMM_OK || out == stage);
    return status;
}

static vmm_status take_on_a_new_stream(struct stage *stage, uint64_t bytes)
{
    vmm_stream stream;
    void *out = stage;
    must_ok(vmm__driver_stream_create(stage->driver, &stream));
    vmm_status status = vmm_alloc(stage->cache, bytes, stream, &out);
    must(out == stage);
    must_ok(vmm_stream_end(stage->cache, stream));
    must_ok(vmm__driver_stream_destroy(stage->driver, stream));
    return status;
}

static void no_caching(struct stage *stage, uint64_t value)
{
    (void)value;
    vmm_config config = VMM_CONFIG_INIT;
    config.no_caching = 1;
    stage_restart(stage, &config);
}

static vmm_status take_nothing(struct stage *stage, uint64_t value)
{
    void *one = stage_take(stage, value, 0);
    void *two = stage_take(stage, value, 0);
    must(one != two);
    must_ok(vmm_free(stage->cache, one));
    return vmm_free(stage->cache, two);
}

static vmm_status block_bytes_of_too_many(struct stage *stage, uint64_t bytes)
{
    must(vmm_block_bytes(stage->cache, bytes) == 0);
    return take(stage, bytes);
}

/* Nothing is taken away; new memory is refused until the limit allows it. */
static vmm_status limit_below_what_is_held(struct stage *stage, uint64_t limit_bytes)
{
    void *out = stage;
    must_ok(vmm_limit_set(stage->cache, limit_bytes));
    stage_check(stage);
    vmm_status status = vmm_alloc(stage->cache, 20 * MIB, NULL, &out);
    must(out == stage && stage_error_says("limit"));
    must_ok(vmm_limit_set(stage->cache, STAGE_LIMIT));
    return status;
}

static vmm_status no_limit_but_the_device(struct stage *stage, uint64_t limit_bytes)
{
    must_ok(vmm_limit_set(stage->cache, limit_bytes));
    vmm_status status = take(stage, stage->driver->total_bytes + 1);
    must_ok(vmm_limit_set(stage->cache, STAGE_LIMIT));
    return status;
}

static vmm_status trim_to_keep_all(struct stage *stage, uint64_t keep_bytes)
{
    size_t released = 77;
    must_ok(vmm_trim(stage->cache, keep_bytes, &released));
    must(released == 0);
    return VMM_OK;
}

#define GRANULE (2 * MIB)
#define REFUSED(name, bytes)                                                                       \
    {                                                                                              \
        name, NULL, take, bytes, VMM_ERR_INVALID_ARGUMENT, TOO_MANY, false                         \
    }

static const struct misuse cases[] = {
    { "0 bytes", NULL, take_nothing, 0, VMM_OK, NULL, true },
    REFUSED("SIZE_MAX", SIZE_MAX),
    REFUSED("SIZE_MAX - 510", SIZE_MAX - 510),
    REFUSED("SIZE_MAX - 511", SIZE_MAX - 511),
    REFUSED("SIZE_MAX - granule", SIZE_MAX - GRANULE),
    REFUSED("SIZE_MAX - granule + 1", SIZE_MAX - GRANULE + 1),
    REFUSED("SIZE_MAX / 2 + 1", SIZE_MAX / 2 + 1),
    REFUSED("-1 MiB", -MIB),
    REFUSED("more than the arena", 2 * STAGE_ARENA),
    { "SIZE_MAX on a new stream", NULL, take_on_a_new_stream, SIZE_MAX, VMM_ERR_INVALID_ARGUMENT,
      TOO_MANY, true },
    { "SIZE_MAX without caching", no_caching, take, SIZE_MAX, VMM_ERR_INVALID_ARGUMENT, TOO_MANY,
      false },
    { "of a block of too many bytes", NULL, block_bytes_of_too_many, UINT64_MAX,
      VMM_ERR_INVALID_ARGUMENT, TOO_MANY, false },
    { "all of the arena", NULL, take, STAGE_ARENA, VMM_ERR_ADDRESS_SPACE, "too few addresses",
      false },
    { "more than the limit", NULL, take, STAGE_LIMIT + 1, VMM_ERR_DEVICE_OOM, "limit", false },
    { "more than the device", NULL, no_limit_but_the_device, 0, VMM_ERR_DEVICE_OOM, "needed",
      false },
    { "a limit of 1 byte", NULL, limit_below_what_is_held, 1, VMM_ERR_DEVICE_OOM, "limit", true },
    { "a limit below what is held", NULL, limit_below_what_is_held, 8 * MIB, VMM_ERR_DEVICE_OOM,
      "limit", true },
    { "a limit beyond any device", NULL, no_limit_but_the_device, UINT64_MAX, VMM_ERR_DEVICE_OOM,
      "needed", false },
    { "a trim that keeps SIZE_MAX", NULL, trim_to_keep_all, SIZE_MAX, VMM_OK, NULL, true },
};

MISUSE_GROUP(misuse_sizes, "sizes");
