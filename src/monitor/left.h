/*
 * The segments that processes left: those that were killed, or ended by _exit(). The next process of the user that
 * publishes removes them, and so does vmmtop.
 *
 * A name can be taken anew at any moment, by a process that got the pid of the one that left it. So a file is removed
 * under its lock (flock()), and only while the name is still that file's.
 *
 * Owns: nothing. Invariant: a file stays if its process lives, if another user owns it, or if neither is known.
 * May be called by: monitor, and vmmtop. Locks: the file's.
 */
#ifndef VMM_MONITOR_LEFT_H
#define VMM_MONITOR_LEFT_H

#include <stdbool.h>
#include <stdint.h>

enum { LEFT_ENTRIES_MOST = 4096, LEFT_LOOKED_AT_MOST = 64 };

/* Whether a file has the name of a segment. Then the name says the pid of its process, and its number there. */
bool vmm__left_name_read(const char *name, uint64_t *pid, uint64_t *number);

/* Removes the segment of a name that process `pid` may have left. Returns whether it did. */
bool vmm__left_remove(int folder, const char *name, uint64_t pid);

/* Removes the segment of a name if `file` is that segment, open, and process `pid` has left it. */
bool vmm__left_unlink(int folder, const char *name, int file, uint64_t pid);

/* Removes what processes of this user have left in a folder. Reads LEFT_ENTRIES_MOST names, and LEFT_LOOKED_AT_MOST
 * segments: 3 ms at most. */
void vmm__left_sweep(const char *folder);

#endif
