/* The reference model: see model.h. */
#include "model.h"

#include <string.h>

void model_init(struct model *model, uint64_t limit_bytes, unsigned worker)
{
    memset(model, 0, sizeof *model);
    model->limit_bytes = limit_bytes;
    model->ceiling_bytes = limit_bytes;
    for (unsigned i = 0; i < MODEL_POOLS; i++)
        model->pools[i].id = (vmm_pool_id){ .first = i, .second = 2 * worker + (i % 2 == 0) };
}

/* ---- Figures --------------------------------------------------------------------------------- */

static void stat_add(struct model_stat *figure, uint64_t amount)
{
    figure->current += amount;
    figure->allocated += amount;
    if (figure->current > figure->peak)
        figure->peak = figure->current;
}

static void stat_take(struct model_stat *figure, uint64_t amount)
{
    figure->current -= amount;
    figure->freed += amount;
}

void model_peaks_reset(struct model *model)
{
    model->requested_bytes.peak = model->requested_bytes.current;
    model->allocated_bytes.peak = model->allocated_bytes.current;
    model->allocations.peak = model->allocations.current;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* How many live blocks start at or before an address. */
static unsigned rank_find(const struct model *model, uint64_t address)
{
    unsigned low = 0;
    unsigned high = model->live;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (model->blocks[model->order[middle]].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct model_block *model_overlap(const struct model *model, uint64_t address, uint64_t bytes)
{
    unsigned rank = rank_find(model, address);
    if (rank > 0) {
        const struct model_block *before = &model->blocks[model->order[rank - 1]];
        if (before->address + before->block_bytes > address)
            return before;
    }
    if (rank < model->live) {
        const struct model_block *behind = &model->blocks[model->order[rank]];
        if (address + bytes > behind->address)
            return behind;
    }
    return NULL;
}

struct model_block *model_find(struct model *model, uint64_t address)
{
    unsigned rank = rank_find(model, address);
    if (rank == 0)
        return NULL;
    struct model_block *block = &model->blocks[model->order[rank - 1]];
    return address - block->address < block->block_bytes ? block : NULL;
}

struct model_block *model_start(struct model *model, uint64_t address)
{
    struct model_block *block = model_find(model, address);
    return block != NULL && block->address == address ? block : NULL;
}

static void order_add(struct model *model, const struct model_block *block)
{
    unsigned rank = rank_find(model, block->address);
    memmove(&model->order[rank + 1], &model->order[rank], model->live - rank);
    model->order[rank] = (uint8_t)(block - model->blocks);
    model->live++;
}

static void order_remove(struct model *model, const struct model_block *block)
{
    unsigned rank = rank_find(model, block->address) - 1;
    model->live--;
    memmove(&model->order[rank], &model->order[rank + 1], model->live - rank);
}

uint64_t model_requested_bytes(const struct model_block *block)
{
    return block->unit_bytes != 0 ? model_committed_bytes(block) : block->requested_bytes;
}

uint64_t model_allocated_bytes(const struct model_block *block)
{
    return block->unit_bytes != 0 ? model_committed_bytes(block) : block->block_bytes;
}

static void stats_add(struct model *model, const struct model_block *block)
{
    stat_add(&model->requested_bytes, model_requested_bytes(block));
    stat_add(&model->allocated_bytes, model_allocated_bytes(block));
    stat_add(&model->allocations, 1);
}

static void stats_take(struct model *model, const struct model_block *block)
{
    stat_take(&model->requested_bytes, model_requested_bytes(block));
    stat_take(&model->allocated_bytes, model_allocated_bytes(block));
    stat_take(&model->allocations, 1);
}

static void stat_change(struct model_stat *figure, uint64_t before, uint64_t now)
{
    if (now > before)
        stat_add(figure, now - before);
    else
        stat_take(figure, before - now);
}

/* The counted bytes of a live block have changed. */
static void stats_change(struct model *model, const struct model_block *before,
                         const struct model_block *now)
{
    stat_change(&model->requested_bytes, model_requested_bytes(before), model_requested_bytes(now));
    stat_change(&model->allocated_bytes, model_allocated_bytes(before), model_allocated_bytes(now));
    if (now->is_pinned)
        model->unmovable_bytes += model_allocated_bytes(now) - model_allocated_bytes(before);
}

void model_add(struct model *model, unsigned slot, const struct model_block *block)
{
    model->blocks[slot] = *block;
    model->blocks[slot].is_live = true;
    order_add(model, &model->blocks[slot]);
    if (block->is_imported)
        return;
    stats_add(model, block);
    if (block->tenant != 0)
        model->tenants[block->tenant - 1].live++;
}

void model_remove(struct model *model, struct model_block *block)
{
    model_pin(model, block, false);
    order_remove(model, block);
    block->is_live = false;
    if (block->is_imported)
        return;
    if (block->tenant != 0)
        model->tenants[block->tenant - 1].live--;
    stats_take(model, block);
}

void model_commit(struct model *model, struct model_block *block, uint64_t units)
{
    struct model_block before = *block;
    block->filled &= units & block->committed;
    block->committed = units;
    stats_change(model, &before, block);
}

void model_replace(struct model *model, struct model_block *block, const struct model_block *next,
                   bool is_copy)
{
    struct model_block before = *block;
    order_remove(model, block);
    *block = *next;
    if (block->unit_bytes != 0) {
        block->committed &= model_units(block->block_bytes / block->unit_bytes);
        block->filled &= block->committed;
    }
    order_add(model, block);
    if (is_copy) {
        stats_add(model, block);
        stats_take(model, &before);
    } else {
        stats_change(model, &before, block);
    }
}

const struct model_block *model_overlap_other(const struct model *model,
                                              const struct model_block *block)
{
    unsigned rank = rank_find(model, block->address);
    const struct model_block *before = rank < 2 ? NULL : &model->blocks[model->order[rank - 2]];
    const struct model_block *behind =
        rank == model->live ? NULL : &model->blocks[model->order[rank]];
    if (before != NULL && before->address + before->block_bytes > block->address)
        return before;
    bool is_long = behind != NULL && block->address + block->block_bytes > behind->address;
    return is_long ? behind : NULL;
}

/* Imported memory counts in no figure; the bytes of an exported block are unmovable anyway. */
void model_pin(struct model *model, struct model_block *block, bool is_pinned)
{
    if (block->is_pinned == is_pinned)
        return;
    block->is_pinned = is_pinned;
    if (block->share != 0)
        return;
    if (is_pinned)
        model->unmovable_bytes += model_allocated_bytes(block);
    else
        model->unmovable_bytes -= model_allocated_bytes(block);
}

void model_export(struct model *model, struct model_block *block, unsigned share)
{
    block->share = share;
    model->unmovable_bytes += block->is_pinned ? 0 : block->block_bytes;
}

void model_export_end(struct model *model, unsigned share, uint64_t block_bytes)
{
    uint64_t pinned_bytes = 0;
    for (unsigned i = 0; i < model->live; i++) {
        struct model_block *block = &model->blocks[model->order[i]];
        if (block->share != share)
            continue;
        pinned_bytes = block->is_pinned ? block->block_bytes : 0;
        block->share = 0;
    }
    model->unmovable_bytes -= block_bytes - pinned_bytes;
}

/* ---- Graph pools --------------------------------------------------------------------------- */

unsigned model_pool_of(const struct model *model, unsigned stream)
{
    unsigned latest = MODEL_POOLS;
    for (unsigned i = 0; i < MODEL_POOLS; i++) {
        const struct model_pool *pool = &model->pools[i];
        bool passes = pool->streams == 0 || (pool->streams >> stream & 1) != 0;
        if (pool->begun == 0 || !passes)
            continue;
        if (latest == MODEL_POOLS || pool->begun > model->pools[latest].begun)
            latest = i;
    }
    return latest != MODEL_POOLS && model->pools[latest].uses > 0 ? latest : MODEL_POOLS;
}

void model_pool_ended(struct model *model, unsigned pool)
{
    for (unsigned i = 0; i < OPERATION_SLOTS; i++) {
        if (model->blocks[i].pool == pool)
            model->blocks[i].is_of_pool_surely = false;
    }
}

bool model_is_divided(const struct model *model)
{
    bool is_divided = false;
    for (unsigned i = 0; i < MODEL_TENANTS; i++) {
        const struct model_tenant *tenant = &model->tenants[i];
        is_divided = is_divided || tenant->limit_bytes != 0 || tenant->least_bytes != 0 ||
                     tenant->uses > 0 || tenant->has_own_chunks || tenant->has_source;
    }
    return is_divided;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

bool model_reserved(struct model *model, uint64_t bytes)
{
    bool is_right = model->ceiling_bytes == 0 || bytes <= model->ceiling_bytes;
    if (model->limit_bytes != 0 && bytes < model->ceiling_bytes)
        model->ceiling_bytes = bytes > model->limit_bytes ? bytes : model->limit_bytes;
    return is_right;
}

void model_limit(struct model *model, uint64_t limit_bytes, uint64_t reserved_bytes)
{
    bool is_passed = limit_bytes != 0 && reserved_bytes > limit_bytes;
    model->limit_bytes = limit_bytes;
    model->ceiling_bytes = is_passed ? reserved_bytes : limit_bytes;
}
