/*
 * An ordered set of intrusive nodes: a treap, so that every operation is O(log n) expected.
 *
 * Owns: nothing; nodes live inside the caller's records, which must outlive their membership.
 * Invariants:
 *  O1. in-order walk gives rising (major, minor); no two nodes of one set have the same pair;
 *  O2. a node's priority is not below its children's.
 * May be called by: policies, live map. Locks: none (one thread).
 */
#ifndef FRAGTEST_ORDERED_H
#define FRAGTEST_ORDERED_H

#include <stdint.h>

struct ordered_node {
    struct ordered_node *left;
    struct ordered_node *right;
    uint64_t major; /* set by the caller before ordered_insert(), untouched while in the set */
    uint64_t minor;
    uint64_t priority;
};

/* All zero is an empty set. */
struct ordered {
    struct ordered_node *root;
    uint64_t seed;
};

void ordered_insert(struct ordered *set, struct ordered_node *node);

/* The node must be in the set. */
void ordered_remove(struct ordered *set, struct ordered_node *node);

/* The first node whose pair is at least (major, minor), or NULL. */
struct ordered_node *ordered_at_least(const struct ordered *set, uint64_t major, uint64_t minor);

/* The last node whose pair is below (major, minor), or NULL. */
struct ordered_node *ordered_below(const struct ordered *set, uint64_t major, uint64_t minor);

/* The first node, and the one after `node`; NULL at the end. */
struct ordered_node *ordered_first(const struct ordered *set);
struct ordered_node *ordered_after(const struct ordered *set, const struct ordered_node *node);

#endif
