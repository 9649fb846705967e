/*
 * Functions that are found by name at run time.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_SYMBOL_H
#define VMM_BASE_SYMBOL_H

#include <stdbool.h>
#include <string.h>

/* Stores what dlsym() found in a variable, whose type is the pointer to the function: nothing checks that. False: it
 * found nothing, and the variable is NULL. */
static inline bool vmm__symbol_store(void *found, void *variable)
{
    memcpy(variable, &found, sizeof found);
    return found != NULL;
}

#endif
