/* Streams that stall, share memory and close, on the sim driver, which finishes work in adversarial orders. */
#include "support/made_support.h"
#include "support/order_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "cache/cache.h"
#include "support/pool_calls.h"

enum { STREAMS = 4 };

struct fixture {
    struct driver *driver;
    vmm_cache *cache;
    struct order order;
    void *event;
    vmm_stream streams[STREAMS];
    uint32_t words;
};

static void fixture_open(struct fixture *fixture, enum order_kind kind, uint64_t seed,
                         const vmm_config *config)
{
    struct driver_options options = { .device_bytes = 256 * MIB };
    *fixture = (struct fixture){ .order = order_make(kind, seed, STREAMS) };
    assert_ok(vmm__driver_sim_open(&options, &fixture->driver));
    for (unsigned i = 0; i < STREAMS; i++)
        assert_ok(vmm__driver_stream_create(fixture->driver, &fixture->streams[i]));
    assert_ok(vmm__driver_event_create(fixture->driver, &fixture->event));
    assert_ok(vmm__cache_create_on(config, fixture->driver, &fixture->cache));
    order_begin(fixture->driver, &fixture->order);
}

static void fixture_close(struct fixture *fixture)
{
    assert_int_equal(mismatches(fixture->driver), 0);
    assert_ok(vmm__cache_check(fixture->cache));
    assert_ok(vmm_trim(fixture->cache, 0, NULL));
    assert_int_equal(vmm__sim_census(fixture->driver).handles, 0);
    assert_ok(vmm_destroy(fixture->cache));
    assert_ok(vmm__driver_event_destroy(fixture->driver, fixture->event));
    sim_assert_clean(fixture->driver);
    assert_true(sim_census_is_zero(fixture->driver));
    vmm__driver_close(fixture->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

static void *allocate(struct fixture *fixture, uint64_t bytes, unsigned stream)
{
    void *block = block_in(fixture->cache, bytes, fixture->streams[stream]);
    memory_fill(fixture->driver, (uintptr_t)block, bytes, ++fixture->words,
                fixture->streams[stream]);
    return block;
}

static void release(struct fixture *fixture, void *block)
{
    assert_ok(vmm_free(fixture->cache, block));
}

static void stream_close(struct fixture *fixture, unsigned stream)
{
    assert_ok(vmm_stream_end(fixture->cache, fixture->streams[stream]));
    assert_ok(vmm__driver_stream_destroy(fixture->driver, fixture->streams[stream]));
}

static void stream_reopen(struct fixture *fixture, unsigned stream)
{
    assert_ok(vmm__driver_stream_create(fixture->driver, &fixture->streams[stream]));
}

/* Runs a test in every order and with both kinds of reuse. A limit makes streams take memory from each other. */
static void in_each_order(void (*test)(struct fixture *fixture), uint64_t limit_bytes)
{
    enum { SEEDS = 4 };
    for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
        for (unsigned kind = 0; kind < ORDER_KINDS; kind++) {
            struct fixture fixture;
            vmm_config config =
                CONFIG(.limit_bytes = limit_bytes,
                       .reuse = seed % 2 == 0 ? VMM_REUSE_ANY_USE : VMM_REUSE_STREAM_WAIT);
            fixture_open(&fixture, (enum order_kind)kind, seed, &config);
            test(&fixture);
            fixture_close(&fixture);
        }
    }
}

/* ---- Three streams --------------------------------------------------------------------------- */

/* A and B free adjacent blocks; C takes both while work of B is unfinished. */
static void merge_of_two(struct fixture *fixture)
{
    void *a = allocate(fixture, 64 * MIB, 1);
    void *b = allocate(fixture, 64 * MIB, 2);
    release(fixture, a);
    release(fixture, b);
    release(fixture, allocate(fixture, 128 * MIB, 3));
    release(fixture, allocate(fixture, 100 * MIB, 1));
}

/* B gets half of what A freed, uses it and frees it; then C takes the whole. */
static void merge_of_halves(struct fixture *fixture)
{
    static const uint64_t sizes[] = { 128 * MIB, 8 * MIB, 512 << 10, 4096 };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        release(fixture, allocate(fixture, sizes[i], 1));
        void *half = allocate(fixture, sizes[i] / 2, 2);
        void *other_half = allocate(fixture, sizes[i] / 2, 1);
        release(fixture, half);
        release(fixture, other_half);
        release(fixture, allocate(fixture, sizes[i], 3));
        release(fixture, allocate(fixture, sizes[i], 2));
    }
}

TEST(memory_of_three_streams_merges_safely)
{
    in_each_order(merge_of_two, 128 * MIB);
    in_each_order(merge_of_halves, 128 * MIB);
    in_each_order(merge_of_halves, 0);
}

/* ---- Closed streams ------------------------------------------------------------------------------------ */

/* A stream closes with work in flight, and so does the next stream with its handle. */
static void close_and_reopen(struct fixture *fixture)
{
    for (unsigned round = 0; round < 6; round++) {
        void *kept = allocate(fixture, 24 * MIB, 1);
        release(fixture, allocate(fixture, 40 * MIB, 1));
        release(fixture, allocate(fixture, 4096, 1));
        stream_close(fixture, 1);
        if (round % 2 == 0)
            release(fixture, allocate(fixture, 60 * MIB, 2));
        stream_reopen(fixture, 1);
        release(fixture, allocate(fixture, 40 * MIB, 1));
        release(fixture, kept);
        release(fixture, allocate(fixture, 100 * MIB, round % STREAMS));
        assert_ok(vmm__cache_check(fixture->cache));
    }
}

/* Two streams close, and their handles return in exchanged order. */
static void exchange_handles(struct fixture *fixture)
{
    void *first = allocate(fixture, 32 * MIB, 1);
    void *second = allocate(fixture, 32 * MIB, 2);
    release(fixture, allocate(fixture, 16 * MIB, 1));
    release(fixture, allocate(fixture, 16 * MIB, 2));
    vmm_stream before = fixture->streams[1];
    stream_close(fixture, 1);
    stream_close(fixture, 2);
    stream_reopen(fixture, 1);
    stream_reopen(fixture, 2);
    assert_ptr_equal(fixture->streams[2], before);
    release(fixture, allocate(fixture, 16 * MIB, 1));
    release(fixture, allocate(fixture, 16 * MIB, 2));
    release(fixture, first);
    release(fixture, allocate(fixture, 48 * MIB, 2));
    release(fixture, second);
    release(fixture, allocate(fixture, 128 * MIB, 3));
}

/* A stream that uses a block closes before the block is freed; the next stream with its handle uses the block, too. */
static void close_users(struct fixture *fixture)
{
    for (unsigned round = 0; round < 4; round++) {
        void *block = allocate(fixture, 48 * MIB, 1);
        assert_ok(vmm_record_stream(fixture->cache, block, fixture->streams[2]));
        assert_ok(vmm__driver_event_record(fixture->driver, fixture->event, fixture->streams[1]));
        assert_ok(vmm__driver_stream_wait(fixture->driver, fixture->streams[2], fixture->event));
        memory_check(fixture->driver, (uintptr_t)block, 48 * MIB, fixture->words,
                     fixture->streams[2]);
        stream_close(fixture, 2);
        stream_reopen(fixture, 2);
        if (round % 2 == 0) {
            assert_ok(vmm_record_stream(fixture->cache, block, fixture->streams[2]));
            assert_ok(
                vmm__driver_stream_wait(fixture->driver, fixture->streams[2], fixture->event));
            memory_check(fixture->driver, (uintptr_t)block, 48 * MIB, fixture->words,
                         fixture->streams[2]);
        }
        release(fixture, block);
        release(fixture, allocate(fixture, 48 * MIB, 1));
        release(fixture, allocate(fixture, 100 * MIB, 3));
    }
}

/* The next stream with a closed stream's handle uses a block of that stream: another stream, so the use is recorded. */
static void use_blocks_of_the_closed_stream(struct fixture *fixture)
{
    for (unsigned round = 0; round < 4; round++) {
        void *block = allocate(fixture, 48 * MIB, 1);
        uint32_t word = fixture->words;
        assert_ok(vmm__driver_event_record(fixture->driver, fixture->event, fixture->streams[1]));
        stream_close(fixture, 1);
        stream_reopen(fixture, 1);
        if (round % 2 == 0)
            release(fixture, allocate(fixture, MIB, 1));
        assert_ok(vmm_record_stream(fixture->cache, block, fixture->streams[1]));
        assert_ok(vmm__driver_stream_wait(fixture->driver, fixture->streams[1], fixture->event));
        memory_check(fixture->driver, (uintptr_t)block, 48 * MIB, word, fixture->streams[1]);
        release(fixture, block);
        release(fixture, allocate(fixture, 48 * MIB, 2));
        release(fixture, allocate(fixture, 48 * MIB, 1));
    }
}

TEST(streams_close_in_each_order)
{
    in_each_order(close_and_reopen, 128 * MIB);
    in_each_order(close_and_reopen, 0);
    in_each_order(exchange_handles, 128 * MIB);
    in_each_order(close_users, 128 * MIB);
    in_each_order(use_blocks_of_the_closed_stream, 128 * MIB);
}

/* ---- Records --------------------------------------------------------------------------------- */

static uint64_t lanes_count(struct fixture *fixture)
{
    vmm_stats stats = stats_of(fixture->cache);
    return stats.streams;
}

/* Closed streams whose handles never return leave no lanes behind, once their lanes have no memory. */
TEST(lanes_of_closed_streams_are_reused)
{
    enum { ROUNDS = 200 };
    struct fixture fixture;
    fixture_open(&fixture, ORDER_OLDEST, 1, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        fixture.streams[1] = STREAM(1000 + round);
        release(&fixture, allocate(&fixture, 4 * MIB, 1));
        release(&fixture, allocate(&fixture, 4096, 1));
        assert_ok(vmm_stream_end(fixture.cache, fixture.streams[1]));
        assert_ok(vmm__driver_stream_destroy(fixture.driver, fixture.streams[1]));
        assert_ok(vmm_trim(fixture.cache, 0, NULL));
        assert_ok(vmm__cache_check(fixture.cache));
    }
    assert_true(lanes_count(&fixture) < 8);
    assert_true(vmm__sim_census(fixture.driver).events < 8 * CLOCK_EVENTS);
    fixture_close(&fixture);
}

/* So do lanes that never got memory, because each request of their stream failed. */
TEST(lanes_of_closed_streams_without_memory_are_reused)
{
    enum { ROUNDS = 200 };
    struct fixture fixture;
    void *block;
    fixture_open(&fixture, ORDER_OLDEST, 1, NULL);
    vmm_pool *pool = pool_in_with(fixture.cache, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        vmm_stream stream = STREAM(1000 + round);
        assert_status(vmm_alloc(fixture.cache, 512 * MIB, stream, &block), VMM_ERR_DEVICE_OOM);
        assert_status(vmm_alloc_from(pool, 512 * MIB, stream, &block), VMM_ERR_DEVICE_OOM);
        assert_ok(vmm_stream_end(fixture.cache, stream));
        assert_ok(vmm__driver_stream_destroy(fixture.driver, stream));
        assert_ok(vmm__cache_check(fixture.cache));
    }
    assert_true(lanes_count(&fixture) < 8);
    assert_true(vmm__sim_census(fixture.driver).events < 8 * CLOCK_EVENTS);
    fixture_close(&fixture);
}

/* A new stream with an ended one's handle is another stream: it gets a lane of its own, and the old lane's memory once
 * its work has ended. Live blocks of the old lane belong to another stream. */
TEST(a_stream_with_an_old_handle_gets_a_new_lane)
{
    struct fixture fixture;
    fixture_open(&fixture, ORDER_HOLD, 1, NULL);
    void *old = allocate(&fixture, 8 * MIB, 1);
    void *live = allocate(&fixture, 8 * MIB, 1);
    release(&fixture, old);
    assert_ok(vmm__driver_event_record(fixture.driver, fixture.event, fixture.streams[1]));
    stream_close(&fixture, 1);
    stream_reopen(&fixture, 1);
    assert_ok(vmm_capture_announce(fixture.cache, fixture.streams[1]));
    assert_ok(vmm__driver_capture_begin(fixture.driver, fixture.streams[1]));
    void *block = block_in(fixture.cache, 8 * MIB, fixture.streams[1]);
    assert_ptr_not_equal(block, old);
    assert_ok(vmm__driver_capture_end(fixture.driver, fixture.streams[1]));
    assert_ok(vmm_capture_retract(fixture.cache, fixture.streams[1]));
    assert_int_equal(lanes_count(&fixture), 2);
    release(&fixture, block);
    assert_ok(vmm_record_stream(fixture.cache, live, fixture.streams[1]));
    assert_ok(vmm__driver_stream_wait(fixture.driver, fixture.streams[1], fixture.event));
    memory_check(fixture.driver, (uintptr_t)live, 8 * MIB, 2, fixture.streams[1]);
    assert_ok(vmm__driver_event_wait(fixture.driver, fixture.event));
    release(&fixture, live);
    void *other = allocate(&fixture, 8 * MIB,
                           2); /* the old stream's work has finished, the new one's has not */
    assert_true(other != live);
    release(&fixture, other);
    stream_close(&fixture, 1); /* both lanes have that handle */
    stream_reopen(&fixture, 1);
    release(&fixture, allocate(&fixture, 8 * MIB, 1));
    assert_int_equal(lanes_count(&fixture), 4); /* both have memory still */
    fixture_close(&fixture);
}

/* Any new stream may get a lane without memory at once, whatever work the ended stream still has. */
TEST(reuse_adds_no_wait_for_unrelated_work)
{
    struct fixture fixture;
    fixture_open(&fixture, ORDER_HOLD, 1, NULL);
    void *block = allocate(&fixture, 8 * MIB, 1);
    assert_ok(vmm_record_stream(fixture.cache, block, fixture.streams[2]));
    assert_ok(vmm__driver_event_record(fixture.driver, fixture.event, fixture.streams[1]));
    assert_ok(vmm__driver_stream_wait(fixture.driver, fixture.streams[2], fixture.event));
    memory_check(fixture.driver, (uintptr_t)block, 8 * MIB, 1, fixture.streams[2]);
    stream_close(&fixture, 2);
    uint64_t waits = vmm__driver_calls(fixture.driver, DRIVER_CALL_stream_wait);
    release(&fixture, allocate(&fixture, 8 * MIB, 3));
    assert_int_equal(vmm__driver_calls(fixture.driver, DRIVER_CALL_stream_wait), waits);
    assert_int_equal(lanes_count(&fixture), 2);
    assert_int_equal(fixture.driver->counts.stalls, 0);
    release(&fixture, block);
    void *other = allocate(&fixture, 8 * MIB, 1); /* the ended stream still uses the block */
    assert_ptr_not_equal(other, block);
    release(&fixture, other);
    fixture_close(&fixture);
}

static int every_stream(void *context, vmm_stream stream)
{
    (void)context;
    (void)stream;
    return 1;
}

/* A graph pool cannot use a stream wait, because later launches of the graph would not repeat it. */
TEST(a_graph_pool_resumes_after_the_old_work)
{
    static const vmm_pool_id id = { 1, 0 };
    struct fixture fixture;
    fixture_open(&fixture, ORDER_HOLD, 1, NULL);
    assert_ok(graph_pool_begin(fixture.cache, id, every_stream, NULL));
    void *old = allocate(&fixture, 8 * MIB, 1);
    release(&fixture, old);
    stream_close(&fixture, 1);
    stream_reopen(&fixture, 1);
    void *other = allocate(&fixture, 8 * MIB, 1);
    assert_ptr_not_equal(other, old);
    assert_ok(vmm__driver_device_wait(fixture.driver));
    release(&fixture, other);
    stream_close(&fixture, 1);
    stream_reopen(&fixture, 1);
    void *again = allocate(&fixture, 8 * MIB, 1);
    assert_true(again == old || again == other);
    release(&fixture, again);
    assert_ok(graph_pool_end(fixture.cache, id));
    assert_ok(graph_pool_release(fixture.cache, id));
    fixture_close(&fixture);
}

/* Without clocks of lanes there is nothing to do on the device. */
TEST(a_close_makes_no_driver_call)
{
    struct fixture fixture;
    fixture_open(&fixture, ORDER_HOLD, 1, NULL);
    release(&fixture, allocate(&fixture, 8 * MIB, 1));
    vmm__sim_fail_at(fixture.driver, 1, VMM_ERR_DRIVER, true);
    assert_ok(vmm_stream_end(fixture.cache, fixture.streams[1]));
    assert_int_equal(vmm__sim_calls(fixture.driver), 0);
    vmm__sim_fail_at(fixture.driver, 0, VMM_OK, false);
    assert_ok(vmm__driver_stream_destroy(fixture.driver, fixture.streams[1]));
    stream_reopen(&fixture, 1);
    fixture_close(&fixture);
}

/* The event fails: the stream stays open. */
TEST(a_failed_close_changes_nothing)
{
    struct fixture fixture;
    uint64_t call = 0;
    fixture_open(&fixture, ORDER_HOLD, 1, &CONFIG(.reuse = VMM_REUSE_DECLARED));
    void *old = allocate(&fixture, 8 * MIB, 1);
    release(&fixture, old);
    for (bool has_failed = true; has_failed;) {
        vmm__sim_fail_at(fixture.driver, ++call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm_stream_end(fixture.cache, fixture.streams[1]);
        has_failed = vmm__sim_faults_fired(fixture.driver) > 0;
        vmm__sim_fail_at(fixture.driver, 0, VMM_OK, false);
        assert_int_equal(status, has_failed ? VMM_ERR_DRIVER : VMM_OK);
        if (has_failed) {
            assert_ptr_equal(allocate(&fixture, 8 * MIB, 1), old);
            release(&fixture, old);
        }
    }
    assert_int_equal(call, 4); /* capturing, record, capturing; the first one creates, too */
    assert_ok(vmm__driver_stream_destroy(fixture.driver, fixture.streams[1]));
    stream_reopen(&fixture, 1);
    fixture_close(&fixture);
}

/* How many lanes have clocks whose stream has ended. */
static unsigned ended_clocks(const struct fixture *fixture)
{
    unsigned count = 0;
    for (struct lane *lane = fixture->cache->lanes.first; lane != NULL; lane = lane->next)
        count += atomic_load(&lane->clock->covers_all);
    return count;
}

/* The stream has a lane in each of two pools. */
TEST(a_close_that_fails_at_the_second_pool_changes_nothing)
{
    struct fixture fixture;
    fixture_open(&fixture, ORDER_HOLD, 1, &CONFIG(.reuse = VMM_REUSE_DECLARED));
    vmm_pool *pool = pool_in_with(fixture.cache, NULL);
    release(&fixture, allocate(&fixture, 8 * MIB, 1));
    void *block = block_in_pool(pool, 8 * MIB, fixture.streams[1]);
    release(&fixture, block);
    bool has_failed = true;
    for (uint64_t call = 1; has_failed; call++) {
        vmm__sim_fail_at(fixture.driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm_stream_end(fixture.cache, fixture.streams[1]);
        has_failed = vmm__sim_faults_fired(fixture.driver) > 0;
        vmm__sim_fail_at(fixture.driver, 0, VMM_OK, false);
        assert_int_equal(status, has_failed ? VMM_ERR_DRIVER : VMM_OK);
        assert_int_equal(ended_clocks(&fixture), has_failed ? 0 : 2);
    }
    assert_ok(vmm_pool_destroy(pool, 1));
    assert_ok(vmm__driver_stream_destroy(fixture.driver, fixture.streams[1]));
    stream_reopen(&fixture, 1);
    fixture_close(&fixture);
}

/* ---- Buckets --------------------------------------------------------------------------------- */

enum {
    NAMES = 1500
}; /* of 2^16 buckets, some then hold two streams or more, whatever the hash is */

struct names {
    vmm_cache *cache;
    vmm_stream streams[NAMES];
};

static void name_use(struct names *names, unsigned i)
{
    void *block = block_in(names->cache, 4096, names->streams[i]);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(names->cache, block, &item));
    assert_ptr_equal(item.stream, names->streams[i]);
    assert_ok(vmm_free(names->cache, block));
}

/* Every third stream ends and comes back; the others are found all the time. */
static void names_end_and_return(struct names *names)
{
    for (unsigned i = 0; i < NAMES; i += 3)
        assert_ok(vmm_stream_end(names->cache, names->streams[i]));
    for (unsigned i = 0; i < NAMES; i++) {
        bool has_ended = i % 3 == 0;
        assert_true((vmm__lane_table_find(&names->cache->pool.table, names->streams[i]) == NULL) ==
                    has_ended);
    }
    for (unsigned i = 0; i < NAMES; i++)
        name_use(names, i);
}

TEST(streams_of_one_bucket_stay_apart)
{
    static struct names names;
    struct driver_options options = { .device_bytes = 8 * GIB };
    struct driver *driver;
    uint64_t number = 1;
    unsigned shared = 0;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    assert_ok(vmm__cache_create_on(NULL, driver, &names.cache));
    for (unsigned i = 0; i < NAMES; i++) {
        number = number * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        names.streams[i] = (vmm_stream)(uintptr_t)number;
        name_use(&names, i);
    }
    for (unsigned i = 0; i < NAMES; i++)
        shared +=
            vmm__lane_table_find(&names.cache->pool.table, names.streams[i])->next_in_bucket !=
            NULL;
    assert_true(shared > 0);
    names_end_and_return(&names);
    assert_ok(vmm__cache_check(names.cache));
    assert_ok(vmm_destroy(names.cache));
    vmm__driver_close(driver);
}
