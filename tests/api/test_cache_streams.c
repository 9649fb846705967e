/* Blocks and the order of work: reuse on one stream, across streams, and vmm_record_stream. */
#include "support/cache_support.h"

#include "driver/sim/sim.h"

#define LARGE (8 * MIB)

static bool walk_has(struct cache_test *test, uint64_t waiting_bytes)
{
    return cache_scan(test).waiting_bytes == waiting_bytes;
}

CACHE_TEST(own_work_in_flight_does_not_prevent_reuse)
{
    void *first = block_alloc(test, LARGE, 1);
    (void)flight_begin(test, first, LARGE, 1);
    block_free(test, first);
    void *second = block_alloc(test, LARGE, 1);
    assert_ptr_equal(second, first);
    assert_int_equal(cache_stalls(test), 0);
}

CACHE_TEST(other_streams_do_not_reuse_memory_in_flight)
{
    void *first = block_alloc(test, LARGE, 1);
    bool is_sure = flight_begin(test, first, LARGE, 1);
    block_free(test, first);
    void *second = block_alloc(test, LARGE, 2);
    if (is_sure)
        assert_ptr_not_equal(second, first);
    block_fill(test, second, LARGE, 3, 2);
    block_check(test, second, LARGE, 3, 2);
    assert_int_equal(cache_stalls(test), 0);
    flight_end(test);
    block_free(test, second);
}

CACHE_TEST(completed_memory_is_reused_by_other_streams)
{
    static const size_t sizes[] = { LARGE, MIB, 5 * MIB, 600 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *first = block_alloc(test, sizes[i], 1);
        block_fill(test, first, sizes[i], 1, 1);
        block_free(test, first);
        work_verify(test);
        (void)cache_trim(test, 32 * MIB); /* gives empty slabs to their heap */
        uint64_t calls = cache_stats(test).create_calls;
        void *second = block_alloc(test, sizes[i], 2);
        if (sizes[i] > MIB)
            assert_int_equal(cache_stats(test).create_calls, calls);
        block_free(test, second);
        cache_verify(test);
        (void)cache_trim(test, 0);
    }
}

/* They take the memory from each other, until each has a block of its own, or the limit refuses it. */
static void streams_take_turns(struct cache_test *test, uint64_t most_bytes)
{
    enum { STREAMS = 4, TURNS = 1000 };
    for (unsigned i = 0; i < TURNS * STREAMS; i++)
        block_free(test, block_alloc(test, LARGE, i % STREAMS));
    assert_true(cache_stats(test).reserved_bytes.peak <= most_bytes);
    cache_verify(test);
}

CACHE_TEST(streams_in_turn_have_a_block_each_at_most)
{
    streams_take_turns(test, 4 * LARGE);
}

CACHE_TEST(streams_in_turn_share_what_a_limit_allows)
{
    cache_restart_with(test, .limit_bytes = 2 * LARGE);
    streams_take_turns(test, 2 * LARGE);
    assert_int_equal(cache_stats(test).ooms, 0);
}

/* Blocks that do not fill granules lie side by side, though other streams grow meanwhile. */
CACHE_TEST(small_blocks_of_streams_in_turn_fill_granules)
{
    enum { STREAMS = 4, ROUNDS = 10 };
    void *blocks[ROUNDS][STREAMS];
    const size_t bytes = 1400 << 10;
    for (unsigned i = 0; i < ROUNDS * STREAMS; i++)
        blocks[i / STREAMS][i % STREAMS] = block_alloc(test, bytes, i % STREAMS);
    assert_in_range(cache_stats(test).reserved_bytes.current, ROUNDS * STREAMS * bytes,
                    ROUNDS * STREAMS * bytes * 9 / 8);
    cache_verify(test);
    for (unsigned i = 0; i < ROUNDS * STREAMS; i++)
        block_free(test, blocks[i / STREAMS][i % STREAMS]);
}

/* Each has its own free memory, in small chunks because a limit is near. It does not take that of the others first. */
CACHE_TEST(small_blocks_of_streams_in_turn_stay_side_by_side_near_a_limit)
{
    enum { STREAMS = 3, BLOCKS = 48 };
    void *blocks[BLOCKS];
    const size_t bytes = 2400 << 10;
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT);
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = block_alloc(test, bytes, i / (BLOCKS / STREAMS));
    for (unsigned i = 0; i < BLOCKS; i++)
        block_free(test, blocks[i]);
    work_verify(test);
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = block_alloc(test, bytes, i % STREAMS);
    assert_int_equal(cache_stats(test).retries, 0);
    cache_verify(test);
    for (unsigned i = 0; i < BLOCKS; i++)
        block_free(test, blocks[i]);
}

static void streams_share_freed_memory(struct cache_test *test, size_t bytes)
{
    enum { TAKERS = 3, BLOCKS_MOST = 128 };
    void *blocks[BLOCKS_MOST];
    unsigned count = (unsigned)(140 * MIB / bytes);
    cache_restart_with(test, .limit_bytes = count * bytes * 10 / 9);
    for (unsigned i = 0; i < count; i++)
        blocks[i] = block_alloc(test, bytes, 0);
    for (unsigned i = 0; i < count; i++)
        block_free(test, blocks[i]);
    work_verify(test);
    for (unsigned i = 0; i < count; i++)
        blocks[i] = block_alloc(test, bytes, 1 + i % TAKERS);
    assert_int_equal(cache_stats(test).ooms, 0);
    cache_verify(test);
    for (unsigned i = 0; i < count; i++)
        block_free(test, blocks[i]);
}

/* What blocks leave of their last granule serves the next ones, though other streams take what lies behind. */
CACHE_TEST(streams_in_turn_use_nearly_all_that_another_one_freed)
{
    streams_share_freed_memory(test, 1400 << 10);
    streams_share_freed_memory(test, 2400 << 10);
    streams_share_freed_memory(test, 3300 << 10);
    streams_share_freed_memory(test, 5 * MIB);
}

/* Pieces between live blocks, their last work still running, move together without new memory. */
CACHE_TEST(the_same_stream_reuses_memory_in_flight)
{
    enum { PIECES = 8 };
    cache_restart_with(test, .limit_bytes = PIECES * LARGE);
    void *blocks[PIECES];
    for (int i = 0; i < PIECES; i++)
        blocks[i] = block_alloc(test, LARGE, 1);
    (void)flight_begin(test, blocks[0], LARGE, 1);
    for (uint32_t i = 0; i < PIECES; i++)
        block_fill(test, blocks[i], LARGE, i, 1);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, blocks[i]);
    uint64_t calls = cache_stats(test).create_calls;
    void *whole = block_alloc(test, PIECES / 2 * LARGE, 1);
    assert_int_equal(cache_stats(test).create_calls, calls);
    assert_int_equal(cache_stalls(test), 0);
    cache_verify(test);
    block_fill(test, whole, PIECES / 2 * LARGE, 99, 1);
    for (uint32_t i = 1; i < PIECES; i += 2)
        block_check(test, blocks[i], LARGE, i, 1);
    block_check(test, whole, PIECES / 2 * LARGE, 99, 1);
    flight_end(test);
}

/* The limit leaves no other choice than the memory that the other stream's work still uses. */
CACHE_TEST(pressure_makes_streams_follow)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
    void *first = block_alloc(test, CACHE_LIMIT, 1);
    (void)flight_begin(test, first, CACHE_LIMIT, 1);
    block_free(test, first);
    void *second = block_alloc(test, CACHE_LIMIT, 2);
    block_fill(test, second, CACHE_LIMIT, 3, 2);
    block_check(test, second, CACHE_LIMIT, 3, 2);
    assert_int_equal(cache_stalls(test), 0);
    flight_end(test);
    block_free(test, second);
}

CACHE_TEST(used_blocks_wait)
{
    static const size_t sizes[] = { LARGE, 100000, 512 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t bytes = sizes[i];
        void *first = block_alloc(test, bytes, 1);
        uint64_t active = cache_stats(test).active_bytes.current;
        block_use(test, first, 2);
        bool is_sure = flight_begin(test, first, bytes, 2);
        block_free(test, first);
        assert_int_equal(cache_stalls(test), 0);
        assert_int_equal(cache_stats(test).allocated_bytes.current, 0);
        void *second = block_alloc(test, bytes, 1);
        if (is_sure) {
            assert_ptr_not_equal(second, first);
            assert_true(walk_has(test, active));
            assert_status(vmm_free(test->cache, first), VMM_ERR_UNKNOWN_POINTER);
            assert_status(vmm_record_stream(test->cache, first, NULL), VMM_ERR_UNKNOWN_POINTER);
            assert_int_equal(cache_stats(test).active_bytes.current, 2 * active);
            cache_verify(test);
        }
        block_free(test, second);
        flight_end(test);
        (void)cache_trim(test, 0);
        assert_true(walk_has(test, 0));
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        assert_int_equal(cache_stats(test).active_bytes.current, 0);
    }
}

CACHE_TEST(used_blocks_come_back_without_a_trim)
{
    void *first = block_alloc(test, LARGE, 1);
    block_use(test, first, 2);
    (void)flight_begin(test, first, LARGE, 2);
    block_free(test, first);
    flight_end(test);
    void *second = block_alloc(test, LARGE, 1);
    assert_ptr_equal(second, first);
}

CACHE_TEST(every_user_is_waited_for)
{
    void *first = block_alloc(test, LARGE, 1);
    block_fill(test, first, LARGE, 1, 1);
    for (unsigned round = 0; round < 3; round++) {
        block_use(test, first, 2);
        block_use(test, first, 0);
        block_use(test, first, 3);
    }
    stream_follow(test, 3, 1);
    bool is_sure = flight_begin(test, first, LARGE, 3);
    block_free(test, first);
    void *second = block_alloc(test, LARGE, 1);
    if (is_sure)
        assert_ptr_not_equal(first, second);
    block_free(test, second);
    flight_end(test);
}

/* Two blocks that wait for a busy stream do not keep later ones from coming back. */
CACHE_TEST(waiting_blocks_delay_no_others)
{
    void *stuck[2];
    for (int i = 0; i < 2; i++) {
        stuck[i] = block_alloc(test, 4096, 1);
        block_use(test, stuck[i], 2);
    }
    (void)flight_begin(test, stuck[0], 4096, 2);
    block_free(test, stuck[0]);
    block_free(test, stuck[1]);
    for (int round = 0; round < 1000; round++) {
        void *block = block_alloc(test, LARGE, 1);
        block_use(test, block, 3);
        block_free(test, block);
    }
    assert_true(cache_stats(test).reserved_bytes.peak <= CACHE_LIMIT / 2);
}

CACHE_TEST(recording_the_own_stream_changes_nothing)
{
    void *first = block_alloc(test, LARGE, 1);
    block_use(test, first, 1);
    (void)flight_begin(test, first, LARGE, 1);
    block_free(test, first);
    assert_true(walk_has(test, 0));
    assert_ptr_equal(block_alloc(test, LARGE, 1), first);
}

CACHE_TEST(uses_end_with_their_block)
{
    static const size_t sizes[] = { LARGE, 512 };
    for (size_t i = 0; i < 2; i++) {
        void *first = block_alloc(test, sizes[i], 1);
        block_use(test, first, 2);
        block_free(test, first);
        work_verify(test);
        void *second = block_alloc(test, sizes[i], 1);
        (void)flight_begin(test, second, sizes[i], 1);
        block_free(test, second);
        assert_true(walk_has(test, 0));
        assert_ptr_equal(block_alloc(test, sizes[i], 1), second);
        flight_end(test);
    }
}

CACHE_TEST(pressure_waits_for_used_blocks)
{
    void *first = block_alloc(test, CACHE_LIMIT, 1);
    block_fill(test, first, CACHE_LIMIT, 1, 1);
    block_use(test, first, 2);
    stream_follow(test, 2, 1);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, 1000);
    block_check(test, first, CACHE_LIMIT, 1, 2);
    block_free(test, first);
    void *second = block_alloc(test, CACHE_LIMIT, 1);
    block_fill(test, second, CACHE_LIMIT, 2, 1);
    block_check(test, second, CACHE_LIMIT, 2, 1);
    block_free(test, second);
}

CACHE_TEST(destroy_accepts_blocks_in_every_state)
{
    static const size_t sizes[] = { LARGE, 200000, 512 };
    for (int i = 0; i < 9; i++) {
        void *block = block_alloc(test, sizes[i % 3], 1);
        block_fill(test, block, sizes[i % 3], 1, 1);
        if (i < 3)
            continue;
        block_use(test, block, 2);
        stream_follow(test, 2, 1);
        if (i == 3)
            (void)flight_begin(test, block, sizes[i % 3], 2);
        if (i < 6)
            block_free(test, block);
    }
    (void)cache_trim(test, 0);
    if (driver_choice_kind() == VMM_DRIVER_HOST)
        flight_end(test); /* its kernel waits for the host */
}

/* ---- Contents over streams --------------------------------------------------------------------
 */

enum { SLOTS = 300, ROUNDS = 6000 };

struct live {
    void *block;
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

/* Ends a block's life. In some cases another stream reads the block first, after the work so far. */
static void live_end(struct cache_test *test, struct live *live, uint64_t *seed)
{
    block_check(test, live->block, live->bytes, live->word, live->stream);
    unsigned other = (unsigned)(random_next(seed) % CACHE_STREAMS);
    if (random_next(seed) % 3 == 0) {
        stream_follow(test, other, live->stream);
        block_use(test, live->block, other);
        block_check(test, live->block, live->bytes, live->word, other);
    }
    block_free(test, live->block);
    live->block = NULL;
}

static void live_begin(struct cache_test *test, struct live *live, uint64_t *seed, uint32_t word)
{
    live->bytes = random_bytes(seed, 24 * MIB);
    live->stream = (unsigned)(random_next(seed) % CACHE_STREAMS);
    live->word = word;
    block_try_fill(test, live->bytes, live->stream, word, &live->block);
}

static void contents_survive_on(struct cache_test *test, uint64_t seed)
{
    struct live *lives = calloc(SLOTS, sizeof *lives);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        struct live *live = &lives[random_next(&seed) % SLOTS];
        if (live->block != NULL)
            live_end(test, live, &seed);
        else
            live_begin(test, live, &seed, round);
        if (round % 700 == 0)
            (void)cache_trim(test, random_next(&seed) % CACHE_LIMIT);
        if (round % 300 == 0)
            cache_verify(test);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (lives[i].block != NULL)
            live_end(test, &lives[i], &seed);
    }
    free(lives);
    work_verify(test);
    cache_trim_all(test);
}

CACHE_TEST(contents_survive_crossing_streams)
{
    static const uint64_t lags[] = { 0, 7, 100, 3000 };
    bool is_sim = driver_choice_kind() == VMM_DRIVER_SIM;
    for (uint64_t i = 0; i < (is_sim ? 4 : 1); i++) {
        if (is_sim)
            vmm__sim_lag_set(test->driver, lags[i]);
        contents_survive_on(test, 11 + i);
    }
}

CACHE_MAIN()
