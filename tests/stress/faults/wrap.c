/*
 * The library's allocations of host memory and its calls of the system, as points. The linker leads
 * every reference to one of these functions here (--wrap: see CMakeLists.txt), and __real_ to what it
 * was.
 */
#include "point.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- Allocations ------------------------------------------------------------------------------- */

static bool memory_fails(unsigned call)
{
    int code;
    return sweep_point(call, &code);
}

void *__real_vmm__host_alloc(size_t count, size_t bytes_each);
void *__wrap_vmm__host_alloc(size_t count, size_t bytes_each);
void *__wrap_vmm__host_alloc(size_t count, size_t bytes_each)
{
    if (memory_fails(SWEEP_CALL_host_alloc))
        return NULL;
    return __real_vmm__host_alloc(count, bytes_each);
}

void *__real_vmm__host_table_alloc(size_t bytes);
void *__wrap_vmm__host_table_alloc(size_t bytes);
void *__wrap_vmm__host_table_alloc(size_t bytes)
{
    if (memory_fails(SWEEP_CALL_host_table_alloc))
        return NULL;
    return __real_vmm__host_table_alloc(bytes);
}

/* ---- The system -------------------------------------------------------------------------------- */

static bool system_fails(unsigned call)
{
    int code;
    if (!sweep_point(call, &code))
        return false;
    errno = code;
    return true;
}

void *__real_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
    if (system_fails(SWEEP_CALL_mmap))
        return MAP_FAILED;
    return __real_mmap(at, bytes, access, flags, file, offset);
}

#define WRAP(name, parameters, ...)                                                                \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        return system_fails(SWEEP_CALL_##name) ? -1 : __real_##name(__VA_ARGS__);                  \
    }

WRAP(munmap, (void *at, size_t bytes), at, bytes)
WRAP(mprotect, (void *at, size_t bytes, int access), at, bytes, access)
WRAP(madvise, (void *at, size_t bytes, int advice), at, bytes, advice)
WRAP(memfd_create, (const char *name, unsigned flags), name, flags)
WRAP(ftruncate, (int file, off_t bytes), file, bytes)
WRAP(fallocate, (int file, int mode, off_t offset, off_t bytes), file, mode, offset, bytes)

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context)
{
    int code;
    if (sweep_point(SWEEP_CALL_pthread_create, &code))
        return code;
    if (sweep_has_clones()) /* they would wait for threads that only their parent has */
        return EAGAIN;
    return __real_pthread_create(thread, attributes, start, context);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return system_fails(SWEEP_CALL_fopen) ? NULL : __real_fopen(path, mode);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    int command = va_arg(arguments, int); /* of membarrier, the only one that is called this way */
    va_end(arguments);
    if (system_fails(SWEEP_CALL_membarrier))
        return -1;
    return __real_syscall(number, command, 0, 0);
}

/* As fork(), but for the handlers that were set for that. */
pid_t sweep_clone(void)
{
    return (pid_t)__real_syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

/* ---- Shares ------------------------------------------------------------------------------------ */

#define WRAP_COUNT(name, parameters, ...)                                                          \
    ssize_t __real_##name parameters;                                                              \
    ssize_t __wrap_##name parameters;                                                              \
    ssize_t __wrap_##name parameters                                                               \
    {                                                                                              \
        return system_fails(SWEEP_CALL_##name) ? -1 : __real_##name(__VA_ARGS__);                  \
    }

WRAP_COUNT(sendmsg, (int socket, const struct msghdr *message, int flags), socket, message, flags)
WRAP_COUNT(recvmsg, (int socket, struct msghdr *message, int flags), socket, message, flags)
WRAP_COUNT(getrandom, (void *bytes, size_t count, unsigned flags), bytes, count, flags)
