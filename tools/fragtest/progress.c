/* The progress bar: see progress.h. */
#include "progress.h"

#include "base/clock.h"

#include <stdarg.h>
#include <unistd.h>

#define BAR_CELLS  32U
#define REDRAW_NS  50000000U
#define CLEAR_LINE "\r\033[K"

void progress_init(struct progress *progress, FILE *out, bool utf8)
{
    *progress = (struct progress){ .out = out, .utf8 = utf8 };
    progress->bar = out != NULL && isatty(fileno(out)) != 0;
}

static void bar_draw(const struct progress *progress, uint64_t done)
{
    unsigned filled = (unsigned)(done * BAR_CELLS / progress->total);

    (void)fprintf(progress->out, CLEAR_LINE "%s  ", progress->label);
    for (unsigned i = 0; i < BAR_CELLS; i++) {
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
        (void)fprintf(progress->out, "%s\n", progress->label);
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
    uint64_t now = vmm__clock_ns();
    if (now - progress->drawn_ns < REDRAW_NS)
        return;
    progress->drawn_ns = now;
    bar_draw(progress, done);
}
