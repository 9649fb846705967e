/* Finds the traces that ship with fragtest. Owns nothing. May be called by: campaign, tests. */
#ifndef FRAGTEST_SHIPPED_H
#define FRAGTEST_SHIPPED_H

#include <stdbool.h>
#include <stddef.h>

/*
 * What to open for --trace `name`: the file itself when there is one or the name has a slash, else
 * the shipped trace of that name, else the name as it is, for the reader to refuse.
 */
void shipped_find(const char *name, char *path, size_t capacity);

#endif
