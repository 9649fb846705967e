/*
 * test_life_no_cuda STATUS PART: a machine whose libcuda.so.1 is missing, too old or no library. Creating a cache with
 * the cuda driver fails with that status, and with an error that contains that part; so does vmm_create() without a
 * driver's name, and its error says how to ask for another driver.
 */
#define _GNU_SOURCE
#include "base/hostmem.h"
#include "support/test_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *wanted_status;
static const char *wanted_part;

static void require_error(const char *part)
{
    if (strstr(vmm_last_error(), part) == NULL)
        fail_msg("no '%s' in: %s", part, vmm_last_error());
}

TEST(unusable_libcuda_is_reported)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    config.driver = VMM_DRIVER_CUDA;
    for (int i = 0; i < 2; i++) {
        assert_string_equal(vmm_status_name(vmm_create(&config, &cache)), wanted_status);
        require_error(wanted_part);
        assert_null(cache);
    }
    assert_int_equal(vmm__host_outstanding(), 0);
    assert_status(vmm_create(NULL, &cache), VMM_ERR_NO_DEVICE);
    assert_null(cache);
    require_error(wanted_part);
    require_error("VMM_DRIVER_HOST or VMM_DRIVER=host");
    require_error("VMM_DRIVER_SIM or VMM_DRIVER=sim");
    assert_int_equal(vmm__host_outstanding(), 0);
    assert_int_equal(setenv("VMM_DRIVER", "host", 1), 0);
    assert_ok(vmm_create(NULL, &cache));
    assert_ok(vmm_summary_write(cache, stdout));
    assert_ok(vmm_destroy(cache));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    wanted_status = argv[1];
    wanted_part = argv[2];
    return tests_run(NULL, NULL);
}
