/* System limits that the host driver reaches, and what remains after close. */
#define _GNU_SOURCE
#include "support/file_limit_support.h"
#include "support/folder_support.h"
#include "support/host_support.h"
#include "support/thread_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- System limits --------------------------------------------------------------------------- */

enum { FILLER_LIMIT = 1 << 20 };

/*
 * Uses up all mappings that the system allows this process. Returns their number, or 0 if the limit
 * is too high.
 */
static uint64_t exhaust_mappings(void **filler)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *range = mmap(NULL, FILLER_LIMIT * page, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *filler = range;
    if (range == MAP_FAILED)
        return 0;
    uint64_t done = 0;
    while (done < FILLER_LIMIT / 2 && mprotect(range + 2 * done * page, page, PROT_READ) == 0)
        done++;
    return done < FILLER_LIMIT / 2 ? done : 0;
}

HOST_TEST(too_many_mappings_fail_without_changes)
{
    uint64_t address = address_reserve(driver, 64 * GRANULE);
    uint64_t single[2] = { handle_create(driver, GRANULE), handle_create(driver, GRANULE) };
    uint64_t freed = handle_create(driver, GRANULE);
    uint64_t rest = handle_create(driver, 61 * GRANULE);
    assert_ok(vmm__driver_release(driver, freed, GRANULE));
    assert_ok(vmm__driver_release(driver, single[0], GRANULE));
    uint64_t scattered = handle_create(driver, 2 * GRANULE);
    handle_map(driver, address + 8 * GRANULE, GRANULE, single[1]);
    *word_at(address + 8 * GRANULE) = 3;

    void *filler;
    uint64_t count = exhaust_mappings(&filler);
    vmm_status map = VMM_OK;
    vmm_status unmap = VMM_ERR_DRIVER;
    bool names_the_limit = false;
    if (count != 0) {
        map = vmm__driver_map(driver, address, 2 * GRANULE, scattered);
        names_the_limit = strstr(vmm_last_error(), "max_map_count") != NULL;
        unmap = vmm__driver_unmap(driver, address + 8 * GRANULE, GRANULE);
    }
    assert_int_equal(munmap(filler, (size_t)FILLER_LIMIT * (size_t)sysconf(_SC_PAGESIZE)), 0);
    if (count == 0) {
        print_message("skipped: vm.max_map_count exceeds %d\n", FILLER_LIMIT);
        skip();
    }
    assert_int_equal(map, VMM_ERR_HOST_OOM);
    assert_true(names_the_limit);
    assert_int_equal(unmap, VMM_OK);
    handle_map(driver, address, 2 * GRANULE, scattered);
    handle_map(driver, address + 8 * GRANULE, GRANULE, single[1]);
    assert_int_equal(*word_at(address + 8 * GRANULE), 3);
    assert_ok(vmm__driver_release(driver, rest, 61 * GRANULE));
}

TEST(process_limits_are_named)
{
    struct driver_options options = { .device_bytes = 64 * GRANULE };
    struct driver *driver = NULL;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = { 0, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    vmm_status status = vmm__driver_host_open(&options, &driver);
    bool is_named = strstr(vmm_last_error(), "RLIMIT_NOFILE") != NULL;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, VMM_ERR_DRIVER);
    assert_true(is_named);

    file_limit_set(GRANULE);
    status = vmm__driver_host_open(&options, &driver);
    is_named = strstr(vmm_last_error(), "RLIMIT_FSIZE") != NULL;
    file_limit_set(RLIM_INFINITY);
    assert_int_equal(status, VMM_ERR_DRIVER);
    assert_true(is_named);
    assert_null(driver);

    options.device_bytes = GRANULE - 1;
    assert_status(vmm__driver_host_open(&options, &driver), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(vmm__host_outstanding(), 0);
}

/* ---- Close ----------------------------------------------------------------------------------- */

/* A joined thread can remain listed for a moment. */
static int count_threads(int wanted)
{
    int found = count_entries("/proc/self/task");
    for (int tries = 0; tries < 1000 && found != wanted; tries++) {
        (void)usleep(1000);
        found = count_entries("/proc/self/task");
    }
    return found;
}

static int count_memfd_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:vmmcache") != NULL;
    (void)fclose(maps);
    return count;
}

static void *return_argument(void *argument)
{
    return argument;
}

TEST(close_leaves_nothing)
{
    (void)thread_run(return_argument, NULL); /* sanitizers start another with the first */
    int descriptors = descriptors_open();
    int threads = count_threads(1);
    for (int round = 0; round < 3; round++) {
        struct driver_options options = { .device_bytes = 16 * GRANULE };
        struct driver *driver;
        assert_ok(vmm__driver_host_open(&options, &driver));
        uint64_t address = address_reserve(driver, GIB);
        uint64_t handle = handle_create(driver, GRANULE);
        handle_map(driver, address, GRANULE, handle);
        handle_map(driver, address + 4 * GRANULE, GRANULE, handle);
        assert_ok(vmm__driver_release(driver, handle, GRANULE));
        (void)handle_create(driver, 3 * GRANULE);
        void *event;
        assert_ok(vmm__driver_event_create(driver, &event));
        assert_ok(vmm__driver_fill(driver, address, GRANULE, 1, NULL));
        assert_ok(vmm__driver_event_record(driver, event, NULL));
        assert_true(count_entries("/proc/self/task") > threads);
        assert_int_equal(count_memfd_mappings(), 2);
        vmm__driver_close(driver);
        assert_int_equal(vmm__host_outstanding(), 0);
        assert_int_equal(count_memfd_mappings(), 0);
        assert_int_equal(descriptors_open(), descriptors);
        assert_int_equal(count_threads(threads), threads);
    }
}

TEST(descriptor_closes_on_exec)
{
    struct driver_options options = { .device_bytes = 16 * GRANULE };
    struct driver *driver;
    int probe = dup(0);
    (void)close(probe);
    assert_ok(vmm__driver_host_open(&options, &driver));
    assert_int_equal(fcntl(probe, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    vmm__driver_close(driver);
    assert_int_equal(fcntl(probe, F_GETFD), -1);
}

TEST(default_capacity_is_half_of_the_memory)
{
    struct driver_options options = { .device_bytes = 0 };
    struct driver *driver;
    assert_ok(vmm__driver_open(VMM_DRIVER_HOST, &options, &driver));
    uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(driver->total_bytes, half / GRANULE * GRANULE);
    assert_int_equal(driver->granule_bytes, GRANULE);
    assert_string_equal(driver->device_name, "host memory");
    vmm__driver_close(driver);
}
