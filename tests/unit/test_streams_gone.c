/* Streams that are destroyed without vmm_stream_end(), on the sim driver: what becomes of their memory, and what
 * remains of them. */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "cache/cache.h"

enum { STREAMS = 4, BLOCK = 64 * MIB };

struct fixture {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[STREAMS];
};

static void fixture_open(struct fixture *fixture, const vmm_config *config)
{
    struct driver_options options = { .device_bytes = 256 * MIB };
    *fixture = (struct fixture){ .cache = NULL };
    assert_ok(vmm__driver_sim_open(&options, &fixture->driver));
    for (unsigned i = 0; i < STREAMS; i++)
        assert_ok(vmm__driver_stream_create(fixture->driver, &fixture->streams[i]));
    assert_ok(vmm__cache_create_on(config, fixture->driver, &fixture->cache));
}

static void fixture_close(struct fixture *fixture)
{
    assert_int_equal(mismatches(fixture->driver), 0);
    assert_ok(vmm__cache_check(fixture->cache));
    assert_ok(vmm_wait(fixture->cache));
    assert_ok(vmm_trim(fixture->cache, 0, NULL));
    assert_int_equal(vmm__sim_census(fixture->driver).handles, 0);
    assert_ok(vmm_destroy(fixture->cache));
    sim_assert_clean(fixture->driver);
    assert_true(sim_census_is_zero(fixture->driver));
    vmm__driver_close(fixture->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

static int fixture_setup(void **state)
{
    static struct fixture fixture;
    fixture_open(&fixture, NULL);
    *state = &fixture;
    return 0;
}

static int fixture_teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

#define GONE_TEST(name) TEST_WITH(name, fixture_setup, fixture_teardown, struct fixture *fixture)

static void fixture_renew(struct fixture *fixture, vmm_config config)
{
    fixture_close(fixture);
    fixture_open(fixture, &config);
}

static void *allocate(struct fixture *fixture, uint64_t bytes, unsigned stream)
{
    void *block = block_in(fixture->cache, bytes, fixture->streams[stream]);
    memory_fill(fixture->driver, (uintptr_t)block, bytes, 1, fixture->streams[stream]);
    return block;
}

static void release(struct fixture *fixture, void *block)
{
    assert_ok(vmm_free(fixture->cache, block));
}

static uint64_t reserved_bytes(const struct fixture *fixture)
{
    return vmm__stat_now(&fixture->cache->vm.reserved_bytes);
}

static void work_hold(struct fixture *fixture)
{
    vmm__sim_lag_set(fixture->driver, UINT64_C(1) << 40);
}

/* All work ends, but the cache has not asked. */
static void work_end(struct fixture *fixture)
{
    vmm__sim_lag_set(fixture->driver, 0);
}

static uint64_t calls(const struct fixture *fixture, enum driver_call call)
{
    return vmm__driver_calls(fixture->driver, call);
}

/* Stream 1 frees a block on which its work goes on, and is destroyed. */
static void *block_leave(struct fixture *fixture)
{
    work_hold(fixture);
    void *block = allocate(fixture, BLOCK, 1);
    release(fixture, block);
    assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[1]));
    return block;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Stream 2 gets the memory once the work has ended, and not before; the host never waits. */
static void passes_by_the_clock(struct fixture *fixture)
{
    void *block = block_leave(fixture);
    void *early = allocate(fixture, BLOCK, 2);
    assert_ptr_not_equal(early, block);
    assert_int_equal(reserved_bytes(fixture), 2 * BLOCK);
    work_end(fixture);
    void *late = allocate(fixture, BLOCK, 2);
    assert_ptr_equal(late, block);
    assert_int_equal(reserved_bytes(fixture), 2 * BLOCK);
    assert_int_equal(fixture->driver->counts.stalls, 0);
    release(fixture, early);
    release(fixture, late);
}

GONE_TEST(memory_of_a_gone_stream_passes_by_the_clock)
{
    passes_by_the_clock(fixture);
}

/* A lane's own clock knows only its stream; without that it asks for all work. */
GONE_TEST(memory_of_a_gone_stream_with_a_clock_passes_as_well)
{
    fixture_renew(fixture, CONFIG(.reuse = VMM_REUSE_DECLARED));
    passes_by_the_clock(fixture);
    fixture_renew(fixture, CONFIG(.reuse = VMM_REUSE_STREAM_WAIT));
    passes_by_the_clock(fixture);
}

/* In stream order after the program has ordered the two streams. */
GONE_TEST(the_next_stream_with_the_handle_gets_the_memory_at_once)
{
    void *block = block_leave(fixture);
    vmm_stream before = fixture->streams[1];
    assert_ok(vmm__driver_device_wait(fixture->driver)); /* the program's order */
    assert_ok(vmm__driver_stream_create(fixture->driver, &fixture->streams[1]));
    assert_ptr_equal(fixture->streams[1], before);
    assert_ptr_equal(allocate(fixture, BLOCK, 1), block);
    release(fixture, block);
}

/* A trim releases it as any idle memory. */
GONE_TEST(memory_of_a_gone_stream_is_trimmed)
{
    uint64_t released;
    (void)block_leave(fixture);
    assert_ok(vmm_trim(fixture->cache, 0, &released));
    assert_int_equal(released, 0);
    work_end(fixture);
    assert_ok(vmm_trim(fixture->cache, 0, &released));
    assert_int_equal(released, BLOCK);
    assert_int_equal(fixture->driver->counts.stalls, 0);
}

/* A block that the gone stream used waits for all work: the stream's own end is not known. */
GONE_TEST(a_block_that_a_gone_stream_used_waits)
{
    void *block = allocate(fixture, BLOCK, 1);
    assert_ok(vmm_record_stream(fixture->cache, block, fixture->streams[2]));
    assert_ok(vmm__driver_device_wait(fixture->driver)); /* the program's order */
    work_hold(fixture);
    uint64_t stalls = fixture->driver->counts.stalls;
    memory_check(fixture->driver, (uintptr_t)block, BLOCK, 1, fixture->streams[2]);
    assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[2]));
    release(fixture, block);
    void *early = allocate(fixture, BLOCK, 1);
    assert_ptr_not_equal(early, block);
    work_end(fixture);
    void *late = allocate(fixture, BLOCK, 1);
    assert_ptr_equal(late, block);
    assert_int_equal(fixture->driver->counts.stalls, stalls);
    release(fixture, early);
    release(fixture, late);
}

/* ---- Events of known streams only ------------------------------------------------------------ */

/* The end of the work cannot be known, so the memory stays where it is until the host waits for the device. */
GONE_TEST(a_clock_of_streams_is_blind_until_a_wait_for_the_device)
{
    fixture_renew(fixture, CONFIG(.clock_kind = VMM_CLOCK_STREAMS));
    void *block = block_leave(fixture);
    void *early = allocate(fixture, BLOCK, 2);
    assert_ptr_not_equal(early, block);
    work_end(fixture);
    void *late = allocate(fixture, BLOCK, 2);
    assert_ptr_not_equal(late, block);
    assert_true(fixture->cache->clock.is_blind);
    release(fixture, late);
    assert_ok(vmm_wait(fixture->cache));
    assert_false(fixture->cache->clock.is_blind);
    assert_int_equal(calls(fixture, DRIVER_CALL_device_wait), 1);
    assert_int_equal(reserved_bytes(fixture), 3 * BLOCK);
    void *merged = allocate(fixture, 2 * BLOCK, 3);
    assert_int_equal(reserved_bytes(fixture), 3 * BLOCK);
    release(fixture, merged);
    release(fixture, early);
}

/* A request that would fail waits for the device itself. */
GONE_TEST(a_request_waits_for_the_device_of_a_blind_clock)
{
    fixture_renew(fixture, CONFIG(.clock_kind = VMM_CLOCK_STREAMS, .limit_bytes = BLOCK));
    (void)block_leave(fixture);
    release(fixture, allocate(fixture, BLOCK, 2));
    assert_int_equal(calls(fixture, DRIVER_CALL_device_wait), 1);
    assert_int_equal(reserved_bytes(fixture), BLOCK);
}

/* Its own clock of a lane does not help: without the stream it asks the cache's. */
GONE_TEST(a_clock_of_a_lane_is_blind_with_the_general_one)
{
    fixture_renew(fixture, CONFIG(.clock_kind = VMM_CLOCK_STREAMS, .reuse = VMM_REUSE_DECLARED));
    void *block = block_leave(fixture);
    void *early = allocate(fixture, BLOCK, 2);
    assert_ptr_not_equal(early, block);
    work_end(fixture);
    assert_ok(vmm_wait(fixture->cache));
    assert_ptr_equal(allocate(fixture, BLOCK, 2), block);
    release(fixture, early);
    release(fixture, block);
}

/* The joining stream is made when it is first needed, and may get the handle of the stream that is gone. */
GONE_TEST(the_joining_stream_does_not_hide_a_gone_one)
{
    fixture_renew(fixture, CONFIG(.clock_kind = VMM_CLOCK_STREAMS));
    void *block = block_leave(fixture);
    struct clock *clock = &fixture->cache->clock;
    assert_status(vmm__clock_query(clock, vmm__clock_now(clock)), VMM__PENDING);
    assert_ptr_equal(clock->join, fixture->streams[1]);
    assert_true(clock->is_blind);
    void *early = allocate(fixture, BLOCK, 2);
    assert_ptr_not_equal(early, block);
    release(fixture, early);
}

/* vmm_stream_end() is the way to destroy a stream then: its memory passes once its work has ended, not before. */
GONE_TEST(a_clock_of_streams_covers_the_work_of_an_ended_stream)
{
    fixture_renew(fixture, CONFIG(.clock_kind = VMM_CLOCK_STREAMS));
    work_hold(fixture);
    void *live = allocate(fixture, BLOCK, 1);
    void *block = allocate(fixture, BLOCK, 1);
    release(fixture, block);
    assert_ok(vmm_stream_end(fixture->cache, fixture->streams[1]));
    assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[1]));
    release(fixture, live);
    void *early = allocate(fixture, BLOCK, 2);
    assert_true(early != block && early != live);
    work_end(fixture);
    void *late = allocate(fixture, BLOCK, 2);
    assert_true(late == block || late == live);
    assert_int_equal(fixture->driver->counts.stalls, 0);
    release(fixture, early);
    release(fixture, late);
}

/* The same if the clock becomes one of streams after the end, because it has met a capture. */
GONE_TEST(a_clock_that_changes_covers_the_work_of_streams_that_ended_before)
{
    work_hold(fixture);
    void *block = allocate(fixture, BLOCK, 1);
    release(fixture, block);
    assert_ok(vmm_stream_end(fixture->cache, fixture->streams[1]));
    assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[1]));
    assert_ok(vmm__driver_capture_begin(fixture->driver, NULL)); /* which every net sees */
    vmm__clock_tick(&fixture->cache->clock);
    assert_int_equal(atomic_load(&fixture->cache->clock.kind), VMM_CLOCK_STREAMS);
    assert_ok(vmm__driver_capture_end(fixture->driver, NULL));
    void *early = allocate(fixture, BLOCK, 2);
    assert_ptr_not_equal(early, block);
    release(fixture, early);
}

/* ---- Records --------------------------------------------------------------------------------- */

static uint64_t lanes_count(struct fixture *fixture)
{
    vmm_stats stats = stats_of(fixture->cache);
    return stats.streams;
}

static vmm_config config_of_kind(unsigned kind)
{
    static const vmm_config configs[] = {
        { .struct_size = sizeof(vmm_config) },
        { .struct_size = sizeof(vmm_config), .reuse = VMM_REUSE_DECLARED },
        { .struct_size = sizeof(vmm_config), .clock_kind = VMM_CLOCK_STREAMS },
    };
    return configs[kind];
}

/* A handle belongs to one stream after the other, as with CUDA. */
static void streams_come_and_go(struct fixture *fixture)
{
    enum { ROUNDS = 100000, EVENTS_MOST = 4 * CLOCK_EVENTS };
    uint64_t host_bytes = 0;
    assert_ok(vmm_limit_set(fixture->cache, 16 * MIB));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        unsigned stream = 1 + (unsigned)(round % (STREAMS - 1));
        release(fixture, allocate(fixture, round % 2 == 0 ? 1000 : 3 * MIB, stream));
        assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[stream]));
        assert_ok(vmm__driver_device_wait(fixture->driver)); /* the program's order */
        assert_ok(vmm__driver_stream_create(fixture->driver, &fixture->streams[stream]));
        if (round == ROUNDS / 2)
            host_bytes = vmm__host_outstanding();
    }
    assert_true(lanes_count(fixture) <= STREAMS);
    assert_true(vmm__host_outstanding() <= host_bytes + (64 << 10));
    assert_true(vmm__sim_census(fixture->driver).events <= EVENTS_MOST);
}

GONE_TEST(gone_streams_leave_nothing_behind)
{
    for (unsigned kind = 0; kind < 3; kind++) {
        fixture_renew(fixture, config_of_kind(kind));
        streams_come_and_go(fixture);
    }
}

/* Should each stream have a handle of its own, its lane remains, which is small without memory. */
GONE_TEST(gone_streams_with_handles_of_their_own_leave_small_lanes)
{
    enum { ROUNDS = 2000, LANE_BYTES_MOST = 6 << 10 };
    uint64_t host_bytes = 0;
    assert_ok(vmm_limit_set(fixture->cache, 16 * MIB));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        fixture->streams[1] = STREAM(16 + round);
        release(fixture, allocate(fixture, 1000, 1));
        assert_ok(vmm__driver_device_wait(fixture->driver));
        assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[1]));
        if (round == ROUNDS / 2)
            host_bytes = vmm__host_outstanding();
    }
    uint64_t bytes_each = (vmm__host_outstanding() - host_bytes) / (ROUNDS / 2);
    print_message("%llu bytes for each\n", (unsigned long long)bytes_each);
    assert_true(bytes_each <= LANE_BYTES_MOST);
}

/* A live block records a use by the gone stream: its lane stays, which the use refers to. */
GONE_TEST(a_stream_with_a_use_keeps_its_record)
{
    enum { ROUNDS = 100 };
    void *used = allocate(fixture, 8 * MIB, 0);
    vmm_stream user = STREAM(8);
    assert_ok(vmm_record_stream(fixture->cache, used, user));
    void *event = sim_record(fixture->driver, user);
    assert_ok(vmm__driver_event_destroy(fixture->driver, event));
    assert_ok(vmm__driver_stream_destroy(fixture->driver, user));
    struct lane *lane = vmm__lane_table_find(&fixture->cache->pool.table, user);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        void *block = block_in(fixture->cache, 1000, STREAM(16 + round));
        release(fixture, block);
    }
    assert_ptr_equal(vmm__lane_table_find(&fixture->cache->pool.table, user), lane);
    release(fixture, used);
}
