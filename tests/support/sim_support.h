/*
 * A sim driver for each test, and the steps that most tests take on it.
 *
 * Use SIM_TEST(name), in which `driver` is the driver. The teardown closes it, and fails if the driver saw a violation
 * that the test has not named with sim_assert_violations(), or left host memory behind.
 */
#ifndef VMM_SIM_SUPPORT_H
#define VMM_SIM_SUPPORT_H

#include "support/driver_steps.h"

#include "base/hostmem.h"
#include "driver/sim/sim.h"

#include <string.h>

#define SIM_TEST(name) TEST_WITH(name, sim_setup, sim_teardown, struct driver *driver)

/* The driver of the test, and the violations that the test has named; or whether it may have any. */
static struct {
    struct driver *driver;
    uint64_t violations;
    bool is_wrong;
} sim_test;

/* The test does what the driver reports, and looks at something else. */
static inline void sim_violations_allow(void)
{
    sim_test.is_wrong = true;
}

/* Requires this number of violations, and this text in the first report. */
static inline void sim_assert_violations(struct driver *driver, uint64_t count, const char *part)
{
    const char *text;
    uint64_t found = vmm__soft_violations(driver, &text);
    if (found != count || strstr(text, part) == NULL)
        print_error("%llu violations, first: %s\n", (unsigned long long)found, text);
    assert_true(found == count);
    assert_non_null(strstr(text, part));
    if (driver == sim_test.driver)
        sim_test.violations = count;
}

static inline void sim_assert_clean(struct driver *driver)
{
    sim_assert_violations(driver, 0, "");
}

static inline int sim_setup(void **state)
{
    struct driver_options options = { 0 };
    struct driver *driver;
    if (vmm__driver_sim_open(&options, &driver) != VMM_OK)
        return -1;
    sim_test.driver = driver;
    sim_test.violations = 0;
    sim_test.is_wrong = false;
    *state = driver;
    return 0;
}

static inline int sim_teardown(void **state)
{
    if (!sim_test.is_wrong)
        sim_assert_violations(*state, sim_test.violations, "");
    vmm__driver_close(*state);
    if (vmm__host_outstanding() == 0)
        return 0;
    print_error("the closed driver left %llu bytes of host memory\n",
                (unsigned long long)vmm__host_outstanding());
    return -1;
}

static inline void *sim_record(struct driver *driver, vmm_stream stream)
{
    void *event;
    assert_ok(vmm__driver_event_create(driver, &event));
    assert_ok(vmm__driver_event_record(driver, event, stream));
    return event;
}

/* The call on `driver` must fail with a message and change nothing, including the clock. */
#define assert_refused(call, status, part)                                                         \
    do {                                                                                           \
        struct sim_census before = vmm__sim_census(driver);                                        \
        uint64_t clock = vmm__driver_clock(driver);                                                \
        assert_status(call, status);                                                               \
        struct sim_census after = vmm__sim_census(driver);                                         \
        assert_memory_equal(&before, &after, sizeof before);                                       \
        assert_int_equal(vmm__driver_clock(driver), clock);                                        \
        if (strstr(vmm_last_error(), part) == NULL)                                                \
            print_error("last error: %s\n", vmm_last_error());                                     \
        assert_non_null(strstr(vmm_last_error(), part));                                           \
    } while (0)

static inline bool sim_census_is_zero(struct driver *driver)
{
    struct sim_census zero = { 0 };
    struct sim_census census = vmm__sim_census(driver);
    return memcmp(&census, &zero, sizeof zero) == 0;
}

#endif
