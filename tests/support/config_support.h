/*
 * Tests of configurations: CONFIG_TEST(name) runs without any of the library's variables in the environment.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_CONFIG_SUPPORT_H
#define VMM_CONFIG_SUPPORT_H

#include "support/test_support.h"

#include "api/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_TEST(name) TEST_BETWEEN(name, environment_clear, environment_clear)

static inline int environment_clear(void **state)
{
    (void)state;
    static const char *const names[] = { "VMM_DRIVER",     "VMM_NO_CACHING",
                                         "VMM_FOOTPRINT",  "VMM_REUSE",
                                         "VMM_COMPACTION", "VMM_DECAY_MS",
                                         "VMM_LOG",        "VMM_ZERO",
                                         "VMM_DEBUG",      "VMM_NVTX",
                                         "VMM_LIMIT",      "VMM_SHAREABLE",
                                         "VMM_VIEWS",      "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    return 0;
}

static inline void variable_set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

#define assert_names(part) assert_non_null(strstr(vmm_last_error(), part))

#endif
