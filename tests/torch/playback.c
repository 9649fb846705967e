/* Histories played backwards: see playback.h. */
#include "torch/playback.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GRANULE_BYTES (2 * MIB)

/* A granule by its address, or a block. */
struct thing {
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint64_t stack;
    int32_t state;
};

/* Things by rising address. */
struct shelf {
    struct thing *things;
    size_t count;
    size_t capacity;
};

struct play {
    struct shelf granules;
    struct shelf blocks;
    const vmm_torch_event *event;
    uint64_t number;
};

/* ---- Shelves -------------------------------------------------------------------------------- */

/* The first thing that does not lie below an address. */
static size_t shelf_place(const struct shelf *shelf, uint64_t address)
{
    size_t low = 0;
    size_t high = shelf->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (shelf->things[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct thing *shelf_find(const struct shelf *shelf, uint64_t address)
{
    size_t place = shelf_place(shelf, address);
    bool found = place < shelf->count && shelf->things[place].address == address;
    return found ? &shelf->things[place] : NULL;
}

static void shelf_add(struct shelf *shelf, const struct thing *thing)
{
    if (shelf->count == shelf->capacity) {
        shelf->capacity = shelf->capacity == 0 ? 256 : shelf->capacity * 2;
        shelf->things = realloc(shelf->things, shelf->capacity * sizeof *shelf->things);
        assert_non_null(shelf->things);
    }
    size_t place = shelf_place(shelf, thing->address);
    memmove(&shelf->things[place + 1], &shelf->things[place],
            (shelf->count - place) * sizeof *thing);
    shelf->things[place] = *thing;
    shelf->count++;
}

static void shelf_remove(struct shelf *shelf, const struct thing *thing)
{
    size_t place = (size_t)(thing - shelf->things);
    memmove(&shelf->things[place], &shelf->things[place + 1],
            (shelf->count - place - 1) * sizeof *thing);
    shelf->count--;
}

/* Whether any thing has bytes in a range. */
static bool shelf_overlaps(const struct shelf *shelf, uint64_t address, uint64_t bytes)
{
    size_t place = shelf_place(shelf, address);
    if (place < shelf->count && shelf->things[place].address < address + bytes)
        return true;
    return place > 0 && shelf->things[place - 1].address + shelf->things[place - 1].bytes > address;
}

/* ---- The picture ---------------------------------------------------------------------------- */

static void granules_map(struct play *play, uint64_t address, uint64_t bytes, uint64_t stream)
{
    assert_int_equal(address % GRANULE_BYTES, 0);
    assert_int_equal(bytes % GRANULE_BYTES, 0);
    for (uint64_t offset = 0; offset < bytes; offset += GRANULE_BYTES) {
        assert_null(shelf_find(&play->granules, address + offset));
        shelf_add(&play->granules, &(struct thing){ .address = address + offset,
                                                    .bytes = GRANULE_BYTES,
                                                    .stream = stream });
    }
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
        assert_false(was_free && is_free); /* it would be one block */
        was_free = is_free;
        cursor += block->bytes;
        if (block->state == VMM_ITEM_LIVE || block->state == VMM_ITEM_WAITING)
            shelf_add(&play->blocks, &(struct thing){ .address = block->address,
                                                      .bytes = block->requested_bytes,
                                                      .stream = segment->stream,
                                                      .stack = block->stack,
                                                      .state = block->state });
    }
    assert_int_equal(cursor, segment->address + segment->bytes);
}

static void picture_read(struct play *play, const vmm_torch_snapshot *snapshot)
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
        granules_map(play, segment->address, segment->bytes, segment->stream);
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

/* All of the range must be mapped for the event's stream. */
static void range_require(const struct play *play, uint64_t bytes)
{
    uint64_t first = play->event->address & ~(GRANULE_BYTES - 1);
    for (uint64_t at = first; at < play->event->address + bytes; at += GRANULE_BYTES) {
        const struct thing *granule = shelf_find(&play->granules, at);
        event_require(play, granule != NULL, "no memory is there");
        event_require(play, granule->stream == play->event->stream, "another stream's memory");
    }
}

static void alloc_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    struct thing *block = shelf_find(&play->blocks, event->address);
    event_require(play, block != NULL, "no block is there");
    event_require(play, block->state == VMM_ITEM_LIVE, "the block is not live");
    event_require(play, block->bytes == event->bytes, "the block has another size");
    event_require(play, block->stack == event->stack || block->stack == 0, "another stack");
    range_require(play, event->bytes);
    shelf_remove(&play->blocks, block);
}

static void free_completed_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    range_require(play, event->bytes);
    event_require(play, !shelf_overlaps(&play->blocks, event->address, event->bytes),
                  "a block is there");
    shelf_add(&play->blocks, &(struct thing){ .address = event->address,
                                              .bytes = event->bytes,
                                              .stream = event->stream,
                                              .state = VMM_ITEM_WAITING });
}

static void free_requested_undo(struct play *play)
{
    struct thing *block = shelf_find(&play->blocks, play->event->address);
    event_require(play, block != NULL, "no block is there");
    event_require(play, block->state == VMM_ITEM_WAITING, "the block is not freed");
    event_require(play, block->bytes == play->event->bytes, "the block has another size");
    block->state = VMM_ITEM_LIVE;
}

static void segment_map_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    range_require(play, event->bytes);
    event_require(play, !shelf_overlaps(&play->blocks, event->address, event->bytes),
                  "a block is in it");
    for (uint64_t offset = 0; offset < event->bytes; offset += GRANULE_BYTES)
        shelf_remove(&play->granules, shelf_find(&play->granules, event->address + offset));
}

static void segment_unmap_undo(struct play *play)
{
    const vmm_torch_event *event = play->event;
    event_require(play, !shelf_overlaps(&play->granules, event->address, event->bytes),
                  "memory is there");
    granules_map(play, event->address, event->bytes, event->stream);
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
    print_error("an event of action %d\n", (int)play->event->action);
    fail();
}

struct playback snapshot_play_back(const vmm_torch_snapshot *snapshot)
{
    struct play play = { 0 };
    struct playback first = { 0 };
    picture_read(&play, snapshot);
    for (uint64_t number = snapshot->event_count; number-- > 0;) {
        play.event = &snapshot->events[number];
        play.number = number;
        if (number + 1 < snapshot->event_count)
            assert_true(play.event->time_us <= play.event[1].time_us);
        event_undo(&play);
    }
    first.granules = play.granules.count;
    for (size_t i = 0; i < play.blocks.count; i++) {
        first.live += play.blocks.things[i].state == VMM_ITEM_LIVE;
        first.waiting += play.blocks.things[i].state == VMM_ITEM_WAITING;
    }
    free(play.granules.things);
    free(play.blocks.things);
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
