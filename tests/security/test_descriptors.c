/*
 * File descriptors and mappings of a process with a cache: there are few, children do not inherit them, vmm_destroy()
 * closes them, and no mapping is executable.
 *
 * Run as `test_descriptors list` it exits with the number of descriptors it inherited: the tests use that to see what a
 * program started by the process inherits.
 */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/host_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEW = 64 }; /* limit of descriptors */

static const char log_path[] = "test_descriptors.log";

static int descriptors_inherited(void)
{
    pid_t child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "test_descriptors", "list", (char *)NULL);
        _exit(255);
    }
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 255);
    return WEXITSTATUS(status);
}

/* Creates a cache that opens everything it can: the log, the background thread, workers, blocks. */
static vmm_cache *cache_start(void)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = 64 * GRANULE,
                               .decay_ms = 1000, .decay_thread = 1);
    vmm_cache *cache;
    assert_int_equal(setenv("VMM_LOG", log_path, 1), 0);
    vmm_status status = vmm_create(&config, &cache);
    assert_int_equal(unsetenv("VMM_LOG"), 0);
    assert_int_equal(status, VMM_OK);
    for (unsigned i = 1; i <= 8; i++) {
        void *block;
        assert_ok(vmm_alloc(cache, i * GRANULE / 2, STREAM(i), &block));
    }
    return cache;
}

TEST(descriptors_are_not_inherited_and_are_closed)
{
    int before = descriptors_open();
    int inherited = descriptors_inherited();
    vmm_cache *cache = cache_start();
    assert_int_equal(descriptors_open(), before + 2); /* the memory file and the log */
    assert_int_equal(descriptors_inherited(), inherited);
    assert_ok(vmm_destroy(cache));
    assert_int_equal(descriptors_open(), before);
    assert_int_equal(access(log_path, F_OK), 0);
    assert_int_equal(unlink(log_path), 0);
}

/* Negative control: the count includes a descriptor that is inherited. */
TEST(inherited_descriptor_is_counted)
{
    int inherited = descriptors_inherited();
    int open_on_exec = open("/dev/null", O_RDONLY);
    assert_true(open_on_exec >= 0);
    int seen = descriptors_inherited();
    assert_int_equal(close(open_on_exec), 0);
    assert_int_equal(seen, inherited + 1);
}

/* ---- Few descriptors --------------------------------------------------------------------------- */

static void limit_set(rlim_t most, struct rlimit *before)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    struct rlimit limit = { most, before->rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(handles_and_mappings_need_one_descriptor)
{
    enum { HANDLES = FEW + 16 };
    const uint64_t piece = 64 * GRANULE;
    struct driver_options options = { .device_bytes = HANDLES * GRANULE + piece };
    struct rlimit before;
    struct driver *driver;
    int open_before = descriptors_open();
    limit_set(FEW, &before);
    assert_ok(vmm__driver_host_open(&options, &driver));
    for (int i = 0; i < HANDLES; i++)
        (void)handle_create(driver, GRANULE);
    uint64_t handle = handle_create(driver, piece);
    uint64_t address = address_reserve(driver, 100 * GIB);
    for (uint64_t at = 0; at < 100 * GIB; at += piece)
        assert_ok(vmm__driver_map(driver, address + at, piece, handle));
    assert_ok(vmm__driver_access(driver, address, piece));
    assert_ok(vmm__driver_access(driver, address + 100 * GIB - piece, piece));
    *word_at(address) = 7;
    assert_int_equal(*word_at(address + 100 * GIB - piece), 7);
    assert_int_equal(descriptors_open(), open_before + 1);
    vmm__driver_close(driver);
    assert_int_equal(descriptors_open(), open_before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Handles of both kinds are still open when the driver closes. */
TEST(a_shared_handle_needs_one_descriptor)
{
    struct driver_options options = { .device_bytes = 8 * GRANULE };
    struct driver *driver;
    uint64_t handle;
    uint64_t import;
    int descriptor;
    int open_before = descriptors_open();
    int inherited = descriptors_inherited();
    assert_ok(vmm__driver_host_open(&options, &driver));
    assert_ok(vmm__driver_create(driver, GRANULE, true, &handle));
    assert_int_equal(descriptors_open(), open_before + 2);
    assert_ok(vmm__driver_share_export(driver, handle, &descriptor));
    assert_ok(vmm__driver_share_import(driver, descriptor, GRANULE, &import));
    assert_int_equal(descriptors_open(), open_before + 4);
    assert_int_equal(descriptors_inherited(), inherited);
    assert_int_equal(close(descriptor), 0);
    vmm__driver_close(driver);
    assert_int_equal(descriptors_open(), open_before);
}

TEST(cache_works_with_few_descriptors)
{
    struct rlimit before;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = 2 * FEW * GRANULE);
    vmm_cache *cache;
    void *blocks[FEW];
    limit_set(FEW, &before);
    assert_ok(vmm_create(&config, &cache));
    for (unsigned i = 0; i < FEW; i++)
        assert_ok(vmm_alloc(cache, GRANULE, STREAM(i % 16), &blocks[i]));
    for (unsigned i = 0; i < FEW; i++)
        assert_ok(vmm_free(cache, blocks[i]));
    assert_ok(vmm_destroy(cache));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Creates a cache while the process may have `most` descriptors open; it must fail. */
static void create_refused(int most, const char *log, vmm_status wanted, const char *words)
{
    struct rlimit before;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = 64 * GRANULE);
    vmm_cache *cache = NULL;
    assert_int_equal(setenv("VMM_LOG", log, 1), 0);
    limit_set((rlim_t)most, &before);
    vmm_status status = vmm_create(&config, &cache);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(unsetenv("VMM_LOG"), 0);
    assert_int_equal(status, wanted);
    assert_non_null(strstr(vmm_last_error(), words));
    assert_null(cache);
}

/* The descriptors in use are 0 to one less than the lowest that is free. */
TEST(missing_descriptors_are_not_reported_as_oom)
{
    int open_before = descriptors_open();
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(lowest >= 0);
    assert_int_equal(close(lowest), 0);
    create_refused(lowest, "", VMM_ERR_DRIVER, "EMFILE: RLIMIT_NOFILE");
    create_refused(lowest + 1, log_path, VMM_ERR_INVALID_ARGUMENT, "Too many open files");
    assert_int_equal(descriptors_open(), open_before);
}

/* ---- Mappings ------------------------------------------------------------------------------------ */

struct mapping_count {
    int executable;
    int writable_too;
};

static struct mapping_count mappings_executable(void)
{
    char line[1024];
    struct mapping_count count = { 0, 0 };
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        const char *rights = strchr(line, ' ');
        if (rights == NULL || rights[3] != 'x')
            continue;
        count.executable++;
        count.writable_too += rights[2] == 'w';
    }
    (void)fclose(maps);
    return count;
}

TEST(mappings_are_not_executable)
{
    struct mapping_count before = mappings_executable();
    assert_true(before.executable > 0);
    assert_int_equal(before.writable_too, 0);
    vmm_cache *cache = cache_start();
    struct mapping_count at_work = mappings_executable();
    assert_ok(vmm_destroy(cache));
    assert_int_equal(unlink(log_path), 0);
    assert_int_equal(at_work.executable, before.executable);
    assert_int_equal(at_work.writable_too, 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return descriptors_open() - 3;
    return tests_run(NULL, NULL);
}
