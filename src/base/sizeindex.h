/*
 * An index of free things by size: two levels of bitmaps over lists, as in TLSF (Masmano et al.,
 * "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", ECRTS 2004), so that insert, remove
 * and find cost the same however many things there are.
 *
 * A size (in units of the owner's choice) belongs to row floor(log2(size)) and, within the row, to
 * one of 32 columns of equal width: things in one list differ by at most 1/32 of their size.
 *
 * Owns: the bitmaps and list heads. The nodes belong to the caller, who embeds them.
 * Invariants:
 *  1. a list is empty exactly if its bit in columns[row] is 0; a row is empty exactly if its bit in
 *     rows is 0;
 *  2. every node is in the list that its size says; link and next say its place there;
 *  3. a node does not change its size while it is in the index.
 * Locks: the caller's.
 */
#ifndef VMM_BASE_SIZEINDEX_H
#define VMM_BASE_SIZEINDEX_H

#include "base/arith.h"

#include <stddef.h>

enum { SIZE_INDEX_COLUMN_BITS = 5, SIZE_INDEX_COLUMNS = 32, SIZE_INDEX_ROWS = 64 };

struct size_node {
    struct size_node **link; /* what points at it: the list's head, or the one before's next */
    struct size_node *next;
    uint64_t size;
};

struct size_index {
    bool search_all;         /* set by the owner: finding may cost as much as a list is long */
    struct size_node nobody; /* of no list: see insert */
    uint64_t rows;
    uint32_t columns[SIZE_INDEX_ROWS];
    struct size_node *heads[SIZE_INDEX_ROWS][SIZE_INDEX_COLUMNS];
};

/* The list that a size belongs to. */
struct size_place {
    unsigned row;
    unsigned column;
};

static inline struct size_place vmm__size_place(uint64_t size)
{
    unsigned row = vmm__log2(size);
    unsigned shift = row > SIZE_INDEX_COLUMN_BITS ? row - SIZE_INDEX_COLUMN_BITS : 0;
    unsigned column = (unsigned)(size >> shift) & (SIZE_INDEX_COLUMNS - 1);
    return (struct size_place){ .row = row, .column = column };
}

/*
 * Whether a node has neighbours is as good as random, so no branch is made to depend on it: what would
 * be written to a neighbour that is not there is written to `nobody`.
 */
static inline void vmm__size_index_insert(struct size_index *index, struct size_node *node)
{
    struct size_place place = vmm__size_place(node->size);
    struct size_node **head = &index->heads[place.row][place.column];
    struct size_node *next = *head;
    node->link = head;
    node->next = next;
    (next != NULL ? next : &index->nobody)->link = &node->next;
    *head = node;
    index->columns[place.row] |= 1U << place.column;
    index->rows |= UINT64_C(1) << place.row;
}

static inline void vmm__size_index_remove(struct size_index *index, struct size_node *node)
{
    struct size_place place = vmm__size_place(node->size);
    struct size_node *next = node->next;
    (next != NULL ? next : &index->nobody)->link = node->link;
    *node->link = next;
    bool is_empty = index->heads[place.row][place.column] == NULL;
    index->columns[place.row] &= ~((uint32_t)is_empty << place.column);
    bool is_row_empty = index->columns[place.row] == 0;
    index->rows &= ~((uint64_t)is_row_empty << place.row);
}

/* The best fit among the first few of the lists that may hold one. NULL if nothing fits, or, unless
 * search_all, if nothing larger fits and none of the first 256 of the request's own list does. */
struct size_node *vmm__size_index_find(const struct size_index *index, uint64_t size);

/* Visiting from large to small, list by list: the first, and the one after `node`. NULL at the end.
 * A node may be removed once its successor is known. */
struct size_node *vmm__size_index_largest(const struct size_index *index);
struct size_node *vmm__size_index_smaller(const struct size_index *index,
                                          const struct size_node *node);

/* Visiting from small to large, list by list: the first of at least about `size` (its list may hold
 * smaller ones), and the one after `node`. NULL at the end. */
struct size_node *vmm__size_index_from(const struct size_index *index, uint64_t size);
struct size_node *vmm__size_index_larger(const struct size_index *index,
                                         const struct size_node *node);

/* Whether invariants 1 and 2 hold. */
bool vmm__size_index_check(const struct size_index *index);

#endif
