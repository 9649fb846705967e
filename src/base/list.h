/*
 * Removal from singly linked lists: a pointer to the first record, and a member of each that points to the next.
 *
 * Owns: nothing. May be called by: everything. Locks: the caller's.
 */
#ifndef VMM_BASE_LIST_H
#define VMM_BASE_LIST_H

#include <stddef.h>

/* Takes a record off the list that begins at *head. One that is not there is no error. */
#define VMM_LIST_REMOVE(head, record, next_member)                                                 \
    do {                                                                                           \
        __typeof__(head) link_ = (head);                                                           \
        while (*link_ != NULL && *link_ != (record))                                               \
            link_ = &(*link_)->next_member;                                                        \
        if (*link_ != NULL)                                                                        \
            *link_ = (*link_)->next_member;                                                        \
    } while (0)

#endif
