/*
 * PyTorch's expandable segments: for each stream and pool one reservation as large as 9/8 of the
 * device, backed page by page (2 MiB for the small pool, 20 MiB for the large one).
 *
 * A miss grows the first run of free and unmapped addresses that is long enough, mapping only what
 * is missing: a handle and a map for each page, one set access for each stretch. Under pressure all
 * whole free pages of all streams go back, after one wait for the device.
 * Owns: nothing. Rules common to both policies: pytorch_model.h.
 * Invariants: an unmapped block begins and ends at page boundaries; pages under a mapped block have
 * a handle. Locks: none (one thread).
 */
#include "fragtest/policies/pytorch_model.h"

#include "base/arith.h"
#include "base/error.h"

/* A fresh segment, all unmapped, its one block in the pool. */
static vmm_status place_create(struct pytorch_model *model, struct pool *pool, struct block **out)
{
    uint64_t page_bytes = vmm__align_up(pool->small ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES,
                                        model->setup.driver->granule_bytes);
    uint64_t total_bytes = model->setup.driver->total_bytes / 8 * 9;
    vmm_status status;
    struct segment *segment = segment_create(model->setup.driver, page_bytes,
                                             (total_bytes + page_bytes - 1) / page_bytes, &status);

    if (segment == NULL)
        return status;
    *out = block_create(pool, segment, segment->address, segment->bytes, false);
    if (*out != NULL)
        return VMM_OK;
    (void)segment_destroy(model->setup.driver, segment);
    return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
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
    return block_close(model, block);
}

static bool block_has_page(const struct block *block)
{
    uint64_t page = block->segment->page_bytes;
    uint64_t from = block->address - block->segment->address;
    return (from + page - 1) / page < (from + block->bytes) / page;
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

static bool block_has_rest(const struct block *block, uint64_t bytes)
{
    return block->bytes > bytes;
}

static uint64_t same_bytes(uint64_t bytes)
{
    return bytes;
}

static const struct pytorch_rules rules = {
    .search = pool_search,
    .grow = pool_grow,
    .splits = block_has_rest,
    .is_idle = block_has_page,
    .give_back = block_unmap,
    .needed = same_bytes,
};

const struct policy_ops policy_expandable = { .name = "expandable",
                                              .rules = &rules,
                                              PYTORCH_MODEL_OPS };
