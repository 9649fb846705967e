/* The log, word for word: what a line tells is what has happened. */
#include "support/sim_support.h"

#include "cache_on.h"
#include "policy/cache.h"

#include <stdio.h>

static char latest[256];

static void line_kept(void *context, const char *line)
{
    assert_ptr_equal(context, latest);
    (void)snprintf(latest, sizeof latest, "%s", line);
}

static vmm_cache *cache_logging(struct driver *driver, uint64_t limit_bytes)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.log = line_kept;
    config.log_context = latest;
    config.limit_bytes = limit_bytes;
    vmm_cache *cache;
    assert_ok(vmm__cache_create_on(&config, driver, &cache));
    return cache;
}

static void *allocated(vmm_cache *cache, size_t bytes)
{
    void *block;
    assert_ok(vmm_alloc(cache, bytes, STREAM(7), &block));
    return block;
}

static void growth_is_told(void **state)
{
    vmm_cache *cache = cache_logging(*state, 0);
    char wanted[256];
    uint64_t address = (uint64_t)(uintptr_t)allocated(cache, 5 * MIB);
    (void)snprintf(wanted, sizeof wanted, "grow: stream 0x7: 3 granules at 0x%llx, reserved 6 MiB",
                   (unsigned long long)address);
    assert_string_equal(latest, wanted);
    address = (uint64_t)(uintptr_t)allocated(cache, 8 * MIB);
    assert_non_null(strstr(latest, "reserved 14 MiB"));
    assert_ok(vmm_destroy(cache));
}

static void trims_are_told(void **state)
{
    vmm_cache *cache = cache_logging(*state, 0);
    void *small = allocated(cache, 6 * MIB);
    void *large = allocated(cache, 10 * MIB);
    assert_ok(vmm_free(cache, large));
    assert_ok(vmm_trim(cache, 0, NULL));
    assert_string_equal(latest, "trim: kept 6 MiB, released 10 MiB, 0 MiB in limbo");
    assert_ok(vmm_free(cache, small));
    assert_ok(vmm_trim(cache, 0, NULL));
    assert_string_equal(latest, "trim: kept 0 MiB, released 6 MiB, 0 MiB in limbo");
    assert_ok(vmm_destroy(cache));
}

static void failures_are_told(void **state)
{
    vmm_cache *cache = cache_logging(*state, 4 * MIB);
    void *block;
    char wanted[600];
    assert_status(vmm_alloc(cache, 5 * MIB, STREAM(7), &block), VMM_ERR_DEVICE_OOM);
    (void)snprintf(wanted, sizeof latest, "alloc: %s", vmm_last_error());
    assert_string_equal(latest, wanted);
    assert_ok(vmm_log_write(cache, "%d and %s are only text"));
    assert_string_equal(latest, "%d and %s are only text");
    assert_ok(vmm_destroy(cache));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(growth_is_told),
        SIM_TEST(trims_are_told),
        SIM_TEST(failures_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
