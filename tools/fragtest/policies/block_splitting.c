/*
 * PyTorch's native policy: segments of 2 MiB, 20 MiB or the request's own size, split into blocks;
 * only segments that are free as a whole can ever go back.
 *
 * A segment stands for one cudaMalloc: a reservation of its own with one handle. Giving segments
 * back waits for the device once, as the first cudaFree does; the later ones find it idle.
 *
 * Among free blocks of one size the lowest address wins, so the order in which a device hands out
 * addresses shows: cudaMalloc goes downwards (with rising ones the peak on llm_generate is 6 % off
 * the real one, with falling ones 0.02 %). Blocks are therefore kept by places that fall from one
 * segment to the next, whatever addresses the driver gives.
 * Owns: segments. Rules common to both policies: pytorch_model.h. Locks: none (one thread).
 */
#include "fragtest/policies/pytorch_model.h"

#include "base/arith.h"
#include "base/error.h"

#include <stdlib.h>

struct segment {
    uint64_t address;
    uint64_t place; /* what its first block has for an address */
    uint64_t bytes;
    uint64_t handle;
};

struct block_splitting {
    struct pytorch_model model; /* first: begins with the policy */
    uint64_t lowest_place;      /* of all segments so far */
};

static struct block_splitting *self_of(struct policy *policy)
{
    return (struct block_splitting *)policy;
}

static vmm_status segment_back(struct driver *driver, struct segment *segment)
{
    vmm_status status = vmm__driver_create(driver, segment->bytes, false, &segment->handle);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_map(driver, segment->address, segment->bytes, segment->handle);
    if (status != VMM_OK)
        goto fail_map;
    status = vmm__driver_access(driver, segment->address, segment->bytes);
    if (status != VMM_OK)
        goto fail_access;
    return VMM_OK;

fail_access:
    (void)vmm__driver_unmap(driver, segment->address, segment->bytes);
fail_map:
    (void)vmm__driver_release(driver, segment->handle, segment->bytes);
    return status;
}

static vmm_status segment_create(struct driver *driver, uint64_t bytes, struct segment **out)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a segment");
    segment->bytes = vmm__align_up(bytes, driver->granule_bytes);
    vmm_status status = vmm__driver_reserve(driver, segment->bytes, 0, &segment->address);
    if (status != VMM_OK)
        goto fail_reserve;
    status = segment_back(driver, segment);
    if (status != VMM_OK)
        goto fail_back;
    *out = segment;
    return VMM_OK;

fail_back:
    (void)vmm__driver_address_free(driver, segment->address, segment->bytes);
fail_reserve:
    free(segment);
    return status;
}

/* The device must be idle. Goes on after a failure, so that as much as possible goes back. */
static vmm_status segment_destroy(struct driver *driver, struct segment *segment)
{
    vmm_status first = vmm__driver_unmap(driver, segment->address, segment->bytes);
    vmm_status second = vmm__driver_release(driver, segment->handle, segment->bytes);
    vmm_status third = vmm__driver_address_free(driver, segment->address, segment->bytes);

    free(segment);
    if (first != VMM_OK)
        return first;
    return second != VMM_OK ? second : third;
}

static bool block_is_segment(const struct block *block)
{
    return block->previous == NULL && block->next == NULL;
}

/* Waits for the device before the first segment of a flush goes back. */
static vmm_status flush_segment(struct block_splitting *self, struct block *block, bool *waited)
{
    struct driver *driver = self->model.setup.driver;
    struct segment *segment = block->segment;

    if (!*waited) {
        vmm_status status = vmm__driver_device_wait(driver);
        if (status != VMM_OK)
            return status;
        *waited = true;
    }
    block_leave(block);
    block_destroy(block);
    self->model.reserved_bytes -= segment->bytes;
    return segment_destroy(driver, segment);
}

/* Gives back every segment of every stream that is free as a whole. */
static vmm_status segments_flush(struct block_splitting *self)
{
    bool waited = false;

    for (uint32_t i = 0; i < self->model.setup.stream_count * 2; i++) {
        struct ordered *set = &self->model.pools[i].free;
        struct ordered_node *next;
        for (struct ordered_node *node = ordered_first(set); node != NULL; node = next) {
            next = ordered_after(set, node);
            if (!block_is_segment(block_of(node)))
                continue;
            vmm_status status = flush_segment(self, block_of(node), &waited);
            if (status != VMM_OK)
                return status;
        }
    }
    return VMM_OK;
}

/* A new segment's block, in no set. */
static vmm_status segment_grow(struct block_splitting *self, struct pool *pool, uint64_t bytes,
                               struct block **out)
{
    struct driver *driver = self->model.setup.driver;
    struct segment *segment = NULL;

    if (!pytorch_model_may_reserve(&self->model, bytes))
        return vmm__error(VMM_ERR_DEVICE_OOM, "the limit is reached");
    vmm_status status = segment_create(driver, bytes, &segment);
    if (status != VMM_OK)
        return status;
    segment->place = self->lowest_place - segment->bytes;
    struct block *block = block_create(pool, segment, segment->place, segment->bytes, true);
    if (block == NULL) {
        (void)segment_destroy(driver, segment);
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
    }
    block_leave(block);
    self->lowest_place = segment->place;
    self->model.reserved_bytes += segment->bytes;
    *out = block;
    return VMM_OK;
}

/* The pool is not searched again after the flush: neither does the original. */
static vmm_status segment_grow_hard(struct block_splitting *self, struct pool *pool, uint64_t bytes,
                                    struct block **out)
{
    vmm_status status = segment_grow(self, pool, bytes, out);
    if (status != VMM_ERR_DEVICE_OOM)
        return status;
    status = segments_flush(self);
    if (status != VMM_OK)
        return status;
    return segment_grow(self, pool, bytes, out);
}

static bool block_should_split(const struct block *block, uint64_t bytes)
{
    uint64_t rest = block->bytes - bytes;
    return block->pool->small ? rest >= BLOCK_UNIT_BYTES : rest > SMALL_MAX_BYTES;
}

static vmm_status splitting_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                                  struct policy_place *out)
{
    struct block_splitting *self = self_of(policy);
    uint64_t rounded = pytorch_model_round(bytes);
    struct pool *pool = pytorch_model_pool(&self->model, rounded, stream);
    struct block *block = block_of(ordered_at_least(&pool->free, rounded, 0));

    if (block != NULL) {
        block_leave(block);
    } else {
        vmm_status status =
            segment_grow_hard(self, pool, pytorch_model_segment_bytes(rounded), &block);
        if (status != VMM_OK)
            return status;
    }
    if (block_should_split(block, rounded) && !block_split(block, rounded)) {
        block_join(block);
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
    }
    block->allocated = true;
    *out = (struct policy_place){
        .address = block->segment->address + (block->address - block->segment->place),
        .token = block,
    };
    return VMM_OK;
}

/* As emptying the original's cache does: it waits for the device if there is anything to free. */
static vmm_status splitting_trim(struct policy *policy)
{
    return segments_flush(self_of(policy));
}

static void splitting_explain(struct policy *policy, uint64_t bytes, uint32_t stream, char *text,
                              size_t capacity)
{
    uint64_t needed = pytorch_model_segment_bytes(pytorch_model_round(bytes));
    pytorch_model_explain(&self_of(policy)->model, needed, stream, text, capacity);
}

/* The replayer has freed every block, so one flush takes all segments. */
static vmm_status splitting_close(struct policy *policy)
{
    struct block_splitting *self = self_of(policy);
    vmm_status status = segments_flush(self);

    pytorch_model_close(&self->model);
    return status;
}

static vmm_status splitting_open(const struct policy_setup *setup, struct policy **out)
{
    vmm_status status =
        pytorch_model_open(setup, policy_block_splitting(), sizeof(struct block_splitting), out);
    if (status == VMM_OK)
        self_of(*out)->lowest_place = UINT64_MAX / 2 + 1;
    return status;
}

const struct policy_ops *policy_block_splitting(void)
{
    static const struct policy_ops ops = {
        .name = "block-splitting",
        .open = splitting_open,
        .alloc = splitting_alloc,
        .free = pytorch_model_free,
        .trim = splitting_trim,
        .explain = splitting_explain,
        .close = splitting_close,
    };
    return &ops;
}
