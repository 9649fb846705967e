/* In place of screen_curses.c in a build without ncurses: see screen.h. */
#include "vmmtop/screen.h"

#include <stdio.h>

int screen_run(struct processes *processes, unsigned period_ms)
{
    (void)processes;
    (void)period_ms;
    (void)fprintf(stderr, "vmmtop: built without ncurses, which the screen needs: use --once\n");
    return 2;
}
