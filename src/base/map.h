/*
 * A hash map from a key of 64 bits to records. The records are the owner's: each embeds a node, so adding one cannot
 * fail. Several records may have the same key.
 *
 * Owns: the buckets. A map of zeros is empty. It gets twice as many buckets when it has more records than buckets;
 * without host memory its buckets get longer instead. Invariants:
 *  1. a node is in the bucket that its key hashes to, and its key does not change meanwhile;
 *  2. the number of buckets is a power of two.
 * May be called by: everything. Locks: the caller's.
 */
#ifndef VMM_BASE_MAP_H
#define VMM_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_node {
    uint64_t key; /* set by the owner before it adds the node */
    struct map_node *next;
};

struct map {
    struct map_node **buckets; /* NULL: `only` is the one bucket */
    struct map_node *only;
    uint64_t mask; /* number of buckets - 1 */
    uint64_t count;
};

/* The record of a node that is not NULL. */
#define VMM_MAP_RECORD(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

void vmm__map_add(struct map *map, struct map_node *node);
void vmm__map_remove(struct map *map, struct map_node *node);

/* Return a node with the key, and the next one with the same key; NULL: none. */
struct map_node *vmm__map_find(const struct map *map, uint64_t key);
struct map_node *vmm__map_find_next(const struct map_node *node);

/* The node after another one in some order, the first for NULL; NULL after the last. */
struct map_node *vmm__map_next(const struct map *map, const struct map_node *node);

/* Removes all nodes, whose records still exist, and frees the buckets. Calls `drop` for each node, which may free its
 * record; NULL: no call. */
void vmm__map_clear(struct map *map, void (*drop)(struct map_node *node));

#endif
