/* Sizes and limits that are too large. */
#include "negative.h"

#define TOO_MANY "bytes are more than the arena of "

static vmm_status allocate(struct stage *stage, uint64_t bytes)
{
    void *out = stage;
    vmm_status status = vmm_alloc(stage->cache, bytes, NULL, &out);
    must(status == VMM_OK || out == stage);
    return status;
}

static vmm_status allocate_too_much(struct stage *stage, uint64_t bytes)
{
    uint64_t ooms = stage_stats(stage).ooms;
    vmm_status status = allocate(stage, bytes);
    must(stage_error_says("see arena_bytes") && stage_stats(stage).ooms == ooms + 1);
    return status;
}

static vmm_status allocate_on_a_new_stream(struct stage *stage, uint64_t bytes)
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

static void prepare_no_caching(struct stage *stage, uint64_t value)
{
    (void)value;
    stage_restart(stage, .no_caching = 1);
}

static vmm_status allocate_zero_bytes(struct stage *stage, uint64_t value)
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
    return allocate(stage, bytes);
}

/* A limit below the reserved bytes releases nothing, and refuses new memory until it is raised. */
static vmm_status limit_below_reserved(struct stage *stage, uint64_t limit_bytes)
{
    void *out = stage;
    must_ok(vmm_limit_set(stage->cache, limit_bytes));
    stage_check(stage);
    vmm_status status = vmm_alloc(stage->cache, 20 * MIB, NULL, &out);
    must(out == stage && stage_error_says("limit"));
    must_ok(vmm_limit_set(stage->cache, STAGE_LIMIT));
    return status;
}

static vmm_status limit_beyond_device(struct stage *stage, uint64_t limit_bytes)
{
    must_ok(vmm_limit_set(stage->cache, limit_bytes));
    vmm_status status = allocate(stage, stage->driver->total_bytes + 1);
    must_ok(vmm_limit_set(stage->cache, STAGE_LIMIT));
    return status;
}

static vmm_status trim_keep_all(struct stage *stage, uint64_t keep_bytes)
{
    size_t released = 77;
    must_ok(vmm_trim(stage->cache, keep_bytes, &released));
    must(released == 0);
    return VMM_OK;
}

#define GRANULE (2 * MIB)
#define REFUSED(name, bytes)                                                                       \
    {                                                                                              \
        name, NULL, allocate_too_much, bytes, VMM_ERR_ADDRESS_SPACE, TOO_MANY, false               \
    }

/* A range of a block of 3 MiB under vmm_pin(): its offset and size in 512 bytes. */
#define RANGE(offset, bytes) ((uint64_t)(offset) << 32 | (bytes))

static vmm_status export_range(struct stage *stage, uint64_t range)
{
    int fd = -7;
    void *block = stage->blocks[6].address;
    must_ok(vmm_pin(stage->cache, block));
    vmm_status status = vmm_dmabuf_export(stage->cache, block, (range >> 32) * 512,
                                          (range & UINT32_MAX) * 512, &fd);
    must(fd == -7);
    must_ok(vmm_unpin(stage->cache, block));
    return status;
}

static vmm_status export_unpinned(struct stage *stage, uint64_t bytes)
{
    int fd = -7;
    vmm_status status = vmm_dmabuf_export(stage->cache, stage->blocks[6].address, 0, bytes, &fd);
    must(fd == -7);
    return status;
}

static const struct negative_case cases[] = {
    { "0 bytes", NULL, allocate_zero_bytes, 0, VMM_OK, NULL, true },
    REFUSED("SIZE_MAX", SIZE_MAX),
    REFUSED("SIZE_MAX - 1", SIZE_MAX - 1),
    REFUSED("SIZE_MAX - 510", SIZE_MAX - 510),
    REFUSED("SIZE_MAX - 511", SIZE_MAX - 511),
    REFUSED("SIZE_MAX - granule", SIZE_MAX - GRANULE),
    REFUSED("SIZE_MAX - granule + 1", SIZE_MAX - GRANULE + 1),
    REFUSED("SIZE_MAX / 2 + 1", SIZE_MAX / 2 + 1),
    REFUSED("SIZE_MAX / 2", SIZE_MAX / 2),
    REFUSED("2^62", UINT64_C(1) << 62),
    REFUSED("2^57 + 1", (UINT64_C(1) << 57) + 1),
    REFUSED("-1 MiB", -MIB),
    REFUSED("more than the arena", 2 * STAGE_ARENA),
    { "SIZE_MAX on a new stream", NULL, allocate_on_a_new_stream, SIZE_MAX, VMM_ERR_ADDRESS_SPACE,
      TOO_MANY, true },
    { "SIZE_MAX without caching", prepare_no_caching, allocate, SIZE_MAX, VMM_ERR_ADDRESS_SPACE,
      TOO_MANY, false },
    { "vmm_block_bytes of too many bytes", NULL, block_bytes_of_too_many, UINT64_MAX,
      VMM_ERR_ADDRESS_SPACE, TOO_MANY, false },
    { "all of the arena", NULL, allocate, STAGE_ARENA, VMM_ERR_ADDRESS_SPACE,
      "no run of free addresses", false },
    { "more than the limit", NULL, allocate, STAGE_LIMIT + 1, VMM_ERR_DEVICE_OOM, "limit", false },
    { "more than the device", NULL, limit_beyond_device, 0, VMM_ERR_DEVICE_OOM, "needed", false },
    { "a limit of 1 byte", NULL, limit_below_reserved, 1, VMM_ERR_DEVICE_OOM, "limit", true },
    { "a limit below the reserved bytes", NULL, limit_below_reserved, 8 * MIB, VMM_ERR_DEVICE_OOM,
      "limit", true },
    { "a limit beyond any device", NULL, limit_beyond_device, UINT64_MAX, VMM_ERR_DEVICE_OOM,
      "needed", false },
    { "a trim that keeps SIZE_MAX", NULL, trim_keep_all, SIZE_MAX, VMM_OK, NULL, true },
    WRONG("a dma-buf of nothing", export_range, RANGE(0, 0), "that is nothing"),
    WRONG("a dma-buf beyond a block", export_range, RANGE(0, 1 << 20), "beyond the block"),
    WRONG("a dma-buf behind a block", export_range, RANGE(1 << 20, 8), "beyond the block"),
    WRONG("a dma-buf that begins inside a page", export_range, RANGE(1, 8), "not whole pages"),
    WRONG("a dma-buf that ends inside a page", export_range, RANGE(8, 9), "not whole pages"),
    WRONG("a dma-buf of a block that may move", export_unpinned, 4096, "call vmm_pin() before"),
};

NEGATIVE_GROUP(negative_sizes, "sizes");
