/*
 * An index of free things by size: two levels of bitmaps over lists, as in TLSF (Masmano et al.,
 * "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", ECRTS 2004), so that insert, remove
 * and find cost the same however many things there are.
 *
 * A size (in units of the owner's choice) belongs to a list. Sizes below 32 have one each; above, there
 * are 32 lists of equal width from one power of two to the next, so things in one list differ by at most
 * 1/32 of their size. Lists are numbered from small to large, and each 32 of them are a row.
 *
 * Owns: the bitmaps and list heads. The nodes belong to the caller, who embeds them.
 * Invariants:
 *  1. a list is empty exactly if its bit in its row's columns is 0; a row is empty exactly if its bit in
 *     rows is 0;
 *  2. every node is in the list that its size says; link and next say its place there;
 *  3. a node does not change its size while it is in the index.
 * Locks: the caller's.
 */
#ifndef VMM_BASE_SIZEINDEX_H
#define VMM_BASE_SIZEINDEX_H

#include "base/arith.h"

#include <stddef.h>

enum { SIZE_INDEX_COLUMN_BITS = 5, SIZE_INDEX_COLUMNS = 32, SIZE_INDEX_ROWS = 60 };

struct size_node {
    struct size_node **link; /* what points at it: the list's head, or the one before's next */
    struct size_node *next;
    uint64_t size;
};

struct size_index {
    bool search_all;         /* set by the owner: finding may cost as much as a list is long */
    struct size_node nobody; /* the end of every list: no size, and followed by itself */
    uint64_t rows;
    uint32_t columns[SIZE_INDEX_ROWS];
    struct size_node *heads[SIZE_INDEX_ROWS * SIZE_INDEX_COLUMNS];
};

/* The number of the list that a size belongs to. */
static inline unsigned vmm__size_list(uint64_t size)
{
    unsigned shift = vmm__log2(size | SIZE_INDEX_COLUMNS) - SIZE_INDEX_COLUMN_BITS;
    return (shift << SIZE_INDEX_COLUMN_BITS) + (unsigned)(size >> shift);
}

/* Of an index that is all zeros. */
static inline void vmm__size_index_init(struct size_index *index)
{
    index->nobody.next = &index->nobody;
}

/*
 * Whether a node has neighbours is as good as random, so no branch is made to depend on it: lists end with
 * a node, and what would be written to a neighbour that is not there is written to that. A head is NULL
 * until its list is first used. Rows are seldom empty.
 */
static inline void vmm__size_index_insert(struct size_index *index, struct size_node *node)
{
    unsigned list = vmm__size_list(node->size);
    unsigned row = list / SIZE_INDEX_COLUMNS;
    struct size_node **head = &index->heads[list];
    struct size_node *next = *head != NULL ? *head : &index->nobody;
    node->link = head;
    node->next = next;
    next->link = &node->next;
    *head = node;
    index->columns[row] |= UINT32_C(1) << list % SIZE_INDEX_COLUMNS;
    index->rows |= UINT64_C(1) << row;
}

static inline void vmm__size_index_remove(struct size_index *index, struct size_node *node)
{
    unsigned list = vmm__size_list(node->size);
    unsigned row = list / SIZE_INDEX_COLUMNS;
    node->next->link = node->link;
    *node->link = node->next;
    uint32_t is_empty = index->heads[list] == &index->nobody;
    uint32_t columns = index->columns[row] & ~(is_empty << list % SIZE_INDEX_COLUMNS);
    index->columns[row] = columns;
    if (columns == 0)
        index->rows &= ~(UINT64_C(1) << row);
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
