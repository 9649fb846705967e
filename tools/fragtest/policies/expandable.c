/*
 * PyTorch's expandable segments: for each stream and pool one reservation as large as 9/8 of the
 * device, backed page by page (2 MiB for the small pool, 20 MiB for the large one).
 *
 * A miss grows the first run of free and unmapped addresses that is long enough, mapping only what
 * is missing: a handle and a map for each page, one set access for each stretch. Under pressure all
 * whole free pages of all streams go back, after one wait for the device.
 * Owns: segments (segment.h). Rules common to both policies: pytorch_model.h.
 * Invariants: an unmapped block begins and ends at page boundaries; pages under a mapped block have
 * a handle. Locks: none (one thread).
 */
#include "fragtest/policies/pytorch_model.h"
#include "fragtest/policies/segment.h"

#include "base/arith.h"
#include "base/error.h"

#include <stdlib.h>

static struct pytorch_model *model_of(struct policy *policy)
{
    return (struct pytorch_model *)policy;
}

/* A fresh segment, all unmapped, its one block in the pool. */
static vmm_status place_create(struct pytorch_model *model, struct pool *pool, struct block **out)
{
    uint64_t page_bytes = vmm__align_up(pool->small ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES,
                                        model->setup.driver->granule_bytes);
    vmm_status status;
    struct segment *segment = segment_create(model->setup.driver, page_bytes, &status);

    if (segment == NULL)
        return status;
    *out = block_create(pool, segment, segment->address, segment->bytes, false);
    if (*out != NULL)
        return VMM_OK;
    (void)segment_destroy(model->setup.driver, segment);
    return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
}

/* Gives back the segment whose one block, unmapped and in no set, is `block`. */
static vmm_status place_destroy(struct pytorch_model *model, struct block *block)
{
    struct segment *segment = block->segment;

    block_destroy(block);
    return segment_destroy(model->setup.driver, segment);
}

/*
 * Backs the first `bytes` (rounded up to pages) of an unmapped block and merges them with their
 * free neighbours; the whole, free and in its pool, goes to *out.
 */
static vmm_status block_map(struct pytorch_model *model, struct block *block, uint64_t bytes,
                            struct block **out)
{
    struct segment *segment = block->segment;
    uint64_t pages = (bytes + segment->page_bytes - 1) / segment->page_bytes;
    uint64_t mapped_bytes = pages * segment->page_bytes;

    vmm_status status = segment_map(model->setup.driver, segment, block->address, mapped_bytes);
    if (status != VMM_OK)
        return status;
    block_leave(block);
    if (mapped_bytes < block->bytes && !block_split(block, mapped_bytes)) {
        (void)segment_unmap(model->setup.driver, segment, block->address, mapped_bytes);
        block_join(block);
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
    }
    block->mapped = true;
    model->reserved_bytes += mapped_bytes;
    *out = block_settle(block);
    return VMM_OK;
}

/* Whether the run of free and unmapped blocks that starts at `block` holds `bytes`. */
static bool run_holds(const struct block *block, uint64_t bytes)
{
    uint64_t found = 0;

    for (; block != NULL && !block->allocated && found < bytes; block = block->next)
        found += block->bytes;
    return found >= bytes;
}

/* The lowest place of the pool that can grow to `bytes`: free then unmapped, or unmapped. */
static vmm_status place_find(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                             struct block **out)
{
    for (struct ordered_node *node = ordered_first(&pool->unmapped); node != NULL;
         node = ordered_after(&pool->unmapped, node)) {
        struct block *block = block_of(node);
        if (block->previous != NULL && !block->previous->allocated)
            block = block->previous;
        if (run_holds(block, bytes)) {
            *out = block;
            return VMM_OK;
        }
    }
    return place_create(model, pool, out);
}

/* Grows the pool until a free block holds `bytes`; it comes back in no set. */
static vmm_status pool_grow(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                            struct block **out)
{
    struct block *block;

    if (!pytorch_model_may_reserve(model, pytorch_model_segment_bytes(bytes)))
        return vmm__error(VMM_ERR_DEVICE_OOM, "the limit is reached");
    vmm_status status = place_find(model, pool, bytes, &block);
    if (status == VMM_OK && !block->mapped)
        status = block_map(model, block, vmm__min(bytes, block->bytes), &block);
    while (status == VMM_OK && block->bytes < bytes) {
        struct block *next = block->next;
        if (next == NULL)
            return vmm__error(VMM_ERR_DEVICE_OOM, "more than a whole segment is asked for");
        status = block_map(model, next, vmm__min(bytes - block->bytes, next->bytes), &block);
    }
    if (status != VMM_OK)
        return status;
    block_leave(block);
    *out = block;
    return VMM_OK;
}

/* Cuts the whole pages out of a free block that is in no set; the ends are free blocks again. */
static bool block_trim_to_pages(struct block **block, uint64_t first, uint64_t last)
{
    struct block *middle = *block;

    if (first > middle->address) {
        if (!block_split(middle, first - middle->address))
            return false;
        block_join(middle);
        middle = middle->next;
        block_leave(middle);
        *block = middle;
    }
    return last == middle->address + middle->bytes || block_split(middle, last - middle->address);
}

/* Gives back the whole pages inside a free block, and the segment when that was all of it. */
static vmm_status block_unmap(struct pytorch_model *model, struct block *block)
{
    struct segment *segment = block->segment;
    uint64_t page = segment->page_bytes;
    uint64_t from = block->address - segment->address;
    uint64_t first = (from + page - 1) / page * page + segment->address;
    uint64_t last = (from + block->bytes) / page * page + segment->address;

    if (first >= last)
        return VMM_OK;
    block_leave(block);
    if (!block_trim_to_pages(&block, first, last)) {
        block_join(block);
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
    }
    vmm_status status = segment_unmap(model->setup.driver, segment, first, last - first);
    model->reserved_bytes -= last - first;
    block->mapped = false;
    block = block_settle(block);
    if (status != VMM_OK || block->bytes != segment->bytes)
        return status;
    block_leave(block);
    return place_destroy(model, block);
}

static bool block_has_page(const struct block *block)
{
    uint64_t page = block->segment->page_bytes;
    uint64_t from = block->address - block->segment->address;
    return (from + page - 1) / page < (from + block->bytes) / page;
}

/* Unmapping cuts new free blocks, but none with a whole page: so each is met at most twice. */
static vmm_status pool_flush(struct pytorch_model *model, struct pool *pool, bool *waited)
{
    uint64_t bytes = 0;
    uint64_t address = 0;
    struct ordered_node *node;

    while ((node = ordered_at_least(&pool->free, bytes, address)) != NULL) {
        struct block *block = block_of(node);
        bytes = block->bytes;
        address = block->address + 1;
        if (!block_has_page(block))
            continue;
        vmm_status status = VMM_OK;
        if (!*waited)
            status = vmm__driver_device_wait(model->setup.driver);
        if (status == VMM_OK)
            status = block_unmap(model, block);
        if (status != VMM_OK)
            return status;
        *waited = true;
    }
    return VMM_OK;
}

static vmm_status pools_flush(struct pytorch_model *model)
{
    bool waited = false;

    for (uint32_t i = 0; i < model->setup.stream_count * 2; i++) {
        vmm_status status = pool_flush(model, &model->pools[i], &waited);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}

static uint64_t block_reach(const struct block *block)
{
    const struct block *next = block->next;
    return block->bytes + (next != NULL && !next->mapped ? next->bytes : 0);
}

/* Best fit, where a block at the growing end counts as large as it may become. */
static struct block *pool_search(struct pool *pool, uint64_t bytes)
{
    struct ordered_node *node = ordered_at_least(&pool->free, bytes, 0);

    while (node != NULL) {
        struct ordered_node *next = ordered_after(&pool->free, node);
        if (next == NULL || block_reach(block_of(next)) >= block_reach(block_of(node)))
            break;
        node = next;
    }
    return block_of(node);
}

/* The pool is not searched again after the flush: neither does the original. */
static vmm_status pool_take(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                            struct block **out)
{
    *out = pool_search(pool, bytes);
    if (*out != NULL) {
        block_leave(*out);
        return VMM_OK;
    }
    vmm_status status = pool_grow(model, pool, bytes, out);
    if (status != VMM_ERR_DEVICE_OOM)
        return status;
    status = pools_flush(model);
    if (status != VMM_OK)
        return status;
    return pool_grow(model, pool, bytes, out);
}

static vmm_status expandable_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                                   struct policy_place *out)
{
    struct pytorch_model *model = model_of(policy);
    uint64_t rounded = pytorch_model_round(bytes);
    struct block *block;

    vmm_status status =
        pool_take(model, pytorch_model_pool(model, rounded, stream), rounded, &block);
    if (status != VMM_OK)
        return status;
    if (block->bytes > rounded && !block_split(block, rounded)) {
        block_join(block);
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
    }
    block->allocated = true;
    *out = (struct policy_place){ .address = block->address, .token = block };
    return VMM_OK;
}

/* As emptying the original's cache does: it waits for the device if there is anything to unmap. */
static vmm_status expandable_trim(struct policy *policy)
{
    return pools_flush(model_of(policy));
}

static void expandable_explain(struct policy *policy, uint64_t bytes, uint32_t stream, char *text,
                               size_t capacity)
{
    pytorch_model_explain(model_of(policy), pytorch_model_round(bytes), stream, text, capacity);
}

/* Segments in which nothing is mapped: one that never grew stays behind until the end. */
static vmm_status places_destroy(struct pytorch_model *model, struct pool *pool)
{
    struct ordered_node *node;
    vmm_status first = VMM_OK;

    while ((node = ordered_first(&pool->unmapped)) != NULL) {
        block_leave(block_of(node));
        vmm_status status = place_destroy(model, block_of(node));
        if (first == VMM_OK)
            first = status;
    }
    return first;
}

static vmm_status expandable_close(struct policy *policy)
{
    struct pytorch_model *model = model_of(policy);
    vmm_status first = pools_flush(model);

    for (uint32_t i = 0; first == VMM_OK && i < model->setup.stream_count * 2; i++)
        first = places_destroy(model, &model->pools[i]);
    pytorch_model_close(model);
    return first;
}

static vmm_status expandable_open(const struct policy_setup *setup, struct policy **out)
{
    return pytorch_model_open(setup, policy_expandable(), sizeof(struct pytorch_model), out);
}

const struct policy_ops *policy_expandable(void)
{
    static const struct policy_ops ops = {
        .name = "expandable",
        .open = expandable_open,
        .alloc = expandable_alloc,
        .free = pytorch_model_free,
        .trim = expandable_trim,
        .explain = expandable_explain,
        .close = expandable_close,
    };
    return &ops;
}
