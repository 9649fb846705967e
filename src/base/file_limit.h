/*
 * The limit that the system sets to the files of this process (RLIMIT_FSIZE). A write that begins there or beyond, and
 * an ftruncate() beyond it, end the process with SIGXFSZ, unless the program ignores that, so the callers ask first. (A
 * log, to which others may write too, holds the signal off instead: cache.c.)
 *
 * Owns: nothing. May be called by: driver, trace, monitor, neighbour. Locks: none.
 */
#ifndef VMM_BASE_FILE_LIMIT_H
#define VMM_BASE_FILE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* How long a file may become. */
static inline uint64_t vmm__file_bytes_most(void)
{
    struct rlimit limit;
    bool is_limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < INT64_MAX;
    return is_limited ? limit.rlim_cur : INT64_MAX;
}

/* Whether a file may become so long. If not, errno is EFBIG. */
static inline bool vmm__file_may_have(uint64_t bytes)
{
    bool may_have = bytes <= vmm__file_bytes_most();
    errno = may_have ? errno : EFBIG;
    return may_have;
}

#endif
