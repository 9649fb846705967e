/* Two-level index of free things by size: see sizeindex.h. */
#include "base/sizeindex.h"

/* How many nodes of one list are looked at for a better fit before the best so far is taken. */
enum { FEW = 2, PROBES = 16, PROBES_MOST = 256 };

struct fit {
    uintptr_t best;  /* 0: none yet */
    uint64_t excess; /* what fits better has less */
};

/* Whether a node fits better is as good as random; with masks no compiler makes a branch of it. Modulo 2^64
 * what is too small exceeds `size` by more than anything that fits can. */
static inline void fit_look(struct fit *fit, const struct size_node *node, uint64_t size)
{
    uint64_t excess = node->size - size;
    uint64_t better = -(uint64_t)(excess < fit->excess);
    fit->best ^= (fit->best ^ (uintptr_t)node) & better;
    fit->excess ^= (fit->excess ^ excess) & better;
}

/* The smallest of a list's first nodes that is at least `size`. Most lists are short: how many of the first
 * FEW there are makes no difference to what is done. Nothing is better than an exact fit. */
static inline struct size_node *list_fit(const struct size_index *index,
                                         const struct size_node *head, uint64_t size)
{
    if (head == NULL)
        return NULL;
    struct fit fit = { .excess = -size };
    const struct size_node *node = head;
    for (int i = 0; i < FEW; i++, node = node->next)
        fit_look(&fit, node, size);
    int most = PROBES & -(int)((node != &index->nobody) & (fit.excess != 0));
    for (int i = FEW; i < most && node != &index->nobody; i++, node = node->next)
        fit_look(&fit, node, size);
    return (struct size_node *)fit.best;
}

/* The first list of a row. */
static struct size_node *row_first(const struct size_index *index, unsigned row)
{
    unsigned column = (unsigned)__builtin_ctz(index->columns[row]);
    return index->heads[row * SIZE_INDEX_COLUMNS + column];
}

/* The first list of the rows above one. */
static struct size_node *row_above(const struct size_index *index, unsigned row)
{
    uint64_t rows = index->rows & (UINT64_MAX - 1) << row;
    return rows == 0 ? NULL : row_first(index, (unsigned)__builtin_ctzll(rows));
}

/* The first list of a row whose column is one of `columns`, or else of the rows above. */
static inline struct size_node *list_among(const struct size_index *index, unsigned row,
                                           uint32_t columns)
{
    columns &= index->columns[row];
    if (columns == 0)
        return row_above(index, row);
    return index->heads[row * SIZE_INDEX_COLUMNS + (unsigned)__builtin_ctz(columns)];
}

/* The first list that is not empty, from one on. */
static inline struct size_node *list_from(const struct size_index *index, unsigned list)
{
    return list_among(index, list / SIZE_INDEX_COLUMNS, UINT32_MAX << list % SIZE_INDEX_COLUMNS);
}

/* The same after it: all in there are larger than any size that belongs to it. */
static struct size_node *list_above(const struct size_index *index, unsigned list)
{
    return list_among(index, list / SIZE_INDEX_COLUMNS,
                      (UINT32_MAX - 1) << list % SIZE_INDEX_COLUMNS);
}

/* The request's own list, which is not empty: the last resort when nothing larger exists. */
static struct size_node *list_search(const struct size_index *index, unsigned list, uint64_t size)
{
    uint64_t most = index->search_all ? UINT64_MAX : PROBES_MOST;
    struct size_node *node = index->heads[list];
    for (; node != &index->nobody; node = node->next) {
        if (node->size >= size)
            return node;
        if (--most == 0) /* hint: a bound on the effort */
            break;
    }
    return NULL;
}

struct size_node *vmm__size_index_find(const struct size_index *index, uint64_t size)
{
    unsigned list = vmm__size_list(size);
    struct size_node *head = list_from(index, list);
    struct size_node *fit = list_fit(index, head, size);
    if (fit != NULL || head == NULL)
        return fit;
    fit = list_fit(index, list_above(index, list), size); /* the first one was the request's own */
    return fit != NULL ? fit : list_search(index, list, size);
}

/* The last list of a row whose column is one of `columns`. */
static struct size_node *row_last(const struct size_index *index, unsigned row, uint32_t columns)
{
    return index->heads[row * SIZE_INDEX_COLUMNS + vmm__log2(columns)];
}

struct size_node *vmm__size_index_largest(const struct size_index *index)
{
    if (index->rows == 0)
        return NULL;
    unsigned row = vmm__log2(index->rows);
    return row_last(index, row, index->columns[row]);
}

struct size_node *vmm__size_index_smaller(const struct size_index *index,
                                          const struct size_node *node)
{
    if (node->next != &index->nobody)
        return node->next;
    unsigned list = vmm__size_list(node->size);
    unsigned row = list / SIZE_INDEX_COLUMNS;
    uint32_t columns = index->columns[row] & ((UINT32_C(1) << list % SIZE_INDEX_COLUMNS) - 1);
    if (columns != 0)
        return row_last(index, row, columns);
    uint64_t rows = index->rows & ((UINT64_C(1) << row) - 1);
    if (rows == 0)
        return NULL;
    row = vmm__log2(rows);
    return row_last(index, row, index->columns[row]);
}

struct size_node *vmm__size_index_from(const struct size_index *index, uint64_t size)
{
    return list_from(index, vmm__size_list(size));
}

struct size_node *vmm__size_index_larger(const struct size_index *index,
                                         const struct size_node *node)
{
    return node->next != &index->nobody ? node->next
                                        : list_above(index, vmm__size_list(node->size));
}

static bool list_check(const struct size_index *index, unsigned list)
{
    const struct size_node *end = &index->nobody;
    const struct size_node *head = index->heads[list] != NULL ? index->heads[list] : end;
    uint32_t columns = index->columns[list / SIZE_INDEX_COLUMNS];
    if ((head != end) != ((columns >> list % SIZE_INDEX_COLUMNS & 1) != 0))
        return false;
    struct size_node *const *link = &index->heads[list];
    for (const struct size_node *node = head; node != end; link = &node->next, node = node->next) {
        if (node->link != link || vmm__size_list(node->size) != list)
            return false;
    }
    return true;
}

bool vmm__size_index_check(const struct size_index *index)
{
    if (index->nobody.size != 0 || index->nobody.next != &index->nobody)
        return false;
    for (unsigned row = 0; row < SIZE_INDEX_ROWS; row++) {
        if ((index->columns[row] != 0) != ((index->rows >> row & 1) != 0))
            return false;
    }
    for (unsigned list = 0; list < SIZE_INDEX_ROWS * SIZE_INDEX_COLUMNS; list++) {
        if (!list_check(index, list))
            return false;
    }
    return true;
}
