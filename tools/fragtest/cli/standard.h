/*
 * Descriptors 0, 1 and 2. The caller of a program may have closed them: then the next file that is opened, which may be
 * the memory of a driver, gets such a number, and takes what is written to standard output.
 *
 * Owns: nothing. May be called by: main. Locks: none.
 */
#ifndef FRAGTEST_STANDARD_H
#define FRAGTEST_STANDARD_H

#include <stdbool.h>

/* Opens those that are closed, so that to use them is the error that it was. Call it first of all. False: cannot. */
bool standard_open(void);

#endif
