/*
 * Functions that are found by name at run time.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_SYMBOL_H
#define VMM_BASE_SYMBOL_H

#include <stdbool.h>
#include <string.h>

/* Stores a pointer from dlsym() in a variable of the function's own pointer type. False: it is NULL. */
static inline bool vmm__symbol_store(void *found, void *variable)
{
    memcpy(variable, &found, sizeof found);
    return found != NULL;
}

#endif
