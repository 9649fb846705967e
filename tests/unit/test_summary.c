/* vmm_summary_write(): columns stay aligned for all values, and write errors are reported. */
#define _GNU_SOURCE
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "cache/cache.h"

#include <stdio.h>
#include <stdlib.h>

static vmm_cache *cache_create(struct driver *driver)
{
    return cache_on_with(driver, NULL);
}

static char *summary_of(vmm_cache *cache)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_ok(vmm_summary_write(cache, out));
    assert_int_equal(fclose(out), 0);
    return text;
}

static void check_driver_time(vmm_cache *cache, uint64_t ns, const char *wanted)
{
    atomic_store(&cache->driver->counts.driver_ns, ns);
    char *text = summary_of(cache);
    assert_non_null(strstr(text, wanted));
    for (const char *at = strchr(text, '+'); *at != '\0'; at += strcspn(at, "\n") + 1)
        assert_int_equal(strcspn(at, "\n"), strcspn(strchr(text, '+'), "\n"));
    free(text);
}

SIM_TEST(long_times_fit_the_table)
{
    vmm_cache *cache = cache_create(driver);
    check_driver_time(cache, 1815123, "| Driver time           |   1.815 ms |");
    check_driver_time(cache, 999999499, "| Driver time           | 999.999 ms |");
    check_driver_time(cache, 999999500, "| Driver time           |     1.00 s |");
    check_driver_time(cache, UINT64_C(86400) * 1000000000,
                      "| Driver time           | 86400.00 s |");
    check_driver_time(cache, UINT64_C(99999995000000), "| Driver time           |   100000 s |");
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(summary_names_the_driver_and_its_version)
{
    vmm_cache *cache = cache_create(driver);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(driver->version, sizeof driver->version, "%s", i == 0 ? "" : "12.8");
        char *text = summary_of(cache);
        assert_non_null(strstr(text, i == 0 ? "(sim driver)\n" : "(sim driver 12.8)\n"));
        free(text);
    }
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(write_errors_are_reported)
{
    vmm_cache *cache = cache_create(driver);
    static const char *const modes[] = { "r", "w" };
    static const char *const paths[] = { "/dev/null", "/dev/full" };
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(paths[i], modes[i]);
        assert_non_null(file);
        assert_status(vmm_summary_write(cache, file), VMM_ERR_INVALID_ARGUMENT);
        (void)fclose(file);
    }
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(device_memory_leaves_results_unchanged_on_failure)
{
    vmm_cache *cache = cache_create(driver);
    uint64_t free_bytes = 1;
    uint64_t total_bytes = 2;
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm_device_memory(cache, &free_bytes, &total_bytes), VMM_ERR_DRIVER);
    assert_true(free_bytes == 1 && total_bytes == 2);
    assert_ok(vmm_device_memory(cache, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, total_bytes);
    assert_ok(vmm_destroy(cache));
}
