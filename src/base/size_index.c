/* A two-level index of free memory by size: see size_index.h. */
#include "base/size_index.h"
#include "base/hostmem.h"

/* How many nodes of one list a search compares before it takes the best of them. */
enum { FEW = 2, PROBES = 16, PROBES_MOST = 256 };

/* The row of one unit. Those below have no heads. */
static unsigned row_least(const struct size_index *index)
{
    return vmm__size_list(index, 0) / SIZE_INDEX_COLUMNS;
}

static size_t heads_count(const struct size_index *index)
{
    return (size_t)index->head_rows * SIZE_INDEX_COLUMNS;
}

static void heads_free(struct size_index *index)
{
    vmm__host_free(index->heads, heads_count(index) * sizeof *index->heads);
}

bool vmm__size_index_open(struct size_index *index, uint64_t most)
{
    unsigned least = row_least(index);
    uint32_t rows = vmm__size_list(index, most) / SIZE_INDEX_COLUMNS - least + 1;
    if (rows <= index->head_rows)
        return true;
    struct size_node **heads = vmm__host_alloc(rows, SIZE_INDEX_COLUMNS * sizeof *heads);
    if (heads == NULL)
        return false;
    for (size_t i = 0; i < heads_count(index); i++) {
        heads[i] = index->heads[i];
        if (heads[i] != NULL)
            heads[i]->link = &heads[i];
    }
    heads_free(index);
    index->heads = heads;
    index->head_rows = rows;
    index->list_zero = (uintptr_t)heads - least * SIZE_INDEX_COLUMNS * sizeof *heads;
    return true;
}

void vmm__size_index_close(struct size_index *index)
{
    heads_free(index);
    *index = (struct size_index){ .columns_bytes = index->columns_bytes };
    index->end.next = &index->end;
}

struct fit {
    uintptr_t best;  /* 0: none yet */
    uint64_t excess; /* a better fit has less */
};

/* Uses masks, because a branch on whether a node fits better would be unpredictable. The excess of a node that is too
 * small wraps modulo 2^64, to more than that of any node that fits. */
static inline void fit_improve(struct fit *fit, const struct size_node *node, uint64_t size)
{
    uint64_t excess = node->size - size;
    uint64_t better = -(uint64_t)(excess < fit->excess);
    fit->best ^= (fit->best ^ (uintptr_t)node) & better;
    fit->excess ^= (fit->excess ^ excess) & better;
}

/* Returns the smallest of a list's first nodes that is at least `size`. Most lists are short: the first FEW steps run
 * without a branch, however many nodes there are. An exact fit ends the search. */
static inline struct size_node *list_fit(const struct size_index *index,
                                         const struct size_node *head, uint64_t size)
{
    if (head == NULL)
        return NULL;
    struct fit fit = { .excess = -size };
    const struct size_node *node = head;
    for (int i = 0; i < FEW; i++, node = node->next)
        fit_improve(&fit, node, size);
    int most = PROBES & -(int)((node != &index->end) & (fit.excess != 0));
    for (int i = FEW; i < most && node != &index->end; i++, node = node->next)
        fit_improve(&fit, node, size);
    return (struct size_node *)fit.best;
}

/* The first list of a row. */
static struct size_node *row_first(const struct size_index *index, unsigned row)
{
    unsigned column = (unsigned)__builtin_ctz(index->columns[row]);
    return *vmm__size_head(index, row * SIZE_INDEX_COLUMNS + column);
}

/* The first list of the rows above one. */
static struct size_node *row_above(const struct size_index *index, unsigned row)
{
    uint64_t rows = index->rows & (UINT64_MAX - 1) << row;
    return rows == 0 ? NULL : row_first(index, (unsigned)__builtin_ctzll(rows));
}

/* The first list of a row whose column is one of `columns`, or else of the rows above. */
static inline struct size_node *list_in_columns(const struct size_index *index, unsigned row,
                                                uint32_t columns)
{
    columns &= index->columns[row];
    if (columns == 0)
        return row_above(index, row);
    return *vmm__size_head(index, row * SIZE_INDEX_COLUMNS + (unsigned)__builtin_ctz(columns));
}

/* The first list that is not empty, from one on. */
static inline struct size_node *list_from(const struct size_index *index, unsigned list)
{
    return list_in_columns(index, list / SIZE_INDEX_COLUMNS,
                           UINT32_MAX << list % SIZE_INDEX_COLUMNS);
}

/* The first list that is not empty after one. Its nodes are larger than any size that belongs to that one. */
static struct size_node *list_above(const struct size_index *index, unsigned list)
{
    return list_in_columns(index, list / SIZE_INDEX_COLUMNS,
                           (UINT32_MAX - 1) << list % SIZE_INDEX_COLUMNS);
}

/* Searches the request's own list, which is not empty: the last resort if no larger node exists. */
static struct size_node *list_search(const struct size_index *index, unsigned list, uint64_t size,
                                     enum search_depth search)
{
    uint64_t most = search == SEARCH_WHOLE ? UINT64_MAX : PROBES_MOST;
    struct size_node *node = *vmm__size_head(index, list);
    for (; node != &index->end; node = node->next) {
        if (node->size >= size)
            return node;
        if (--most == 0) /* hint: a bound on the effort */
            break;
    }
    return NULL;
}

struct size_node *vmm__size_index_find(const struct size_index *index, uint64_t size,
                                       enum search_depth search)
{
    unsigned list = vmm__size_list(index, size);
    struct size_node *head = list_from(index, list);
    struct size_node *fit = list_fit(index, head, size);
    if (fit != NULL || head == NULL)
        return fit;
    fit = list_fit(index, list_above(index, list), size); /* the first list was the request's own */
    return fit != NULL ? fit : list_search(index, list, size, search);
}

/* The last list of a row whose column is one of `columns`. */
static struct size_node *row_last(const struct size_index *index, unsigned row, uint32_t columns)
{
    return *vmm__size_head(index, row * SIZE_INDEX_COLUMNS + vmm__log2(columns));
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
    if (node->next != &index->end)
        return node->next;
    unsigned list = vmm__size_list(index, node->size);
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
    return list_from(index, vmm__size_list(index, size));
}

struct size_node *vmm__size_index_above(const struct size_index *index, uint64_t size)
{
    return list_above(index, vmm__size_list(index, size));
}

static bool list_check(const struct size_index *index, unsigned list)
{
    const struct size_node *end = &index->end;
    struct size_node *const *link = vmm__size_head(index, list);
    const struct size_node *head = *link != NULL ? *link : end;
    uint32_t columns = index->columns[list / SIZE_INDEX_COLUMNS];
    if ((head != end) != ((columns >> list % SIZE_INDEX_COLUMNS & 1) != 0))
        return false;
    for (const struct size_node *node = head; node != end; link = &node->next, node = node->next) {
        if (node->link != link || vmm__size_list(index, node->size) != list)
            return false;
    }
    return true;
}

bool vmm__size_index_check(const struct size_index *index)
{
    if (index->end.size != 0 || index->end.next != &index->end)
        return false;
    for (unsigned row = 0; row < SIZE_INDEX_ROWS; row++) {
        if ((index->columns[row] != 0) != ((index->rows >> row & 1) != 0))
            return false;
    }
    unsigned least = row_least(index);
    unsigned end = least + index->head_rows;
    uint64_t with_heads = (UINT64_C(1) << end) - (UINT64_C(1) << least);
    for (unsigned list = least * SIZE_INDEX_COLUMNS; list < end * SIZE_INDEX_COLUMNS; list++) {
        if (!list_check(index, list))
            return false;
    }
    return (index->rows & ~with_heads) == 0;
}
