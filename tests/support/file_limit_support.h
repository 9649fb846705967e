/* The limit of the system on the files that a process writes: beyond it, a write ends the process by SIGXFSZ. */
#ifndef VMM_FILE_LIMIT_SUPPORT_H
#define VMM_FILE_LIMIT_SUPPORT_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

/* Sets the soft limit only, which can be raised again: a process may have to write what its tests covered.
 * RLIM_INFINITY: as far as the hard limit allows. */
static inline void file_limit_set(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0)
        abort(); /* ends a child of a test as well as the test */
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        abort();
}

#endif
