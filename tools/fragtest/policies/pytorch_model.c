/* The common part of the two PyTorch policies: see pytorch_model.h. */
#include "fragtest/policies/pytorch_model.h"

#include "base/arith.h"
#include "base/error.h"
#include "fragtest/report/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

vmm_status pytorch_model_open(const struct policy_setup *setup, const struct policy_ops *ops,
                              size_t bytes, struct policy **out)
{
    uint32_t count = setup->stream_count * 2;
    struct pytorch_model *model = calloc(1, bytes);
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
    model->policy.ops = ops;
    model->setup = *setup;
    model->pools = pools;
    *out = &model->policy;
    return VMM_OK;
}

void pytorch_model_close(struct pytorch_model *model)
{
    free(model->pools);
    free(model);
}

uint64_t pytorch_model_round(uint64_t bytes)
{
    return vmm__align_up(vmm__max(bytes, BLOCK_UNIT_BYTES), BLOCK_UNIT_BYTES);
}

struct pool *pytorch_model_pool(struct pytorch_model *model, uint64_t bytes, uint32_t stream)
{
    return &model->pools[stream * 2 + (bytes <= SMALL_MAX_BYTES ? 1 : 0)];
}

uint64_t pytorch_model_segment_bytes(uint64_t bytes)
{
    if (bytes <= SMALL_MAX_BYTES)
        return SMALL_SEGMENT_BYTES;
    if (bytes < OWN_SEGMENT_BYTES)
        return LARGE_SEGMENT_BYTES;
    return vmm__align_up(bytes, OWN_SEGMENT_UNIT);
}

bool pytorch_model_may_reserve(const struct pytorch_model *model, uint64_t bytes)
{
    uint64_t limit = model->setup.limit_bytes;
    return limit == 0 || model->reserved_bytes + bytes <= limit;
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

vmm_status pytorch_model_free(struct policy *policy, struct policy_place place)
{
    struct block *block = place.token;

    (void)policy;
    block->allocated = false;
    (void)block_settle(block);
    return VMM_OK;
}

void pytorch_model_explain(const struct pytorch_model *model, uint64_t bytes, uint32_t stream,
                           char *text, size_t capacity)
{
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
    (void)snprintf(text, capacity,
                   "needed %s contiguous; %s free in %" PRIu64 " pieces, largest %s%s%s",
                   size_format(bytes).text, size_format(sum.bytes).text, sum.pieces,
                   size_format(sum.largest_bytes).text, others, left);
}
