/* Two-level index of free things by size: see sizeindex.h. */
#include "base/sizeindex.h"

/* How many nodes of one list are looked at for a better fit before the best so far is taken. */
enum { PROBES = 16, PROBES_MOST = 256 };

/* The smallest of a list's first nodes that is at least `size`. */
static struct size_node *list_fit(struct size_node *head, uint64_t size)
{
    struct size_node *best = NULL;
    int probes = PROBES;
    for (struct size_node *node = head; node != NULL && probes > 0; node = node->next, probes--) {
        if (node->size >= size && (best == NULL || node->size < best->size))
            best = node;
    }
    return best;
}

/* The first list after `place`: all in it are larger than any size that belongs to `place`. */
static struct size_node *list_above(const struct size_index *index, struct size_place place)
{
    uint32_t columns = 0;
    if (place.column + 1 < SIZE_INDEX_COLUMNS)
        columns = index->columns[place.row] & (UINT32_MAX << (place.column + 1));
    if (columns != 0)
        return index->heads[place.row][__builtin_ctz(columns)];
    uint64_t rows = 0;
    if (place.row + 1 < SIZE_INDEX_ROWS)
        rows = index->rows & (UINT64_MAX << (place.row + 1));
    if (rows == 0)
        return NULL;
    unsigned row = (unsigned)__builtin_ctzll(rows);
    return index->heads[row][__builtin_ctz(index->columns[row])];
}

/* The request's own list: the last resort when nothing larger exists. */
static struct size_node *list_search(struct size_node *head, uint64_t size, uint64_t most)
{
    for (struct size_node *node = head; node != NULL && most > 0; node = node->next, most--) {
        if (node->size >= size)
            return node;
    }
    return NULL;
}

struct size_node *vmm__size_index_find(const struct size_index *index, uint64_t size)
{
    struct size_place place = vmm__size_place(size);
    struct size_node *own = index->heads[place.row][place.column];
    struct size_node *fit = list_fit(own, size);
    if (fit == NULL)
        fit = list_fit(list_above(index, place), size);
    if (fit == NULL)
        fit = list_search(own, size, index->search_all ? UINT64_MAX : PROBES_MOST);
    return fit;
}

struct size_node *vmm__size_index_largest(const struct size_index *index)
{
    if (index->rows == 0)
        return NULL;
    unsigned row = vmm__log2(index->rows);
    return index->heads[row][vmm__log2(index->columns[row])];
}

struct size_node *vmm__size_index_smaller(const struct size_index *index,
                                          const struct size_node *node)
{
    if (node->next != NULL)
        return node->next;
    struct size_place place = vmm__size_place(node->size);
    uint32_t columns = index->columns[place.row] & ((1U << place.column) - 1);
    if (columns != 0)
        return index->heads[place.row][vmm__log2(columns)];
    uint64_t rows = index->rows & ((UINT64_C(1) << place.row) - 1);
    if (rows == 0)
        return NULL;
    unsigned row = vmm__log2(rows);
    return index->heads[row][vmm__log2(index->columns[row])];
}

struct size_node *vmm__size_index_from(const struct size_index *index, uint64_t size)
{
    struct size_place place = vmm__size_place(size);
    struct size_node *head = index->heads[place.row][place.column];
    return head != NULL ? head : list_above(index, place);
}

struct size_node *vmm__size_index_larger(const struct size_index *index,
                                         const struct size_node *node)
{
    return node->next != NULL ? node->next : list_above(index, vmm__size_place(node->size));
}

static bool list_check(const struct size_index *index, struct size_place place)
{
    const struct size_node *head = index->heads[place.row][place.column];
    bool bit = (index->columns[place.row] >> place.column & 1) != 0;
    if ((head != NULL) != bit)
        return false;
    struct size_node *const *link = &index->heads[place.row][place.column];
    for (const struct size_node *node = head; node != NULL; link = &node->next, node = node->next) {
        struct size_place own = vmm__size_place(node->size);
        if (node->link != link || own.row != place.row || own.column != place.column)
            return false;
    }
    return true;
}

bool vmm__size_index_check(const struct size_index *index)
{
    for (unsigned row = 0; row < SIZE_INDEX_ROWS; row++) {
        if ((index->columns[row] != 0) != ((index->rows >> row & 1) != 0))
            return false;
        for (unsigned column = 0; column < SIZE_INDEX_COLUMNS; column++) {
            if (!list_check(index, (struct size_place){ .row = row, .column = column }))
                return false;
        }
    }
    return true;
}
