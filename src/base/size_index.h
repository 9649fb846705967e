/*
 * An index of free memory by size: two levels of bitmaps over lists, as in TLSF (Masmano et al., "TLSF: a New Dynamic
 * Memory Allocator for Real-Time Systems", ECRTS 2004). Insert, remove and find cost the same for any number of nodes.
 *
 * A size is a multiple of a unit that the owner chooses, a power of two, and belongs to one list. Each size below 32
 * units has its own list. Above, 32 lists of equal width lead from one power of two to the next, so sizes in one list
 * differ by at most 1/32. Lists are numbered from small to large; 32 of them form a row.
 *
 * Owns: the bitmaps, and the heads of the lists from one unit to the largest size so far, which open() allocates before
 * the first insert. The caller owns the nodes and embeds them.
 * Invariants:
 *  1. a list is empty exactly if its bit in its row's columns is 0; a row is empty exactly if its bit in
 *     rows is 0;
 *  2. every node is in the list of its size; link and next give its place there;
 *  3. the size of a node does not change while it is in the index.
 * May be called by: everything. Locks: the caller's.
 */
#ifndef VMM_BASE_SIZE_INDEX_H
#define VMM_BASE_SIZE_INDEX_H

#include "base/arith.h"

#include <stddef.h>

enum { SIZE_INDEX_COLUMN_BITS = 5, SIZE_INDEX_COLUMNS = 32, SIZE_INDEX_ROWS = 60 };

struct size_node {
    struct size_node **link; /* what points to this node: its list head, or another's next */
    struct size_node *next;
    uint64_t size;
};

struct size_index {
    uint32_t head_rows;     /* rows that have heads, from that of one unit on */
    struct size_node end;   /* the last node of every list: its size is 0, its `next` is itself */
    uint64_t columns_bytes; /* 32 units: sizes below have a list each */
    uint64_t rows;
    uint32_t columns[SIZE_INDEX_ROWS];
    struct size_node **heads; /* NULL: closed */
    uintptr_t list_zero;      /* where the head of list 0 would be, if it were one of them */
};

/* Returns the number of the list that a size belongs to. Volatile: no register is kept for the constant, which a
 * function with several inserts would have to save first. */
static inline unsigned vmm__size_list(const struct size_index *index, uint64_t size)
{
    uint64_t least = *(const volatile uint64_t *)&index->columns_bytes;
    unsigned shift = vmm__log2(size | least) - SIZE_INDEX_COLUMN_BITS;
    return (shift << SIZE_INDEX_COLUMN_BITS) + (unsigned)(size >> shift);
}

/* The head of a list. */
static inline struct size_node **vmm__size_head(const struct size_index *index, unsigned list)
{
    return (struct size_node **)(index->list_zero + list * sizeof *index->heads);
}

/* Requires an index that is all zeros. */
static inline void vmm__size_index_init(struct size_index *index, uint64_t unit)
{
    index->columns_bytes = unit * SIZE_INDEX_COLUMNS;
    index->end.next = &index->end;
}

/* Allocates the list heads of sizes up to `most` that there are not yet. Returns false without host memory, and has
 * changed nothing then. Only inserts need the heads: find() works on an empty index without them. */
bool vmm__size_index_open(struct size_index *index, uint64_t most);

/* Frees the list heads and drops all nodes from the index. */
void vmm__size_index_close(struct size_index *index);

/* Whether a node has neighbours is unpredictable, so no branch depends on it: each list ends with the same end node,
 * which receives the writes for a missing neighbour. A head is NULL until its list is first used. Rows are seldom
 * empty. */
static inline void vmm__size_index_insert(struct size_index *index, struct size_node *node)
{
    unsigned list = vmm__size_list(index, node->size);
    unsigned row = list / SIZE_INDEX_COLUMNS;
    struct size_node **head = vmm__size_head(index, list);
    struct size_node *next = *head != NULL ? *head : &index->end;
    node->link = head;
    node->next = next;
    next->link = &node->next;
    *head = node;
    index->columns[row] |= UINT32_C(1) << list % SIZE_INDEX_COLUMNS;
    index->rows |= UINT64_C(1) << row;
}

static inline void vmm__size_index_remove(struct size_index *index, struct size_node *node)
{
    unsigned list = vmm__size_list(index, node->size);
    unsigned row = list / SIZE_INDEX_COLUMNS;
    node->next->link = node->link;
    *node->link = node->next;
    uint32_t is_empty = *vmm__size_head(index, list) == &index->end;
    uint32_t columns = index->columns[row] & ~(is_empty << list % SIZE_INDEX_COLUMNS);
    index->columns[row] = columns;
    if (columns == 0)
        index->rows &= ~(UINT64_C(1) << row);
}

/* How far a search goes for something that fits. */
enum search_depth {
    SEARCH_QUICK, /* a bounded number of nodes */
    SEARCH_WHOLE  /* until something fits */
};

/* Returns the best fit among the first few nodes of the lists that may contain one. Returns NULL if nothing fits, or,
 * with SEARCH_QUICK, if no larger list has a node and none of the first 256 of the request's own list fits. */
struct size_node *vmm__size_index_find(const struct size_index *index, uint64_t size,
                                       enum search_depth search);

/* Iterate from large to small, list by list: the first node, and the one after `node`; NULL at the end. The caller may
 * remove a node once it has its successor. */
struct size_node *vmm__size_index_largest(const struct size_index *index);
struct size_node *vmm__size_index_smaller(const struct size_index *index,
                                          const struct size_node *node);

/* The first node of the first list after the one of `size`; NULL: none. */
struct size_node *vmm__size_index_above(const struct size_index *index, uint64_t size);

/* Iterate from small to large, list by list: the first node of the list of `size` or a later one (that list may contain
 * smaller nodes), and the one after `node`; NULL at the end. */
struct size_node *vmm__size_index_from(const struct size_index *index, uint64_t size);
static inline struct size_node *vmm__size_index_larger(const struct size_index *index,
                                                       const struct size_node *node)
{
    return node->next != &index->end ? node->next : vmm__size_index_above(index, node->size);
}

/* Returns whether invariants 1 and 2 hold. */
bool vmm__size_index_check(const struct size_index *index);

#endif
