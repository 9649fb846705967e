/* The addresses of several sim drivers in one process: no two that are open at once have the same. */
#define _GNU_SOURCE
#include "support/sim_support.h"
#include "support/thread_support.h"

static struct driver *driver_open(void)
{
    struct driver_options options = { 0 };
    struct driver *driver = NULL;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    return driver;
}

/* The whole of what a driver can reserve begins here. */
static uint64_t first_address(struct driver *driver)
{
    uint64_t address = address_reserve(driver, GRANULE);
    assert_ok(vmm__driver_address_free(driver, address, GRANULE));
    return address;
}

SIM_TEST(drivers_that_are_open_at_once_have_different_addresses)
{
    enum { DRIVERS = 70, MOST_TIB = 126 };
    struct driver *drivers[DRIVERS] = { driver };
    uint64_t before = 0;
    for (int i = 0; i < DRIVERS; i++) {
        drivers[i] = i == 0 ? driver : driver_open();
        uint64_t first = first_address(drivers[i]);
        assert_true(before == 0 || first >= before + MOST_TIB * TIB);
        before = first;
    }
    for (int i = 1; i < DRIVERS; i++)
        vmm__driver_close(drivers[i]);
}

/* So a test that opens a driver finds the same addresses each time. */
SIM_TEST(the_addresses_of_a_closed_driver_are_the_next_ones)
{
    uint64_t first = first_address(driver);
    struct driver *second = driver_open();
    struct driver *third = driver_open();
    uint64_t addresses[] = { first_address(second), first_address(third) };
    vmm__driver_close(second);
    second = driver_open();
    assert_int_equal(first_address(second), addresses[0]);
    vmm__driver_close(third);
    third = driver_open();
    assert_int_equal(first_address(third), addresses[1]);
    vmm__driver_close(third);
    vmm__driver_close(second);
    assert_int_equal(first_address(driver), first);
}

/* A hint into the addresses of another driver is passed over, also if they are free. */
SIM_TEST(a_hint_into_another_driver_is_not_followed)
{
    uint64_t address;
    struct driver *other = driver_open();
    uint64_t hint = first_address(other) + 64 * GRANULE;
    assert_ok(vmm__driver_reserve(driver, GRANULE, hint, &address));
    assert_true(address < hint - 64 * GRANULE);
    assert_ok(vmm__driver_address_free(driver, address, GRANULE));
    vmm__driver_close(other);
}

SIM_TEST(too_many_open_drivers_are_refused)
{
    enum { MOST = 1024 };
    static struct driver *drivers[MOST];
    struct driver_options options = { 0 };
    for (int i = 1; i < MOST; i++)
        drivers[i] = driver_open();
    struct driver *one_more = driver;
    assert_status(vmm__driver_sim_open(&options, &one_more), VMM_ERR_ADDRESS_SPACE);
    assert_ptr_equal(one_more, driver);
    for (int i = 1; i < MOST; i++)
        vmm__driver_close(drivers[i]);
    vmm__driver_close(driver_open());
}

/* An address that two caches have would be found in the wrong one. */
TEST(two_caches_do_not_know_each_others_blocks)
{
    vmm_cache *caches[2];
    void *blocks[2];
    vmm_item item = VMM_ITEM_INIT;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    for (int i = 0; i < 2; i++) {
        assert_ok(vmm_create(&config, &caches[i]));
        assert_ok(vmm_alloc(caches[i], MIB, NULL, &blocks[i]));
    }
    assert_ptr_not_equal(blocks[0], blocks[1]);
    for (int i = 0; i < 2; i++) {
        assert_status(vmm_free(caches[i], blocks[1 - i]), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_find(caches[i], blocks[1 - i], &item), VMM_ERR_UNKNOWN_POINTER);
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(vmm_free(caches[i], blocks[i]));
        assert_ok(vmm_destroy(caches[i]));
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 300, HELD = 20 };

struct opener {
    pthread_t thread;
    struct driver *drivers[HELD];
    bool has_failed;
};

static void *open_and_close(void *context)
{
    struct opener *opener = context;
    struct driver_options options = { 0 };
    for (int round = 0; round < ROUNDS && !opener->has_failed; round++) {
        struct driver **place = &opener->drivers[round % HELD];
        if (*place != NULL)
            vmm__driver_close(*place);
        opener->has_failed = vmm__driver_sim_open(&options, place) != VMM_OK;
    }
    return NULL;
}

TEST(threads_open_drivers_with_different_addresses)
{
    static struct opener openers[THREADS];
    uint64_t addresses[THREADS * HELD];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(openers[i].thread, NULL), 0);
        assert_false(openers[i].has_failed);
    }
    for (int i = 0; i < THREADS * HELD; i++) {
        addresses[i] = first_address(openers[i / HELD].drivers[i % HELD]);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(addresses[i], addresses[j]);
    }
    for (int i = 0; i < THREADS * HELD; i++)
        vmm__driver_close(openers[i / HELD].drivers[i % HELD]);
}
