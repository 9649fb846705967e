/* The cuda driver on a device that has the system's memory, on the fake libcuda: test_system_memory.c has the rest. */
#define _GNU_SOURCE
#include "life/cuda_neighbours.h"
#include "support/folder_support.h"

#include "driver/system_memory.h"

static char meminfo[] = "/tmp/test_life_cuda_integrated.XXXXXX";

static void available_set(uint64_t bytes)
{
    FILE *file = fopen(meminfo, "we");
    CHILD_REQUIRES(file != NULL);
    (void)fprintf(file, "MemFree: 4 kB\nMemAvailable: %llu kB\n", (unsigned long long)bytes / 1024);
    CHILD_REQUIRES(fclose(file) == 0);
}

static void meminfo_make(void)
{
    int file = mkstemp(meminfo);
    CHILD_REQUIRES(file >= 0 && close(file) == 0);
    vmm__system_memory_file = meminfo;
    available_set(1024 * GIB);
}

static uint64_t free_now(struct driver *driver)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    CHILD_REQUIRES(vmm__driver_memory_info(driver, &free_bytes, &total_bytes) == VMM_OK);
    CHILD_REQUIRES(total_bytes == driver->total_bytes);
    return free_bytes;
}

/* ---- The driver ---------------------------------------------------------------------------------- */

FAKE_TEST(the_system_says_what_is_free)
{
    meminfo_make();
    fake->is_integrated = true;
    struct driver *driver = driver_open();
    uint64_t system_bytes = driver->total_bytes / SYSTEM_SHARE;
    uint64_t handle;
    int descriptors = descriptors_open();
    available_set(system_bytes + 6 * MIB);
    CHILD_REQUIRES(free_now(driver) == 6 * MIB);
    CHILD_REQUIRES(vmm__driver_create(driver, 8 * MIB, false, &handle) == VMM_ERR_DEVICE_OOM);
    CHILD_REQUIRES(strstr(vmm_last_error(), "can give 6291456") != NULL);
    CHILD_REQUIRES(vmm__driver_create(driver, 6 * MIB, false, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 6 * MIB) == VMM_OK);
    available_set(system_bytes - MIB);
    CHILD_REQUIRES(free_now(driver) == 0);
    CHILD_REQUIRES(descriptors_open() == descriptors);
    vmm__driver_close(driver);
    CHILD_REQUIRES(unlink(meminfo) == 0);
}

/* Then CUDA decides, as before. */
FAKE_TEST(a_system_that_does_not_say_leaves_it_to_cuda)
{
    vmm__system_memory_file = "/no/such/file";
    fake->is_integrated = true;
    struct driver *driver = driver_open();
    uint64_t handle;
    CHILD_REQUIRES(free_now(driver) == driver->granule_bytes);
    CHILD_REQUIRES(vmm__driver_create(driver, 8 * MIB, false, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 8 * MIB) == VMM_OK);
    vmm__driver_close(driver);
}

FAKE_TEST(a_device_with_memory_of_its_own_does_not_ask_the_system)
{
    meminfo_make();
    available_set(0);
    struct driver *driver = driver_open();
    uint64_t handle;
    CHILD_REQUIRES(free_now(driver) >= 8 * MIB);
    CHILD_REQUIRES(vmm__driver_create(driver, 8 * MIB, false, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_release(driver, handle, 8 * MIB) == VMM_OK);
    vmm__driver_close(driver);
    CHILD_REQUIRES(unlink(meminfo) == 0);
}

FAKE_TEST(a_device_that_does_not_answer_fails_to_open)
{
    enum { CALL_OF_INTEGRATED = 3 }; /* after those of virtual memory and of multiprocessors */
    struct driver_options options = { .device = 0 };
    struct driver *driver = NULL;
    fault_set("cuDeviceGetAttribute", 999, CALL_OF_INTEGRATED, true);
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_ERR_DRIVER);
    CHILD_REQUIRES(strstr(vmm_last_error(), "cuDeviceGetAttribute(18)") != NULL);
}

/* ---- Caches -------------------------------------------------------------------------------------- */

FAKE_TEST(a_share_of_free_memory_is_one_of_what_the_system_can_give)
{
    vmm_cache *cache = NULL;
    meminfo_make();
    fake->is_integrated = true;
    struct driver *driver = driver_open();
    available_set(driver->total_bytes / SYSTEM_SHARE + 100 * MIB);
    vmm__driver_close(driver);
    CHILD_REQUIRES(setenv("VMM_LIMIT", "80%free", 1) == 0);
    CHILD_REQUIRES(cache_try_create(VMM_DRIVER_CUDA, 0, &cache) == VMM_OK);
    void *block = NULL;
    CHILD_REQUIRES(vmm_alloc(cache, 82 * MIB, NULL, &block) == VMM_ERR_DEVICE_OOM);
    CHILD_REQUIRES(strstr(vmm_last_error(), "of 80.0 MiB (limit)") != NULL);
    CHILD_REQUIRES(vmm_alloc(cache, 80 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_destroy(cache) == VMM_OK);
    CHILD_REQUIRES(unlink(meminfo) == 0);
}

static uint64_t system_bytes; /* of the device, for the log */

/* Of the holder: what it gives is the system's again. */
static void given_count(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "neighbours: gave") != NULL)
        available_set(system_bytes + 64 * MIB);
}

static void system_run_out(void)
{
    available_set(system_bytes + MIB);
}

/* CUDA would have given the memory: without the share of the system no cache claims anything until the machine
 * hangs. */
FAKE_TEST(a_request_claims_before_the_system_runs_out)
{
    uint64_t total_bytes;
    const char *folder = neighbours_folder_make();
    meminfo_make();
    fake->is_integrated = true;
    vmm_cache *holder = neighbour_create(0, given_count);
    vmm_cache *claimant = neighbour_create(0, NULL);
    CHILD_REQUIRES(vmm_device_memory(holder, &system_bytes, &total_bytes) == VMM_OK);
    system_bytes = total_bytes / SYSTEM_SHARE;
    idle_memory_moves(holder, claimant, system_run_out);
    CHILD_REQUIRES(unlink(meminfo) == 0 && rmdir(folder) == 0);
}
