/* The log names unknown environment variables that begin with VMM_, once per process. */
#define _GNU_SOURCE
#include "support/made_support.h"
#include "support/test_support.h"

#include <stdlib.h>
#include <string.h>

static char warnings[4096];

static void warning_record(void *context, const char *line)
{
    assert_ptr_equal(context, warnings);
    if (strncmp(line, "environment: ", 13) == 0) {
        assert_true(strlen(warnings) + strlen(line) + 2 < sizeof warnings);
        strcat(strcat(warnings, line), "\n");
    }
}

static void cache_create_and_destroy(vmm_log_fn log)
{
    vmm_cache *cache = cache_with(.driver = VMM_DRIVER_SIM, .log = log, .log_context = warnings);
    assert_ok(vmm_destroy(cache));
}

TEST(unknown_variables_are_logged_once)
{
    static const char *const known[] = { "VMM_COMPACTION",  "VMM_DECAY_MS",   "VMM_DRIVER",
                                         "VMM_FOOTPRINT",   "VMM_DEBUG",      "VMM_LIMIT",
                                         "VMM_MONITOR",     "VMM_NO_CACHING", "VMM_NVTX",
                                         "VMM_HOST_DEVICE", "VMM_PRELOAD",    "VMM_REQUIRE_GPU",
                                         "VMM_REUSE",       "VMM_SHAREABLE",  "VMM_TEST_MEMBER",
                                         "VMM_VIEWS",       "VMM_ZERO" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(setenv(known[i], "", 1), 0);
    assert_int_equal(setenv("VMM_COMPACT", "on", 1), 0);
    assert_int_equal(setenv("VMM_ZEROS", "1", 1), 0);
    assert_int_equal(setenv("VMMCACHE_LIBRARY", "1", 1), 0);
    cache_create_and_destroy(NULL); /* without a log, a later cache logs it */
    assert_string_equal(warnings, "");
    cache_create_and_destroy(warning_record);
    assert_non_null(strstr(warnings, "environment: nothing reads VMM_COMPACT: is it misspelt?\n"));
    char *zeros = strstr(warnings, "nothing reads VMM_ZEROS:");
    assert_non_null(zeros);
    unsigned count = 0;
    for (const char *at = warnings; (at = strstr(at, "nothing reads")) != NULL; at++)
        count++;
    assert_int_equal(count, 2);
    warnings[0] = '\0';
    cache_create_and_destroy(warning_record);
    assert_string_equal(warnings, "");
}
