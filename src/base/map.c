/* A hash map: see map.h. */
#include "base/map.h"
#include "base/hostmem.h"

enum { BUCKETS_FIRST = 64 };

static struct map_node *const *bucket_of(const struct map *map, uint64_t key)
{
    if (map->buckets == NULL)
        return &map->only;
    return &map->buckets[key * UINT64_C(0x9E3779B97F4A7C15) >> 32 & map->mask];
}

static void node_link(struct map *map, struct map_node *node)
{
    struct map_node **bucket = (struct map_node **)bucket_of(map, node->key);
    node->next = *bucket;
    *bucket = node;
}

/* Removes all nodes, into a list, and frees the buckets. */
static struct map_node *nodes_take(struct map *map)
{
    struct map_node *taken = NULL;
    for (uint64_t i = 0; i <= map->mask; i++) {
        struct map_node *next;
        struct map_node *node = map->buckets == NULL ? map->only : map->buckets[i];
        for (; node != NULL; node = next) {
            next = node->next;
            node->next = taken;
            taken = node;
        }
    }
    vmm__host_free(map->buckets, (map->mask + 1) * sizeof *map->buckets);
    *map = (struct map){ .count = 0 };
    return taken;
}

static void map_grow(struct map *map)
{
    uint64_t count = map->buckets == NULL ? BUCKETS_FIRST : (map->mask + 1) * 2;
    struct map grown = { .buckets = vmm__host_alloc(count, sizeof *grown.buckets),
                         .mask = count - 1,
                         .count = map->count };
    if (grown.buckets == NULL)
        return;
    struct map_node *next;
    for (struct map_node *node = nodes_take(map); node != NULL; node = next) {
        next = node->next;
        node_link(&grown, node);
    }
    *map = grown;
}

void vmm__map_add(struct map *map, struct map_node *node)
{
    if (map->count > map->mask)
        map_grow(map);
    node_link(map, node);
    map->count++;
}

void vmm__map_remove(struct map *map, struct map_node *node)
{
    struct map_node **link = (struct map_node **)bucket_of(map, node->key);
    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    map->count--;
}

static struct map_node *key_find(struct map_node *node, uint64_t key)
{
    while (node != NULL && node->key != key)
        node = node->next;
    return node;
}

struct map_node *vmm__map_find(const struct map *map, uint64_t key)
{
    return key_find(*bucket_of(map, key), key);
}

struct map_node *vmm__map_find_next(const struct map_node *node)
{
    return key_find(node->next, node->key);
}

struct map_node *vmm__map_next(const struct map *map, const struct map_node *node)
{
    if (map->buckets == NULL)
        return node == NULL ? map->only : node->next;
    if (node != NULL && node->next != NULL)
        return node->next;
    struct map_node *const *bucket = node == NULL ? map->buckets : bucket_of(map, node->key) + 1;
    while (bucket <= &map->buckets[map->mask] && *bucket == NULL)
        bucket++;
    return bucket <= &map->buckets[map->mask] ? *bucket : NULL;
}

void vmm__map_clear(struct map *map, void (*drop)(struct map_node *node))
{
    struct map_node *next;
    for (struct map_node *node = nodes_take(map); node != NULL; node = next) {
        next = node->next;
        if (drop != NULL)
            drop(node);
    }
}
