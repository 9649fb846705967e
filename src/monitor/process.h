/*
 * Identifies a process: a pid alone may be another process's later.
 * Owns: nothing. May be called by: monitor, neighbour, cache, and vmmtop. Locks: none.
 */
#ifndef VMM_MONITOR_PROCESS_H
#define VMM_MONITOR_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When a process started, in the clock ticks of /proc/PID/stat; 0: there is no such process, or no /proc. */
uint64_t vmm__process_start(uint64_t pid);

/* Whether the process with this pid that started at `start` has ended. False also if that cannot be known. */
bool vmm__process_has_ended(uint64_t pid, uint64_t start);

/* The pid namespace of the calling process; 0: unknown. */
uint64_t vmm__process_pid_space(void);

/* The name of the program of the calling process: the last part of its path. */
void vmm__process_name(char *name, size_t name_bytes);

#endif
