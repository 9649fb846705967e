/* The order in which the sim driver finishes work when a test chooses; and that in each order what must not be
 * done under unfinished work is found. */
#include "support/order_support.h"
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)
#define C STREAM(0xc)

/* ---- Who finishes --------------------------------------------------------------------------- */

/* Lets one stream get on, and notes what it was asked. */
struct favour {
    vmm_stream stream;
    uint32_t most_choices;
};

static uint32_t favour_choose(void *context, const struct sim_choice *choices, uint32_t count)
{
    struct favour *favour = context;
    uint32_t i = 0;
    favour->most_choices = count > favour->most_choices ? count : favour->most_choices;
    while (i < count && choices[i].stream != favour->stream)
        i++;
    return i;
}

/* Work on memory of its own; returns an event behind it. */
static void *worked(struct driver *driver, vmm_stream stream)
{
    sim_filled(driver, sim_memory(driver, GRANULE, NULL), 512, 1, stream);
    return sim_recorded(driver, stream);
}

static void a_stream_may_stall_for_ever(void **state)
{
    struct driver *driver = *state;
    struct favour favour = { .stream = B };
    vmm__sim_order_set(driver, favour_choose, &favour);
    void *of_a = worked(driver, A);
    for (int i = 0; i < 1000; i++) {
        assert_ok(vmm__driver_event_query(driver, worked(driver, B)));
        assert_status(vmm__driver_event_query(driver, of_a), VMM_NOT_READY);
    }
    assert_int_equal(favour.most_choices, 2);
    favour.stream = A;
    assert_ok(vmm__driver_event_query(driver, of_a));
    sim_assert_clean(driver);
}

static void a_wait_of_the_host_finishes_what_it_waits_for(void **state)
{
    struct driver *driver = *state;
    struct favour nobody = { .stream = C };
    vmm__sim_order_set(driver, favour_choose, &nobody);
    void *of_a = worked(driver, A);
    void *of_b = worked(driver, B);
    void *later = worked(driver, A);
    assert_ok(vmm__driver_event_wait(driver, of_a));
    assert_ok(vmm__driver_event_query(driver, of_a));
    assert_status(vmm__driver_event_query(driver, of_b), VMM_NOT_READY);
    assert_status(vmm__driver_event_query(driver, later), VMM_NOT_READY);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_query(driver, of_b));
    assert_ok(vmm__driver_event_query(driver, later));
}

/* B waits for A, and C for B with no work in between. */
static void nothing_finishes_before_what_it_waits_for(void **state)
{
    struct driver *driver = *state;
    struct favour favour = { .stream = B };
    vmm__sim_order_set(driver, favour_choose, &favour);
    void *of_a = worked(driver, A);
    assert_ok(vmm__driver_stream_wait(driver, B, of_a));
    void *behind = sim_recorded(driver, B);
    void *of_b = worked(driver, B);
    assert_ok(vmm__driver_stream_wait(driver, C, behind));
    void *of_c = worked(driver, C);
    favour.stream = C;
    assert_status(vmm__driver_event_query(driver, of_c), VMM_NOT_READY);
    favour.stream = B;
    assert_status(vmm__driver_event_query(driver, of_b), VMM_NOT_READY);
    favour.stream = A;
    assert_ok(vmm__driver_event_query(driver, of_a));
    favour.stream = C;
    assert_ok(vmm__driver_event_query(driver, of_c));
    assert_status(vmm__driver_event_query(driver, of_b), VMM_NOT_READY);
    favour.stream = B;
    assert_ok(vmm__driver_event_query(driver, of_b));
}

static void a_wait_of_the_host_is_for_all_that_comes_before(void **state)
{
    struct driver *driver = *state;
    struct favour nobody = { .stream = C };
    vmm__sim_order_set(driver, favour_choose, &nobody);
    void *of_a = worked(driver, A);
    assert_ok(vmm__driver_stream_wait(driver, B, of_a));
    assert_ok(vmm__driver_event_wait(driver, worked(driver, B)));
    assert_ok(vmm__driver_event_query(driver, of_a));
}

/* The clock of the driver goes on with its calls. */
static void a_delay_is_over_when_its_time_has_come(void **state)
{
    struct driver *driver = *state;
    struct favour favour = { .stream = A };
    vmm__sim_order_set(driver, favour_choose, &favour);
    assert_ok(vmm__driver_delay(driver, 1000000, A));
    void *event = sim_recorded(driver, A);
    uint64_t start = vmm__driver_clock(driver);
    while (vmm__driver_event_query(driver, event) != VMM_OK)
        assert_true(vmm__driver_clock(driver) < start + 2000000);
    assert_true(vmm__driver_clock(driver) >= start + 1000000 / 2);
}

static void by_lag_again(void **state)
{
    struct driver *driver = *state;
    struct favour nobody = { .stream = C };
    vmm__sim_order_set(driver, favour_choose, &nobody);
    void *of_a = worked(driver, A);
    void *of_b = worked(driver, B);
    vmm__sim_order_set(driver, NULL, NULL);
    assert_ok(vmm__driver_event_query(driver, of_a));
    vmm__sim_lag_set(driver, 1);
    assert_ok(vmm__driver_event_query(driver, of_b));
    assert_status(vmm__driver_event_query(driver, worked(driver, A)), VMM_NOT_READY);
}

/* ---- Destroyed streams ---------------------------------------------------------------------- */

static void the_work_of_a_destroyed_stream_runs_to_its_end(void **state)
{
    struct driver *driver = *state;
    vmm_stream stream;
    vmm_stream again;
    assert_ok(vmm__driver_stream_create(driver, &stream));
    struct favour favour = { .stream = A };
    vmm__sim_order_set(driver, favour_choose, &favour);
    void *event = worked(driver, stream);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_status(vmm__driver_event_query(driver, event), VMM_NOT_READY);
    assert_ok(vmm__driver_stream_create(driver, &again));
    assert_ptr_equal(again, stream);
    void *later = worked(driver, again);
    favour.stream = stream; /* both have that name */
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_query(driver, later));
    sim_assert_clean(driver);
}

static void a_destroyed_stream_is_refused(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    void *event = worked(driver, A);
    vmm_stream stream;
    bool is_capturing;
    assert_ok(vmm__driver_stream_create(driver, &stream));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_refused(vmm__driver_fill(driver, address, 512, 1, stream), VMM_ERR_INVALID_ARGUMENT,
                   "destroyed");
    assert_refused(vmm__driver_delay(driver, 1, stream), VMM_ERR_INVALID_ARGUMENT, "destroyed");
    assert_refused(vmm__driver_event_record(driver, event, stream), VMM_ERR_INVALID_ARGUMENT,
                   "destroyed");
    assert_refused(vmm__driver_stream_wait(driver, stream, event), VMM_ERR_INVALID_ARGUMENT,
                   "destroyed");
    assert_refused(vmm__driver_capturing(driver, stream, &is_capturing), VMM_ERR_INVALID_ARGUMENT,
                   "destroyed");
    assert_refused(vmm__driver_capture_begin(driver, stream), VMM_ERR_INVALID_ARGUMENT,
                   "destroyed");
    assert_ok(vmm__driver_stream_create(driver, &stream));
    sim_filled(driver, address, 512, 1, stream);
}

/* ---- Planted --------------------------------------------------------------------------------- */

/*
 * What must not happen to memory that unfinished work may touch, done on the driver. `is_legal`: what
 * makes it right is done first.
 */
typedef void (*plant)(struct driver *driver, bool is_legal);

static void follow_if(struct driver *driver, bool is_legal, vmm_stream later, vmm_stream earlier)
{
    if (is_legal)
        assert_ok(vmm__driver_stream_wait(driver, later, sim_recorded(driver, earlier)));
}

static void wait_if(struct driver *driver, bool is_legal, vmm_stream stream)
{
    if (is_legal)
        assert_ok(vmm__driver_event_wait(driver, sim_recorded(driver, stream)));
}

static void handed_out(struct driver *driver, bool is_legal)
{
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, GRANULE, 1, A);
    follow_if(driver, is_legal, B, A);
    sim_filled(driver, address + MIB, 512, 2, B);
}

/* Freed by A and B, joined, taken by C, which is ordered after A alone. */
static void handed_out_joined(struct driver *driver, bool is_legal)
{
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, MIB, 1, A);
    sim_filled(driver, address + MIB, MIB, 1, B);
    follow_if(driver, true, C, A);
    follow_if(driver, is_legal, C, B);
    sim_filled(driver, address, GRANULE, 2, C);
}

static void unmapped(struct driver *driver, bool is_legal)
{
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 512, 1, A);
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

static void released(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, &handle);
    sim_filled(driver, address, 512, 1, A);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

/* The bytes get other memory under the same address. */
static void rebacked(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    uint64_t scratch = sim_memory(driver, GRANULE, &handle);
    sim_filled(driver, address, GRANULE, 1, A);
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_copy(driver, scratch, address, GRANULE, NULL));
    wait_if(driver, true, NULL);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_mapped(driver, address, GRANULE, handle);
}

/* A chunk moves to a new address; the stale mapping goes too early. */
static void moved(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, &handle);
    uint64_t other = sim_reserved(driver, GRANULE);
    sim_filled(driver, address, GRANULE, 1, A);
    sim_mapped(driver, other, GRANULE, handle);
    follow_if(driver, true, B, A);
    sim_filled(driver, other, GRANULE, 2, B);
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

/* The same, and the new place is used while the old one is. */
static void moved_and_used(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, &handle);
    uint64_t other = sim_reserved(driver, GRANULE);
    sim_filled(driver, address, GRANULE, 1, A);
    sim_mapped(driver, other, GRANULE, handle);
    follow_if(driver, is_legal, B, A);
    sim_filled(driver, other + MIB, 512, 2, B);
}

/* By a stream that is destroyed meanwhile. */
static void unmapped_under_a_destroyed_stream(struct driver *driver, bool is_legal)
{
    vmm_stream stream;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    assert_ok(vmm__driver_stream_create(driver, &stream));
    sim_filled(driver, address, 512, 1, stream);
    void *event = sim_recorded(driver, stream);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_create(driver, &stream));
    wait_if(driver, true, stream); /* which says nothing about the other one */
    if (is_legal)
        assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

static const plant plants[] = { handed_out,     handed_out_joined,
                                unmapped,       released,
                                rebacked,       moved,
                                moved_and_used, unmapped_under_a_destroyed_stream };

static uint64_t violations_planted(plant planted, enum order_kind kind, uint64_t seed,
                                   bool is_legal)
{
    void *driver = NULL;
    struct order order = order_make(kind, seed, 3);
    assert_int_equal(sim_setup(&driver), 0);
    order_begin(driver, &order);
    planted(driver, is_legal);
    uint64_t violations = vmm__sim_violations(driver, NULL);
    assert_int_equal(sim_mismatches(driver), 0);
    assert_int_equal(sim_teardown(&driver), 0);
    return violations;
}

static void what_is_planted_is_found_in_each_order(void **state)
{
    enum { SEEDS = 8 };
    (void)state;
    for (unsigned i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        for (unsigned kind = 0; kind < ORDER_KINDS * SEEDS; kind++) {
            enum order_kind order = (enum order_kind)(kind % ORDER_KINDS);
            uint64_t found = violations_planted(plants[i], order, kind, false);
            uint64_t legal = violations_planted(plants[i], order, kind, true);
            if (found == 0 || legal != 0)
                print_error("plant %u, order %s, seed %u: %llu violations, %llu if legal\n", i,
                            order_name(order), kind, (unsigned long long)found,
                            (unsigned long long)legal);
            assert_true(found > 0 && legal == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_stream_may_stall_for_ever),
        SIM_TEST(a_wait_of_the_host_finishes_what_it_waits_for),
        SIM_TEST(nothing_finishes_before_what_it_waits_for),
        SIM_TEST(a_wait_of_the_host_is_for_all_that_comes_before),
        SIM_TEST(a_delay_is_over_when_its_time_has_come),
        SIM_TEST(by_lag_again),
        SIM_TEST(the_work_of_a_destroyed_stream_runs_to_its_end),
        SIM_TEST(a_destroyed_stream_is_refused),
        cmocka_unit_test(what_is_planted_is_found_in_each_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
