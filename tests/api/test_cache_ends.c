/* Streams that end: what is free of theirs, what is live, and who comes with the same handle. */
#include "support/graph_support.h"

#include <string.h>

#define LARGE (8 * MIB)

/* ---- Steps ---------------------------------------------------------------------------------- */

static void stream_destroyed(struct cache_test *test, unsigned stream)
{
    assert_ok(vmm__driver_stream_destroy(test->driver, test->streams[stream]));
}

static void stream_ended(struct cache_test *test, unsigned stream)
{
    assert_ok(vmm_stream_end(test->cache, test->streams[stream]));
    stream_destroyed(test, stream);
}

/* Returns whether the handle is the one that was destroyed last: sim and host see to it, CUDA may. */
static bool stream_recreate(struct cache_test *test, unsigned stream)
{
    vmm_stream before = test->streams[stream];
    assert_ok(vmm__driver_stream_create(test->driver, &test->streams[stream]));
    bool is_same = test->streams[stream] == before;
    assert_true(is_same || driver_choice_kind() == VMM_DRIVER_CUDA);
    return is_same;
}

static uint64_t stream_waits(struct cache_test *test)
{
    return cache_stats(test).stream_waits;
}

/* A block that was used, and given back. */
static void *block_alloc_and_free(struct cache_test *test, size_t bytes, unsigned stream,
                                  uint32_t word)
{
    void *block = block_alloc(test, bytes, stream);
    block_fill(test, block, bytes, word, stream);
    block_free(test, block);
    return block;
}

/* ---- What is free --------------------------------------------------------------------------- */

CACHE_TEST(other_streams_reuse_memory_of_an_ended_stream)
{
    void *left = block_alloc(test, LARGE, 1);
    bool is_sure = flight_begin(test, left, LARGE, 1);
    block_free(test, left);
    stream_ended(test, 1);
    void *other = block_alloc(test, LARGE, 2);
    bool is_in_flight = other != left; /* on cuda the work may have ended before */
    assert_true(is_in_flight || !is_sure);
    block_fill(test, other, LARGE, 5, 2);
    assert_int_equal(cache_stalls(test), 0);
    flight_end(test);
    uint64_t created = cache_stats(test).create_calls;
    void *more = block_alloc(test, LARGE, 3);
    if (is_in_flight)
        assert_int_equal(cache_stats(test).create_calls, created);
    block_fill(test, more, LARGE, 6, 3);
    block_check(test, other, LARGE, 5, 2);
    block_free(test, more);
    block_free(test, other);
    (void)stream_recreate(test, 1);
}

/* Small blocks, slabs, what is warm and what is trimmed: nothing of it stays behind. */
CACHE_TEST(an_ended_stream_leaves_nothing)
{
    static const size_t sizes[] = { 1, 600, 9000, MIB, 3 * MIB, LARGE };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        (void)block_alloc_and_free(test, sizes[i], 1, i + 1);
    stream_ended(test, 1);
    work_verify(test);
    uint64_t created = cache_stats(test).create_calls;
    block_free(test, block_alloc(test, 900 << 10, 2)); /* where slabs were */
    assert_int_equal(cache_stats(test).create_calls, created);
    cache_verify_empty(test);
    (void)stream_recreate(test, 1);
}

/* ---- The same handle ------------------------------------------------------------------------ */

/* A new stream does not have the old one's memory before it has passed. */
CACHE_TEST(the_same_handle_gets_no_memory_in_use)
{
    void *left = block_alloc(test, LARGE, 1);
    bool is_sure = flight_begin(test, left, LARGE, 1);
    block_free(test, left);
    stream_ended(test, 1);
    bool is_same = stream_recreate(test, 1);
    void *block = block_alloc(test, LARGE, 1);
    assert_true(is_same || !is_sure || block != left);
    if (is_sure)
        assert_ptr_not_equal(block, left);
    assert_int_equal(stream_waits(test), 0);
    block_fill(test, block, LARGE, 5, 1);
    assert_int_equal(cache_stalls(test), 0);
    flight_end(test);
    block_check(test, block, LARGE, 5, 1);
}

CACHE_TEST(a_reused_handle_without_work_does_not_wait)
{
    void *left = block_alloc_and_free(test, LARGE, 1, 3);
    work_verify(test);
    stream_ended(test, 1);
    bool is_same = stream_recreate(test, 1);
    uint64_t waits = stream_waits(test);
    void *block = block_alloc(test, LARGE, 1);
    if (is_same && driver_choice_kind() != VMM_DRIVER_CUDA)
        assert_ptr_equal(block, left);
    assert_int_equal(stream_waits(test), waits);
}

/* Many end, none is waited for, and neither memory nor records grow. */
CACHE_TEST(streams_come_and_go)
{
    enum { ROUNDS = 300 };
    uint64_t reserved = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        void *large = block_alloc_and_free(test, LARGE, 1, 2 * round);
        void *small = block_alloc_and_free(test, 4096, 1, 2 * round + 1);
        block_use(test, block_alloc(test, 512, 2), 1);
        assert_ptr_not_equal(large, small);
        stream_ended(test, 1);
        (void)stream_recreate(test, 1);
        if (round % 8 == 0) /* then memory passes; the limit has room for 16 rounds */
            work_verify(test);
        if (round == ROUNDS / 3)
            reserved = cache_stats(test).reserved_bytes.current;
    }
    assert_true(cache_stats(test).reserved_bytes.current <= reserved + 16 * LARGE);
    assert_true(cache_stats(test).streams <= 20);
    assert_int_equal(cache_stalls(test), 0);
    work_verify(test);
}

/* ---- What grows ----------------------------------------------------------------------------- */

/* Bytes behind a block of a stream that ended are no stream's own: unfinished work may use them. */
CACHE_TEST(a_block_of_an_ended_stream_grows_into_nothing_unfinished)
{
    for (unsigned user = 1; user <= 2;
         user++) { /* the block's own stream; one that is not declared */
        void *grown = NULL;
        void *keep = block_alloc(test, LARGE, 1);
        void *next = block_alloc(test, LARGE, 1);
        assert_ptr_equal(next, (char *)keep + LARGE);
        (void)flight_begin(test, next, LARGE, user);
        block_check(test, next, LARGE, 77, user);
        block_free(test, next);
        stream_ended(test, 1);
        assert_ok(vmm_resize(test->cache, keep, 2 * LARGE, &grown));
        (void)stream_recreate(test, 1);
        block_use(test, grown, 3);
        block_fill(test, (char *)grown + LARGE, LARGE, 5, 3);
        flight_end(test);
        block_check(test, (char *)grown + LARGE, LARGE, 5, 3);
        work_verify(test);
        block_free(test, grown);
        cache_verify_empty(test);
    }
}

/* A commit cannot order a stream that ended after the work of a declared user. */
CACHE_TEST(a_commit_after_the_end_waits_for_declared_users)
{
    void *block = NULL;
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 2 * LARGE, 0, test->streams[1], &block));
    assert_ok(vmm_commit(test->cache, block, 0, LARGE));
    block_use(test, block, 2);
    bool is_sure = flight_begin(test, block, LARGE, 2);
    assert_ok(vmm_decommit(test->cache, block, 0, LARGE));
    stream_ended(test, 1);
    if (is_sure)
        assert_status(vmm_commit(test->cache, block, 0, LARGE), VMM_ERR_INVALID_ARGUMENT);
    flight_end(test);
    assert_ok(vmm_commit(test->cache, block, 0, LARGE));
    block_free(test, block);
    (void)stream_recreate(test, 1);
}

/* ---- What is live --------------------------------------------------------------------------- */

CACHE_TEST(live_blocks_outlive_their_stream)
{
    void *live = block_alloc(test, LARGE, 1);
    block_fill(test, live, LARGE, 9, 1);
    stream_follow(test, 2, 1);
    stream_ended(test, 1);
    block_use(test, live, 2);
    block_check(test, live, LARGE, 9, 2);
    (void)stream_recreate(test, 1);
    void *other = block_alloc(test, LARGE, 1);
    assert_ptr_not_equal(other, live);
    block_fill(test, other, LARGE, 10, 1);
    block_check(test, live, LARGE, 9, 2);
}

/* It is free only once the work that was there when the stream ended is done. */
CACHE_TEST(a_block_freed_after_stream_end_waits_for_its_event)
{
    void *live = block_alloc(test, LARGE, 1);
    bool is_sure = flight_begin(test, live, LARGE, 1);
    stream_ended(test, 1);
    block_free(test, live);
    void *other = block_alloc(test, LARGE, 2);
    if (is_sure)
        assert_ptr_not_equal(other, live);
    block_fill(test, other, LARGE, 4, 2);
    flight_end(test);
    block_free(test, other);
    (void)stream_recreate(test, 1);
}

/* A block that another stream uses, which ends before the block is freed, or after. */
CACHE_TEST(users_end_too)
{
    for (unsigned round = 0; round < 2; round++) {
        void *block = block_alloc(test, LARGE, 1);
        block_use(test, block, 2);
        bool is_sure = flight_begin(test, block, LARGE, 2);
        if (round == 0)
            stream_ended(test, 2);
        block_free(test, block);
        if (round == 1)
            stream_ended(test, 2);
        (void)stream_recreate(test, 2);
        void *other = block_alloc(test, LARGE, 1);
        if (is_sure)
            assert_ptr_not_equal(other, block);
        block_fill(test, other, LARGE, 4, 1);
        flight_end(test);
        block_free(test, other);
        cache_verify_empty(test);
    }
}

/* ---- Refusals ------------------------------------------------------------------------------- */

CACHE_TEST(invalid_stream_ends_are_refused)
{
    assert_status(vmm_stream_end(NULL, test->streams[1]), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_stream_end(test->cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_stream_end(test->cache, test->streams[3])); /* which the cache has never seen */
    (void)block_alloc(test, LARGE, 1);
    assert_ok(vmm_stream_end(test->cache, test->streams[1]));
    assert_ok(vmm_stream_end(test->cache, test->streams[1]));
}

/* The lane's own clock needs an event of the stream. */
CACHE_TEST(a_captured_stream_does_not_end)
{
    cache_restart_with(test, .reuse = VMM_REUSE_DECLARED);
    void *block = block_alloc(test, LARGE, 1);
    capture_begin(test, 1);
    assert_status(vmm_stream_end(test->cache, test->streams[1]), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "announced or under way"));
    capture_end(test, 1);
    block_free(test, block);
    assert_ptr_equal(block_alloc(test, LARGE, 1), block);
    assert_ok(vmm_stream_end(test->cache, test->streams[1]));
}

/* ---- Graph pools -------------------------------------------------------------------------- */

CACHE_TEST(graph_pools_outlive_their_stream)
{
    for (unsigned round = 0; round < 3; round++) {
        struct graph graph;
        graph_mix(test, &graph, 1, 1);
        stream_ended(test, 1);
        graph_replay(test, &graph, 2 + round % 2);
        work_verify(test);
        (void)stream_recreate(test, 1);
        if (round == 1) { /* on another stream with the same handle, for the same pool */
            struct graph again;
            graph_mix(test, &again, 1, 1);
            graph_discard(test, &again);
        }
        graph_discard(test, &graph);
        cache_verify_empty(test);
    }
}

/* What was live when the pool was released goes with the stream's last mark, too. */
CACHE_TEST(memory_of_a_released_graph_pool_is_freed_without_its_stream)
{
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    stream_ended(test, 1);
    graph_release(test, &graph);
    graph_empty(test, &graph);
    cache_verify_empty(test);
    (void)stream_recreate(test, 1);
}

/* ---- Without a word ------------------------------------------------------------------------- */

/* What CUDA does with a handle that is none is undefined. */
static bool may_be_destroyed_without_a_word(void)
{
    return driver_choice_kind() != VMM_DRIVER_CUDA;
}

CACHE_TEST(memory_of_a_destroyed_stream_passes_by_the_clock)
{
    if (!may_be_destroyed_without_a_word())
        return;
    void *used = block_alloc(test, LARGE, 2);
    void *left = block_alloc(test, LARGE, 1);
    block_use(test, used, 1);
    (void)flight_begin(test, left, LARGE, 1);
    block_free(test, left);
    stream_destroyed(test, 1);
    block_free(test, used);
    for (unsigned round = 0; round < 3; round++) {
        void *other = block_alloc(test, LARGE, 2);
        assert_ptr_not_equal(other, left);
        assert_ptr_not_equal(other, used);
        block_free(test, other);
        (void)cache_trim(test, 0);
        assert_ok(vmm_poll(test->cache));
    }
    flight_end(test);
    work_verify(test);
    assert_ok(vmm_poll(test->cache));
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stalls(test), 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    cache_verify_empty(test);
    (void)stream_recreate(test, 1);
}

/* A request that needs it waits for it, and so does the end. */
CACHE_TEST(a_request_waits_for_an_ended_stream)
{
    if (!may_be_destroyed_without_a_word())
        return;
    (void)block_alloc_and_free(test, 100 * MIB, 1, 1);
    (void)block_alloc_and_free(test, MIB, 1, 2);
    stream_destroyed(test, 1);
    for (unsigned round = 0; round < 2; round++) {
        void *block = block_alloc(test, 100 * MIB, 2);
        block_fill(test, block, 100 * MIB, 3, 2);
        block_free(test, block);
    }
    (void)stream_recreate(test, 1);
}

CACHE_TEST(a_graph_pool_of_an_ended_stream_is_released)
{
    if (!may_be_destroyed_without_a_word())
        return;
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    (void)block_alloc_and_free(test, LARGE, 1, 1);
    stream_destroyed(test, 1);
    graph_discard(test, &graph);
    assert_ok(vmm_wait(test->cache));
    (void)stream_recreate(test, 1);
}

/* ---- Holes ---------------------------------------------------------------------------------- */

enum { DELAY_NS = 20000000 };

/* Allocates all that the limit allows, with blocks of these sizes. */
static void memory_fill(struct cache_test *test, const size_t *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *block = NULL;
        while (vmm_alloc(test->cache, sizes[i], test->streams[1], &block) == VMM_OK) {
        }
    }
}

enum end { ENDS_LAST, ENDS_FIRST, ENDS_NEVER, ENDS };

/* Frees a block beside live ones while the stream has work, and ends or only destroys the stream. */
static void hole_make(struct cache_test *test, void *block, enum end end)
{
    assert_ok(vmm__driver_delay(test->driver, DELAY_NS, test->streams[1]));
    if (end == ENDS_FIRST)
        stream_ended(test, 1);
    block_free(test, block);
    if (end == ENDS_LAST)
        stream_ended(test, 1);
    if (end == ENDS_NEVER)
        stream_destroyed(test, 1);
}

/* Neither has the hole a whole chunk, nor its stream a request that would use it again. */
CACHE_TEST(a_hole_of_an_ended_stream_serves_others)
{
    static const size_t rest[] = { MIB, 64 << 10, 4096, 512 };
    static const size_t holes[] = { 1200 << 10, 30000, 600 };
    unsigned ends = may_be_destroyed_without_a_word() ? ENDS : ENDS_NEVER;
    for (unsigned round = 0; round < ends * 9; round++) {
        size_t bytes = holes[round % 3];
        vmm_reuse reuse = (vmm_reuse)(VMM_REUSE_ANY_USE + round / 3 % 3);
        cache_restart_with(test, .reuse = reuse, .limit_bytes = 4 * MIB);
        void *keep = block_alloc(test, bytes, 1);
        void *left = block_alloc(test, bytes, 1);
        memory_fill(test, rest, sizeof rest / sizeof rest[0]);
        hole_make(test, left, (enum end)(round / 9));
        void *block = block_alloc(test, bytes, 2);
        block_fill(test, block, bytes, round, 2);
        block_check(test, block, bytes, round, 2);
        assert_ptr_not_equal(block, keep);
        (void)stream_recreate(test, 1);
    }
}

CACHE_MAIN()
