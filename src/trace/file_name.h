/*
 * The names of the files of VMM_TRACE.
 * Owns: nothing. May be called by: api, preload. Locks: none.
 */
#ifndef VMM_TRACE_FILE_NAME_H
#define VMM_TRACE_FILE_NAME_H

#include "vmmcache/vmmcache.h"

enum { TRACE_PATH_BYTES = 4096 };

/* Writes the name of the number-th file, from 1: "%p" in `file` becomes the process's number, and ".N" follows from the
 * second on, before a ".gz" at the end. ERR_INVALID_ARGUMENT: it is too long. */
vmm_status vmm__trace_file_name(char path[TRACE_PATH_BYTES], const char *file, unsigned number);

#endif
