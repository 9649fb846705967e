/* The driver that a test runs on: see driver_choice.h. */
#include "support/driver_choice.h"

#include "base/hostmem.h"
#include "driver/sim/sim.h"
#include "support/test_support.h"

#include <stdlib.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77 };

static vmm_driver_kind chosen_kind = VMM_DRIVER_DEFAULT;

static bool gpu_is_required(void)
{
    const char *value = getenv("VMM_REQUIRE_GPU");
    return value != NULL && strcmp(value, "1") == 0;
}

static int exit_code_of(vmm_status status)
{
    bool is_missing = status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED;
    if (chosen_kind != VMM_DRIVER_CUDA || !is_missing || gpu_is_required())
        return EXIT_FAILED;
    return EXIT_SKIPPED;
}

static void chosen_driver_try(const char *program, const char *name)
{
    struct driver_options options = { .device = 0 };
    struct driver *driver;
    vmm_status status = vmm__driver_open(chosen_kind, &options, &driver);
    if (status == VMM_OK) {
        vmm__driver_close(driver);
        return;
    }
    int code = exit_code_of(status);
    (void)fprintf(stderr, "%s %s: %s: %s (%s)\n", program, name,
                  code == EXIT_SKIPPED ? "SKIPPED" : "FAILED", vmm_last_error(),
                  vmm_status_name(status));
    exit(code);
}

void driver_choice_parse(int argc, char **argv)
{
    if (argc < 2 || !vmm__driver_kind_parse(argv[1], &chosen_kind) ||
        chosen_kind == VMM_DRIVER_DEFAULT) {
        (void)fprintf(stderr, "usage: %s sim|host|cuda\n", argv[0]);
        exit(EXIT_USAGE);
    }
}

void driver_choice_read(int argc, char **argv)
{
    driver_choice_parse(argc, argv);
    chosen_driver_try(argv[0], argv[1]);
}

vmm_driver_kind driver_choice_kind(void)
{
    return chosen_kind;
}

struct driver *driver_choice_open(uint64_t device_bytes)
{
    struct driver_options options = { .device_bytes = device_bytes };
    struct driver *driver = NULL;
    assert_ok(vmm__driver_open(chosen_kind, &options, &driver));
    return driver;
}

static void sim_census_is_zero(struct driver *driver)
{
    struct sim_census census = vmm__sim_census(driver);
    assert_int_equal(census.reservations, 0);
    assert_int_equal(census.mappings, 0);
    assert_int_equal(census.handles, 0);
    assert_int_equal(census.physical_bytes, 0);
    assert_int_equal(census.events, 0);
    assert_int_equal(census.pinned_bytes, 0);
}

void driver_choice_census_is_zero(struct driver *driver)
{
    assert_int_equal(driver->reservations, 0);
    assert_int_equal(driver->handles, 0);
    assert_int_equal(driver->created_bytes, 0);
    assert_int_equal(driver->imports, 0);
    assert_int_equal(driver->imported_bytes, 0);
    assert_int_equal(driver->mapped_bytes, 0);
    assert_int_equal(driver->pinned_bytes, 0);
    assert_int_equal(driver->events, 0);
    if (chosen_kind == VMM_DRIVER_SIM)
        sim_census_is_zero(driver);
    const char *report_text;
    if (chosen_kind != VMM_DRIVER_CUDA && vmm__soft_violations(driver, &report_text) != 0)
        fail_msg("the driver saw a violation: %s", report_text);
}

int driver_choice_setup(void **state)
{
    struct driver *driver = driver_choice_open(128 * MIB);
    if (chosen_kind == VMM_DRIVER_SIM)
        vmm__sim_lag_set(driver, 16);
    *state = driver;
    return 0;
}

int driver_choice_teardown(void **state)
{
    driver_choice_census_is_zero(*state);
    assert_int_equal(((struct driver *)*state)->streams, 0);
    vmm__driver_close(*state);
    return vmm__host_outstanding() == 0 ? 0 : -1;
}
