/* The text of each log line. */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "cache/cache.h"

#include <stdio.h>

static char latest[256];

static void line_record(void *context, const char *line)
{
    assert_ptr_equal(context, latest);
    (void)snprintf(latest, sizeof latest, "%s", line);
}

static vmm_cache *cache_create_with_log(struct driver *driver, uint64_t limit_bytes)
{
    vmm_config config =
        CONFIG(.log = line_record, .log_context = latest, .limit_bytes = limit_bytes);
    return cache_on_with(driver, &config);
}

static void *allocate(vmm_cache *cache, size_t bytes)
{
    return block_in(cache, bytes, STREAM(7));
}

SIM_TEST(growth_is_logged)
{
    vmm_cache *cache = cache_create_with_log(driver, 0);
    char wanted[256];
    uint64_t address = (uint64_t)(uintptr_t)allocate(cache, 5 * MIB);
    (void)snprintf(wanted, sizeof wanted,
                   "grow: stream 0x107: 3 granules at 0x%llx, reserved 6 MiB",
                   (unsigned long long)address);
    assert_string_equal(latest, wanted);
    address = (uint64_t)(uintptr_t)allocate(cache, 8 * MIB);
    assert_non_null(strstr(latest, "reserved 14 MiB"));
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(live_blocks_are_logged_at_destroy)
{
    vmm_cache *cache = cache_create_with_log(driver, 0);
    char wanted[256];
    (void)allocate(cache, 1000);
    void *third = allocate(cache, 700 * 1024);
    void *first = allocate(cache, 8 * MIB);
    void *second = allocate(cache, 3 * MIB);
    assert_ok(vmm_free(cache, allocate(cache, 16 * MIB)));
    assert_ok(vmm_destroy(cache));
    (void)snprintf(
        wanted, sizeof wanted,
        "destroy: 4 blocks of 11.7 MiB were not freed; the largest: 8.0 MiB at 0x%llx "
        "(stream 0x107), 3.0 MiB at 0x%llx (stream 0x107), 700 KiB at 0x%llx (stream 0x107)",
        (unsigned long long)(uintptr_t)first, (unsigned long long)(uintptr_t)second,
        (unsigned long long)(uintptr_t)third);
    assert_string_equal(latest, wanted);
    cache = cache_create_with_log(driver, 0);
    assert_ok(vmm_free(cache, allocate(cache, MIB)));
    latest[0] = '\0';
    assert_ok(vmm_destroy(cache));
    assert_string_equal(latest, "");
}

SIM_TEST(trims_are_logged)
{
    vmm_cache *cache = cache_create_with_log(driver, 0);
    void *small = allocate(cache, 6 * MIB);
    void *large = allocate(cache, 10 * MIB);
    assert_ok(vmm_free(cache, large));
    assert_ok(vmm_trim(cache, 0, NULL));
    assert_string_equal(latest, "trim: kept 6 MiB, released 10 MiB, 0 MiB in limbo");
    assert_ok(vmm_free(cache, small));
    assert_ok(vmm_trim(cache, 0, NULL));
    assert_string_equal(latest, "trim: kept 0 MiB, released 6 MiB, 0 MiB in limbo");
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(failures_are_logged)
{
    vmm_cache *cache = cache_create_with_log(driver, 4 * MIB);
    void *block;
    char wanted[600];
    assert_status(vmm_alloc(cache, 5 * MIB, STREAM(7), &block), VMM_ERR_DEVICE_OOM);
    (void)snprintf(wanted, sizeof latest, "alloc: %s", vmm_last_error());
    assert_string_equal(latest, wanted);
    assert_ok(vmm_log_write(cache, "%d and %s are only text"));
    assert_string_equal(latest, "%d and %s are only text");
    assert_ok(vmm_destroy(cache));
}
