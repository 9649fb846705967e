/*
 * test_life_no_cuda STATUS PART: a machine whose libcuda.so.1 is not what it should be. The cuda driver says so
 * with that status, and a line that has that part; AUTO takes the host driver.
 */
#include "base/hostmem.h"
#include "support/test_support.h"

#include <stdio.h>
#include <string.h>

static const char *wanted_status;
static const char *wanted_part;

static void what_is_missing_is_told(void **state)
{
    (void)state;
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    config.driver = VMM_DRIVER_CUDA;
    for (int i = 0; i < 2; i++) {
        assert_string_equal(vmm_status_name(vmm_create(&config, &cache)), wanted_status);
        if (strstr(vmm_last_error(), wanted_part) == NULL)
            fail_msg("no '%s' in: %s", wanted_part, vmm_last_error());
        assert_null(cache);
    }
    assert_int_equal(vmm__host_outstanding(), 0);
    config.driver = VMM_DRIVER_AUTO;
    assert_ok(vmm_create(&config, &cache));
    assert_ok(vmm_summary_write(cache, stdout));
    assert_ok(vmm_destroy(cache));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_missing_is_told) };
    if (argc != 3)
        return 2;
    wanted_status = argv[1];
    wanted_part = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
