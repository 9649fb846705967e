/*
 * Ends the program tidily when it is interrupted: the progress bar is cleared, a file that is half written is removed,
 * and the signal then takes its usual effect, so that a shell sees 128 + its number.
 *
 * Owns: the handlers of SIGINT, SIGTERM and SIGHUP. Invariant: a signal that is ignored stays ignored.
 * May be called by: main, output, crowd. Locks: none (one thread calls).
 */
#ifndef FRAGTEST_INTERRUPT_H
#define FRAGTEST_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* has_bar: stderr shows a progress bar. */
void interrupt_init(bool has_bar);

/* An interrupted program removes the file; NULL: none. The path must last until the next call. */
void interrupt_removes(const char *path);

/* Lets those signals wait until interrupt_release(), which gets what *before was. */
void interrupt_hold(sigset_t *before);
void interrupt_release(const sigset_t *before);

/* Between the two: whether a signal waits. */
bool interrupt_waits(void);

#endif
