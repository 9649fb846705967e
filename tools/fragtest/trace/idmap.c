/* Ids to indices: see idmap.h. */
#include "fragtest/trace/idmap.h"

#include "fragtest/trace/random.h"

#include <stdbool.h>
#include <stdlib.h>

#define FIRST_CAPACITY 1024U

static size_t place_home(const struct idmap *map, uint64_t id)
{
    uint64_t state = id;
    return (size_t)random_next(&state) & (map->capacity - 1);
}

static size_t place_next(const struct idmap *map, size_t place)
{
    return (place + 1) & (map->capacity - 1);
}

/* The place that holds `id`, or the empty one where it belongs. capacity must not be 0. */
static size_t place_find(const struct idmap *map, uint64_t id)
{
    size_t place = place_home(map, id);

    while (map->indices[place] != IDMAP_NONE && map->ids[place] != id)
        place = place_next(map, place);
    return place;
}

static bool map_init(struct idmap *map, size_t capacity)
{
    map->ids = malloc(capacity * sizeof(*map->ids));
    map->indices = malloc(capacity * sizeof(*map->indices));
    map->capacity = capacity;
    map->count = 0;
    if (map->ids == NULL || map->indices == NULL) {
        idmap_clear(map);
        return false;
    }
    for (size_t i = 0; i < capacity; i++)
        map->indices[i] = IDMAP_NONE;
    return true;
}

static bool map_grow(struct idmap *map)
{
    struct idmap larger;
    size_t capacity = map->capacity == 0 ? FIRST_CAPACITY : map->capacity * 2;

    if (!map_init(&larger, capacity))
        return false;
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->indices[i] == IDMAP_NONE)
            continue;
        size_t place = place_find(&larger, map->ids[i]);
        larger.ids[place] = map->ids[i];
        larger.indices[place] = map->indices[i];
    }
    larger.count = map->count;
    idmap_clear(map);
    *map = larger;
    return true;
}

enum idmap_outcome idmap_add(struct idmap *map, uint64_t id, uint32_t index)
{
    if (map->count + 1 > map->capacity - map->capacity / 3 && !map_grow(map))
        return IDMAP_NO_MEMORY;
    size_t place = place_find(map, id);
    if (map->indices[place] != IDMAP_NONE)
        return IDMAP_PRESENT;
    map->ids[place] = id;
    map->indices[place] = index;
    map->count++;
    return IDMAP_ADDED;
}

/* Closes the hole at `hole`: an entry that was probed past it moves into it and leaves the next hole. */
static void hole_close(struct idmap *map, size_t hole)
{
    for (size_t place = place_next(map, hole); map->indices[place] != IDMAP_NONE;
         place = place_next(map, place)) {
        size_t home = place_home(map, map->ids[place]);
        size_t probed = (place - home) & (map->capacity - 1);
        if (probed < ((place - hole) & (map->capacity - 1)))
            continue;
        map->ids[hole] = map->ids[place];
        map->indices[hole] = map->indices[place];
        hole = place;
    }
    map->indices[hole] = IDMAP_NONE;
}

uint32_t idmap_take(struct idmap *map, uint64_t id)
{
    if (map->capacity == 0)
        return IDMAP_NONE;
    size_t place = place_find(map, id);
    uint32_t index = map->indices[place];
    if (index == IDMAP_NONE)
        return IDMAP_NONE;
    map->count--;
    hole_close(map, place);
    return index;
}

void idmap_clear(struct idmap *map)
{
    free(map->ids);
    free(map->indices);
    *map = (struct idmap){ 0 };
}
