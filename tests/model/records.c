/* What the cache would record: see model.h. */
#include "model.h"

struct spot records_spot(struct records *records, struct range range, unsigned index)
{
    unsigned at = range.first + index;
    if (range.view == HOME)
        return (struct spot){ .chunk = range.chunk, .granule = (uint8_t)at };
    struct view *view = &records->views[range.view];
    struct place *place = &view->row[at / GRANULES - view->base];
    return (struct spot){ place->chunk, (uint8_t)(at % GRANULES), place };
}

bool range_is_mapped(const struct records *records, struct range range)
{
    if (range.view == HOME)
        return true;
    const struct view *view = &records->views[range.view];
    unsigned first = range.first / GRANULES;
    unsigned last = (range.first + range.count - 1U) / GRANULES;
    for (unsigned slot = first; slot <= last; slot++) {
        if (slot < view->base || slot >= (unsigned)view->base + view->count ||
            view->row[slot - view->base].chunk == NONE)
            return false;
    }
    return true;
}

bool records_finished(const struct records *records, struct stamp stamp)
{
    return stamp.number <= records->passed[stamp.stream];
}

bool chunk_is_idle(const struct chunk *chunk)
{
    for (unsigned i = 0; i < GRANULES; i++) {
        if (chunk->granules[i].used)
            return false;
    }
    return true;
}

unsigned view_position(const struct view *view, unsigned chunk)
{
    unsigned position = 0;
    while (position < view->count && view->row[position].chunk != chunk)
        position++;
    return position;
}

bool view_is_in_use(const struct records *records, unsigned view)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *block = &records->blocks[i];
        if (block->state != BLOCK_NONE && block->range.view == view)
            return true;
    }
    return false;
}

struct block *records_block_of_graph(struct records *records)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (records->blocks[i].state == BLOCK_LIVE && records->blocks[i].is_graph)
            return &records->blocks[i];
    }
    return NULL;
}

struct block *records_free_block(struct records *records)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (records->blocks[i].state == BLOCK_NONE)
            return &records->blocks[i];
    }
    return NULL;
}

void records_occupy(struct records *records, const struct rules *rules, struct range range)
{
    if (range.view != HOME && rules->off[RULE_ONE_OWNER_PER_BYTE])
        return;
    for (unsigned i = 0; i < range.count; i++) {
        struct spot spot = records_spot(records, range, i);
        records->chunks[spot.chunk].granules[spot.granule].used = true;
    }
}

void records_vacate(struct records *records, const struct rules *rules, struct range range,
                    struct stamp stamp)
{
    for (unsigned i = 0; i < range.count; i++) {
        struct spot spot = records_spot(records, range, i);
        struct granule *granule = &records->chunks[spot.chunk].granules[spot.granule];
        granule->used = false;
        if (spot.place == NULL || !rules->off[RULE_STAMP_HOME])
            granule->stamp = stamp;
        if (spot.place != NULL && !rules->off[RULE_STAMP_PLACE])
            spot.place->stamp = stamp;
    }
}

struct range range_first_chunk(struct range range)
{
    unsigned room = GRANULES - range.first % GRANULES;
    if (range.count > room)
        range.count = (uint8_t)room;
    return range;
}

struct range range_behind_first_chunk(struct range range)
{
    unsigned count = range_first_chunk(range).count;
    range.first = (uint8_t)(range.first + count);
    range.count = (uint8_t)(range.count - count);
    return range;
}

static void view_trim_ends(struct view *view)
{
    while (view->count > 0 && view->row[view->count - 1].chunk == NONE)
        view->count--;
    while (view->count > 0 && view->row[0].chunk == NONE) {
        for (unsigned i = 1; i < view->count; i++)
            view->row[i - 1] = view->row[i];
        view->count--;
        view->base++;
    }
}

void view_remove(struct view *view, unsigned position)
{
    view->row[position] = (struct place){ .chunk = NONE };
    view_trim_ends(view);
}

void view_place(struct view *view, int position, unsigned chunk)
{
    if (position < 0) {
        for (unsigned i = view->count; i > 0; i--)
            view->row[i] = view->row[i - 1];
        view->count++;
        view->base--;
        position = 0;
    } else if (position == view->count) {
        view->count++;
    }
    view->row[position] = (struct place){ .chunk = (uint8_t)chunk };
}
