/*
 * Ends the program tidily when it is interrupted: the progress bar is cleared, and the signal then
 * takes its usual effect, so that a shell sees 128 + its number.
 *
 * Owns: the handlers of SIGINT and SIGTERM. May be called by: main. Locks: none.
 */
#ifndef FRAGTEST_INTERRUPT_H
#define FRAGTEST_INTERRUPT_H

#include <stdbool.h>

/* has_bar: stderr shows a progress bar. A signal that is ignored stays ignored. */
void interrupt_init(bool has_bar);

#endif
