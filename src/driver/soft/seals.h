/*
 * The seals of memory files, for the drivers without a GPU.
 *
 * Owns: nothing. May be called by: sim, host. Locks: none.
 */
#ifndef VMM_DRIVER_SEALS_H
#define VMM_DRIVER_SEALS_H

#include <fcntl.h>
#include <stdbool.h>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020 /* headers before Linux 6.3 do not have it */
#endif

/* Whether a descriptor is a memory file with exactly these seals. The kernel adds F_SEAL_EXEC to every memory file if
 * the system wants that (vm.memfd_noexec), so it does not count. */
static inline bool vmm__seals_are(int descriptor, int seals)
{
    int found = fcntl(descriptor, F_GET_SEALS);
    return found >= 0 && (found & ~F_SEAL_EXEC) == seals;
}

#endif
