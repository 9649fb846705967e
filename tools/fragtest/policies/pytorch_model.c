/* The common part of the two PyTorch policies: see pytorch_model.h. */
#include "fragtest/policies/pytorch_model.h"

#include "base/arith.h"
#include "base/error.h"
#include "fragtest/report/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct pytorch_model *model_of(struct policy *policy)
{
    return (struct pytorch_model *)policy;
}

vmm_status pytorch_model_open(const struct policy_ops *ops, const struct policy_setup *setup,
                              struct policy **out)
{
    uint32_t count = setup->stream_count * 2;
    struct pytorch_model *model = calloc(1, sizeof(*model));
    struct pool *pools = calloc(count, sizeof(*pools));

    if (model == NULL || pools == NULL) {
        free(pools);
        free(model);
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for %" PRIu32 " pools", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        pools[i].stream = i / 2;
        pools[i].small = i % 2 == 1;
    }
    *model = (struct pytorch_model){
        .policy.ops = ops,
        .setup = *setup,
        .pools = pools,
        .lowest_place = UINT64_MAX / 2 + 1,
    };
    *out = &model->policy;
    return VMM_OK;
}

static uint64_t bytes_round(uint64_t bytes)
{
    return vmm__align_up(vmm__max(bytes, BLOCK_UNIT_BYTES), BLOCK_UNIT_BYTES);
}

uint64_t pytorch_model_segment_bytes(uint64_t bytes)
{
    if (bytes <= SMALL_MAX_BYTES)
        return SMALL_SEGMENT_BYTES;
    if (bytes < OWN_SEGMENT_BYTES)
        return LARGE_SEGMENT_BYTES;
    return vmm__align_up(bytes, OWN_SEGMENT_UNIT);
}

struct block *block_of(struct ordered_node *node)
{
    return (struct block *)node;
}

struct block *block_create(struct pool *pool, struct segment *segment, uint64_t address,
                           uint64_t bytes, bool mapped)
{
    struct block *block = calloc(1, sizeof(*block));
    if (block == NULL)
        return NULL;
    block->pool = pool;
    block->segment = segment;
    block->address = address;
    block->bytes = bytes;
    block->mapped = mapped;
    block_join(block);
    return block;
}

static struct ordered *block_set(struct block *block)
{
    return block->mapped ? &block->pool->free : &block->pool->unmapped;
}

void block_leave(struct block *block)
{
    ordered_remove(block_set(block), &block->node);
}

void block_join(struct block *block)
{
    block->node.major = block->mapped ? block->bytes : block->address;
    block->node.minor = block->mapped ? block->address : 0;
    ordered_insert(block_set(block), &block->node);
}

bool block_split(struct block *block, uint64_t bytes)
{
    struct block *rest = block_create(block->pool, block->segment, block->address + bytes,
                                      block->bytes - bytes, block->mapped);
    if (rest == NULL)
        return false;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next != NULL)
        rest->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    return true;
}

/* `low` takes over `high`, its next neighbour; neither is in a set. */
static void blocks_merge(struct block *low, struct block *high)
{
    low->bytes += high->bytes;
    block_destroy(high);
}

static bool block_merges_with(const struct block *block, const struct block *other)
{
    return other != NULL && !other->allocated && other->mapped == block->mapped;
}

struct block *block_settle(struct block *block)
{
    if (block_merges_with(block, block->next)) {
        block_leave(block->next);
        blocks_merge(block, block->next);
    }
    if (block_merges_with(block, block->previous)) {
        block = block->previous;
        block_leave(block);
        blocks_merge(block, block->next);
    }
    block_join(block);
    return block;
}

void block_destroy(struct block *block)
{
    if (block->previous != NULL)
        block->previous->next = block->next;
    if (block->next != NULL)
        block->next->previous = block->previous;
    free(block);
}

vmm_status block_close(struct pytorch_model *model, struct block *block)
{
    struct segment *segment = block->segment;

    block_destroy(block);
    return segment_destroy(model->setup.driver, segment);
}

/* ---- Giving back ------------------------------------------------------------------------------- */

/* Waits for the device before the first block goes back. That may cut new free blocks, but none that is idle: so each
 * is met at most twice. */
static vmm_status pool_flush(struct pytorch_model *model, struct pool *pool, bool *waited)
{
    uint64_t bytes = 0;
    uint64_t address = 0;
    struct ordered_node *node;

    while ((node = ordered_at_least(&pool->free, bytes, address)) != NULL) {
        struct block *block = block_of(node);
        bytes = block->bytes;
        address = block->address + 1;
        if (!model->policy.ops->rules->is_idle(block))
            continue;
        vmm_status status = VMM_OK;
        if (!*waited)
            status = vmm__driver_device_wait(model->setup.driver);
        if (status == VMM_OK)
            status = model->policy.ops->rules->give_back(model, block);
        if (status != VMM_OK)
            return status;
        *waited = true;
    }
    return VMM_OK;
}

/* As emptying the original's cache does: it waits for the device if there is anything to give back. */
vmm_status pytorch_model_trim(struct policy *policy)
{
    struct pytorch_model *model = model_of(policy);
    bool waited = false;

    for (uint32_t i = 0; i < model->setup.stream_count * 2; i++) {
        vmm_status status = pool_flush(model, &model->pools[i], &waited);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}

/* Segments in which nothing is mapped: one that never grew stays behind until the end. */
static vmm_status pool_close(struct pytorch_model *model, struct pool *pool)
{
    struct ordered_node *node;
    vmm_status first = VMM_OK;

    while ((node = ordered_first(&pool->unmapped)) != NULL) {
        block_leave(block_of(node));
        vmm_status status = block_close(model, block_of(node));
        if (first == VMM_OK)
            first = status;
    }
    return first;
}

/* The replayer has freed every block, so one flush takes all memory. */
vmm_status pytorch_model_close(struct policy *policy)
{
    struct pytorch_model *model = model_of(policy);
    vmm_status first = pytorch_model_trim(policy);

    for (uint32_t i = 0; first == VMM_OK && i < model->setup.stream_count * 2; i++)
        first = pool_close(model, &model->pools[i]);
    free(model->pools);
    free(model);
    return first;
}

/* ---- Requests ---------------------------------------------------------------------------------- */

static vmm_status pool_grow(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                            struct block **out)
{
    uint64_t limit = model->setup.limit_bytes;

    if (limit != 0 && model->reserved_bytes + pytorch_model_segment_bytes(bytes) > limit)
        return vmm__error(VMM_ERR_DEVICE_OOM, "the limit is reached");
    return model->policy.ops->rules->grow(model, pool, bytes, out);
}

/* The pool is not searched again after the flush: neither does the original. */
static vmm_status pool_take(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                            struct block **out)
{
    *out = model->policy.ops->rules->search(pool, bytes);
    if (*out != NULL) {
        block_leave(*out);
        return VMM_OK;
    }
    vmm_status status = pool_grow(model, pool, bytes, out);
    if (status != VMM_ERR_DEVICE_OOM)
        return status;
    status = pytorch_model_trim(&model->policy);
    return status == VMM_OK ? pool_grow(model, pool, bytes, out) : status;
}

vmm_status pytorch_model_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                               struct policy_place *out)
{
    struct pytorch_model *model = model_of(policy);
    uint64_t rounded = bytes_round(bytes);
    struct pool *pool = &model->pools[stream * 2 + (rounded <= SMALL_MAX_BYTES ? 1 : 0)];
    struct block *block;

    vmm_status status = pool_take(model, pool, rounded, &block);
    if (status != VMM_OK)
        return status;
    if (model->policy.ops->rules->splits(block, rounded) && !block_split(block, rounded)) {
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

vmm_status pytorch_model_free(struct policy *policy, struct policy_place place)
{
    struct block *block = place.token;

    (void)policy;
    block->allocated = false;
    (void)block_settle(block);
    return VMM_OK;
}

/* ---- Why one failed ---------------------------------------------------------------------------- */

struct free_sum {
    uint64_t bytes;
    uint64_t other_bytes; /* of other streams */
    uint64_t pieces;
    uint64_t largest_bytes; /* of this stream */
};

static void pool_sum(const struct pool *pool, uint32_t stream, struct free_sum *sum)
{
    for (struct ordered_node *node = ordered_first(&pool->free); node != NULL;
         node = ordered_after(&pool->free, node)) {
        const struct block *block = block_of(node);
        sum->bytes += block->bytes;
        sum->pieces++;
        if (pool->stream != stream)
            sum->other_bytes += block->bytes;
        else if (block->bytes > sum->largest_bytes)
            sum->largest_bytes = block->bytes;
    }
}

void pytorch_model_explain(struct policy *policy, uint64_t bytes, uint32_t stream, char *text,
                           size_t capacity)
{
    const struct pytorch_model *model = model_of(policy);
    struct free_sum sum = { 0 };
    char others[96] = "";
    char left[96] = "";

    for (uint32_t i = 0; i < model->setup.stream_count * 2; i++)
        pool_sum(&model->pools[i], stream, &sum);
    if (sum.other_bytes > 0)
        (void)snprintf(others, sizeof(others), " of its own stream, %s held by other streams",
                       size_format(sum.other_bytes).text);
    uint64_t limit = model->setup.limit_bytes;
    if (limit != 0)
        (void)snprintf(left, sizeof(left), "; %s left under the limit",
                       size_format(limit - vmm__min(limit, model->reserved_bytes)).text);
    (void)snprintf(
        text, capacity, "needed %s contiguous; %s free in %" PRIu64 " pieces, largest %s%s%s",
        size_format(model->policy.ops->rules->needed(bytes_round(bytes))).text,
        size_format(sum.bytes).text, sum.pieces, size_format(sum.largest_bytes).text, others, left);
}
