/*
 * The segment of this process: the file that vmmtop reads. It is written with pwrite(), never mapped: a full or cut
 * file then fails a call, and does not end the program with a signal.
 *
 * Owns: the file, and its removal. Invariants:
 *  1. the file has mode 0600, and was made by this process;
 *  2. a child of fork() neither writes nor removes it.
 * May be called by: api. Locks: the caller's.
 */
#ifndef VMM_MONITOR_SEGMENT_H
#define VMM_MONITOR_SEGMENT_H

#include "base/error.h"
#include "monitor/format.h"

enum { SEGMENT_PATH_BYTES = 4096 };

struct segment {
    int file; /* -1: closed */
    char path[SEGMENT_PATH_BYTES];
};

/* Makes the segment in a folder, and removes those that processes of this user left there. ERR_INVALID_ARGUMENT: it
 * cannot be made; the line says why. */
vmm_status vmm__segment_open(struct segment *segment, const char *folder);

/* Writes what the head describes, and completes the head. False: it could not be written, errno says why; a reader sees
 * the state before, or none. */
bool vmm__segment_write(struct segment *segment, struct monitor_head *head);

/* Removes the file. Does nothing if it is closed. */
void vmm__segment_close(struct segment *segment);

/* In a child of fork(): closes the file and leaves it to the parent. */
void vmm__segment_forget(struct segment *segment);

#endif
