/* The progress bar: see progress.h. */
#include "fragtest/cli/progress.h"

#include "fragtest/report/style.h"
#include "fragtest/report/wrap.h"

#include "base/time.h"

#include <stdarg.h>
#include <string.h>

#define PLAIN_WIDTH   80U
#define MOST_CELLS    32U
#define LEAST_CELLS   8U
#define PERCENT_CELLS 6U /* " 100 %" */
#define REDRAW_NS     50000000U
#define CLEAR_LINE    "\r\033[K"

void progress_init(struct progress *progress, FILE *out, bool utf8)
{
    *progress = (struct progress){ .out = out, .utf8 = utf8 };
    if (out == NULL)
        return;
    struct style style = style_of(out);
    progress->bar = style.escapes;
    progress->width = style.width;
}

/* Cells for the bar between a label of `length` and the percentage; 0: not enough to show one. */
static unsigned bar_cells(unsigned width, unsigned length)
{
    unsigned others = length + 2 + PERCENT_CELLS;
    unsigned cells = width > others ? width - others : 0;

    if (cells < LEAST_CELLS)
        return 0;
    return cells < MOST_CELLS ? cells : MOST_CELLS;
}

static void bar_draw(const struct progress *progress, uint64_t done)
{
    unsigned width = (progress->width == 0 ? PLAIN_WIDTH : progress->width) - 1;
    unsigned length = (unsigned)strlen(progress->label);
    unsigned shown = length + PERCENT_CELLS < width ? length : width - PERCENT_CELLS;
    unsigned cells = bar_cells(width, length);
    unsigned filled = (unsigned)(done * cells / progress->total);

    (void)fprintf(progress->out, CLEAR_LINE "%.*s%s", (int)shown, progress->label,
                  cells == 0 ? "" : "  ");
    for (unsigned i = 0; i < cells; i++) {
        if (progress->utf8)
            (void)fputs(i < filled ? "█" : "░", progress->out);
        else
            (void)fputc(i < filled ? '#' : '.', progress->out);
    }
    (void)fprintf(progress->out, " %3u %%", (unsigned)(done * 100 / progress->total));
    (void)fflush(progress->out);
}

void progress_begin(struct progress *progress, uint64_t total, const char *format, ...)
{
    va_list arguments;

    progress->total = total == 0 ? 1 : total;
    progress->drawn_ns = 0;
    va_start(arguments, format);
    (void)vsnprintf(progress->label, sizeof(progress->label), format, arguments);
    va_end(arguments);
    if (progress->out != NULL && !progress->bar)
        wrap_write(progress->out, progress->width, 0, 2, progress->label);
}

void progress_end(struct progress *progress)
{
    if (!progress->bar)
        return;
    (void)fputs(CLEAR_LINE, progress->out);
    (void)fflush(progress->out);
}

void progress_step(struct progress *progress, uint64_t done)
{
    if (!progress->bar)
        return;
    uint64_t now = vmm__time_ns();
    if (now - progress->drawn_ns < REDRAW_NS)
        return;
    progress->drawn_ns = now;
    bar_draw(progress, done);
}
