/*
 * Environment variables and their words.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_VARIABLE_H
#define VMM_BASE_VARIABLE_H

#include <stdbool.h>

/* Returns an environment variable; NULL if it is unset or empty. */
const char *vmm__variable(const char *name);

/* Whether the text of a variable is a word: 1 is "on", 0 is "off". */
bool vmm__variable_is(const char *text, const char *word);

#endif
