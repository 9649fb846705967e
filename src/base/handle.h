/*
 * Handles: what the program holds instead of a pointer to a record of the library. A handle is looked up and never
 * followed, so one that is stale or foreign is refused.
 *
 * Owns: a table of slots for the process. A handle is the number of a slot, the kind of its record, and how often the
 * slot has been used, this time included. Invariant: the handle of an open slot is in the slot; no other handle finds
 * its record.
 * May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_HANDLE_H
#define VMM_BASE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

enum handle_kind { HANDLE_POOL = 1, HANDLE_TICKET, HANDLE_SHARE };

/* Returns the handle of a record; NULL if all slots are taken. */
void *vmm__handle_open(enum handle_kind kind, void *record);

/* Returns the record of a handle; NULL if it is not an open handle of this kind. */
void *vmm__handle_find(enum handle_kind kind, const void *handle);

/* Closes a handle: from now on nothing finds its record. False if it is not open, or another thread has closed it. */
bool vmm__handle_close(const void *handle);

#endif
