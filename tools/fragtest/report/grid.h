/*
 * A table of text that fits a width. One that is too wide is written in parts, one below the other; each begins with
 * the first column. Plain ASCII, so that a byte is a column.
 *
 * Owns: nothing. May be called by: table, unrecorded_show. Locks: none.
 */
#ifndef FRAGTEST_GRID_H
#define FRAGTEST_GRID_H

#include <stdbool.h>
#include <stdio.h>

#define GRID_COLUMNS    18
#define GRID_CELL_BYTES 48

struct grid_cell {
    char title[GRID_CELL_BYTES]; /* of its column; empty: the column is not shown */
    char text[GRID_CELL_BYTES];
    bool is_left;
};

/* The cells of a row, to which each row adds the same columns. All zero is an empty row. */
struct grid_row {
    struct grid_cell cells[GRID_COLUMNS];
    unsigned count;
};

/* How wide the columns are of all rows that are added. All zero before the first. */
struct grid_widths {
    unsigned columns[GRID_COLUMNS];
};

/* Adds a cell; the result may be changed. */
struct grid_cell *grid_add(struct grid_row *row, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void grid_widen(struct grid_widths *widths, const struct grid_row *row);

/* Writes rows below their titles, in lines of at most `width` columns; 0: no limit. */
void grid_write(FILE *out, unsigned width, const struct grid_widths *widths,
                const struct grid_row *rows, unsigned count);

#endif
