/*
 * The record of a device: see format.h. A cache with a slot shows there what it has, and what it claims; it reads what
 * the others show, and can wake them.
 *
 * No lock and no mark of life lies in the file: a slot belongs to the open file that has a lock on it (file_lock.h), so
 * the kernel frees the slot of a process that was killed. The file is read and written by calls, never through memory:
 * a file that others cut then fails a call, and does not end the program with a signal. Only its first page is mapped,
 * to name the futexes to the kernel.
 *
 * Owns: the slot, and the removal of the file. Invariants:
 *  1. the file is a regular one of this user with mode 0600;
 *  2. only the process that has the lock on a slot writes it;
 *  3. a process joins and leaves during its turn, while it has one further lock on the file. It only tries that lock:
 *     a process that is stopped during its turn delays others for TURN_MS, no longer. The last process that leaves
 *     removes the file;
 *  4. a child of fork() has no slot.
 * May be called by: cache, api. Locks: its own, which orders joining and leaving in this process; the caller's for
 * writes.
 */
#ifndef VMM_NEIGHBOUR_RECORD_H
#define VMM_NEIGHBOUR_RECORD_H

#include "neighbour/format.h"
#include "vmmcache/vmmcache.h"

#include <stdatomic.h>
#include <stdbool.h>

struct neighbour_record {
    _Atomic int file;     /* -1: closed, or in a child of fork() */
    _Atomic bool is_left; /* exit() has begun: the slot is given back, and only the bells serve */
    _Atomic unsigned writers; /* calls that write the slot now */
    unsigned slot;
    void *bells; /* the mapped page */
    struct neighbour_record *next;
    char path[NEIGHBOUR_FOLDER_MOST + 128];
};

/* Takes a slot in the record of a device, in a folder, whose path begins with /. ERR_UNSUPPORTED: there is none; the
 * line says why, and the cache works without. ERR_HOST_OOM. */
vmm_status vmm__neighbour_join(struct neighbour_record *record, const char *folder,
                               const unsigned char *uuid, size_t uuid_bytes);

/* Gives the slot back. */
void vmm__neighbour_leave(struct neighbour_record *record);

/* Writes the own slot, completing it. */
void vmm__neighbour_write(struct neighbour_record *record, struct neighbour_slot *slot);

/* Copies all slots. Returns a set of those that count, a bit for each: not the own one, none of a process that has
 * ended, none that is damaged. All numbers are the other process's word; the name is a text. */
uint64_t vmm__neighbours_read(const struct neighbour_record *record,
                              struct neighbour_slot slots[NEIGHBOUR_SLOTS]);

/* Takes the first slot out of a set that is not empty. */
static inline unsigned vmm__neighbour_take(uint64_t *set)
{
    unsigned index = (unsigned)__builtin_ctzll(*set);
    *set &= *set - 1;
    return index;
}

/* Whether the cache has a slot: not after exit() has begun, nor in a child of fork(). */
bool vmm__neighbour_is_joined(const struct neighbour_record *record);

/* Returns the state of a bell, for vmm__neighbour_wait(); ring changes the state, and wakes all that wait. */
uint32_t vmm__neighbour_bell(const struct neighbour_record *record, enum neighbour_bell bell);
void vmm__neighbour_ring(const struct neighbour_record *record, enum neighbour_bell bell);

/* Waits until the bell is no longer in that state, or for so long. May return early. */
void vmm__neighbour_wait(const struct neighbour_record *record, enum neighbour_bell bell,
                         uint32_t state, uint64_t ns);

#endif
