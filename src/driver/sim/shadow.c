/*
 * The shadow of one handle: the contents its memory would have, who wrote them, and who has read them since.
 *
 * Invariants: intervals are sorted, never overlap and are never empty; an interval's content has the place of its first
 * byte. Before work accesses a range, intervals that cross its ends are split there, so that each interval is accessed
 * as a whole.
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/hostmem.h"

#include <string.h>

static uint64_t interval_end(const struct sim_interval *item)
{
    return item->offset + item->bytes;
}

/* Returns the index of the first interval that ends above the offset. */
static uint32_t shadow_search(const struct sim_shadow *shadow, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = shadow->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (interval_end(&shadow->items[middle]) > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool shadow_insert(struct sim_shadow *shadow, uint32_t index, struct sim_interval item)
{
    if (!vmm__host_array_grow((void **)&shadow->items, &shadow->capacity, shadow->count,
                              sizeof *shadow->items))
        return false;
    struct sim_interval *place = &shadow->items[index];
    memmove(place + 1, place, (shadow->count - index) * sizeof *place);
    *place = item;
    shadow->count++;
    return true;
}

/* Removes [first, last). The caller has cleared their readers. */
static void shadow_remove(struct sim_shadow *shadow, uint32_t first, uint32_t last)
{
    memmove(&shadow->items[first], &shadow->items[last],
            (shadow->count - last) * sizeof *shadow->items);
    shadow->count -= last - first;
}

/* Splits the interval that crosses the offset. *index receives the first interval at or above it. */
static bool shadow_cut(struct sim_shadow *shadow, uint64_t offset, uint32_t *index)
{
    *index = shadow_search(shadow, offset);
    if (*index == shadow->count || shadow->items[*index].offset >= offset)
        return true;
    struct sim_interval upper = shadow->items[*index];
    uint64_t lower_bytes = offset - upper.offset;
    upper.offset = offset;
    upper.bytes -= lower_bytes;
    upper.content.place += lower_bytes;
    if (!shadow_insert(shadow, *index + 1, upper))
        return false;
    struct sim_interval *lower = &shadow->items[*index];
    lower->bytes = lower_bytes;
    lower->readers = vmm__sim_users_share(&upper.readers);
    ++*index;
    return true;
}

/* Sets [*first, *last) to the intervals within the range. */
static bool shadow_cut_out(struct sim_shadow *shadow, uint64_t offset, uint64_t bytes,
                           uint32_t *first, uint32_t *last)
{
    return shadow_cut(shadow, offset, first) && shadow_cut(shadow, offset + bytes, last);
}

/* Returns the epoch of earlier work that this write must follow but is not ordered after, or 0. */
static uint64_t write_conflict(const struct sim_interval *item, const struct sim_work *work)
{
    if (item->writer == work->epoch || vmm__sim_users_contain(&item->readers, work->epoch))
        return work->epoch;
    if (!sim_epoch_covered(item->writer, work->stream->clock))
        return item->writer;
    return vmm__sim_users_uncovered(&item->readers, work->stream->clock);
}

bool vmm__sim_shadow_write(struct sim_shadow *shadow, const struct sim_work *work, uint64_t offset,
                           uint64_t bytes, struct sim_content content, uint64_t *conflict)
{
    uint32_t first;
    uint32_t last;
    struct sim_interval written = {
        .offset = offset, .bytes = bytes, .content = content, .writer = work->epoch
    };
    if (!shadow_cut_out(shadow, offset, bytes, &first, &last))
        return false;
    for (uint32_t index = first; index < last; index++) {
        if (*conflict == 0)
            *conflict = write_conflict(&shadow->items[index], work);
        vmm__sim_users_clear(&shadow->items[index].readers);
    }
    if (first == last)
        return shadow_insert(shadow, first, written);
    shadow->items[first] = written;
    if (last - first > 1)
        shadow_remove(shadow, first + 1, last);
    return true;
}

/* Inserts intervals of undefined contents into the range's gaps; *last increases accordingly. */
static bool shadow_fill_gaps(struct sim_shadow *shadow, uint64_t offset, uint64_t bytes,
                             uint32_t first, uint32_t *last)
{
    uint64_t end = offset + bytes;
    for (uint32_t index = first; offset < end; index++) {
        uint64_t next = index < *last ? shadow->items[index].offset : end;
        if (next > offset) {
            struct sim_interval gap = { .offset = offset, .bytes = next - offset };
            if (!shadow_insert(shadow, index, gap))
                return false;
            ++*last;
        }
        offset = interval_end(&shadow->items[index]);
    }
    return true;
}

bool vmm__sim_shadow_read(struct sim_shadow *shadow, const struct sim_work *work, uint64_t offset,
                          uint64_t bytes, uint32_t *first, uint32_t *last, uint64_t *conflict)
{
    const uint64_t *clock = work->stream->clock;
    if (!shadow_cut_out(shadow, offset, bytes, first, last) ||
        !shadow_fill_gaps(shadow, offset, bytes, *first, last))
        return false;
    for (uint32_t index = *first; index < *last; index++) {
        struct sim_interval *item = &shadow->items[index];
        if (*conflict == 0 && !sim_epoch_covered(item->writer, clock))
            *conflict = item->writer;
        if (!vmm__sim_users_add(&item->readers, clock, work->epoch))
            return false;
    }
    return true;
}

uint64_t vmm__sim_shadow_uncovered(const struct sim_shadow *shadow, const uint64_t *clock)
{
    for (uint32_t index = 0; index < shadow->count; index++) {
        const struct sim_interval *item = &shadow->items[index];
        if (!sim_epoch_covered(item->writer, clock))
            return item->writer;
        uint64_t reader = vmm__sim_users_uncovered(&item->readers, clock);
        if (reader != 0)
            return reader;
    }
    return 0;
}

void vmm__sim_shadow_disown(struct sim_shadow *shadow)
{
    for (uint32_t index = 0; index < shadow->count; index++) {
        shadow->items[index].writer = 0;
        vmm__sim_users_clear(&shadow->items[index].readers);
    }
}

void vmm__sim_shadow_free(struct sim_shadow *shadow)
{
    for (uint32_t index = 0; index < shadow->count; index++)
        vmm__sim_users_clear(&shadow->items[index].readers);
    vmm__host_free(shadow->items, shadow->capacity * sizeof *shadow->items);
}
