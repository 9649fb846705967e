/*
 * The memory picture: see picture.h.
 *
 * ROWS rows of COLUMNS cells. A cell shows live memory solid, to an eighth of its height
 * where the character set has such signs; reserved memory above it shaded; the limit as a line; and
 * the place where the run died. The value `top` lies in the middle of the highest row.
 */
#include "picture.h"

#include "sizes.h"

#include <inttypes.h>

#define ROWS        9U
#define COLUMNS     66U
#define LABEL_CELLS 9

enum { COLUMN_SAMPLES = TIMELINE_SAMPLES / COLUMNS };
_Static_assert(TIMELINE_SAMPLES % COLUMNS == 0, "columns of equal width");

enum cell { CELL_EMPTY, CELL_LIVE, CELL_RESERVED, CELL_LIMIT, CELL_DEATH };

struct canvas {
    FILE *out;
    struct style style;
    const struct result *result;
    double row_bytes;
    unsigned limit_row; /* ROWS: no limit */
    unsigned death_row;
    unsigned death_column; /* COLUMNS: it survived */
};

static const char *const colours[] = {
    [CELL_EMPTY] = "",         [CELL_LIVE] = "\033[32m",    [CELL_RESERVED] = "\033[33m",
    [CELL_LIMIT] = "\033[36m", [CELL_DEATH] = "\033[1;31m",
};

static const char *const signs_utf8[] = {
    [CELL_EMPTY] = " ", [CELL_LIVE] = "█",  [CELL_RESERVED] = "░",
    [CELL_LIMIT] = "╌", [CELL_DEATH] = "✗",
};

static const char *const signs_ascii[] = {
    [CELL_EMPTY] = " ", [CELL_LIVE] = "#",  [CELL_RESERVED] = ":",
    [CELL_LIMIT] = "-", [CELL_DEATH] = "X",
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

static void cell_put(const struct canvas *canvas, enum cell cell, const char *sign)
{
    if (canvas->style.colour && cell != CELL_EMPTY)
        (void)fprintf(canvas->out, "%s%s\033[0m", colours[cell], sign);
    else
        (void)fputs(sign, canvas->out);
}

static struct timeline_sample column_of(const struct timeline *timeline, unsigned column)
{
    const struct timeline_sample *samples = &timeline->samples[(size_t)column * COLUMN_SAMPLES];
    struct timeline_sample highest = { 0 };

    for (unsigned i = 0; i < COLUMN_SAMPLES; i++)
        timeline_raise(&highest, samples[i].live_bytes, samples[i].reserved_bytes);
    return highest;
}

static void cell_draw(const struct canvas *canvas, unsigned row, unsigned column)
{
    struct timeline_sample at = column_of(&canvas->result->timeline, column);
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
    if (cell == CELL_LIVE && canvas->style.utf8)
        cell_put(canvas, cell, eighths[live]);
    else
        cell_put(canvas, cell, (canvas->style.utf8 ? signs_utf8 : signs_ascii)[cell]);
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
    (void)fprintf(canvas->out, "%*s ", LABEL_CELLS, label.text);
    if (canvas->style.utf8)
        (void)fputs(tick ? "┤" : "│", canvas->out);
    else
        (void)fputc(tick ? '+' : '|', canvas->out);
    for (unsigned column = 0; column < COLUMNS; column++)
        cell_draw(canvas, row, column);
    (void)fputc('\n', canvas->out);
}

static void axis_draw(const struct canvas *canvas)
{
    char right[64];
    int middle = (int)COLUMNS / 2 + 2;

    (void)fprintf(canvas->out, "%*s %s", LABEL_CELLS, "0", canvas->style.utf8 ? "└" : "+");
    for (unsigned column = 0; column < COLUMNS; column++)
        (void)fputs(canvas->style.utf8 ? "─" : "-", canvas->out);
    (void)snprintf(right, sizeof(right), "100 %% of %" PRIu64 " operations",
                   canvas->result->timeline.ops);
    (void)fprintf(canvas->out, "\n%*s  0 %%%*s%*s\n", LABEL_CELLS, "", middle - 3, "50 %",
                  (int)COLUMNS - middle, right);
}

static void title_draw(const struct canvas *canvas)
{
    const struct result *result = canvas->result;
    const char *dash = canvas->style.utf8 ? "—" : "-";

    (void)fprintf(canvas->out, "%s %s %s", result->trace->name, dash, result->policy->name);
    if (result->outcome.ok)
        (void)fprintf(canvas->out, " survived, reserved at most %s\n",
                      size_format(result->outcome.peak_reserved_bytes).text);
    else
        (void)fprintf(canvas->out, " died at %.0f %%\n",
                      100.0 * (double)result->timeline.ops_done / (double)result->timeline.ops);
}

static void death_place(struct canvas *canvas)
{
    const struct timeline *timeline = &canvas->result->timeline;

    canvas->death_column = COLUMNS;
    canvas->death_row = ROWS;
    if (canvas->result->outcome.ok || timeline->ops_done >= timeline->ops)
        return;
    canvas->death_column = timeline_sample(timeline, timeline->ops_done) / COLUMN_SAMPLES;
    canvas->death_row = row_of(canvas, column_of(timeline, canvas->death_column).reserved_bytes);
}

void picture_draw(FILE *out, struct style style, const struct result *result, uint64_t top_bytes)
{
    struct canvas canvas = { .out = out, .style = style, .result = result, .limit_row = ROWS };

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
    static const struct {
        enum cell cell;
        const char *text;
    } entries[] = {
        { CELL_LIVE, "live" },
        { CELL_RESERVED, "reserved, not live" },
        { CELL_LIMIT, "limit" },
        { CELL_DEATH, "out of memory" },
    };
    struct canvas canvas = { .out = out, .style = style };

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        (void)fputs(i == 0 ? "           " : "   ", out);
        cell_put(&canvas, entries[i].cell,
                 (style.utf8 ? signs_utf8 : signs_ascii)[entries[i].cell]);
        (void)fprintf(out, " %s", entries[i].text);
    }
    (void)fputs("\n\n", out);
}
