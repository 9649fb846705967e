/* A screen without ncurses: see screen.h. */
#define _GNU_SOURCE
#include "vmmtop/screen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLEAR "\033[H\033[2J"

static void text_print(const char *text)
{
    (void)fputs(isatty(STDOUT_FILENO) ? CLEAR : "", stdout);
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        (void)printf("%.*s\n", (int)length - 1, text + 1);
        text += length + 1;
    }
    (void)fflush(stdout);
}

int screen_run(struct processes *processes, unsigned period_ms)
{
    struct timespec pause = { .tv_sec = period_ms / 1000, .tv_nsec = period_ms % 1000 * 1000000L };
    while (processes_scan(processes)) {
        char *text = screen_text(processes, processes->only);
        if (text != NULL && *text != '\0')
            text_print(text);
        else
            text_print(" This process does not publish.\n");
        free(text);
        (void)nanosleep(&pause, NULL);
    }
    (void)fprintf(stderr, "vmmtop: cannot read %s: %s\n", processes->folder, strerror(errno));
    return 2;
}
