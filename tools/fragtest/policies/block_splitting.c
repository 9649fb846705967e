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
 * Owns: nothing. Rules common to both policies: pytorch_model.h. Locks: none (one thread).
 */
#include "fragtest/policies/pytorch_model.h"

#include "base/arith.h"
#include "base/error.h"

static bool block_is_segment(const struct block *block)
{
    return block->previous == NULL && block->next == NULL;
}

static vmm_status segment_give_back(struct pytorch_model *model, struct block *block)
{
    struct driver *driver = model->setup.driver;
    struct segment *segment = block->segment;

    block_leave(block);
    block_destroy(block);
    model->reserved_bytes -= segment->bytes;
    vmm_status unmapped = segment_unmap(driver, segment, segment->address, segment->bytes);
    vmm_status freed = segment_destroy(driver, segment);
    return unmapped != VMM_OK ? unmapped : freed;
}

/* The one block of a segment that is mapped, at the lowest place so far. */
static vmm_status segment_open(struct pytorch_model *model, struct pool *pool,
                               struct segment *segment, struct block **out)
{
    struct driver *driver = model->setup.driver;

    vmm_status status = segment_map(driver, segment, segment->address, segment->bytes);
    if (status != VMM_OK)
        return status;
    segment->place = model->lowest_place - segment->bytes;
    *out = block_create(pool, segment, segment->place, segment->bytes, true);
    if (*out != NULL)
        return VMM_OK;
    (void)segment_unmap(driver, segment, segment->address, segment->bytes);
    return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a block");
}

static vmm_status segment_grow(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                               struct block **out)
{
    struct driver *driver = model->setup.driver;
    vmm_status status;

    struct segment *segment = segment_create(
        driver, vmm__align_up(pytorch_model_segment_bytes(bytes), driver->granule_bytes), 1,
        &status);
    if (segment == NULL)
        return status;
    status = segment_open(model, pool, segment, out);
    if (status != VMM_OK) {
        (void)segment_destroy(driver, segment);
        return status;
    }
    block_leave(*out);
    model->lowest_place = segment->place;
    model->reserved_bytes += segment->bytes;
    return VMM_OK;
}

static struct block *best_fit(struct pool *pool, uint64_t bytes)
{
    return block_of(ordered_at_least(&pool->free, bytes, 0));
}

static bool block_should_split(const struct block *block, uint64_t bytes)
{
    uint64_t rest = block->bytes - bytes;
    return block->pool->small ? rest >= BLOCK_UNIT_BYTES : rest > SMALL_MAX_BYTES;
}

static const struct pytorch_rules rules = {
    .search = best_fit,
    .grow = segment_grow,
    .splits = block_should_split,
    .is_idle = block_is_segment,
    .give_back = segment_give_back,
    .needed = pytorch_model_segment_bytes,
};

const struct policy_ops policy_block_splitting = { .name = "block-splitting",
                                                   .rules = &rules,
                                                   PYTORCH_MODEL_OPS };
