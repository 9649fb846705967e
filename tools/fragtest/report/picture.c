/*
 * The memory picture: see picture.h.
 *
 * ROWS rows of as many cells as fit the output's width. A cell shows live memory solid, to an eighth of its height
 * where the character set has such signs; reserved memory above it shaded; the limit as a line; and
 * the place where the run died. The value `top` lies in the middle of the highest row.
 */
#include "fragtest/report/picture.h"

#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"

#include <inttypes.h>
#include <string.h>

#define ROWS          9U
#define PLAIN_COLUMNS 66U /* where the output's width has no limit */
#define MOST_COLUMNS  132U
#define LABEL_CELLS   9U
#define FRAME_CELLS   (LABEL_CELLS + 2) /* left of the cells */

_Static_assert(STYLE_LEAST_WIDTH > FRAME_CELLS, "there is always room for cells");

enum cell { CELL_EMPTY, CELL_LIVE, CELL_RESERVED, CELL_LIMIT, CELL_DEATH };

struct canvas {
    FILE *out;
    struct style style;
    const struct result *result;
    double row_bytes;
    unsigned columns;
    unsigned limit_row; /* ROWS: no limit */
    unsigned death_row;
    unsigned death_column; /* `columns`: it survived */
};

/* How the kinds of cells look, and what the legend says of them. */
static const struct {
    const char *colour;
    const char *utf8;
    const char *ascii;
    const char *text;
} looks[] = {
    [CELL_EMPTY] = { "", " ", " ", "" },
    [CELL_LIVE] = { "\033[32m", "█", "#", "live" },
    [CELL_RESERVED] = { "\033[33m", "░", ":", "reserved, not live" },
    [CELL_LIMIT] = { "\033[36m", "╌", "-", "limit" },
    [CELL_DEATH] = { "\033[1;31m", "✗", "X", "out of memory" },
};

static const char *const eighths[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };

uint64_t picture_top(const struct result *result)
{
    uint64_t top = result->outcome.peak_reserved_bytes;

    if (result->outcome.peak_live_bytes > top)
        top = result->outcome.peak_live_bytes;
    return result->limit_bytes > top ? result->limit_bytes : top;
}

/* Eighths of the row that are filled when memory reaches up to `bytes`. */
static unsigned row_filled(const struct canvas *canvas, unsigned row, uint64_t bytes)
{
    double filled = ((double)bytes / canvas->row_bytes - row) * 8 + 0.5;
    return filled <= 0 ? 0 : filled >= 8 ? 8 : (unsigned)filled;
}

static unsigned row_of(const struct canvas *canvas, uint64_t bytes)
{
    unsigned row = (unsigned)((double)bytes / canvas->row_bytes);
    return row < ROWS ? row : ROWS - 1;
}

/* `sign`: another one than that of the kind; NULL: none. */
static void cell_put(const struct canvas *canvas, enum cell cell, const char *sign)
{
    if (sign == NULL)
        sign = canvas->style.utf8 ? looks[cell].utf8 : looks[cell].ascii;
    if (canvas->style.colour && cell != CELL_EMPTY)
        (void)fprintf(canvas->out, "%s%s\033[0m", looks[cell].colour, sign);
    else
        (void)fputs(sign, canvas->out);
}

static unsigned columns_fit(struct style style)
{
    if (style.width == 0)
        return PLAIN_COLUMNS;
    unsigned columns = style.width - FRAME_CELLS;
    return columns < MOST_COLUMNS ? columns : MOST_COLUMNS;
}

/* The highest of the samples that a column stands for. */
static struct timeline_sample column_of(const struct canvas *canvas, unsigned column)
{
    const struct timeline *timeline = &canvas->result->timeline;
    struct timeline_sample highest = { 0 };

    for (unsigned i = column * TIMELINE_SAMPLES / canvas->columns;
         i < (column + 1) * TIMELINE_SAMPLES / canvas->columns; i++)
        timeline_raise(&highest, timeline->samples[i].live_bytes,
                       timeline->samples[i].reserved_bytes);
    return highest;
}

/* The column that stands for a sample. */
static unsigned column_with(const struct canvas *canvas, unsigned sample)
{
    unsigned column = sample * canvas->columns / TIMELINE_SAMPLES;
    return (column + 1) * TIMELINE_SAMPLES / canvas->columns <= sample ? column + 1 : column;
}

static void cell_draw(const struct canvas *canvas, unsigned row, unsigned column)
{
    struct timeline_sample at = column_of(canvas, column);
    unsigned live = row_filled(canvas, row, at.live_bytes);
    unsigned reserved = row_filled(canvas, row, at.reserved_bytes);
    enum cell cell = CELL_EMPTY;

    if (row == canvas->death_row && column == canvas->death_column)
        cell = CELL_DEATH;
    else if (live >= 4 || (live > 0 && canvas->style.utf8))
        cell = CELL_LIVE;
    else if (reserved >= 4)
        cell = CELL_RESERVED;
    else if (row == canvas->limit_row)
        cell = CELL_LIMIT;
    cell_put(canvas, cell, cell == CELL_LIVE && canvas->style.utf8 ? eighths[live] : NULL);
}

static void row_draw(const struct canvas *canvas, unsigned row, uint64_t top_bytes)
{
    struct size_text label = { "" };
    bool tick = true;

    if (row == canvas->limit_row)
        label = size_format(canvas->result->limit_bytes);
    else if (row == ROWS - 1)
        label = size_format(top_bytes);
    else if (row == ROWS / 2)
        label = size_format((uint64_t)((row + 0.5) * canvas->row_bytes));
    else
        tick = false;
    (void)fprintf(canvas->out, "%*s ", (int)LABEL_CELLS, label.text);
    if (canvas->style.utf8)
        (void)fputs(tick ? "┤" : "│", canvas->out);
    else
        (void)fputc(tick ? '+' : '|', canvas->out);
    for (unsigned column = 0; column < canvas->columns; column++)
        cell_draw(canvas, row, column);
    (void)fputc('\n', canvas->out);
}

static void axis_draw(const struct canvas *canvas)
{
    char right[64];
    int middle = (int)canvas->columns / 2 + 2;

    (void)fprintf(canvas->out, "%*s %s", (int)LABEL_CELLS, "0", canvas->style.utf8 ? "└" : "+");
    for (unsigned column = 0; column < canvas->columns; column++)
        (void)fputs(canvas->style.utf8 ? "─" : "-", canvas->out);
    int length = snprintf(right, sizeof(right), "100 %% of %" PRIu64 " operations",
                          canvas->result->timeline.ops);
    bool has_middle = (int)canvas->columns - middle > length;
    if (length > (int)canvas->columns - 6)
        (void)snprintf(right, sizeof(right), "100 %%");
    (void)fprintf(canvas->out, "\n%*s  0 %%", (int)LABEL_CELLS, "");
    if (has_middle)
        (void)fprintf(canvas->out, "%*s%*s\n", middle - 3, "50 %", (int)canvas->columns - middle,
                      right);
    else
        (void)fprintf(canvas->out, "%*s\n", (int)canvas->columns - 3, right);
}

static void title_draw(const struct canvas *canvas)
{
    const struct result *result = canvas->result;
    const char *dash = canvas->style.utf8 ? "—" : "-";
    char end[64];
    char text[256];

    if (result->outcome.ok)
        (void)snprintf(end, sizeof(end), "survived, reserved at most %s",
                       size_format(result->outcome.peak_reserved_bytes).text);
    else
        (void)snprintf(end, sizeof(end), "died at %.0f %%",
                       100.0 * (double)result->timeline.ops_done / (double)result->timeline.ops);
    (void)snprintf(text, sizeof(text), "%s %s %s %s", result->trace->name, dash,
                   result->policy->name, end);
    wrap_write(canvas->out, canvas->style.width, 0, 2, text);
}

static void death_place(struct canvas *canvas)
{
    const struct timeline *timeline = &canvas->result->timeline;

    canvas->death_column = canvas->columns;
    canvas->death_row = ROWS;
    if (canvas->result->outcome.ok || timeline->ops_done >= timeline->ops)
        return;
    canvas->death_column = column_with(canvas, timeline_sample(timeline, timeline->ops_done));
    canvas->death_row = row_of(canvas, column_of(canvas, canvas->death_column).reserved_bytes);
}

void picture_draw(FILE *out, struct style style, const struct result *result, uint64_t top_bytes)
{
    struct canvas canvas = {
        .out = out,
        .style = style,
        .result = result,
        .columns = columns_fit(style),
        .limit_row = ROWS,
    };

    canvas.row_bytes = (double)top_bytes / (ROWS - 0.5);
    if (result->limit_bytes > 0)
        canvas.limit_row = row_of(&canvas, result->limit_bytes);
    death_place(&canvas);
    title_draw(&canvas);
    for (unsigned row = ROWS; row-- > 0;)
        row_draw(&canvas, row, top_bytes);
    axis_draw(&canvas);
    (void)fputc('\n', out);
}

void picture_legend(FILE *out, struct style style)
{
    struct canvas canvas = { .out = out, .style = style };
    unsigned used = FRAME_CELLS;

    (void)fprintf(out, "%*s", (int)used, "");
    for (enum cell cell = CELL_LIVE; cell <= CELL_DEATH; cell++) {
        bool is_first = cell == CELL_LIVE;
        unsigned columns = (unsigned)strlen(looks[cell].text) + (is_first ? 2 : 5);
        bool fits = is_first || style.width == 0 || used + columns <= style.width;
        if (!fits)
            (void)fprintf(out, "\n%*s", (int)FRAME_CELLS, "");
        else if (!is_first)
            (void)fputs("   ", out);
        used = fits ? used + columns : FRAME_CELLS + columns - 3;
        cell_put(&canvas, cell, NULL);
        (void)fprintf(out, " %s", looks[cell].text);
    }
    (void)fputs("\n\n", out);
}
