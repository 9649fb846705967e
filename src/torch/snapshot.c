/*
 * Snapshots of a device: walks its memory, joins the chunks to segments that blocks tile, and copies the history
 * of the same moment.
 *
 * Owns: the snapshots until vmm_torch_snapshot_drop().
 * Called by: the Python package and the provider. Locks: holds the history's `order` while it takes a snapshot. The
 * copied events end where the walk ends, because the cache's memory cannot change during a walk.
 */
#include "base/error.h"
#include "base/hostmem.h"
#include "torch/record.h"

#include <stddef.h>

/* An array that grows. */
struct array {
    void *items;
    uint64_t item_bytes;
    uint64_t capacity;
    uint64_t count;
};

struct builder {
    vmm_torch_snapshot snapshot; /* the part that the program sees */
    struct array segments;
    struct array blocks;
    struct history_copy history;
    struct torch_device *device;
    uint64_t history_end; /* the snapshot has the events before this number */
    uint64_t cursor;      /* end of the blocks added to the last segment */
    bool is_view;         /* the last segment is a block in a view */
    vmm_status status;
};

/* Returns a new item of the array. If host memory runs out, sets the status and returns NULL. */
static void *array_add(struct builder *builder, struct array *array)
{
    if (!vmm__host_array_grow(&array->items, &array->capacity, array->count, array->item_bytes)) {
        builder->status = vmm__error(VMM_ERR_HOST_OOM, "no host memory for a snapshot");
        return NULL;
    }
    return (unsigned char *)array->items + array->count++ * array->item_bytes;
}

static vmm_torch_segment *segment_last(const struct builder *builder)
{
    vmm_torch_segment *segments = builder->segments.items;
    return builder->segments.count == 0 ? NULL : &segments[builder->segments.count - 1];
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* Adds a free block to the free block before it, if there is one. */
static bool free_block_extend(struct builder *builder, const vmm_torch_segment *segment,
                              const vmm_torch_block *block)
{
    vmm_torch_block *blocks = builder->blocks.items;
    if (segment->block_count == 0 || block->state != VMM_ITEM_FREE ||
        blocks[builder->blocks.count - 1].state != VMM_ITEM_FREE)
        return false;
    blocks[builder->blocks.count - 1].bytes += block->bytes;
    return true;
}

static void block_append(struct builder *builder, const vmm_torch_block *block)
{
    vmm_torch_segment *segment = segment_last(builder);
    builder->cursor = block->address + block->bytes;
    if (free_block_extend(builder, segment, block))
        return;
    vmm_torch_block *slot = array_add(builder, &builder->blocks);
    if (slot == NULL)
        return;
    *slot = *block;
    segment->block_count++;
}

/* Adds the memory before `end` that no block covers, such as the end of a slab, as a free block. */
static void gap_fill(struct builder *builder, uint64_t end)
{
    if (builder->cursor < end)
        block_append(builder, &(vmm_torch_block){ .address = builder->cursor,
                                                  .bytes = end - builder->cursor,
                                                  .state = VMM_ITEM_FREE });
}

/* Adds what the live map has of a block that is live, or freed and still used by other streams. */
static void history_add(struct builder *builder, const vmm_item *item, vmm_torch_block *block)
{
    if (item->state != VMM_ITEM_LIVE && item->state != VMM_ITEM_WAITING)
        return;
    struct live_block known;
    bool is_known = vmm__history_walk_meet(&builder->device->history, item->address, &known);
    bool is_live = item->state == VMM_ITEM_LIVE;
    if (is_live && is_known && known.requested_bytes != item->requested_bytes)
        is_known =
            false; /* the entry is of an earlier block that was live when recording started */
    if (is_known) {
        block->requested_bytes = known.requested_bytes;
        block->stack = known.stack;
    } else if (is_live) {
        vmm__record_found(builder->device, item);
    } else {
        block->requested_bytes = item->bytes;
    }
}

static void block_add(struct builder *builder, const vmm_item *item)
{
    if (segment_last(builder) == NULL)
        return;
    vmm_torch_block block = { .address = item->address,
                              .bytes = item->bytes,
                              .requested_bytes = item->requested_bytes,
                              .state = (int32_t)item->state };
    history_add(builder, item, &block);
    gap_fill(builder, item->address);
    block_append(builder, &block);
}

/* ---- Segments ------------------------------------------------------------------------------- */

/* A block in a view is a segment of its own. */
static bool segment_continues(const struct builder *builder, const vmm_item *item)
{
    const vmm_torch_segment *segment = segment_last(builder);
    return segment != NULL && !item->is_view && !builder->is_view &&
           segment->address + segment->bytes == item->address &&
           segment->stream == (uint64_t)(uintptr_t)item->stream &&
           segment->pool.first == item->pool_id.first &&
           segment->pool.second == item->pool_id.second && segment->is_small == item->is_small;
}

static void segment_end(struct builder *builder)
{
    const vmm_torch_segment *segment = segment_last(builder);
    if (segment != NULL)
        gap_fill(builder, segment->address + segment->bytes);
}

static void segment_add(struct builder *builder, const vmm_item *item)
{
    if (segment_continues(builder, item)) {
        segment_last(builder)->bytes += item->bytes;
        return;
    }
    segment_end(builder);
    vmm_torch_segment *segment = array_add(builder, &builder->segments);
    if (segment == NULL)
        return;
    *segment = (vmm_torch_segment){ .address = item->address,
                                    .bytes = item->bytes,
                                    .stream = (uint64_t)(uintptr_t)item->stream,
                                    .pool = item->pool_id,
                                    .first_block = builder->blocks.count,
                                    .is_small = item->is_small,
                                    .device = builder->device->ordinal };
    builder->cursor = item->address;
    builder->is_view = item->is_view != 0;
}

/* ---- Taking and dropping a snapshot --------------------------------------------------------- */

static int item_visit(void *context, const vmm_item *item)
{
    struct builder *builder = context;
    vmm_item block = *item;
    bool is_segment = item->kind == VMM_ITEM_CHUNK &&
                      item->state != VMM_ITEM_WAITING; /* memory in limbo is unmapped */
    if (is_segment && !item->is_imported)              /* as in vmm_torch_stats */
        segment_add(builder, item);
    if (vmm__record_is_block(&block))
        block_add(builder, &block);
    builder->history_end = vmm__history_length(&builder->device->history);
    return builder->status != VMM_OK;
}

/* Its own event comes last: the next snapshot has it. */
static vmm_status builder_fill_locked(struct builder *builder, uint64_t stack)
{
    VMM_ASSERT_HELD(&builder->device->history.order);
    struct torch_device *device = builder->device;
    vmm_torch_event event = { .stack = stack,
                              .action = VMM_TORCH_SNAPSHOT,
                              .device = device->ordinal };
    vmm_status status;
    do { /* an empty cache shows no item, and so no moment at which the events end */
        builder->history_end = vmm__history_walk_begin(&device->history);
        status = vmm_walk(vmm__torch_cache_of(device), item_visit, builder);
    } while (builder->segments.count == 0 &&
             builder->history_end != vmm__history_length(&device->history));
    if (status != VMM_OK || builder->status != VMM_OK)
        return status != VMM_OK ? status : builder->status;
    vmm__history_walk_end(&device->history);
    segment_end(builder);
    status = vmm__history_copy(&device->history, builder->history_end, &builder->history);
    (void)vmm__history_push(&device->history, &event);
    return status;
}

static vmm_status builder_fill(struct builder *builder)
{
    uint64_t stack = vmm__record_stack();
    vmm__mutex_lock(&builder->device->history.order);
    vmm_status status = builder_fill_locked(builder, stack);
    vmm__mutex_unlock(&builder->device->history.order);
    vmm__history_stack_drop(stack);
    return status != VMM_OK ? status : builder->status;
}

static void builder_publish(struct builder *builder)
{
    builder->snapshot.segments = builder->segments.items;
    builder->snapshot.segment_count = builder->segments.count;
    builder->snapshot.blocks = builder->blocks.items;
    builder->snapshot.block_count = builder->blocks.count;
    builder->snapshot.events = builder->history.events;
    builder->snapshot.event_count = builder->history.count;
    builder->snapshot.lost_events = builder->history.lost;
}

vmm_status vmm_torch_snapshot_take(int device, const vmm_torch_snapshot **out)
{
    if (out == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_snapshot_take: out is NULL");
    struct builder *builder = vmm__host_alloc(1, sizeof *builder);
    if (builder == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for a snapshot");
    builder->snapshot.struct_size = sizeof builder->snapshot;
    builder->segments.item_bytes = sizeof(vmm_torch_segment);
    builder->blocks.item_bytes = sizeof(vmm_torch_block);
    builder->device = vmm__torch_find(device);
    vmm_status status = builder->device == NULL ? VMM_OK : builder_fill(builder);
    builder_publish(builder);
    if (status == VMM_OK)
        *out = &builder->snapshot;
    else
        vmm_torch_snapshot_drop(&builder->snapshot);
    return status;
}

static void array_free(struct array *array)
{
    vmm__host_free(array->items, array->capacity * array->item_bytes);
}

void vmm_torch_snapshot_drop(const vmm_torch_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    struct builder *builder = (struct builder *)(uintptr_t)snapshot; /* its first field */
    array_free(&builder->segments);
    array_free(&builder->blocks);
    vmm__host_free(builder->history.events,
                   builder->history.capacity * sizeof *builder->history.events);
    vmm__host_free(builder, sizeof *builder);
}
