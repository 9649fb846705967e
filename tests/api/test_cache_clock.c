/*
 * What must not stop the clock, or wait for it: work that never ends, streams that are destroyed without a word, and
 * captures that fail or are forgotten. VMM_TEST_SECONDS says how long work goes on beside work that never ends, and
 * VMM_TEST_STREAMS how many streams come and go.
 */
#define _POSIX_C_SOURCE 200809L
#include "support/cache_support.h"

#include "base/arith.h"
#include "base/hostmem.h"
#include "base/time.h"

#define NS_PER_S    UINT64_C(1000000000)
#define GONE_BYTES  (2 * MIB)
#define GONE_RECORD 2048 /* bytes that may stay for a stream */
#define MOST_BYTES  (4 * MIB)

enum { SLOTS = 64, SIM_ROUNDS = 20000, GONE = 2000, GONE_BATCH = 50, CAPTURES = 1000 };

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* ---- Work that never ends -------------------------------------------------------------------- */

struct slot {
    void *block;
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

static void slot_take(struct cache_test *test, struct slot *slot, uint64_t *seed)
{
    slot->stream = 1 + (unsigned)(random_next(seed) % (CACHE_STREAMS - 1));
    slot->bytes = random_bytes(seed, MOST_BYTES);
    slot->word = (uint32_t)random_next(seed);
    slot->block = block_alloc(test, slot->bytes, slot->stream);
    block_fill(test, slot->block, slot->bytes, slot->word, slot->stream);
}

static void slot_give(struct cache_test *test, struct slot *slot)
{
    block_check(test, slot->block, slot->bytes, slot->word, slot->stream);
    block_free(test, slot->block);
    slot->block = NULL;
}

/* Takes and gives blocks of all streams but the first, until the time is over. The longest step. */
static uint64_t rounds_run(struct cache_test *test, struct slot *slots, uint64_t ns)
{
    uint64_t seed = 1;
    uint64_t longest_ns = 0;
    uint64_t begin_ns = vmm__time_ns();
    bool is_sim = driver_choice_kind() == VMM_DRIVER_SIM;
    for (int i = 0; is_sim ? i < SIM_ROUNDS : vmm__time_ns() - begin_ns < ns; i++) {
        struct slot *slot = &slots[random_next(&seed) % SLOTS];
        uint64_t step_ns = vmm__time_ns();
        if (slot->block == NULL)
            slot_take(test, slot, &seed);
        else
            slot_give(test, slot);
        if (i % 1000 == 999)
            (void)cache_trim(test, 128 * MIB);
        longest_ns = vmm__max(longest_ns, vmm__time_ns() - step_ns);
    }
    return longest_ns;
}

/* The first stream reads a freed block for ever. No call waits for it, and the memory of others serves them. */
static void endless_run(struct cache_test *test, vmm_reuse reuse)
{
    uint64_t ns = number_from("VMM_TEST_SECONDS", 1) * NS_PER_S;
    uint64_t endless_ns = driver_choice_kind() == VMM_DRIVER_SIM ? 3600 * NS_PER_S : ns + NS_PER_S;
    struct slot slots[SLOTS] = { { .block = NULL } };
    void *end;
    cache_restart_with(test, .reuse = reuse);
    void *endless = block_alloc(test, MOST_BYTES, 0);
    block_fill(test, endless, MOST_BYTES, 7, 0);
    work_verify(test);
    assert_ok(vmm__driver_event_create(test->driver, &end));
    assert_ok(vmm__driver_delay(test->driver, endless_ns, test->streams[0]));
    block_check(test, endless, MOST_BYTES, 7, 0);
    block_free(test, endless);
    assert_ok(vmm__driver_event_record(test->driver, end, test->streams[0]));
    uint64_t stalls = cache_stalls(test);
    uint64_t longest_ns = rounds_run(test, slots, ns);
    assert_status(vmm__driver_event_query(test->driver, end), VMM__PENDING);
    assert_int_equal(cache_stalls(test), stalls);
    vmm_stats stats = cache_stats(test);
    assert_true(stats.reserved_bytes.peak <= 4 * stats.allocated_bytes.peak);
    printf("longest step beside work that does not end: %.1f ms; reserved %.2f of live\n",
           (double)longest_ns / 1e6,
           (double)stats.reserved_bytes.peak / (double)stats.allocated_bytes.peak);
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].block != NULL)
            slot_give(test, &slots[i]);
    }
    work_verify(test);
    assert_ok(vmm__driver_event_destroy(test->driver, end));
    cache_verify_empty(test);
}

CACHE_TEST(work_that_never_ends_stops_nobody)
{
    endless_run(test, VMM_REUSE_ANY_USE);
}

CACHE_TEST(work_that_never_ends_stops_nobody_if_uses_are_declared)
{
    endless_run(test, VMM_REUSE_DECLARED);
}

/* ---- Waits ----------------------------------------------------------------------------------- */

/* A call that waits for work, whatever the events of the clock cover: also for that of a stream that the cache does not
 * know. */
static void unknown_covered(struct cache_test *test, vmm_status (*call)(struct cache_test *test))
{
    for (int kind = VMM_CLOCK_CONTEXT; kind <= VMM_CLOCK_STREAMS; kind++) {
        void *end;
        cache_restart_with(test, .clock_kind = (vmm_clock_kind)kind);
        block_free(test, block_alloc(test, MOST_BYTES, 1));
        assert_ok(vmm__driver_event_create(test->driver, &end));
        assert_ok(vmm__driver_delay(test->driver, NS_PER_S / 10, test->streams[2]));
        assert_ok(vmm__driver_event_record(test->driver, end, test->streams[2]));
        assert_ok(call(test));
        assert_ok(vmm__driver_event_query(test->driver, end));
        assert_ok(vmm__driver_event_destroy(test->driver, end));
        cache_verify_empty(test);
    }
}

static vmm_status all_wait(struct cache_test *test)
{
    return vmm_wait(test->cache);
}

CACHE_TEST(a_wait_covers_streams_that_the_cache_does_not_know)
{
    unknown_covered(test, all_wait);
}

static vmm_status pool_rest(struct cache_test *test)
{
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    void *block = block_in_pool(pool, MOST_BYTES, test->streams[1]);
    vmm_status status = vmm_pool_sleep(&pool, 1, NULL, NULL);
    block_free(test, block);
    assert_ok(vmm_pool_destroy(pool, 0));
    return status;
}

CACHE_TEST(a_sleep_covers_streams_that_the_cache_does_not_know)
{
    unknown_covered(test, pool_rest);
}

/* ---- Streams that are gone ------------------------------------------------------------------- */

/* Each stream leaves work behind. A stream of a later batch may get its handle, so that the program orders the two. */
static void batch_run(struct cache_test *test, uint32_t word)
{
    vmm_stream streams[GONE_BATCH];
    uint64_t stalls = cache_stalls(test);
    for (int i = 0; i < GONE_BATCH; i++) {
        assert_ok(vmm__driver_stream_create(test->driver, &streams[i]));
        void *block = block_in(test->cache, GONE_BYTES, streams[i]);
        assert_ok(vmm__driver_fill(test->driver, (uint64_t)(uintptr_t)block, GONE_BYTES, word,
                                   streams[i]));
        block_free(test, block);
    }
    for (int i = 0; i < GONE_BATCH; i++)
        assert_ok(vmm__driver_stream_destroy(test->driver, streams[i]));
    assert_int_equal(cache_stalls(test), stalls);
    work_verify(test);
}

CACHE_TEST(memory_of_destroyed_streams_comes_back)
{
    uint32_t batches = (uint32_t)(number_from("VMM_TEST_STREAMS", GONE) / GONE_BATCH);
    cache_restart(test, NULL);
    batch_run(test, 0);
    uint64_t before = vmm__host_outstanding();
    for (uint32_t i = 1; i <= batches; i++)
        batch_run(test, i);
    uint64_t after = vmm__max(vmm__host_outstanding(), before); /* some may have gone */
    uint64_t record_bytes = (after - before) / (batches * GONE_BATCH);
    printf("%u streams: host memory %llu bytes for each\n", batches * GONE_BATCH,
           (unsigned long long)record_bytes);
    assert_true(cache_stats(test).reserved_bytes.peak <= 2 * GONE_BATCH * GONE_BYTES);
    assert_true(record_bytes <= GONE_RECORD);
}

/* ---- Captures that fail ---------------------------------------------------------------------- */

/* Whether memory that a stream freed serves another one, without new memory. */
static bool is_handed_on(struct cache_test *test)
{
    void *first = block_alloc(test, MOST_BYTES, 1);
    block_fill(test, first, MOST_BYTES, 1, 1);
    block_free(test, first);
    work_verify(test);
    uint64_t calls = cache_stats(test).create_calls;
    void *second = block_alloc(test, MOST_BYTES, 2);
    bool is_new = cache_stats(test).create_calls != calls;
    block_free(test, second);
    (void)cache_trim(test, 0);
    return !is_new;
}

enum { CAPTURED = 3 }; /* CUDA captures no default stream */

/* One that is announced and does not begin; one in which a request fails; one that ends unannounced. */
static void capture_fail(struct cache_test *test, int way)
{
    void *block;
    if (way == 0) {
        assert_ok(vmm_capture_announce(test->cache, test->streams[CAPTURED]));
        assert_ok(vmm_capture_retract(test->cache, test->streams[CAPTURED]));
        return;
    }
    capture_begin(test, CAPTURED);
    assert_status(vmm_alloc(test->cache, 2 * CACHE_LIMIT, test->streams[CAPTURED], &block),
                  VMM_ERR_DEVICE_OOM);
    if (way == 1) {
        capture_end(test, CAPTURED);
        return;
    }
    test->captured[CAPTURED] = false;
    assert_ok(vmm__driver_capture_end(test->driver, test->streams[CAPTURED]));
}

CACHE_TEST(failing_captures_do_not_stop_the_clock)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT);
    for (int i = 0; i < CAPTURES; i++) {
        capture_fail(test, i % 3);
        assert_true(is_handed_on(test));
    }
    assert_int_equal(cache_stats(test).clock_kind, VMM_CLOCK_CONTEXT);
}

static int group_setup(void **state)
{
    int status = cache_group_setup(state);
    cache_streams_warm(*state, 2 * GONE_BATCH);
    return status;
}

DRIVER_MAIN(group_setup, cache_group_teardown)
