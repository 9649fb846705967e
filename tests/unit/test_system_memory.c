/* Memory that the system gives to a device without memory of its own: what /proc/meminfo says, and caches on such a
 * device. */
#define _GNU_SOURCE
#include "support/config_support.h"
#include "support/policy_support.h"

#include "api/config.h"
#include "driver/system_memory.h"

#include <stdio.h>
#include <unistd.h>

/* ---- The text -------------------------------------------------------------------------------- */

TEST(the_text_says_what_can_be_had)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } texts[] = {
        { "MemTotal:       131000000 kB\nMemFree:          900000 kB\nMemAvailable:   104857600 "
          "kB\n",
          100 * GIB },
        { "MemAvailable: 0 kB\n", 0 },
        { "MemAvailable:1 kB", 1024 },
        { "MemAvailable: 1048576 kB\nHugePages_Total: 10\nHugePages_Free: 0\nHugepagesize: 2048 "
          "kB\n",
          GIB },
        /* Set aside for programs that use huge pages, as CUDA may: the larger of the two. */
        { "MemAvailable: 1048576 kB\nHugePages_Free: 1024\nHugepagesize: 2048 kB\n", 2 * GIB },
        { "MemAvailable: 1048576 kB\nHugePages_Free: 100\nHugepagesize: 2048 kB\n", GIB },
        { "MemAvailable: 1048576 kB\nHugePages_Free: 1024\n", GIB },
        { "MemAvailable: 1048576 kB\nHugePages_Free: 18446744073709551615\nHugepagesize: 2048 kB\n",
          GIB },
        { "SwapFree: 99999999 kB\nMemAvailable: 1048576 kB\nSwapFree: 99999999 kB\n", GIB },
    };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint64_t bytes = 7;
        assert_true(vmm__system_memory_parse(texts[i].text, &bytes));
        assert_int_equal(bytes, texts[i].bytes);
    }
}

TEST(a_text_that_does_not_say_is_refused)
{
    static const char *const texts[] = { "",
                                         "\n",
                                         "MemFree: 5 kB\n",
                                         "MemAvailable:\n",
                                         "MemAvailable: kB\n",
                                         "MemAvailable: -1 kB\n",
                                         "NotMemAvailable: 5 kB\n",
                                         "MemAvailable: 18446744073709551616 kB\n",
                                         "MemAvailable: 18446744073709551615 kB\n" };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint64_t bytes = 7;
        assert_false(vmm__system_memory_parse(texts[i], &bytes));
        assert_int_equal(bytes, 7);
    }
}

TEST(this_system_says_what_can_be_had)
{
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = 0;
    assert_true(vmm__system_memory_read(&bytes));
    assert_in_range(bytes, 1, ram);
}

TEST(a_system_that_does_not_say_is_known)
{
    static const char *const files[] = { "/no/such/file", "/", "/proc/version" };
    const char *before = vmm__system_memory_file;
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        uint64_t bytes = 7;
        vmm__system_memory_file = files[i];
        assert_false(vmm__system_memory_read(&bytes));
        assert_int_equal(bytes, 7);
    }
    vmm__system_memory_file = before;
}

TEST(a_part_stays_with_the_system)
{
    assert_int_equal(vmm__system_memory_left(100 * GIB, 128 * GIB), 92 * GIB);
    assert_int_equal(vmm__system_memory_left(8 * GIB, 128 * GIB), 0);
    assert_int_equal(vmm__system_memory_left(3 * GIB, 128 * GIB), 0);
    assert_int_equal(vmm__system_memory_left(0, 128 * GIB), 0);
}

/* ---- A device that has the system's memory ------------------------------------------------------ */

/* As such machines are after they have read files: next to nothing is free, and most is available. */
static void available_set(struct driver *driver, uint64_t bytes)
{
    char text[120];
    (void)snprintf(text, sizeof text,
                   "MemTotal: 9999999999 kB\nMemFree: 4 kB\nMemAvailable: %llu kB\n",
                   (unsigned long long)bytes / 1024);
    assert_true(vmm__sim_system_memory_set(driver, text));
}

static uint64_t free_now(struct driver *driver)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_int_equal(total_bytes, driver->total_bytes);
    return free_bytes;
}

/* The scene's device has 32 granules; 2 stay the system's. */
POLICY_TEST(free_is_what_the_system_can_give)
{
    struct driver *driver = scene->driver;
    available_set(driver, 12 * GRANULE);
    assert_int_equal(free_now(driver), 10 * GRANULE);
    uint64_t handle = handle_create(driver, 4 * GRANULE);
    assert_int_equal(free_now(driver), 6 * GRANULE);
    uint64_t refused;
    assert_status(vmm__driver_create(driver, 7 * GRANULE, false, &refused), VMM_ERR_DEVICE_OOM);
    available_set(driver, 3 * GRANULE); /* another program took some */
    assert_int_equal(free_now(driver), GRANULE);
    assert_ok(vmm__driver_release(driver, handle, 4 * GRANULE));
    assert_int_equal(free_now(driver), 5 * GRANULE);
    available_set(driver, GRANULE);
    assert_int_equal(free_now(driver), 0);
    available_set(driver, 1000 * GRANULE);
    assert_int_equal(free_now(driver), 32 * GRANULE);
}

POLICY_TEST(a_text_that_does_not_say_changes_no_device)
{
    assert_false(vmm__sim_system_memory_set(scene->driver, "MemFree: 1 kB\n"));
    assert_int_equal(free_now(scene->driver), 32 * GRANULE);
}

POLICY_TEST(a_share_of_free_memory_is_one_of_what_the_system_can_give)
{
    vmm_config config = VMM_CONFIG_INIT;
    available_set(scene->driver, 12 * GRANULE);
    variable_set("VMM_LIMIT", "80%free");
    assert_ok(vmm__config_limit(scene->driver, &config));
    assert_int_equal(config.limit_bytes, 8 * GRANULE);
    assert_int_equal(unsetenv("VMM_LIMIT"), 0);
}

POLICY_TEST(what_is_available_is_what_the_system_can_give)
{
    uint64_t bytes;
    available_set(scene->driver, 12 * GRANULE);
    assert_ok(vmm_available_get(scene->cache, &bytes));
    assert_int_equal(bytes, 10 * GRANULE);
    void *block = block_in(scene->cache, 4 * GRANULE, STREAM(1));
    assert_ok(vmm_available_get(scene->cache, &bytes));
    assert_int_equal(bytes, 6 * GRANULE);
    assert_ok(vmm_free(scene->cache, block));
    assert_ok(vmm_available_get(scene->cache, &bytes));
    assert_int_equal(bytes, 10 * GRANULE);
}

/* The request is refused before the system's last memory is gone, and the line says what is missing. */
POLICY_TEST(the_share_of_the_system_makes_a_request_fail)
{
    void *more;
    available_set(scene->driver, 12 * GRANULE);
    (void)block_in(scene->cache, 7 * GRANULE, STREAM(1));
    assert_status(vmm_alloc(scene->cache, 5 * GRANULE, STREAM(1), &more), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "; other users hold 44.0 MiB of the device's memory, "
                                             "which is 4.0 MiB too much"));
    assert_ok(vmm_alloc(scene->cache, 3 * GRANULE, STREAM(1), &more));
}
