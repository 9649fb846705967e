/* Every allocation of host memory fails: see fault_support.h. */
#include "support/fault_support.h"

static void allocations_fail_once(void **state)
{
    (void)state;
    fault_allocations_swept();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        FAULT_TEST(allocations_fail_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
