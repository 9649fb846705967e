/* Replays histories backwards: see playback.h. */
#include "torch/playback.h"
#include "support/ranges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A block. */
struct item {
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint64_t stack;
    int32_t state;
};

/* Items by ascending address. */
struct table {
    struct item *items;
    size_t count;
    size_t capacity;
};

struct play {
    struct ranges mapped;
    struct table blocks;
    const vmm_torch_event *event;
    uint64_t number;
};

/* ---- Sorted arrays -------------------------------------------------------------------------- */

/* The index of the first item at or above an address. */
static size_t table_index(const struct table *table, uint64_t address)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table->items[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct item *table_find(const struct table *table, uint64_t address)
{
    size_t index = table_index(table, address);
    bool found = index < table->count && table->items[index].address == address;
    return found ? &table->items[index] : NULL;
}

static void table_add(struct table *table, const struct item *item)
{
    if (table->count == table->capacity) {
        table->capacity = table->capacity == 0 ? 256 : table->capacity * 2;
        table->items = realloc(table->items, table->capacity * sizeof *table->items);
        assert_non_null(table->items);
    }
    size_t index = table_index(table, item->address);
    memmove(&table->items[index + 1], &table->items[index], (table->count - index) * sizeof *item);
    table->items[index] = *item;
    table->count++;
}

static void table_remove(struct table *table, const struct item *item)
{
    size_t index = (size_t)(item - table->items);
    memmove(&table->items[index], &table->items[index + 1],
            (table->count - index - 1) * sizeof *item);
    table->count--;
}

/* Whether any item overlaps a range. */
static bool table_overlaps(const struct table *table, uint64_t address, uint64_t bytes)
{
    size_t index = table_index(table, address);
    if (index < table->count && table->items[index].address < address + bytes)
        return true;
    return index > 0 && table->items[index - 1].address + table->items[index - 1].bytes > address;
}

/* ---- The snapshot --------------------------------------------------------------------------- */

/* A range of the memory of a stream, which is a number here. */
static struct owned_range range_of(uint64_t address, uint64_t bytes, uint64_t stream)
{
    return (struct owned_range){ .address = address,
                                 .end = address + bytes,
                                 .stream = (vmm_stream)(uintptr_t)stream };
}

static void blocks_read(struct play *play, const vmm_torch_segment *segment,
                        const vmm_torch_block *blocks)
{
    uint64_t cursor = segment->address;
    bool was_free = false;
    for (uint64_t i = 0; i < segment->block_count; i++) {
        const vmm_torch_block *block = &blocks[segment->first_block + i];
        bool is_free = block->state == VMM_ITEM_FREE;
        assert_int_equal(block->address, cursor);
        assert_true(block->bytes > 0);
        assert_true(block->requested_bytes <= block->bytes);
        assert_false(was_free && is_free); /* adjacent free blocks are one block */
        was_free = is_free;
        cursor += block->bytes;
        if (block->state == VMM_ITEM_LIVE || block->state == VMM_ITEM_WAITING)
            table_add(&play->blocks, &(struct item){ .address = block->address,
                                                     .bytes = block->requested_bytes,
                                                     .stream = segment->stream,
                                                     .stack = block->stack,
                                                     .state = block->state });
    }
    assert_int_equal(cursor, segment->address + segment->bytes);
}

static void snapshot_read(struct play *play, const vmm_torch_snapshot *snapshot)
{
    uint64_t end = 0;
    uint64_t blocks = 0;
    for (uint64_t i = 0; i < snapshot->segment_count; i++) {
        const vmm_torch_segment *segment = &snapshot->segments[i];
        assert_true(segment->address >= end);
        assert_int_equal(segment->first_block, blocks);
        assert_true(segment->block_count > 0);
        end = segment->address + segment->bytes;
        blocks += segment->block_count;
        struct owned_range range = range_of(segment->address, segment->bytes, segment->stream);
        assert_true(ranges_add(&play->mapped, &range));
        blocks_read(play, segment, snapshot->blocks);
    }
    assert_int_equal(blocks, snapshot->block_count);
}

/* ---- Events --------------------------------------------------------------------------------- */

static void event_fail(const struct play *play, const char *why)
{
    const vmm_torch_event *event = play->event;
    print_error("event %" PRIu64 ", %s of %" PRIu64 " bytes at 0x%" PRIx64 " for stream %" PRIu64
                ": %s\n",
                play->number, vmm_torch_action_word(event->action), event->bytes, event->address,
                event->stream, why);
    fail();
}

static void event_require(const struct play *play, bool holds, const char *why)
{
    if (!holds)
        event_fail(play, why);
}

/* Requires that the whole range is mapped for the event's stream. */
static void range_require(const struct play *play, uint64_t bytes)
{
    struct owned_range range = range_of(play->event->address, bytes, play->event->stream);
    event_require(play, ranges_contain(&play->mapped, &range),
                  "the memory is not mapped, or belongs to another stream");
}

static void alloc_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    struct item *block = table_find(&play->blocks, event->address);
    event_require(play, block != NULL, "there is no block");
    event_require(play, block->state == VMM_ITEM_LIVE, "the block is not live");
    event_require(play, block->bytes == event->bytes, "the block has another size");
    event_require(play, block->stack == event->stack || block->stack == 0,
                  "the block has another stack");
    range_require(play, event->bytes);
    table_remove(&play->blocks, block);
}

static void free_completed_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    range_require(play, event->bytes);
    event_require(play, !table_overlaps(&play->blocks, event->address, event->bytes),
                  "a block overlaps it");
    table_add(&play->blocks, &(struct item){ .address = event->address,
                                             .bytes = event->bytes,
                                             .stream = event->stream,
                                             .state = VMM_ITEM_WAITING });
}

static void free_requested_undo(struct play *play)
{
    struct item *block = table_find(&play->blocks, play->event->address);
    event_require(play, block != NULL, "there is no block");
    event_require(play, block->state == VMM_ITEM_WAITING, "the block is not freed");
    event_require(play, block->bytes == play->event->bytes, "the block has another size");
    block->state = VMM_ITEM_LIVE;
}

static void segment_map_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    struct owned_range range = range_of(event->address, event->bytes, event->stream);
    event_require(play, !table_overlaps(&play->blocks, event->address, event->bytes),
                  "a block overlaps it");
    event_require(play, ranges_remove(&play->mapped, &range),
                  "the memory is not mapped, or belongs to another stream");
}

static void segment_unmap_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    struct owned_range range = range_of(event->address, event->bytes, event->stream);
    event_require(play, ranges_add(&play->mapped, &range), "the memory is mapped already");
}

static void event_undo(struct play *play)
{
    switch ((vmm_torch_action)play->event->action) {
    case VMM_TORCH_ALLOC:
        alloc_undo(play);
        return;
    case VMM_TORCH_FREE_COMPLETED:
        free_completed_undo(play);
        return;
    case VMM_TORCH_FREE_REQUESTED:
        free_requested_undo(play);
        return;
    case VMM_TORCH_SEGMENT_MAP:
        segment_map_undo(play);
        return;
    case VMM_TORCH_SEGMENT_UNMAP:
        segment_unmap_undo(play);
        return;
    case VMM_TORCH_SNAPSHOT:
    case VMM_TORCH_OOM:
        return;
    }
    print_error("event with unknown action %d\n", (int)play->event->action);
    fail();
}

struct playback snapshot_play_back(const vmm_torch_snapshot *snapshot)
{
    struct play play = { 0 };
    struct playback first = { 0 };
    snapshot_read(&play, snapshot);
    for (uint64_t number = snapshot->event_count; number-- > 0;) {
        play.event = &snapshot->events[number];
        play.number = number;
        if (number + 1 < snapshot->event_count)
            assert_true(play.event->time_us <= play.event[1].time_us);
        event_undo(&play);
    }
    first.mapped_bytes = ranges_bytes(&play.mapped);
    for (size_t i = 0; i < play.blocks.count; i++) {
        first.live += play.blocks.items[i].state == VMM_ITEM_LIVE;
        first.waiting += play.blocks.items[i].state == VMM_ITEM_WAITING;
    }
    ranges_free(&play.mapped);
    free(play.blocks.items);
    return first;
}

struct picture_sums snapshot_sums(const vmm_torch_snapshot *snapshot)
{
    struct picture_sums sums = { 0 };
    for (uint64_t i = 0; i < snapshot->segment_count; i++)
        sums.mapped_bytes += snapshot->segments[i].bytes;
    for (uint64_t i = 0; i < snapshot->block_count; i++) {
        const vmm_torch_block *block = &snapshot->blocks[i];
        bool is_live = block->state == VMM_ITEM_LIVE;
        bool is_waiting = block->state == VMM_ITEM_WAITING;
        sums.live += is_live;
        sums.waiting += is_waiting;
        sums.requested_bytes += is_live ? block->requested_bytes : 0;
        sums.active_bytes += is_live || is_waiting ? block->bytes : 0;
    }
    return sums;
}
