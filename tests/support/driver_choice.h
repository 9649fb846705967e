/*
 * For tests that run unchanged on every driver: the driver is named by the first argument.
 *
 *   DRIVER_MAIN(NULL, NULL)
 */
#ifndef VMM_DRIVER_CHOICE_H
#define VMM_DRIVER_CHOICE_H

#include "driver/driver.h"

/*
 * Reads "sim", "host" or "cuda" from argv[1]. Ends the process: with 2 and the usage when there is
 * no such argument; with 77 (skipped) and a line that says why when cuda finds no GPU that it can
 * use, or with 1 when the environment has VMM_REQUIRE_GPU=1; with 1 when the driver does not open.
 */
void driver_choice_read(int argc, char **argv);

/* The same, but opens nothing: for programs whose children open the driver, which then must be the first to. */
void driver_choice_parse(int argc, char **argv);

/* The main() of such a program, with a set-up and a teardown of all its tests. */
#define DRIVER_MAIN(group_setup, group_teardown)                                                   \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        driver_choice_read(argc, argv);                                                            \
        return tests_run(group_setup, group_teardown);                                             \
    }

/* The kind that was chosen. */
vmm_driver_kind driver_choice_kind(void);

/* Opens the chosen driver; device_bytes as in driver_options. Fails the running test on failure. */
struct driver *driver_choice_open(uint64_t device_bytes);

/* A test with a driver of its own, of 128 MiB except on cuda; work on sim lags. It must leave nothing outstanding. */
#define DRIVER_TEST(name)                                                                          \
    TEST_WITH(name, driver_choice_setup, driver_choice_teardown, struct driver *driver)
int driver_choice_setup(void **state);
int driver_choice_teardown(void **state);

/* Fails the running test if anything is outstanding (on sim: or if it recorded a violation). */
void driver_choice_census_is_zero(struct driver *driver);

#endif
