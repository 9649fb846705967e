/* Descriptors 0, 1 and 2: see standard.h. */
#include "fragtest/cli/standard.h"

#include <fcntl.h>
#include <unistd.h>

/* As the C library does for programs with more rights than their caller: in the direction that is not used, so that
 * reading and writing fail with EBADF as they would with a closed one. */
bool standard_open(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        int flags = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        /* The lowest free number is this one. */
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", flags) != descriptor)
            return false;
    }
    return true;
}
