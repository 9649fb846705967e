/*
 * The screen of a terminal that shows the processes, redrawn each second, by ncurses. A build without it has none, only
 * the text.
 *
 * Owns: the terminal while it runs. May be called by: vmmtop. Locks: none.
 */
#ifndef VMMTOP_SCREEN_H
#define VMMTOP_SCREEN_H

#include "vmmtop/processes.h"

/* Shows all processes, or only processes->only, until the user ends it. Returns the exit status of the program. */
int screen_run(struct processes *processes, unsigned period_ms);

/* The text of the tables: of all processes, or, if `pid` is not 0, of all segments of that one; empty: it has none. The
 * caller frees it. NULL: no memory. */
char *screen_text(const struct processes *processes, uint64_t pid);

/* Prints the text of processes->only, without styles. */
void screen_print(const struct processes *processes);

#endif
