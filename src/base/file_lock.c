/* Locks that belong to an open file: see file_lock.h. */
#define _GNU_SOURCE
#include "base/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static bool control(int file, int command, short type, struct file_range range, struct flock *lock)
{
    int result;
    *lock = (struct flock){ .l_type = type,
                            .l_whence = SEEK_SET,
                            .l_start = (off_t)range.first,
                            .l_len = (off_t)(range.end - range.first) };
    do {
        result = fcntl(file, command, lock);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

bool vmm__file_try_lock(int file, struct file_range range)
{
    struct flock lock;
    return control(file, F_OFD_SETLK, F_WRLCK, range, &lock);
}

void vmm__file_lock(int file, struct file_range range)
{
    struct flock lock;
    (void)control(file, F_OFD_SETLKW, F_WRLCK, range, &lock);
}

void vmm__file_unlock(int file, struct file_range range)
{
    struct flock lock;
    (void)control(file, F_OFD_SETLK, F_UNLCK, range, &lock);
}

bool vmm__file_is_locked(int file, struct file_range range, struct file_range *locked)
{
    struct flock lock;
    if (!control(file, F_OFD_GETLK, F_WRLCK, range, &lock) || lock.l_type == F_UNLCK)
        return false;
    locked->first = (uint64_t)lock.l_start;
    locked->end = lock.l_len == 0 ? range.end : (uint64_t)(lock.l_start + lock.l_len);
    return true;
}
