/*
 * The order in which work on the sim driver finishes if a test chooses it; the driver detects
 * misuse of memory under unfinished work in every order.
 */
#include "support/order_support.h"
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)
#define C STREAM(0xc)

/* ---- Completion order ------------------------------------------------------------------------ */

/* Lets only one stream advance, and records the largest number of choices. */
struct only {
    vmm_stream stream;
    uint32_t most_choices;
};

static uint32_t choose_only(void *context, const struct sim_choice *choices, uint32_t count)
{
    struct only *only = context;
    uint32_t i = 0;
    only->most_choices = count > only->most_choices ? count : only->most_choices;
    while (i < count && choices[i].stream != only->stream)
        i++;
    return i;
}

/* Submits work on separate memory; returns an event recorded after it. */
static void *submit_work(struct driver *driver, vmm_stream stream)
{
    memory_fill(driver, memory_map(driver, GRANULE, NULL), 512, 1, stream);
    return sim_record(driver, stream);
}

SIM_TEST(a_stream_can_stall_indefinitely)
{
    struct only only = { .stream = B };
    vmm__sim_order_set(driver, choose_only, &only);
    void *of_a = submit_work(driver, A);
    for (int i = 0; i < 1000; i++) {
        assert_ok(vmm__driver_event_query(driver, submit_work(driver, B)));
        assert_status(vmm__driver_event_query(driver, of_a), VMM__PENDING);
    }
    assert_int_equal(only.most_choices, 2);
    only.stream = A;
    assert_ok(vmm__driver_event_query(driver, of_a));
}

SIM_TEST(a_host_wait_finishes_only_its_work)
{
    struct only none = { .stream = C };
    vmm__sim_order_set(driver, choose_only, &none);
    void *of_a = submit_work(driver, A);
    void *of_b = submit_work(driver, B);
    void *later = submit_work(driver, A);
    assert_ok(vmm__driver_event_wait(driver, of_a));
    assert_ok(vmm__driver_event_query(driver, of_a));
    assert_status(vmm__driver_event_query(driver, of_b), VMM__PENDING);
    assert_status(vmm__driver_event_query(driver, later), VMM__PENDING);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_query(driver, of_b));
    assert_ok(vmm__driver_event_query(driver, later));
}

/* B waits for A, and C for B, with no work in between. */
SIM_TEST(work_finishes_after_what_it_waits_for)
{
    struct only only = { .stream = B };
    vmm__sim_order_set(driver, choose_only, &only);
    void *of_a = submit_work(driver, A);
    assert_ok(vmm__driver_stream_wait(driver, B, of_a));
    void *behind = sim_record(driver, B);
    void *of_b = submit_work(driver, B);
    assert_ok(vmm__driver_stream_wait(driver, C, behind));
    void *of_c = submit_work(driver, C);
    only.stream = C;
    assert_status(vmm__driver_event_query(driver, of_c), VMM__PENDING);
    only.stream = B;
    assert_status(vmm__driver_event_query(driver, of_b), VMM__PENDING);
    only.stream = A;
    assert_ok(vmm__driver_event_query(driver, of_a));
    only.stream = C;
    assert_ok(vmm__driver_event_query(driver, of_c));
    assert_status(vmm__driver_event_query(driver, of_b), VMM__PENDING);
    only.stream = B;
    assert_ok(vmm__driver_event_query(driver, of_b));
}

SIM_TEST(a_host_wait_finishes_all_preceding_work)
{
    struct only none = { .stream = C };
    vmm__sim_order_set(driver, choose_only, &none);
    void *of_a = submit_work(driver, A);
    assert_ok(vmm__driver_stream_wait(driver, B, of_a));
    assert_ok(vmm__driver_event_wait(driver, submit_work(driver, B)));
    assert_ok(vmm__driver_event_query(driver, of_a));
}

/* The driver's clock advances with each call. */
SIM_TEST(a_delay_ends_at_its_time)
{
    struct only only = { .stream = A };
    vmm__sim_order_set(driver, choose_only, &only);
    assert_ok(vmm__driver_delay(driver, 1000000, A));
    void *event = sim_record(driver, A);
    uint64_t start = vmm__driver_clock(driver);
    while (vmm__driver_event_query(driver, event) != VMM_OK)
        assert_true(vmm__driver_clock(driver) < start + 2000000);
    assert_true(vmm__driver_clock(driver) >= start + 1000000 / 2);
}

SIM_TEST(the_lag_can_be_restored)
{
    struct only none = { .stream = C };
    vmm__sim_order_set(driver, choose_only, &none);
    void *of_a = submit_work(driver, A);
    void *of_b = submit_work(driver, B);
    vmm__sim_order_set(driver, NULL, NULL);
    assert_ok(vmm__driver_event_query(driver, of_a));
    vmm__sim_lag_set(driver, 1);
    assert_ok(vmm__driver_event_query(driver, of_b));
    assert_status(vmm__driver_event_query(driver, submit_work(driver, A)), VMM__PENDING);
}

/* ---- Destroyed streams ----------------------------------------------------------------------- */

SIM_TEST(work_of_a_destroyed_stream_finishes)
{
    vmm_stream stream;
    vmm_stream again;
    assert_ok(vmm__driver_stream_create(driver, &stream));
    struct only only = { .stream = A };
    vmm__sim_order_set(driver, choose_only, &only);
    void *event = submit_work(driver, stream);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
    assert_ok(vmm__driver_stream_create(driver, &again));
    assert_ptr_equal(again, stream);
    void *later = submit_work(driver, again);
    only.stream = stream; /* both streams have this name */
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_query(driver, later));
}

SIM_TEST(a_destroyed_stream_is_refused)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    void *event = submit_work(driver, A);
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
    assert_refused(vmm__driver_stream_capturing(driver, stream, &is_capturing),
                   VMM_ERR_INVALID_ARGUMENT, "destroyed");
    assert_refused(vmm__driver_capture_begin(driver, stream), VMM_ERR_INVALID_ARGUMENT,
                   "destroyed");
    assert_ok(vmm__driver_stream_create(driver, &stream));
    memory_fill(driver, address, 512, 1, stream);
}

/* ---- Seeded bugs ----------------------------------------------------------------------------- */

/*
 * Misuse of memory that unfinished work may access. `is_legal`: first does what makes it correct.
 */
typedef void (*seeded_bug)(struct driver *driver, bool is_legal);

static void order_after_if(struct driver *driver, bool is_legal, vmm_stream later,
                           vmm_stream earlier)
{
    if (is_legal)
        assert_ok(vmm__driver_stream_wait(driver, later, sim_record(driver, earlier)));
}

static void wait_if(struct driver *driver, bool is_legal, vmm_stream stream)
{
    if (is_legal)
        assert_ok(vmm__driver_event_wait(driver, sim_record(driver, stream)));
}

static void reuse_block(struct driver *driver, bool is_legal)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    memory_fill(driver, address, GRANULE, 1, A);
    order_after_if(driver, is_legal, B, A);
    memory_fill(driver, address + MIB, 512, 2, B);
}

/* A and B use the memory and free it; C reuses both parts as one, but is ordered after A only. */
static void reuse_merged_blocks(struct driver *driver, bool is_legal)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    memory_fill(driver, address, MIB, 1, A);
    memory_fill(driver, address + MIB, MIB, 1, B);
    order_after_if(driver, true, C, A);
    order_after_if(driver, is_legal, C, B);
    memory_fill(driver, address, GRANULE, 2, C);
}

static void unmap_in_use(struct driver *driver, bool is_legal)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    memory_fill(driver, address, 512, 1, A);
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

static void release_in_use(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    memory_fill(driver, address, 512, 1, A);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

/* The address gets other memory. */
static void relocate_in_use(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, NULL);
    uint64_t scratch = memory_map(driver, GRANULE, &handle);
    memory_fill(driver, address, GRANULE, 1, A);
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_copy(driver, scratch, address, GRANULE, NULL));
    wait_if(driver, true, NULL);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    handle_map(driver, address, GRANULE, handle);
}

/* A chunk moves to a new address; the old mapping is unmapped too early. */
static void unmap_old_address_in_use(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    uint64_t other = address_reserve(driver, GRANULE);
    memory_fill(driver, address, GRANULE, 1, A);
    handle_map(driver, other, GRANULE, handle);
    order_after_if(driver, true, B, A);
    memory_fill(driver, other, GRANULE, 2, B);
    wait_if(driver, is_legal, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

/* The same, and the new address is used while the old one still is. */
static void use_both_addresses(struct driver *driver, bool is_legal)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    uint64_t other = address_reserve(driver, GRANULE);
    memory_fill(driver, address, GRANULE, 1, A);
    handle_map(driver, other, GRANULE, handle);
    order_after_if(driver, is_legal, B, A);
    memory_fill(driver, other + MIB, 512, 2, B);
}

/* The stream with the work is destroyed before the unmap. */
static void unmap_in_use_by_destroyed_stream(struct driver *driver, bool is_legal)
{
    vmm_stream stream;
    uint64_t address = memory_map(driver, GRANULE, NULL);
    assert_ok(vmm__driver_stream_create(driver, &stream));
    memory_fill(driver, address, 512, 1, stream);
    void *event = sim_record(driver, stream);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_create(driver, &stream));
    wait_if(driver, true, stream); /* orders nothing after the destroyed stream's work */
    if (is_legal)
        assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

static const seeded_bug seeded_bugs[] = { reuse_block,        reuse_merged_blocks,
                                          unmap_in_use,       release_in_use,
                                          relocate_in_use,    unmap_old_address_in_use,
                                          use_both_addresses, unmap_in_use_by_destroyed_stream };

static uint64_t count_violations(seeded_bug bug, enum order_kind kind, uint64_t seed, bool is_legal)
{
    void *driver = NULL;
    struct order order = order_make(kind, seed, 3);
    assert_int_equal(sim_setup(&driver), 0);
    sim_violations_allow();
    order_begin(driver, &order);
    bug(driver, is_legal);
    uint64_t violations = vmm__soft_violations(driver, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_int_equal(sim_teardown(&driver), 0);
    return violations;
}

TEST(seeded_bugs_are_detected_in_every_order)
{
    enum { SEEDS = 8 };
    for (unsigned i = 0; i < sizeof seeded_bugs / sizeof seeded_bugs[0]; i++) {
        for (unsigned kind = 0; kind < ORDER_KINDS * SEEDS; kind++) {
            enum order_kind order = (enum order_kind)(kind % ORDER_KINDS);
            uint64_t found = count_violations(seeded_bugs[i], order, kind, false);
            uint64_t legal = count_violations(seeded_bugs[i], order, kind, true);
            if (found == 0 || legal != 0)
                print_error("seeded bug %u, order %s, seed %u: %llu violations, %llu if legal\n", i,
                            order_name(order), kind, (unsigned long long)found,
                            (unsigned long long)legal);
            assert_true(found > 0 && legal == 0);
        }
    }
}
