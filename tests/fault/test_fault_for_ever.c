/* From some driver call on all calls fail: see fault_support.h. */
#include "support/fault_support.h"

static void driver_calls_fail_for_ever(void **state)
{
    (void)state;
    fault_calls_swept(true);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        FAULT_TEST(driver_calls_fail_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
