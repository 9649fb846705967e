/* A device file that processes share: all draw on one capacity, and a killed process gives back. */
#define _GNU_SOURCE
#include "support/driver_steps.h"
#include "support/file_limit_support.h"
#include "support/made_support.h"

#include "base/hostmem.h"
#include "life/child.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { GRANULES = 16, WORKERS = 4, ROUNDS = 200 };

static char path[] = "/dev/shm/test_host_device.XXXXXX";

/* What processes of a test tell each other. */
static struct shared {
    _Atomic uint64_t taken;
    _Atomic unsigned ready;
    _Atomic unsigned winners;
    _Atomic unsigned rounds;
} * shared;

static int device_setup(void **state)
{
    (void)state;
    (void)strcpy(path + sizeof path - 7, "XXXXXX");
    int file = mkstemp(path);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return file < 0 || close(file) != 0 || shared == MAP_FAILED ? -1 : 0;
}

static int device_teardown(void **state)
{
    (void)state;
    int failed = unlink(path) | munmap(shared, sizeof *shared);
    return failed != 0 || vmm__host_outstanding() != 0 ? -1 : 0;
}

#define DEVICE_TEST(name) TEST_BETWEEN(name, device_setup, device_teardown)

static vmm_status device_try(uint64_t granules, struct driver **out)
{
    struct driver_options options = { .device_bytes = granules * GRANULE, .file = path };
    return vmm__driver_host_open(&options, out);
}

static struct driver *device_open(void)
{
    struct driver *driver;
    assert_ok(device_try(GRANULES, &driver));
    return driver;
}

static uint64_t free_granules(struct driver *driver)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_int_equal(total_bytes, GRANULES * GRANULE);
    return free_bytes / GRANULE;
}

/* ---- One process ----------------------------------------------------------------------------- */

DEVICE_TEST(drivers_draw_on_one_capacity)
{
    struct driver *first = device_open();
    struct driver *second = device_open();
    assert_memory_equal(first->uuid, second->uuid, sizeof first->uuid);
    assert_true(first->is_shared);
    uint64_t handle = handle_create(first, 10 * GRANULE);
    uint64_t other;
    assert_int_equal(free_granules(second), 6);
    assert_status(vmm__driver_create(second, 7 * GRANULE, VMM_SHARE_NONE, &other),
                  VMM_ERR_DEVICE_OOM);
    assert_int_equal(free_granules(first), 6);
    assert_ok(vmm__driver_create(second, 6 * GRANULE, VMM_SHARE_NONE, &other));
    assert_int_equal(free_granules(first), 0);
    assert_ok(vmm__driver_release(first, handle, 10 * GRANULE));
    assert_int_equal(free_granules(second), 10);
    vmm__driver_close(second);
    assert_int_equal(free_granules(first), GRANULES);
    vmm__driver_close(first);
}

DEVICE_TEST(the_file_keeps_its_first_size)
{
    struct driver *first = device_open();
    struct driver *second;
    assert_ok(device_try(3, &second));
    assert_int_equal(free_granules(second), GRANULES);
    vmm__driver_close(second);
    vmm__driver_close(first);
}

/* Two drivers alternate, so what is free in the end lies in single granules. */
DEVICE_TEST(a_handle_uses_what_others_left_between)
{
    struct driver *drivers[2] = { device_open(), device_open() };
    uint64_t handles[GRANULES];
    for (int i = 0; i < GRANULES; i++)
        handles[i] = handle_create(drivers[i % 2], GRANULE);
    for (int i = 0; i < GRANULES; i += 4)
        assert_ok(vmm__driver_release(drivers[0], handles[i], GRANULE));
    for (int i = 1; i < GRANULES; i += 4)
        assert_ok(vmm__driver_release(drivers[1], handles[i], GRANULE));
    assert_int_equal(free_granules(drivers[1]), GRANULES / 2);
    uint64_t address = address_reserve(drivers[1], GRANULES / 2 * GRANULE);
    uint64_t handle = handle_create(drivers[1], GRANULES / 2 * GRANULE);
    handle_map(drivers[1], address, GRANULES / 2 * GRANULE, handle);
    memset((void *)(uintptr_t)address, 7, GRANULES / 2 * GRANULE);
    assert_int_equal(free_granules(drivers[0]), 0);
    vmm__driver_close(drivers[1]);
    assert_int_equal(free_granules(drivers[0]), GRANULES * 3 / 4);
    vmm__driver_close(drivers[0]);
}

static void open_is_refused(const char *part)
{
    struct driver *driver;
    assert_status(device_try(GRANULES, &driver), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), part));
}

DEVICE_TEST(other_files_are_refused)
{
    assert_int_equal(truncate(path, 3), 0);
    open_is_refused("granules");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    open_is_refused("directory");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    open_is_refused("not a file");
}

/* A file of that size would end the process by a signal. */
DEVICE_TEST(a_device_beyond_the_limit_of_files_is_refused)
{
    file_limit_set(GRANULE);
    open_is_refused("File too large");
    file_limit_set(RLIM_INFINITY);
}

/* A public cache finds the device by its variable. */
DEVICE_TEST(caches_share_by_the_variable)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = GRANULES * GRANULE);
    vmm_cache *caches[2];
    assert_int_equal(setenv("VMM_HOST_DEVICE", path, 1), 0);
    assert_ok(vmm_create(&config, &caches[0]));
    assert_ok(vmm_create(&config, &caches[1]));
    void *block = block_in(caches[0], (GRANULES - 2) * GRANULE, NULL);
    assert_status(vmm_alloc(caches[1], 3 * GRANULE, NULL, &block), VMM_ERR_DEVICE_OOM);
    assert_ok(vmm_destroy(caches[0]));
    assert_ok(vmm_alloc(caches[1], 3 * GRANULE, NULL, &block));
    assert_ok(vmm_destroy(caches[1]));
    assert_int_equal(unsetenv("VMM_HOST_DEVICE"), 0);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void half_taken(void *context)
{
    struct driver *driver;
    uint64_t handle;
    (void)context;
    CHILD_REQUIRES(device_try(GRANULES, &driver) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_create(driver, GRANULES / 2 * GRANULE, VMM_SHARE_NONE, &handle) ==
                   VMM_OK);
    atomic_store(&shared->ready, 1);
    for (;;)
        (void)pause();
}

DEVICE_TEST(a_killed_process_gives_back)
{
    pid_t child = child_begun(half_taken, NULL);
    while (atomic_load(&shared->ready) == 0)
        (void)usleep(1000);
    struct driver *driver = device_open();
    assert_int_equal(free_granules(driver), GRANULES / 2);
    child_kill(child);
    assert_int_equal(free_granules(driver), GRANULES);
    vmm__driver_close(driver);
}

/* What all have together is never more than the device. */
static void takes_and_gives(void *context)
{
    struct driver *driver;
    unsigned seed = *(unsigned *)context;
    unsigned served = 0;
    CHILD_REQUIRES(device_try(GRANULES, &driver) == VMM_OK);
    while (served < ROUNDS) {
        uint64_t granules = 1 + (uint64_t)rand_r(&seed) % (GRANULES / 2);
        uint64_t handle;
        vmm_status status = vmm__driver_create(driver, granules * GRANULE, VMM_SHARE_NONE, &handle);
        if (status == VMM_ERR_DEVICE_OOM)
            continue;
        CHILD_REQUIRES(status == VMM_OK);
        CHILD_REQUIRES(atomic_fetch_add(&shared->taken, granules) + granules <= GRANULES);
        served++;
        (void)sched_yield();
        atomic_fetch_sub(&shared->taken, granules);
        CHILD_REQUIRES(vmm__driver_release(driver, handle, granules * GRANULE) == VMM_OK);
    }
    vmm__driver_close(driver);
}

DEVICE_TEST(processes_never_have_more_than_the_device)
{
    pid_t children[WORKERS];
    unsigned seeds[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        seeds[i] = i + 1;
        children[i] = child_begun(takes_and_gives, &seeds[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        assert_true(child_ended(children[i], 0));
    struct driver *driver = device_open();
    assert_int_equal(free_granules(driver), GRANULES);
    vmm__driver_close(driver);
}

/* Waits until the other child is as far. */
static void meet(unsigned meeting)
{
    atomic_fetch_add(&shared->rounds, 1);
    while (atomic_load(&shared->rounds) < 2 * meeting)
        (void)sched_yield();
}

static void wants_it_all(void *context)
{
    struct driver *driver;
    uint64_t handle;
    (void)context;
    CHILD_REQUIRES(device_try(GRANULES, &driver) == VMM_OK);
    for (unsigned round = 0; round < ROUNDS; round++) {
        meet(3 * round + 1);
        vmm_status status = vmm__driver_create(driver, GRANULES * GRANULE, VMM_SHARE_NONE, &handle);
        if (status == VMM_OK)
            atomic_fetch_add(&shared->winners, 1);
        meet(3 * round + 2);
        CHILD_REQUIRES(atomic_load(&shared->winners) == round + 1);
        if (status == VMM_OK)
            CHILD_REQUIRES(vmm__driver_release(driver, handle, GRANULES * GRANULE) == VMM_OK);
        meet(3 * round + 3);
    }
    vmm__driver_close(driver);
}

DEVICE_TEST(of_two_that_want_it_all_one_gets_it)
{
    pid_t first = child_begun(wants_it_all, NULL);
    pid_t second = child_begun(wants_it_all, NULL);
    assert_true(child_ended(first, 0));
    assert_true(child_ended(second, 0));
}
