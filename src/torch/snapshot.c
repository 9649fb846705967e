/*
 * Pictures of a device: a walk over its memory, put together to segments that blocks tile, and a copy of its
 * history from the same moment.
 *
 * Owns: the pictures that were taken and not dropped.
 * May be called by: nobody within; they are the library's interface. Locks: the history's `order` while one
 * is taken. The events are those up to the walk's end, while which the cache's memory cannot change.
 */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "torch/plugin.h"

#include <stddef.h>

enum { CAPACITY_FIRST = 64 };

/* An array that grows. */
struct row {
    void *items;
    uint64_t item_bytes;
    uint64_t capacity;
    uint64_t count;
};

struct picture {
    vmm_torch_snapshot snapshot; /* what the program sees of it */
    struct row segments;
    struct row blocks;
    struct history_copy history;
    struct torch_device *device;
    uint64_t history_end; /* events before it are the picture's */
    uint64_t cursor;      /* blocks have come so far in the last segment */
    vmm_status status;
};

/* NULL, and the picture's status says so, without host memory. */
static void *row_add(struct picture *picture, struct row *row)
{
    if (row->count == row->capacity) {
        uint64_t capacity = vmm__max(CAPACITY_FIRST, row->capacity * 2);
        void *items = vmm__host_resize(row->items, row->capacity * row->item_bytes,
                                       capacity * row->item_bytes);
        if (items == NULL) {
            picture->status = vmm__error(VMM_ERR_HOST_OOM, "no host memory for a snapshot");
            return NULL;
        }
        row->items = items;
        row->capacity = capacity;
    }
    return (unsigned char *)row->items + row->count++ * row->item_bytes;
}

static vmm_torch_segment *segment_last(const struct picture *picture)
{
    vmm_torch_segment *segments = picture->segments.items;
    return picture->segments.count == 0 ? NULL : &segments[picture->segments.count - 1];
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* A free block grows by what is free behind it. */
static bool free_block_extend(struct picture *picture, const vmm_torch_segment *segment,
                              const vmm_torch_block *block)
{
    vmm_torch_block *blocks = picture->blocks.items;
    if (segment->block_count == 0 || block->state != VMM_ITEM_FREE ||
        blocks[picture->blocks.count - 1].state != VMM_ITEM_FREE)
        return false;
    blocks[picture->blocks.count - 1].bytes += block->bytes;
    return true;
}

static void block_put(struct picture *picture, const vmm_torch_block *block)
{
    vmm_torch_segment *segment = segment_last(picture);
    picture->cursor = block->address + block->bytes;
    if (free_block_extend(picture, segment, block))
        return;
    vmm_torch_block *slot = row_add(picture, &picture->blocks);
    if (slot == NULL)
        return;
    *slot = *block;
    segment->block_count++;
}

/* What no block has said anything of is free: the ends of slabs. */
static void gap_fill(struct picture *picture, uint64_t end)
{
    if (picture->cursor < end)
        block_put(picture, &(vmm_torch_block){ .address = picture->cursor,
                                               .bytes = end - picture->cursor,
                                               .state = VMM_ITEM_FREE });
}

/* What the history knows of a block that is handed out, or freed and still used. */
static void known_add(struct picture *picture, const vmm_item *item, vmm_torch_block *block)
{
    if (item->state != VMM_ITEM_LIVE && item->state != VMM_ITEM_WAITING)
        return;
    struct known known;
    bool is_known = vmm__history_recall(&picture->device->history, item->address, &known);
    bool is_live = item->state == VMM_ITEM_LIVE;
    if (is_live && is_known && known.requested_bytes != item->requested_bytes)
        is_known = false; /* another block that was there when recording began */
    if (is_known) {
        block->requested_bytes = known.requested_bytes;
        block->stack = known.stack;
    } else if (is_live) {
        vmm__record_found(picture->device, item);
    } else {
        block->requested_bytes = item->bytes;
    }
}

static void block_add(struct picture *picture, const vmm_item *item)
{
    if (segment_last(picture) == NULL)
        return;
    vmm_torch_block block = { .address = item->address,
                              .bytes = item->bytes,
                              .requested_bytes = item->requested_bytes,
                              .state = (int32_t)item->state };
    known_add(picture, item, &block);
    gap_fill(picture, item->address);
    block_put(picture, &block);
}

/* ---- Segments ------------------------------------------------------------------------------- */

static bool segment_goes_on(const vmm_torch_segment *segment, const vmm_item *item)
{
    return segment != NULL && segment->address + segment->bytes == item->address &&
           segment->stream == (uint64_t)(uintptr_t)item->stream &&
           segment->pool.first == item->pool.first && segment->pool.second == item->pool.second &&
           segment->is_small == item->is_small;
}

static void segment_end(struct picture *picture)
{
    const vmm_torch_segment *segment = segment_last(picture);
    if (segment != NULL)
        gap_fill(picture, segment->address + segment->bytes);
}

static void segment_add(struct picture *picture, const vmm_item *item)
{
    vmm_torch_segment *last = segment_last(picture);
    if (segment_goes_on(last, item)) {
        last->bytes += item->bytes;
        return;
    }
    segment_end(picture);
    vmm_torch_segment *segment = row_add(picture, &picture->segments);
    if (segment == NULL)
        return;
    *segment = (vmm_torch_segment){ .address = item->address,
                                    .bytes = item->bytes,
                                    .stream = (uint64_t)(uintptr_t)item->stream,
                                    .pool = item->pool,
                                    .first_block = picture->blocks.count,
                                    .is_small = item->is_small,
                                    .device = picture->device->ordinal };
    picture->cursor = item->address;
}

/* ---- Taking and dropping -------------------------------------------------------------------- */

static int item_visit(void *context, const vmm_item *item)
{
    struct picture *picture = context;
    bool is_memory = item->kind == VMM_ITEM_CHUNK || item->kind == VMM_ITEM_TWIN;
    if (item->kind == VMM_ITEM_BLOCK)
        block_add(picture, item);
    else if (is_memory && item->state != VMM_ITEM_WAITING) /* what is in limbo is gone */
        segment_add(picture, item);
    picture->history_end = vmm__history_length(&picture->device->history);
    return picture->status != VMM_OK;
}

static vmm_status picture_take_locked(struct picture *picture)
{
    struct torch_device *device = picture->device;
    vmm_torch_event event = { .action = VMM_TORCH_SNAPSHOT, .device = device->ordinal };
    (void)vmm__history_push(&device->history, &event);
    picture->history_end = vmm__history_length(&device->history);
    vmm_status status = vmm_walk(vmm__torch_cache_of(device), item_visit, picture);
    if (status != VMM_OK || picture->status != VMM_OK)
        return status != VMM_OK ? status : picture->status;
    segment_end(picture);
    return vmm__history_copy(&device->history, picture->history_end, &picture->history);
}

static vmm_status picture_take(struct picture *picture)
{
    vmm__lock_take(&picture->device->history.order);
    vmm_status status = picture_take_locked(picture);
    vmm__lock_drop(&picture->device->history.order);
    return status != VMM_OK ? status : picture->status;
}

static void picture_show(struct picture *picture)
{
    picture->snapshot.segments = picture->segments.items;
    picture->snapshot.segment_count = picture->segments.count;
    picture->snapshot.blocks = picture->blocks.items;
    picture->snapshot.block_count = picture->blocks.count;
    picture->snapshot.events = picture->history.events;
    picture->snapshot.event_count = picture->history.count;
    picture->snapshot.lost_events = picture->history.lost;
}

vmm_status vmm_torch_snapshot_take(int device, const vmm_torch_snapshot **out)
{
    if (out == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_snapshot_take: out is NULL");
    struct picture *picture = vmm__host_alloc(1, sizeof *picture);
    if (picture == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for a snapshot");
    picture->snapshot.struct_size = sizeof picture->snapshot;
    picture->segments.item_bytes = sizeof(vmm_torch_segment);
    picture->blocks.item_bytes = sizeof(vmm_torch_block);
    picture->device = vmm__torch_find(device);
    vmm_status status = picture->device == NULL ? VMM_OK : picture_take(picture);
    picture_show(picture);
    if (status == VMM_OK)
        *out = &picture->snapshot;
    else
        vmm_torch_snapshot_drop(&picture->snapshot);
    return status;
}

static void row_drop(struct row *row)
{
    vmm__host_free(row->items, row->capacity * row->item_bytes);
}

void vmm_torch_snapshot_drop(const vmm_torch_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    struct picture *picture = (struct picture *)(uintptr_t)snapshot; /* its first field */
    row_drop(&picture->segments);
    row_drop(&picture->blocks);
    vmm__host_free(picture->history.events,
                   picture->history.capacity * sizeof *picture->history.events);
    vmm__host_free(picture, sizeof *picture);
}
