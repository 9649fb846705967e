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
 *  2. every node is in the list that its size says; the lists are doubly linked;
 *  3. a node does not change its size while it is in the index.
 * Locks: the caller's.
 */
#ifndef VMM_BASE_SIZEINDEX_H
#define VMM_BASE_SIZEINDEX_H

#include <stdbool.h>
#include <stdint.h>

enum { SIZE_INDEX_COLUMN_BITS = 5, SIZE_INDEX_COLUMNS = 32, SIZE_INDEX_ROWS = 64 };

struct size_node {
    struct size_node *prev;
    struct size_node *next;
    uint64_t size;
};

struct size_index {
    bool search_all; /* set by the owner: finding may cost as much as a list is long */
    uint64_t rows;
    uint32_t columns[SIZE_INDEX_ROWS];
    struct size_node *heads[SIZE_INDEX_ROWS][SIZE_INDEX_COLUMNS];
};

void vmm__size_index_insert(struct size_index *index, struct size_node *node);
void vmm__size_index_remove(struct size_index *index, struct size_node *node);

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
