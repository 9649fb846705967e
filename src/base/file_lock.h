/*
 * Locks on ranges of a file that belong to the open file, not to the process (F_OFD_SETLK): the kernel ends them when
 * the last process that has it open is gone, however it ended. So a record that its owner keeps locked needs no other
 * sign of life. A child of fork() has the parent's open files; closing one in the child ends no lock.
 *
 * Owns: nothing. May be called by: driver, neighbour. Locks: it is one; the ranges need not lie within the file.
 */
#ifndef VMM_BASE_FILE_LOCK_H
#define VMM_BASE_FILE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct file_range {
    uint64_t first;
    uint64_t end;
};

/* Locks the range against other open files. False, without waiting, if one of them has a part of it. */
bool vmm__file_try_lock(int file, struct file_range range);

/* The same, but waits. */
void vmm__file_lock(int file, struct file_range range);

void vmm__file_unlock(int file, struct file_range range);

/* Whether another open file has a lock that overlaps the range. *locked gets the range of one such lock, which may
 * reach beyond. There may be others. */
bool vmm__file_is_locked(int file, struct file_range range, struct file_range *locked);

#endif
