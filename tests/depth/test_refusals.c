/*
 * What the system hardly ever refuses, or says in a way of its own: each call is made to fail once, with the code that
 * matters, and the library says so and leaves nothing behind.
 *
 * The functions below stand in front of the C library's, for this program alone. A refusal names one of them and how
 * many calls of it go through before.
 */
#define _GNU_SOURCE
#include "support/host_support.h"

#include "base/barrier.h"
#include "base/ticker.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdio.h>
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

/* Whether this call fails: one does. */
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

static int nothing_refused(void **state)
{
    (void)state;
    refusal.function = NULL;
    return vmm__host_outstanding() == 0 ? 0 : -1;
}

/* ---- In front of the C library ---------------------------------------------------------------- */

/* ISO C knows no conversion of what dlsym() gives; the same bytes do. */
#define BEHIND(name, parameters)                                                                   \
    int(*behind) parameters;                                                                       \
    void *found = dlsym(RTLD_NEXT, #name);                                                         \
    memcpy(&behind, &found, sizeof behind)

/* The first group returns a code, the second -1 with errno. */
#define IN_FRONT(name, failed, parameters, ...)                                                    \
    int name parameters;                                                                           \
    int name parameters                                                                            \
    {                                                                                              \
        if (is_refused(#name))                                                                     \
            return failed;                                                                         \
        BEHIND(name, parameters);                                                                  \
        return behind(__VA_ARGS__);                                                                \
    }

IN_FRONT(pthread_mutex_init, refusal.code,
         (pthread_mutex_t * mutex, const pthread_mutexattr_t *how), mutex, how)
IN_FRONT(pthread_cond_init, refusal.code,
         (pthread_cond_t * condition, const pthread_condattr_t *how), condition, how)
IN_FRONT(pthread_condattr_init, refusal.code, (pthread_condattr_t * attributes), attributes)
IN_FRONT(pthread_create, refusal.code,
         (pthread_t * thread, const pthread_attr_t *how, void *(*start)(void *), void *context),
         thread, how, start, context)
IN_FRONT(posix_memalign, refusal.code, (void **memory, size_t alignment, size_t bytes), memory,
         alignment, bytes)
IN_FRONT(memfd_create, -1, (const char *name, unsigned flags), name, flags)
IN_FRONT(ftruncate, -1, (int file, off_t bytes), file, bytes)
IN_FRONT(fallocate, -1, (int file, int mode, off_t offset, off_t bytes), file, mode, offset, bytes)
IN_FRONT(munmap, -1, (void *at, size_t bytes), at, bytes)
IN_FRONT(madvise, -1, (void *at, size_t bytes, int advice), at, bytes, advice)
IN_FRONT(nanosleep, -1, (const struct timespec *pause, struct timespec *left), pause, left)

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    if (is_refused("clock_nanosleep"))
        return refusal.code;
    BEHIND(clock_nanosleep, (clockid_t, int, const struct timespec *, struct timespec *));
    return behind(clock, flags, until, left);
}

static int refused_key = -1; /* of sysconf(), which is asked for much; -1: none */

long sysconf(int key)
{
    if (key == refused_key)
        return -1;
    long (*behind)(int);
    void *found = dlsym(RTLD_NEXT, "sysconf");
    memcpy(&behind, &found, sizeof behind);
    return behind(key);
}

long syscall(long number, ...)
{
    long (*behind)(long, ...);
    void *found = dlsym(RTLD_NEXT, "syscall");
    memcpy(&behind, &found, sizeof behind);
    va_list arguments;
    va_start(arguments, number);
    int command = va_arg(arguments, int);
    va_end(arguments);
    return is_refused("syscall") ? -1 : behind(number, command, 0, 0);
}

/* ---- Opening a device ------------------------------------------------------------------------- */

static void opening_fails(const char *function, int calls_before, int code, vmm_status wanted,
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

static void the_host_driver_says_what_it_could_not_have(void **state)
{
    (void)state;
    opening_fails("memfd_create", 0, EMFILE, VMM_ERR_DRIVER, "EMFILE: RLIMIT_NOFILE");
    opening_fails("memfd_create", 0, ENFILE, VMM_ERR_DRIVER, "ENFILE: limit of this system");
    opening_fails("memfd_create", 0, ENOMEM, VMM_ERR_HOST_OOM, "memfd_create");
    opening_fails("memfd_create", 0, EPERM, VMM_ERR_DRIVER, "memfd_create");
    opening_fails("ftruncate", 0, EFBIG, VMM_ERR_DRIVER, "ftruncate");
    opening_fails("pthread_mutex_init", 0, ENOMEM, VMM_ERR_HOST_OOM, "lock");
    opening_fails("pthread_mutex_init", 1, ENOMEM, VMM_ERR_HOST_OOM, "lock");
    opening_fails("pthread_cond_init", 0, ENOMEM, VMM_ERR_HOST_OOM, "lock");
    opening_fails("posix_memalign", 0, ENOMEM, VMM_ERR_HOST_OOM, "no memory for the driver");
}

static void the_sim_driver_says_what_it_could_not_have(void **state)
{
    (void)state;
    struct driver_options options = { .device_bytes = 4 * GRANULE };
    struct driver *driver = NULL;
    refuse("pthread_mutex_init", 0, ENOMEM);
    assert_status(vmm__driver_sim_open(&options, &driver), VMM_ERR_HOST_OOM);
    refuse("posix_memalign", 0, ENOMEM);
    assert_status(vmm__driver_sim_open(&options, &driver), VMM_ERR_HOST_OOM);
    assert_int_equal(refusal.refused, 1);
    assert_null(driver);
}

static void a_machine_that_does_not_tell_its_memory_is_refused(void **state)
{
    (void)state;
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

static void memory_that_the_machine_lacks_is_the_devices(void **state)
{
    struct driver *driver = *state;
    static const int lacking[] = { ENOSPC, ENOMEM };
    uint64_t handle = 5;
    for (int i = 0; i < 2; i++) {
        refuse("fallocate", 0, lacking[i]);
        assert_status(vmm__driver_create(driver, GRANULE, &handle), VMM_ERR_DEVICE_OOM);
        assert_non_null(strstr(vmm_last_error(), "this machine has no memory left"));
    }
    refuse("fallocate", 0, EIO);
    assert_status(vmm__driver_create(driver, GRANULE, &handle), VMM_ERR_DRIVER);
    assert_int_equal(handle, 5);
    refuse("fallocate", 0, EINTR); /* it is asked again */
    handle = created(driver, GRANULE);
    assert_int_equal(refusal.refused, 1);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
}

static void addresses_that_cannot_go_back_stay(void **state)
{
    struct driver *driver = *state;
    uint64_t address = reserved(driver, GRANULE);
    refuse("munmap", 0, EINVAL);
    assert_status(vmm__driver_address_free(driver, address, GRANULE), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "munmap"));
    refuse("munmap", 0, ENOMEM);
    assert_status(vmm__driver_address_free(driver, address, GRANULE), VMM_ERR_HOST_OOM);
    assert_ok(vmm__driver_address_free(driver, address, GRANULE));
}

static void mapped_memory_that_a_child_would_see_is_refused(void **state)
{
    struct driver *driver = *state;
    uint64_t address = reserved(driver, GRANULE);
    uint64_t handle = created(driver, GRANULE);
    refuse("madvise", 0, EINVAL);
    assert_status(vmm__driver_map(driver, address, GRANULE, handle), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "madvise"));
    mapped(driver, address, GRANULE, handle);
}

/* ---- Work ------------------------------------------------------------------------------------- */

static void a_delay_lasts_through_signals(void **state)
{
    struct driver *driver = *state;
    uint64_t begin = vmm__driver_clock_ns(driver);
    refuse("clock_nanosleep", 0, EINTR);
    assert_ok(vmm__driver_delay(driver, 20000000, STREAM(1)));
    assert_ok(vmm__driver_device_wait(driver));
    assert_int_equal(refusal.refused, 1);
    assert_true(vmm__driver_clock_ns(driver) - begin >= 20000000);
}

static void work_without_workers_is_refused(void **state)
{
    struct driver *driver = *state;
    refuse("pthread_create", 0, EAGAIN);
    assert_status(vmm__driver_delay(driver, 1, STREAM(1)), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "RLIMIT_NPROC"));
    refuse("pthread_create", 1, EAGAIN); /* one is enough */
    assert_ok(vmm__driver_delay(driver, 1, STREAM(1)));
    assert_ok(vmm__driver_device_wait(driver));
}

/* ---- Base ------------------------------------------------------------------------------------- */

static void never(void *context)
{
    (void)context;
    abort();
}

static void a_ticker_that_cannot_start_is_none(void **state)
{
    (void)state;
    static const char *const functions[] = { "pthread_condattr_init", "pthread_cond_init",
                                             "pthread_create" };
    for (int i = 0; i < 3; i++) {
        struct ticker ticker;
        refuse(functions[i], 0, EAGAIN);
        assert_status(vmm__ticker_start(&ticker, 100000, never, NULL), VMM_ERR_HOST_OOM);
        assert_int_equal(refusal.refused, 1);
        assert_non_null(strstr(vmm_last_error(), "ticker"));
        vmm__ticker_stop(&ticker);
    }
}

/* Barriers of the process that the system refuses leave only time, and signals do not shorten it. */
static void a_barrier_that_is_refused_takes_its_time(void **state)
{
    (void)state;
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
    refuse("nanosleep", 0, EFAULT); /* what is no signal ends it */
    vmm__barrier_pause(64);
    vmm__barrier_pause(63);
    assert_int_equal(refusal.refused, 1);
}

static void memory_of_the_host_that_is_refused_is_none(void **state)
{
    (void)state;
    assert_null(vmm__host_alloc(SIZE_MAX, 2));
    assert_null(vmm__host_alloc(1, SIZE_MAX - 8));
    assert_null(vmm__host_alloc(1, SIZE_MAX / 2));
    refuse("posix_memalign", 0, ENOMEM);
    assert_null(vmm__host_alloc(1, 100));
    assert_null(vmm__host_table_alloc(SIZE_MAX / 2));
    assert_int_equal(vmm__host_outstanding(), 0);
}

int main(void)
{
#define REFUSAL_TEST(name) cmocka_unit_test_teardown(name, nothing_refused)
    const struct CMUnitTest tests[] = {
        REFUSAL_TEST(the_host_driver_says_what_it_could_not_have),
        REFUSAL_TEST(the_sim_driver_says_what_it_could_not_have),
        REFUSAL_TEST(a_machine_that_does_not_tell_its_memory_is_refused),
        HOST_TEST(memory_that_the_machine_lacks_is_the_devices),
        HOST_TEST(addresses_that_cannot_go_back_stay),
        HOST_TEST(mapped_memory_that_a_child_would_see_is_refused),
        HOST_TEST(a_delay_lasts_through_signals),
        HOST_TEST(work_without_workers_is_refused),
        REFUSAL_TEST(a_ticker_that_cannot_start_is_none),
        REFUSAL_TEST(a_barrier_that_is_refused_takes_its_time),
        REFUSAL_TEST(memory_of_the_host_that_is_refused_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
