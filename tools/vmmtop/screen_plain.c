/* A screen without ncurses: see screen.h. */
#define _GNU_SOURCE
#include "vmmtop/screen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLEAR "\033[H\033[2J"

int screen_run(struct processes *processes, unsigned period_ms)
{
    struct timespec pause = { .tv_sec = period_ms / 1000, .tv_nsec = period_ms % 1000 * 1000000L };
    while (processes_scan(processes)) {
        (void)fputs(isatty(STDOUT_FILENO) ? CLEAR : "", stdout);
        if (!screen_print(processes))
            (void)puts("This process does not publish.");
        (void)fflush(stdout);
        (void)nanosleep(&pause, NULL);
    }
    (void)fprintf(stderr, "vmmtop: cannot read %s: %s\n", processes->folder, strerror(errno));
    return 2;
}
