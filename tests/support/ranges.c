/* Sets of mapped address ranges: see ranges.h. */
#include "support/ranges.h"

#include <stdlib.h>
#include <string.h>

/* The index of the first range that ends after an address. */
static size_t range_index(const struct ranges *ranges, uint64_t address)
{
    size_t low = 0;
    size_t high = ranges->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges->items[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void range_insert(struct ranges *ranges, size_t index, const struct owned_range *range)
{
    if (ranges->count == ranges->capacity) {
        ranges->capacity = 2 * ranges->capacity + 64;
        ranges->items = realloc(ranges->items, ranges->capacity * sizeof *range);
        if (ranges->items == NULL)
            abort(); /* the machine has no memory for a few kilobytes */
    }
    memmove(&ranges->items[index + 1], &ranges->items[index],
            (ranges->count - index) * sizeof *range);
    ranges->items[index] = *range;
    ranges->count++;
}

static void range_delete(struct ranges *ranges, size_t index)
{
    ranges->count--;
    memmove(&ranges->items[index], &ranges->items[index + 1],
            (ranges->count - index) * sizeof *ranges->items);
}

static bool is_same_owner(const struct owned_range *a, const struct owned_range *b)
{
    return a->stream == b->stream && a->is_small == b->is_small && a->is_view == b->is_view &&
           a->pool.first == b->pool.first && a->pool.second == b->pool.second;
}

/* Joins a range to the one before it, if they touch and have one owner. */
static void range_join(struct ranges *ranges, size_t index)
{
    if (index == 0 || index >= ranges->count)
        return;
    const struct owned_range *range = &ranges->items[index];
    struct owned_range *before = &ranges->items[index - 1];
    if (before->end != range->address || !is_same_owner(before, range))
        return;
    before->end = range->end;
    range_delete(ranges, index);
}

bool ranges_add(struct ranges *ranges, const struct owned_range *range)
{
    size_t index = range_index(ranges, range->address);
    if (index < ranges->count && ranges->items[index].address < range->end)
        return false;
    range_insert(ranges, index, range);
    range_join(ranges, index + 1);
    range_join(ranges, index);
    return true;
}

/* Removes the bytes of a range, which are all there. */
static void range_cut(struct ranges *ranges, uint64_t address, uint64_t end)
{
    size_t index = range_index(ranges, address);
    while (index < ranges->count && ranges->items[index].address < end) {
        struct owned_range rest = ranges->items[index];
        range_delete(ranges, index);
        struct owned_range before = rest;
        before.end = address;
        if (before.address < address)
            range_insert(ranges, index++, &before);
        if (rest.end <= end)
            continue;
        rest.address = end;
        range_insert(ranges, index, &rest);
    }
}

bool ranges_remove(struct ranges *ranges, const struct owned_range *range)
{
    if (!ranges_contain(ranges, range))
        return false;
    range_cut(ranges, range->address, range->end);
    return true;
}

static bool may_own(const struct owned_range *owned, const struct owned_range *asked)
{
    bool is_any = asked->pool.first == 0 && asked->pool.second == 0;
    struct owned_range same = *asked;
    same.pool = is_any ? owned->pool : asked->pool;
    return is_same_owner(owned, &same);
}

bool ranges_contain(const struct ranges *ranges, const struct owned_range *range)
{
    uint64_t at = range->address;
    for (size_t i = range_index(ranges, at); i < ranges->count && at < range->end; i++) {
        if (ranges->items[i].address > at || !may_own(&ranges->items[i], range))
            return false;
        at = ranges->items[i].end;
    }
    return at >= range->end;
}

uint64_t ranges_bytes(const struct ranges *ranges)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ranges->count; i++)
        bytes += ranges->items[i].end - ranges->items[i].address;
    return bytes;
}

void ranges_free(struct ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct ranges){ .items = NULL };
}
