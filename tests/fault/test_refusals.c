/*
 * Failures of the system that hardly ever happen, or have an error code of their own: each call fails once, with that
 * code. The library must report it and leave nothing behind.
 *
 * The functions below replace the C library's in this program. A refusal names a function and the number of its calls
 * that succeed before the failure.
 */
#define _GNU_SOURCE
#include "support/host_support.h"

#include "base/barrier.h"
#include "base/ticker.h"
#include "neighbour/record.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    const char *function;
    int calls_before;
    int code;
    int refused;
} refusal;

static void refuse(const char *function, int calls_before, int code)
{
    refusal.function = function;
    refusal.calls_before = calls_before;
    refusal.code = code;
    refusal.refused = 0;
}

/* Whether this call must fail; only one call does. */
static bool is_refused(const char *function)
{
    if (refusal.function == NULL || strcmp(function, refusal.function) != 0 ||
        refusal.calls_before-- > 0)
        return false;
    refusal.function = NULL;
    refusal.refused++;
    errno = refusal.code;
    return true;
}

static int refusal_clear(void **state)
{
    (void)state;
    refusal.function = NULL;
    return vmm__host_outstanding() == 0 ? 0 : -1;
}

#define REFUSAL_TEST(name) TEST_BETWEEN(name, NULL, refusal_clear)

/* ---- Replacements for functions of the C library ---------------------------------------------- */

/* ISO C does not convert the result of dlsym() to a function pointer, so its bytes are copied. */
#define REAL_FUNCTION(name, parameters)                                                            \
    int(*real) parameters;                                                                         \
    void *found = dlsym(RTLD_NEXT, #name);                                                         \
    memcpy(&real, &found, sizeof real)

/* Functions of the first group return an error code, those of the second -1 with errno. */
#define REPLACEMENT(name, failed, parameters, ...)                                                 \
    int name parameters;                                                                           \
    int name parameters                                                                            \
    {                                                                                              \
        if (is_refused(#name))                                                                     \
            return failed;                                                                         \
        REAL_FUNCTION(name, parameters);                                                           \
        return real(__VA_ARGS__);                                                                  \
    }

REPLACEMENT(pthread_cond_init, refusal.code,
            (pthread_cond_t * condition, const pthread_condattr_t *how), condition, how)
REPLACEMENT(pthread_condattr_init, refusal.code, (pthread_condattr_t * attributes), attributes)
REPLACEMENT(pthread_create, refusal.code,
            (pthread_t * thread, const pthread_attr_t *how, void *(*start)(void *), void *context),
            thread, how, start, context)
REPLACEMENT(posix_memalign, refusal.code, (void **memory, size_t alignment, size_t bytes), memory,
            alignment, bytes)
REPLACEMENT(memfd_create, -1, (const char *name, unsigned flags), name, flags)
REPLACEMENT(ftruncate, -1, (int file, off_t bytes), file, bytes)
REPLACEMENT(fallocate, -1, (int file, int mode, off_t offset, off_t bytes), file, mode, offset,
            bytes)
REPLACEMENT(munmap, -1, (void *at, size_t bytes), at, bytes)
REPLACEMENT(madvise, -1, (void *at, size_t bytes, int advice), at, bytes, advice)
REPLACEMENT(mprotect, -1, (void *at, size_t bytes, int access), at, bytes, access)
REPLACEMENT(nanosleep, -1, (const struct timespec *pause, struct timespec *left), pause, left)

int fcntl(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    if (is_refused("fcntl"))
        return -1;
    REAL_FUNCTION(fcntl, (int, int, ...));
    return real(file, command, argument);
}

static bool refuses_mmap; /* each call, with EINVAL */

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
    errno = EINVAL;
    if (refuses_mmap)
        return MAP_FAILED;
    void *(*real)(void *, size_t, int, int, int, off_t);
    void *found = dlsym(RTLD_NEXT, "mmap");
    memcpy(&real, &found, sizeof real);
    return real(at, bytes, access, flags, file, offset);
}

static int refused_key = -1; /* the key for which sysconf() fails; -1: none */

long sysconf(int key)
{
    if (key == refused_key)
        return -1;
    long (*real)(int);
    void *found = dlsym(RTLD_NEXT, "sysconf");
    memcpy(&real, &found, sizeof real);
    return real(key);
}

long syscall(long number, ...)
{
    long (*real)(long, ...);
    void *found = dlsym(RTLD_NEXT, "syscall");
    memcpy(&real, &found, sizeof real);
    va_list arguments;
    va_start(arguments, number);
    int command = va_arg(arguments, int);
    va_end(arguments);
    return is_refused("syscall") ? -1 : real(number, command, 0, 0);
}

/* ---- Opening a device ------------------------------------------------------------------------- */

static void open_must_fail(const char *function, int calls_before, int code, vmm_status wanted,
                           const char *words)
{
    struct driver_options options = { .device_bytes = 4 * GRANULE };
    struct driver *driver = NULL;
    refuse(function, calls_before, code);
    assert_status(vmm__driver_host_open(&options, &driver), wanted);
    assert_int_equal(refusal.refused, 1);
    assert_non_null(strstr(vmm_last_error(), words));
    assert_null(driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

REFUSAL_TEST(host_driver_reports_failed_open)
{
    open_must_fail("memfd_create", 0, EMFILE, VMM_ERR_DRIVER, "EMFILE: RLIMIT_NOFILE");
    open_must_fail("memfd_create", 0, ENFILE, VMM_ERR_DRIVER, "ENFILE: limit of this system");
    open_must_fail("memfd_create", 0, ENOMEM, VMM_ERR_HOST_OOM, "memfd_create");
    open_must_fail("memfd_create", 0, EPERM, VMM_ERR_DRIVER, "memfd_create");
    open_must_fail("ftruncate", 0, EFBIG, VMM_ERR_DRIVER, "ftruncate");
    open_must_fail("posix_memalign", 0, ENOMEM, VMM_ERR_HOST_OOM,
                   "out of host memory for the driver");
}

REFUSAL_TEST(sim_driver_reports_failed_open)
{
    struct driver_options options = { .device_bytes = 4 * GRANULE };
    struct driver *driver = NULL;
    refuse("posix_memalign", 0, ENOMEM);
    assert_status(vmm__driver_sim_open(&options, &driver), VMM_ERR_HOST_OOM);
    assert_int_equal(refusal.refused, 1);
    assert_null(driver);
}

REFUSAL_TEST(unknown_memory_size_is_refused)
{
    static const int keys[] = { _SC_PHYS_PAGES, _SC_PAGESIZE };
    struct driver_options options = { .device_bytes = 0 };
    struct driver *driver = NULL;
    for (int i = 0; i < 2; i++) {
        refused_key = keys[i];
        vmm_status status = vmm__driver_host_open(&options, &driver);
        refused_key = -1;
        assert_status(status, VMM_ERR_INVALID_ARGUMENT);
    }
    options.device_bytes = UINT64_MAX / 2;
    assert_status(vmm__driver_host_open(&options, &driver), VMM_ERR_INVALID_ARGUMENT);
    assert_null(driver);
}

/* ---- Memory of the host driver ------------------------------------------------------------------ */

HOST_TEST(missing_host_memory_is_device_oom)
{
    static const int codes[] = { ENOSPC, ENOMEM };
    uint64_t handle = 5;
    for (int i = 0; i < 2; i++) {
        refuse("fallocate", 0, codes[i]);
        assert_status(vmm__driver_create(driver, GRANULE, true, &handle), VMM_ERR_DEVICE_OOM);
        assert_non_null(strstr(vmm_last_error(), "this machine has no memory left"));
    }
    refuse("fallocate", 0, EIO);
    assert_status(vmm__driver_create(driver, GRANULE, true, &handle), VMM_ERR_DRIVER);
    assert_int_equal(handle, 5);
    refuse("fallocate", 0, EINTR); /* the driver tries again */
    assert_ok(vmm__driver_create(driver, GRANULE, true, &handle));
    assert_int_equal(refusal.refused, 1);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
}

/* The number of the next descriptor: it grows if a descriptor was left open. */
static int descriptor_next(void)
{
    int next = dup(STDERR_FILENO);
    assert_true(next >= 0);
    assert_int_equal(close(next), 0);
    return next;
}

HOST_TEST(a_shared_file_that_fails_leaves_nothing)
{
    static const struct {
        const char *function;
        int code;
        vmm_status status;
    } failures[] = {
        { "memfd_create", EMFILE, VMM_ERR_DRIVER }, { "memfd_create", ENOMEM, VMM_ERR_HOST_OOM },
        { "ftruncate", EFBIG, VMM_ERR_DRIVER },     { "fallocate", ENOSPC, VMM_ERR_DEVICE_OOM },
        { "fcntl", EINVAL, VMM_ERR_DRIVER },
    };
    uint64_t handle = 5;
    uint64_t free_before;
    uint64_t free_after;
    uint64_t total;
    int next = descriptor_next();
    assert_ok(vmm__driver_memory_info(driver, &free_before, &total));
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        refuse(failures[i].function, 0, failures[i].code);
        assert_status(vmm__driver_create(driver, GRANULE, true, &handle), failures[i].status);
        assert_int_equal(refusal.refused, 1);
        assert_int_equal(descriptor_next(), next);
    }
    assert_ok(vmm__driver_memory_info(driver, &free_after, &total));
    assert_int_equal(free_after, free_before);
    assert_int_equal(handle, 5);
}

HOST_TEST(a_descriptor_that_cannot_be_copied_is_refused)
{
    uint64_t handle;
    int descriptor = 5;
    uint64_t address = address_reserve(driver, GRANULE);
    assert_ok(vmm__driver_create(driver, GRANULE, true, &handle));
    handle_map(driver, address, GRANULE, handle);
    int next = descriptor_next();
    refuse("fcntl", 0, EMFILE);
    assert_status(vmm__driver_dmabuf_export(driver, address, GRANULE, &descriptor), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "share_export: fcntl(F_DUPFD_CLOEXEC)"));
    assert_int_equal(descriptor_next(), next);
    assert_int_equal(descriptor, 5);
}

TEST(a_record_that_fails_leaves_nothing)
{
    static const char *const functions[] = { "memfd_create", "fcntl" };
    struct driver_options options = { 0 };
    struct driver *driver;
    uint64_t handle;
    int descriptor = 5;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    assert_ok(vmm__driver_create(driver, GRANULE, true, &handle));
    int next = descriptor_next();
    for (int i = 0; i < 2; i++) {
        refuse(functions[i], 0, EMFILE);
        assert_status(vmm__driver_share_export(driver, handle, &descriptor), VMM_ERR_DRIVER);
        assert_int_equal(refusal.refused, 1);
        assert_int_equal(descriptor_next(), next);
    }
    assert_int_equal(descriptor, 5);
    vmm__driver_close(driver);
}

HOST_TEST(failed_address_free_keeps_addresses)
{
    uint64_t address = address_reserve(driver, GRANULE);
    refuse("munmap", 0, EINVAL);
    assert_status(vmm__driver_address_free(driver, address, GRANULE), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "munmap"));
    refuse("munmap", 0, ENOMEM);
    assert_status(vmm__driver_address_free(driver, address, GRANULE), VMM_ERR_HOST_OOM);
    assert_ok(vmm__driver_address_free(driver, address, GRANULE));
}

HOST_TEST(memory_inherited_by_children_is_refused)
{
    uint64_t address = address_reserve(driver, GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    refuse("madvise", 0, EINVAL);
    assert_status(vmm__driver_map(driver, address, GRANULE, handle), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "madvise"));
    handle_map(driver, address, GRANULE, handle);
}

/* At its limit of mappings, the kernel refuses to replace one, and may refuse to change its access. */
HOST_TEST(failed_unmap_keeps_the_mapping)
{
    uint64_t address = address_reserve(driver, 2 * GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    handle_map(driver, address, GRANULE, handle);
    assert_ok(vmm__driver_map(driver, address + GRANULE, GRANULE, handle)); /* without access */
    *word_at(address) = 7;
    refuses_mmap = true;
    refuse("mprotect", 0, EACCES);
    vmm_status kept = vmm__driver_unmap(driver, address, 2 * GRANULE);
    uint64_t word = *word_at(address);                                     /* accessible again */
    vmm_status unmapped = vmm__driver_unmap(driver, address, 2 * GRANULE); /* only mmap() fails */
    refuses_mmap = false;
    assert_status(kept, VMM_ERR_DRIVER);
    assert_int_equal(refusal.refused, 1);
    assert_int_equal(word, 7);
    assert_ok(unmapped);
    handle_map(driver, address, GRANULE, handle); /* the addresses are free */
    assert_int_equal(*word_at(address), 7);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
}

/* ---- Work ------------------------------------------------------------------------------------- */

HOST_TEST(delay_continues_after_signals)
{
    uint64_t begin = vmm__driver_clock_ns(driver);
    refuse("nanosleep", 0, EINTR);
    assert_ok(vmm__driver_delay(driver, 20000000, STREAM(1)));
    assert_ok(vmm__driver_device_wait(driver));
    assert_int_equal(refusal.refused, 1);
    assert_true(vmm__driver_clock_ns(driver) - begin >= 20000000);
}

HOST_TEST(work_without_workers_is_refused)
{
    refuse("pthread_create", 0, EAGAIN);
    assert_status(vmm__driver_delay(driver, 1, STREAM(1)), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "RLIMIT_NPROC"));
    refuse("pthread_create", 1, EAGAIN); /* one worker is enough */
    assert_ok(vmm__driver_delay(driver, 1, STREAM(1)));
    assert_ok(vmm__driver_device_wait(driver));
}

/* ---- Base ------------------------------------------------------------------------------------- */

static void must_not_run(void *context)
{
    (void)context;
    abort();
}

REFUSAL_TEST(failed_ticker_start_leaves_nothing)
{
    static const char *const functions[] = { "pthread_condattr_init", "pthread_cond_init",
                                             "pthread_create" };
    for (int i = 0; i < 3; i++) {
        struct ticker ticker;
        refuse(functions[i], 0, EAGAIN);
        assert_status(vmm__ticker_start(&ticker, 100000, must_not_run, NULL), VMM_ERR_HOST_OOM);
        assert_int_equal(refusal.refused, 1);
        assert_non_null(strstr(vmm_last_error(), "ticker"));
        vmm__ticker_stop(&ticker);
    }
}

/* If the system refuses a barrier of the process, the library waits instead, and signals do not shorten the wait. */
REFUSAL_TEST(refused_barrier_waits_instead)
{
    struct timespec before;
    struct timespec after;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
    refuse("syscall", 0, EPERM);
    vmm__barrier_all();
    assert_int_equal(refusal.refused, 1);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
    assert_true((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec >=
                1000000);
    refuse("nanosleep", 0, EINTR);
    vmm__barrier_pause(64);
    assert_int_equal(refusal.refused, 1);
    refuse("nanosleep", 0, EFAULT); /* any other error ends the wait */
    vmm__barrier_pause(64);
    vmm__barrier_pause(63);
    assert_int_equal(refusal.refused, 1);
}

/* ---- Neighbours ------------------------------------------------------------------------------- */

static void join_must_fail(const char *folder, const char *words)
{
    static const unsigned char uuid[16] = { 1 };
    struct neighbour_record record;
    assert_status(vmm__neighbour_join(&record, folder, uuid, sizeof uuid), VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), words));
}

/* A record that the system does not let a process make, map or lock leaves no file. */
REFUSAL_TEST(refused_record_leaves_no_file)
{
    char folder[] = "/tmp/test_refusals.XXXXXX";
    assert_non_null(mkdtemp(folder));
    refuse("ftruncate", 0, EDQUOT);
    join_must_fail(folder, "quota");
    assert_int_equal(refusal.refused, 1);
    refuses_mmap = true;
    join_must_fail(folder, "Invalid argument");
    refuses_mmap = false;
    assert_int_equal(rmdir(folder), 0);
}

REFUSAL_TEST(refused_host_memory_gives_null)
{
    assert_null(vmm__host_alloc(SIZE_MAX, 2));
    assert_null(vmm__host_alloc(1, SIZE_MAX - 8));
    assert_null(vmm__host_alloc(1, SIZE_MAX / 2));
    refuse("posix_memalign", 0, ENOMEM);
    assert_null(vmm__host_alloc(1, 100));
    assert_null(vmm__host_table_alloc(SIZE_MAX / 2));
    assert_int_equal(vmm__host_outstanding(), 0);
}
