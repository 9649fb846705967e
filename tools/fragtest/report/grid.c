/* Tables of text: see grid.h. */
#include "fragtest/report/grid.h"

#include <stdarg.h>
#include <string.h>

struct grid_cell *grid_add(struct grid_row *row, const char *title, const char *format, ...)
{
    struct grid_cell *cell = &row->cells[row->count++];
    va_list arguments;

    (void)snprintf(cell->title, sizeof(cell->title), "%s", title);
    va_start(arguments, format);
    (void)vsnprintf(cell->text, sizeof(cell->text), format, arguments);
    va_end(arguments);
    return cell;
}

static unsigned longer(unsigned width, const char *text)
{
    unsigned length = (unsigned)strlen(text);
    return length > width ? length : width;
}

void grid_widen(struct grid_widths *widths, const struct grid_row *row)
{
    for (unsigned i = 0; i < row->count; i++)
        widths->columns[i] =
            longer(longer(widths->columns[i], row->cells[i].title), row->cells[i].text);
}

static bool is_shown(const struct grid_cell *cell)
{
    return cell->title[0] != '\0';
}

/* The columns from `begin` on that fit beside the first: the first that does not, at least one on. */
static unsigned part_end(const struct grid_row *row, const struct grid_widths *widths,
                         unsigned width, unsigned begin)
{
    unsigned used = widths->columns[0];
    unsigned end = begin;

    for (; end < row->count; end++) {
        if (!is_shown(&row->cells[end]))
            continue;
        used += 2 + widths->columns[end];
        if (width != 0 && used > width && end > begin)
            break;
    }
    return end;
}

/* The first column, then those from begin to before end: titles or texts. */
static void line_write(FILE *out, const struct grid_row *row, const struct grid_widths *widths,
                       unsigned begin, unsigned end, bool is_title)
{
    for (unsigned i = 0; i < end; i = i == 0 ? begin : i + 1) {
        const struct grid_cell *cell = &row->cells[i];
        if (is_shown(cell))
            (void)fprintf(out, cell->is_left || i == 0 ? "%s%-*s" : "%s%*s", i == 0 ? "" : "  ",
                          (int)widths->columns[i], is_title ? cell->title : cell->text);
    }
    (void)fputc('\n', out);
}

void grid_write(FILE *out, unsigned width, const struct grid_widths *widths,
                const struct grid_row *rows, unsigned count)
{
    for (unsigned begin = 1, end; begin < rows[0].count; begin = end) {
        end = part_end(&rows[0], widths, width, begin);
        line_write(out, &rows[0], widths, begin, end, true);
        for (unsigned i = 0; i < count; i++)
            line_write(out, &rows[i], widths, begin, end, false);
    }
}
