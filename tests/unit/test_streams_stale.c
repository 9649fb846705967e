/* Streams that are destroyed without vmm_stream_end(), on the sim driver: what remains of them. */
#include "support/sim_support.h"

#include "api/create_on.h"
#include "cache/cache.h"

enum { STREAMS = 4 };

struct fixture {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[STREAMS];
};

static int fixture_setup(void **state)
{
    static struct fixture fixture;
    struct driver_options options = { .device_bytes = 256 * MIB };
    fixture = (struct fixture){ .cache = NULL };
    assert_ok(vmm__driver_sim_open(&options, &fixture.driver));
    for (unsigned i = 0; i < STREAMS; i++)
        assert_ok(vmm__driver_stream_create(fixture.driver, &fixture.streams[i]));
    assert_ok(vmm__cache_create_on(NULL, fixture.driver, &fixture.cache));
    *state = &fixture;
    return 0;
}

static int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    assert_ok(vmm__cache_check(fixture->cache));
    assert_ok(vmm_wait(fixture->cache));
    assert_ok(vmm_trim(fixture->cache, 0, NULL));
    assert_int_equal(vmm__sim_census(fixture->driver).handles, 0);
    assert_ok(vmm_destroy(fixture->cache));
    sim_assert_clean(fixture->driver);
    assert_true(sim_census_is_zero(fixture->driver));
    vmm__driver_close(fixture->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    return 0;
}

#define STALE_TEST(name) TEST_WITH(name, fixture_setup, fixture_teardown, struct fixture *fixture)

static void *allocate(struct fixture *fixture, uint64_t bytes, unsigned stream)
{
    void *block;
    assert_ok(vmm_alloc(fixture->cache, bytes, fixture->streams[stream], &block));
    memory_fill(fixture->driver, (uintptr_t)block, bytes, 1, fixture->streams[stream]);
    return block;
}

static void release(struct fixture *fixture, void *block)
{
    assert_ok(vmm_free(fixture->cache, block));
}

/* Stale streams with distinct handles leave only a few small records. */
STALE_TEST(destroyed_streams_leave_little)
{
    enum { ROUNDS = 2000, LANES_MOST = 16, BYTES_MOST = 64 << 10 };
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
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(fixture->cache, &stats));
    assert_true(stats.streams <= LANES_MOST);
    assert_true(vmm__host_outstanding() <= host_bytes + BYTES_MOST);
}

/* Stale streams are counted from the driver's refusal until a wait for the device. */
STALE_TEST(stale_streams_are_counted)
{
    vmm_stats stats = VMM_STATS_INIT;
    void *blocks[STREAMS];
    for (unsigned i = 1; i < STREAMS; i++)
        blocks[i] = allocate(fixture, 8 * MIB, i);
    for (unsigned i = 1; i < STREAMS; i++) {
        release(fixture, blocks[i]);
        assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[i]));
    }
    assert_ok(vmm_stats_get(fixture->cache, &stats));
    assert_int_equal(stats.stale_streams, 0); /* the driver has not refused them yet */
    assert_ok(vmm_trim(fixture->cache, 0, NULL));
    assert_ok(vmm_stats_get(fixture->cache, &stats));
    assert_int_equal(stats.stale_streams, STREAMS - 1);
    assert_ok(vmm_wait(fixture->cache));
    assert_ok(vmm_trim(fixture->cache, 0, NULL));
    assert_ok(vmm_stats_get(fixture->cache, &stats));
    assert_int_equal(stats.stale_streams, 0);
    assert_int_equal(stats.reserved_bytes.current, 0);
}

/* A stale stream's lane is not reused while a live block records a use by the stream. */
STALE_TEST(a_stream_with_a_use_keeps_its_record)
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
        void *block;
        assert_ok(vmm_alloc(fixture->cache, 1000, STREAM(16 + round), &block));
        release(fixture, block);
    }
    assert_ptr_equal(vmm__lane_table_find(&fixture->cache->pool.table, user), lane);
    release(fixture, used);
}
