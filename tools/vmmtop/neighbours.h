/*
 * What caches that are neighbours show each other, as text: their records (src/neighbour/format.h) in a folder.
 *
 * Owns nothing. May be called by: vmmtop, tests. Locks: none.
 */
#ifndef VMMTOP_NEIGHBOURS_H
#define VMMTOP_NEIGHBOURS_H

#include <stdbool.h>
#include <stdio.h>

/* A table for each record of this user. False: the folder cannot be read; errno says why. */
bool neighbours_print(FILE *out, const char *folder);

#endif
