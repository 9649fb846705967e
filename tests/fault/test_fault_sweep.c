/* Every driver call fails once: see fault_support.h. */
#include "support/fault_support.h"

/* The sweep is worth as much as its workloads: they must climb all of the ladder. */
static void workloads_reach_everything(void **state)
{
    (void)state;
    struct fault_reach reach = fault_reach();
    assert_true(reach.ooms > 0);
    assert_true(reach.retries > reach.ooms + 10);
    assert_true(reach.stalls > 0);
    assert_true(reach.stale > 0);
    assert_true(reach.ordered > 0);
    assert_true(reach.decayed > 0);
    assert_true(reach.compactions > 10);
    assert_true(reach.copies > 20);
    assert_true(reach.twins > 20);
}

static void driver_calls_fail_once(void **state)
{
    (void)state;
    fault_calls_swept(false);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(workloads_reach_everything),
        FAULT_TEST(driver_calls_fail_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
