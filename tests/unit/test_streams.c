/* Streams that stall, merge their memory and end, on the sim driver in orders that adversaries choose. */
#include "support/order_support.h"
#include "support/sim_support.h"

#include "cache_on.h"
#include "policy/cache.h"

enum { STREAMS = 4 };

struct stage {
    struct driver *driver;
    vmm_cache *cache;
    struct order order;
    void *event;
    vmm_stream streams[STREAMS];
    uint32_t words;
};

static void stage_open(struct stage *stage, enum order_kind kind, uint64_t seed,
                       const vmm_config *config)
{
    struct driver_options options = { .device_bytes = 256 * MIB };
    *stage = (struct stage){ .order = order_make(kind, seed, STREAMS) };
    assert_ok(vmm__driver_sim_open(&options, &stage->driver));
    for (unsigned i = 0; i < STREAMS; i++)
        assert_ok(vmm__driver_stream_create(stage->driver, &stage->streams[i]));
    assert_ok(vmm__driver_event_create(stage->driver, &stage->event));
    assert_ok(vmm__cache_create_on(config, stage->driver, &stage->cache));
    order_begin(stage->driver, &stage->order);
}

static void stage_close(struct stage *stage)
{
    assert_int_equal(sim_mismatches(stage->driver), 0);
    assert_ok(vmm__cache_check(stage->cache));
    assert_ok(vmm_trim(stage->cache, 0, NULL));
    assert_int_equal(vmm__sim_census(stage->driver).handles, 0);
    assert_ok(vmm_destroy(stage->cache));
    assert_ok(vmm__driver_event_destroy(stage->driver, stage->event));
    sim_assert_clean(stage->driver);
    assert_true(sim_census_is_zero(stage->driver));
    vmm__driver_close(stage->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

static void *taken(struct stage *stage, uint64_t bytes, unsigned stream)
{
    void *block;
    assert_ok(vmm_alloc(stage->cache, bytes, stage->streams[stream], &block));
    sim_filled(stage->driver, (uintptr_t)block, bytes, ++stage->words, stage->streams[stream]);
    return block;
}

static void given(struct stage *stage, void *block)
{
    assert_ok(vmm_free(stage->cache, block));
}

static void ended(struct stage *stage, unsigned stream)
{
    assert_ok(vmm_stream_end(stage->cache, stage->streams[stream]));
    assert_ok(vmm__driver_stream_destroy(stage->driver, stage->streams[stream]));
}

static void renewed(struct stage *stage, unsigned stream)
{
    assert_ok(vmm__driver_stream_create(stage->driver, &stage->streams[stream]));
}

/* Runs a test in every order, with both ways to share and with a limit that makes streams take from others. */
static void in_each_order(void (*test)(struct stage *stage), uint64_t limit_bytes)
{
    enum { SEEDS = 4 };
    for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
        for (unsigned kind = 0; kind < ORDER_KINDS; kind++) {
            struct stage stage;
            vmm_config config = VMM_CONFIG_INIT;
            config.limit_bytes = limit_bytes;
            config.sharing = seed % 2 == 0 ? VMM_SHARING_FINISHED : VMM_SHARING_WAIT;
            stage_open(&stage, (enum order_kind)kind, seed, &config);
            test(&stage);
            stage_close(&stage);
        }
    }
}

/* ---- Three streams --------------------------------------------------------------------------- */

/* What A and B freed lies side by side; C takes both while work of B is unfinished. */
static void merge_of_two(struct stage *stage)
{
    void *a = taken(stage, 64 * MIB, 1);
    void *b = taken(stage, 64 * MIB, 2);
    given(stage, a);
    given(stage, b);
    given(stage, taken(stage, 128 * MIB, 3));
    given(stage, taken(stage, 100 * MIB, 1));
}

/* B gets half of what A freed, works there, and frees it; then C takes the whole. */
static void merge_of_halves(struct stage *stage)
{
    static const uint64_t sizes[] = { 128 * MIB, 8 * MIB, 512 << 10, 4096 };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        given(stage, taken(stage, sizes[i], 1));
        void *half = taken(stage, sizes[i] / 2, 2);
        void *other_half = taken(stage, sizes[i] / 2, 1);
        given(stage, half);
        given(stage, other_half);
        given(stage, taken(stage, sizes[i], 3));
        given(stage, taken(stage, sizes[i], 2));
    }
}

static void memory_of_three_streams_merges_in_order(void **state)
{
    (void)state;
    in_each_order(merge_of_two, 128 * MIB);
    in_each_order(merge_of_halves, 128 * MIB);
    in_each_order(merge_of_halves, 0);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* A stream ends with work under way, and so does the one that comes under its handle. */
static void ends_in_a_row(struct stage *stage)
{
    for (unsigned round = 0; round < 6; round++) {
        void *kept = taken(stage, 24 * MIB, 1);
        given(stage, taken(stage, 40 * MIB, 1));
        given(stage, taken(stage, 4096, 1));
        ended(stage, 1);
        if (round % 2 == 0)
            given(stage, taken(stage, 60 * MIB, 2));
        renewed(stage, 1);
        given(stage, taken(stage, 40 * MIB, 1));
        given(stage, kept);
        given(stage, taken(stage, 100 * MIB, round % STREAMS));
        assert_ok(vmm__cache_check(stage->cache));
    }
}

/* Two streams end and come back under each other's handles. */
static void handles_change_places(struct stage *stage)
{
    void *first = taken(stage, 32 * MIB, 1);
    void *second = taken(stage, 32 * MIB, 2);
    given(stage, taken(stage, 16 * MIB, 1));
    given(stage, taken(stage, 16 * MIB, 2));
    vmm_stream before = stage->streams[1];
    ended(stage, 1);
    ended(stage, 2);
    renewed(stage, 1);
    renewed(stage, 2);
    assert_ptr_equal(stage->streams[2], before);
    given(stage, taken(stage, 16 * MIB, 1));
    given(stage, taken(stage, 16 * MIB, 2));
    given(stage, first);
    given(stage, taken(stage, 48 * MIB, 2));
    given(stage, second);
    given(stage, taken(stage, 128 * MIB, 3));
}

/* A user of a block ends before the block is freed; its handle's next stream uses it, too. */
static void users_end(struct stage *stage)
{
    for (unsigned round = 0; round < 4; round++) {
        void *block = taken(stage, 48 * MIB, 1);
        assert_ok(vmm_use(stage->cache, block, stage->streams[2]));
        assert_ok(vmm__driver_event_record(stage->driver, stage->event, stage->streams[1]));
        assert_ok(vmm__driver_stream_wait(stage->driver, stage->streams[2], stage->event));
        sim_checked(stage->driver, (uintptr_t)block, 48 * MIB, stage->words, stage->streams[2]);
        ended(stage, 2);
        renewed(stage, 2);
        if (round % 2 == 0) {
            assert_ok(vmm_use(stage->cache, block, stage->streams[2]));
            assert_ok(vmm__driver_stream_wait(stage->driver, stage->streams[2], stage->event));
            sim_checked(stage->driver, (uintptr_t)block, 48 * MIB, stage->words, stage->streams[2]);
        }
        given(stage, block);
        given(stage, taken(stage, 48 * MIB, 1));
        given(stage, taken(stage, 100 * MIB, 3));
    }
}

/* Its own handle's next stream uses a block of the stream that ended: another stream, which is told. */
static void the_next_one_uses_the_last_one_s(struct stage *stage)
{
    for (unsigned round = 0; round < 4; round++) {
        void *block = taken(stage, 48 * MIB, 1);
        uint32_t word = stage->words;
        assert_ok(vmm__driver_event_record(stage->driver, stage->event, stage->streams[1]));
        ended(stage, 1);
        renewed(stage, 1);
        if (round % 2 == 0)
            given(stage, taken(stage, MIB, 1));
        assert_ok(vmm_use(stage->cache, block, stage->streams[1]));
        assert_ok(vmm__driver_stream_wait(stage->driver, stage->streams[1], stage->event));
        sim_checked(stage->driver, (uintptr_t)block, 48 * MIB, word, stage->streams[1]);
        given(stage, block);
        given(stage, taken(stage, 48 * MIB, 2));
        given(stage, taken(stage, 48 * MIB, 1));
    }
}

static void streams_end_in_each_order(void **state)
{
    (void)state;
    in_each_order(ends_in_a_row, 128 * MIB);
    in_each_order(ends_in_a_row, 0);
    in_each_order(handles_change_places, 128 * MIB);
    in_each_order(users_end, 128 * MIB);
    in_each_order(the_next_one_uses_the_last_one_s, 128 * MIB);
}

/* ---- Records --------------------------------------------------------------------------------- */

static uint64_t pools_count(struct stage *stage)
{
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(stage->cache, &stats));
    return stats.streams;
}

/* Streams whose handles never come back leave no pools behind, once what they held is elsewhere. */
static void pools_do_not_pile_up(void **state)
{
    enum { ROUNDS = 200 };
    struct stage stage;
    (void)state;
    stage_open(&stage, ORDER_OLDEST, 1, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        stage.streams[1] = STREAM(1000 + round);
        given(&stage, taken(&stage, 4 * MIB, 1));
        given(&stage, taken(&stage, 4096, 1));
        assert_ok(vmm_stream_end(stage.cache, stage.streams[1]));
        assert_ok(vmm__driver_stream_destroy(stage.driver, stage.streams[1]));
        assert_ok(vmm_trim(stage.cache, 0, NULL));
        assert_ok(vmm__cache_check(stage.cache));
    }
    assert_true(pools_count(&stage) < 8);
    assert_true(vmm__sim_census(stage.driver).events < 8 * TIMELINE_MARKS);
    stage_close(&stage);
}

/* The new stream cannot be made to wait: it gets a pool of its own, and the old one's memory later. What is live
 * there is another stream's. */
static void a_stream_that_cannot_wait_begins_anew(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, ORDER_HOLD, 1, NULL);
    void *old = taken(&stage, 8 * MIB, 1);
    void *live = taken(&stage, 8 * MIB, 1);
    given(&stage, old);
    assert_ok(vmm__driver_event_record(stage.driver, stage.event, stage.streams[1]));
    ended(&stage, 1);
    renewed(&stage, 1);
    assert_ok(vmm__driver_capture_begin(stage.driver, stage.streams[1]));
    void *block;
    assert_ok(vmm_alloc(stage.cache, 8 * MIB, stage.streams[1], &block));
    assert_ptr_not_equal(block, old);
    assert_ok(vmm__driver_capture_end(stage.driver, stage.streams[1]));
    assert_int_equal(pools_count(&stage), 2);
    given(&stage, block);
    assert_ok(vmm_use(stage.cache, live, stage.streams[1]));
    assert_ok(vmm__driver_stream_wait(stage.driver, stage.streams[1], stage.event));
    sim_checked(stage.driver, (uintptr_t)live, 8 * MIB, 2, stage.streams[1]);
    assert_ok(vmm__driver_event_wait(stage.driver, stage.event));
    given(&stage, live);
    void *other = taken(&stage, 8 * MIB, 2); /* the old work has ended, the new one's has not */
    assert_true(other != live);
    given(&stage, other);
    ended(&stage, 1); /* both pools have that handle */
    renewed(&stage, 1);
    given(&stage, taken(&stage, 8 * MIB, 1));
    assert_int_equal(pools_count(&stage), 3);
    stage_close(&stage);
}

/* A pool without memory is for any stream, but not for one that would have to wait for work it has nothing to do
 * with. */
static void nobody_waits_for_what_is_not_his(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, ORDER_HOLD, 1, NULL);
    void *block = taken(&stage, 8 * MIB, 1);
    assert_ok(vmm_use(stage.cache, block, stage.streams[2]));
    assert_ok(vmm__driver_event_record(stage.driver, stage.event, stage.streams[1]));
    assert_ok(vmm__driver_stream_wait(stage.driver, stage.streams[2], stage.event));
    sim_checked(stage.driver, (uintptr_t)block, 8 * MIB, 1, stage.streams[2]);
    ended(&stage, 2);
    uint64_t waits = vmm__driver_calls(stage.driver, DRIVER_CALL_stream_wait);
    given(&stage, taken(&stage, 8 * MIB, 3));
    assert_int_equal(vmm__driver_calls(stage.driver, DRIVER_CALL_stream_wait), waits);
    assert_int_equal(pools_count(&stage), 3);
    given(&stage, block);
    stage_close(&stage);
}

static int every_stream(void *context, vmm_stream stream)
{
    (void)context;
    (void)stream;
    return 1;
}

/* A graph would not wait again each time that it is launched. */
static void a_private_pool_serves_once_the_old_work_has_ended(void **state)
{
    static const vmm_pool_id id = { 1, 0 };
    struct stage stage;
    (void)state;
    stage_open(&stage, ORDER_HOLD, 1, NULL);
    assert_ok(vmm_pool_begin(stage.cache, id, every_stream, NULL));
    void *old = taken(&stage, 8 * MIB, 1);
    given(&stage, old);
    ended(&stage, 1);
    renewed(&stage, 1);
    void *other = taken(&stage, 8 * MIB, 1);
    assert_ptr_not_equal(other, old);
    assert_ok(vmm__driver_device_wait(stage.driver));
    given(&stage, other);
    ended(&stage, 1);
    renewed(&stage, 1);
    void *again = taken(&stage, 8 * MIB, 1);
    assert_true(again == old || again == other);
    given(&stage, again);
    assert_ok(vmm_pool_end(stage.cache, id));
    assert_ok(vmm_pool_release(stage.cache, id));
    stage_close(&stage);
}

/* The mark fails: the stream goes on as if nothing had been said. */
static void an_end_that_failed_changes_nothing(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, ORDER_HOLD, 1, NULL);
    void *old = taken(&stage, 8 * MIB, 1);
    given(&stage, old);
    static const uint64_t calls[] = { 1, 2, 3, 3 }; /* asked, made, recorded, asked again */
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        vmm__sim_fail_at(stage.driver, calls[i], VMM_ERR_DRIVER, false);
        assert_status(vmm_stream_end(stage.cache, stage.streams[1]), VMM_ERR_DRIVER);
        vmm__sim_fail_at(stage.driver, 0, VMM_OK, false);
        assert_ptr_equal(taken(&stage, 8 * MIB, 1), old);
        given(&stage, old);
    }
    ended(&stage, 1);
    renewed(&stage, 1);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_three_streams_merges_in_order),
        cmocka_unit_test(streams_end_in_each_order),
        cmocka_unit_test(pools_do_not_pile_up),
        cmocka_unit_test(a_stream_that_cannot_wait_begins_anew),
        cmocka_unit_test(nobody_waits_for_what_is_not_his),
        cmocka_unit_test(a_private_pool_serves_once_the_old_work_has_ended),
        cmocka_unit_test(an_end_that_failed_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
