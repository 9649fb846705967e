/*
 * What can be made to fail, and with which codes.
 *
 * A call is a call of the driver (a code is a vmm_status), an allocation of the library's records, or a
 * call of the system (a code is an errno). The codes of a call are those that its documentation names:
 * driver.h, D5, and the manual of the system.
 *
 * Owns nothing. May be called by: all of the sweep.
 */
#ifndef FAULTS_CALLS_H
#define FAULTS_CALLS_H

#include "driver/driver.h"

enum { SWEEP_CODES = 6 };

enum sweep_group { GROUP_DRIVER, GROUP_MEMORY, GROUP_SYSTEM };

/* X(name, codes...): all calls but those of the driver. */
#define SWEEP_MEMORY_MAP(                                                                          \
    X) /* vmm__host_resize() is for the sim driver and PyTorch's hooks only */                     \
    X(host_alloc, ENOMEM)                                                                          \
    X(host_table_alloc, ENOMEM)

#define SWEEP_SYSTEM_MAP(X)                                                                        \
    X(mmap, ENOMEM, EAGAIN, ENFILE)                                                                \
    X(munmap, ENOMEM, EINVAL)                                                                      \
    X(mprotect, ENOMEM, EACCES)                                                                    \
    X(madvise, ENOMEM, EAGAIN, EINVAL)                                                             \
    X(memfd_create, EMFILE, ENFILE, ENOMEM, ENOSYS)                                                \
    X(ftruncate, EFBIG, EPERM, EINTR)                                                              \
    X(fallocate, ENOSPC, ENOMEM, EINTR, EFBIG, EOPNOTSUPP)                                         \
    X(membarrier, ENOSYS, EPERM)                                                                   \
    X(pthread_create, EAGAIN, EPERM)                                                               \
    X(fopen, EMFILE, EACCES, ENOSPC)                                                               \
    X(sendmsg, EPIPE, ENOBUFS, EINTR)                                                              \
    X(recvmsg, ECONNRESET, ENOMEM, EINTR)                                                          \
    X(getrandom, ENOSYS, EPERM)

enum sweep_call {
    SWEEP_CALL_FIRST_MEMORY = DRIVER_CALL_COUNT - 1, /* so that the next one follows */
#define SWEEP_CALL_ENUM(name, ...) SWEEP_CALL_##name,
    SWEEP_MEMORY_MAP(SWEEP_CALL_ENUM) SWEEP_CALL_LAST_MEMORY = SWEEP_CALL_host_table_alloc,
    SWEEP_SYSTEM_MAP(SWEEP_CALL_ENUM)
#undef SWEEP_CALL_ENUM
        SWEEP_CALLS
};

enum sweep_group sweep_call_group(unsigned call);
const char *sweep_call_name(unsigned call);

/* How many codes a call has, and each of them. */
unsigned sweep_code_count(unsigned call);
int sweep_code(unsigned call, unsigned index);

/* Where a code is among those of a call; SWEEP_CODES if the call never returns it. */
unsigned sweep_code_index(unsigned call, int code);

/* "VMM_ERR_DRIVER", "ENOMEM". */
const char *sweep_code_name(enum sweep_group group, int code);

#endif
