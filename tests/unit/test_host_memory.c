/*
 * The host driver's memory: extents, handles and mappings; its guarantees, and its checks of the
 * callers'.
 */
#define _GNU_SOURCE
#include "support/host_support.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sanitizers occupy part of the address space. */
#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define HUGE_BYTES (UINT64_C(1) << 36)
#elif defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define HUGE_BYTES (UINT64_C(1) << 44)
#else
#define HUGE_BYTES (UINT64_C(1) << 46)
#endif

static uint64_t free_granules(struct driver *driver)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_int_equal(total_bytes, 64 * GRANULE);
    return free_bytes / GRANULE;
}

/* Reads in a child process. False if a signal ends it or it reads another value than `wanted`. */
static bool child_reads(uint64_t address, uint64_t wanted)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGSEGV, SIG_DFL);
        _exit(*word_at(address) == wanted ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- Guarantees ------------------------------------------------------------------------------ */

HOST_TEST(memory_that_was_freed_here_and_there_serves_one_handle)
{
    uint64_t address = address_reserve(driver, 64 * GRANULE);
    uint64_t handles[64];
    for (int i = 0; i < 64; i++)
        handles[i] = handle_create(driver, GRANULE);
    for (int i = 0; i < 64; i += 2)
        assert_ok(vmm__driver_release(driver, handles[i], GRANULE));
    assert_int_equal(free_granules(driver), 32);
    uint64_t scattered = handle_create(driver, 32 * GRANULE);
    assert_int_equal(free_granules(driver), 0);
    handle_map(driver, address, 32 * GRANULE, scattered);
    for (uint64_t i = 0; i < 32; i++)
        *word_at(address + i * GRANULE) = i + 1;
    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(*word_at(address + i * GRANULE), i + 1);
    assert_ok(vmm__driver_unmap(driver, address, 32 * GRANULE));
    assert_ok(vmm__driver_release(driver, scattered, 32 * GRANULE));
    for (int i = 1; i < 64; i += 2)
        assert_ok(vmm__driver_release(driver, handles[i], GRANULE));
    assert_int_equal(free_granules(driver), 64);
    assert_ok(vmm__driver_address_free(driver, address, 64 * GRANULE));
}

HOST_TEST(no_granule_has_two_owners)
{
    uint64_t address = address_reserve(driver, 64 * GRANULE);
    uint64_t handles[8] = { 0 };
    uint64_t sizes[8] = { 0 };
    uint64_t random = 1;
    for (uint64_t round = 0; round < 500; round++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t slot = random >> 61;
        uint64_t place = address + slot * 8 * GRANULE;
        if (handles[slot] != 0) {
            for (uint64_t i = 0; i < sizes[slot]; i++)
                assert_int_equal(*word_at(place + i * GRANULE), slot * 100 + i);
            assert_ok(vmm__driver_unmap(driver, place, sizes[slot] * GRANULE));
            assert_ok(vmm__driver_release(driver, handles[slot], sizes[slot] * GRANULE));
        }
        sizes[slot] = 1 + (random >> 40) % 8;
        handles[slot] = handle_create(driver, sizes[slot] * GRANULE);
        handle_map(driver, place, sizes[slot] * GRANULE, handles[slot]);
        for (uint64_t i = 0; i < sizes[slot]; i++)
            *word_at(place + i * GRANULE) = slot * 100 + i;
    }
}

HOST_TEST(memory_outlives_release_until_the_last_unmap)
{
    uint64_t address = address_reserve(driver, 2 * GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    handle_map(driver, address, GRANULE, handle);
    handle_map(driver, address + GRANULE, GRANULE, handle);
    *word_at(address) = 7;
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_int_equal(*word_at(address + GRANULE), 7);
    assert_int_equal(free_granules(driver), 63);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_int_equal(*word_at(address + GRANULE), 7);
    assert_int_equal(free_granules(driver), 63);
    assert_ok(vmm__driver_unmap(driver, address + GRANULE, GRANULE));
    assert_int_equal(free_granules(driver), 64);
    assert_ok(vmm__driver_address_free(driver, address, 2 * GRANULE));
}

/* KiB in this process's own memfds; files of other processes change meanwhile. */
static uint64_t memfd_kib(void)
{
    char target[256] = "";
    struct stat file;
    uint64_t blocks = 0;
    DIR *open_files = opendir("/proc/self/fd");
    assert_non_null(open_files);
    for (struct dirent *entry = readdir(open_files); entry != NULL; entry = readdir(open_files)) {
        ssize_t length = readlinkat(dirfd(open_files), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, "memfd:") != NULL &&
            fstatat(dirfd(open_files), entry->d_name, &file, 0) == 0)
            blocks += (uint64_t)file.st_blocks;
    }
    (void)closedir(open_files);
    return blocks / 2;
}

HOST_TEST(what_is_used_takes_memory_and_release_frees_it)
{
    uint64_t address = address_reserve(driver, 64 * GRANULE);
    uint64_t handle = handle_create(driver, 64 * GRANULE);
    uint64_t before = memfd_kib();
    handle_map(driver, address, 64 * GRANULE, handle);
    memset((void *)word_at(address), 1, 64 * GRANULE);
    uint64_t during = memfd_kib();
    assert_ok(vmm__driver_unmap(driver, address, 64 * GRANULE));
    assert_ok(vmm__driver_release(driver, handle, 64 * GRANULE));
    uint64_t after = memfd_kib();
    assert_true(during >= before + 100 * 1024);
    assert_true(after + 100 * 1024 <= during);
    assert_ok(vmm__driver_address_free(driver, address, 64 * GRANULE));
}

HOST_TEST(memory_needs_mapping_and_access)
{
    uint64_t address = address_reserve(driver, 2 * GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    assert_false(child_reads(address, 0));
    handle_map(driver, address, GRANULE, handle);
    *word_at(address) = 1;
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_map(driver, address, GRANULE, handle));
    assert_int_equal(vmm__driver_fill(driver, address, 8, 1, NULL), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_access(driver, address, GRANULE));
    assert_int_equal(*word_at(address), 1);
    assert_int_equal(vmm__driver_fill(driver, address + GRANULE - 8, 16, 1, NULL), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_false(child_reads(address, 0));
}

HOST_TEST(children_do_not_inherit_mappings)
{
    uint64_t address = address_reserve(driver, GRANULE);
    handle_map(driver, address, GRANULE, handle_create(driver, GRANULE));
    *word_at(address) = 42;
    assert_false(child_reads(address, 42));
    assert_int_equal(*word_at(address), 42);
}

HOST_TEST(huge_reservations_work)
{
    uint64_t address = address_reserve(driver, HUGE_BYTES);
    assert_int_equal(address % GRANULE, 0);
    uint64_t last = address + HUGE_BYTES - GRANULE;
    handle_map(driver, last, GRANULE, handle_create(driver, GRANULE));
    *word_at(last) = 1;
    assert_ok(vmm__driver_unmap(driver, last, GRANULE));
    assert_ok(vmm__driver_address_free(driver, address, HUGE_BYTES));
    uint64_t untouched = 5;
    assert_status(vmm__driver_reserve(driver, UINT64_C(1) << 47, 0, &untouched),
                  VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm__driver_reserve(driver, UINT64_MAX - GRANULE + 1, 0, &untouched),
                  VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(untouched, 5);
    assert_non_null(strstr(vmm_last_error(), "reserve"));
}

/* ---- Invalid calls fail without changes ------------------------------------------------------ */

/* The kernel takes a hint where the addresses are free. */
HOST_TEST(hints_are_taken_where_addresses_are_free)
{
    uint64_t address, again, other;
    assert_ok(vmm__driver_reserve(driver, 4 * GRANULE, 0, &address));
    assert_ok(vmm__driver_address_free(driver, address, 4 * GRANULE));
    assert_ok(vmm__driver_reserve(driver, 4 * GRANULE, address, &again));
    assert_int_equal(again, address);
    assert_ok(vmm__driver_reserve(driver, 4 * GRANULE, address, &other));
    assert_true(other >= address + 4 * GRANULE || other + 4 * GRANULE <= address);
    assert_int_equal(other % GRANULE, 0);
    assert_ok(vmm__driver_address_free(driver, again, 4 * GRANULE));
    assert_ok(vmm__driver_address_free(driver, other, 4 * GRANULE));
}

HOST_TEST(invalid_calls_are_refused)
{
    uint64_t address = address_reserve(driver, 8 * GRANULE);
    uint64_t one = handle_create(driver, GRANULE);
    uint64_t two = handle_create(driver, 2 * GRANULE);
    handle_map(driver, address, 2 * GRANULE, two);
    handle_map(driver, address + 2 * GRANULE, GRANULE, one);
    *word_at(address) = 11;
    void *own = mmap(NULL, 4 * GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(own != MAP_FAILED);
    uint64_t foreign = ((uint64_t)(uintptr_t)own + GRANULE - 1) / GRANULE * GRANULE;

    assert_status(vmm__driver_map(driver, foreign, GRANULE, one), VMM_ERR_DRIVER);
    assert_status(vmm__driver_map(driver, address, GRANULE, one), VMM_ERR_DRIVER);
    assert_status(vmm__driver_map(driver, address + 3 * GRANULE + 4096, GRANULE, one),
                  VMM_ERR_DRIVER);
    assert_status(vmm__driver_map(driver, address + 7 * GRANULE, 2 * GRANULE, two), VMM_ERR_DRIVER);
    assert_status(vmm__driver_map(driver, address + 3 * GRANULE, GRANULE, two), VMM_ERR_DRIVER);
    assert_status(vmm__driver_map(driver, address + 3 * GRANULE, GRANULE, 0), VMM_ERR_DRIVER);
    assert_status(vmm__driver_map(driver, address + 3 * GRANULE, GRANULE, 999), VMM_ERR_DRIVER);
    assert_status(vmm__driver_unmap(driver, foreign, GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_unmap(driver, address, GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_unmap(driver, address + GRANULE, GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_unmap(driver, address, 4 * GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_access(driver, address, 4 * GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_address_free(driver, address, 8 * GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_address_free(driver, address, 4 * GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_release(driver, two, GRANULE), VMM_ERR_DRIVER);
    assert_status(vmm__driver_release(driver, two + 1, 2 * GRANULE), VMM_ERR_DRIVER);

    assert_int_equal(*word_at(address), 11);
    assert_int_equal(*(volatile char *)own, 0);
    assert_ok(vmm__driver_unmap(driver, address, 3 * GRANULE));
    assert_ok(vmm__driver_release(driver, one, GRANULE));
    assert_status(vmm__driver_release(driver, one, GRANULE), VMM_ERR_DRIVER);
    uint64_t again = handle_create(driver, GRANULE);
    assert_int_not_equal(again, one);
    assert_status(vmm__driver_release(driver, one, GRANULE), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_release(driver, again, GRANULE));
    assert_ok(vmm__driver_release(driver, two, 2 * GRANULE));
    assert_ok(vmm__driver_address_free(driver, address, 8 * GRANULE));
    assert_int_equal(free_granules(driver), 64);
    assert_int_equal(munmap(own, 4 * GRANULE), 0);
}
