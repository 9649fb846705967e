/* Pools: life, requests, reports. Their limits are in test_cache_pools_limits.c. */
#define _POSIX_C_SOURCE 200809L
#include "support/listener_support.h"
#include "support/pool_support.h"

#include "base/arith.h"
#include "base/hostmem.h"
#include "base/time.h"
#include "cache/cache.h"
#include "driver/sim/sim.h"

#include <string.h>

/* ---- Life ---------------------------------------------------------------------------------- */

CACHE_TEST(a_pool_serves_its_blocks_from_chunks_of_its_own)
{
    vmm_pool *pool = pool_make(test, .name = "weights", .user_id = { 3, 4 });
    for (int i = 0; i < MIXED; i++) {
        void *mine = pool_alloc(test, pool, mixed_sizes[i], 1);
        void *other = block_alloc(test, mixed_sizes[i], 1);
        assert_in_pool(test, other, vmm_cache_pool(test->cache));
        assert_true(pool_id_is(block_find(test, mine).pool_id, 3, 4));
        block_fill(test, mine, mixed_sizes[i], 1, 1);
        block_check(test, mine, mixed_sizes[i], 1, 1);
        block_free(test, mine);
        block_free(test, other);
    }
}

CACHE_TEST(a_destroyed_cache_releases_the_memory_of_pools)
{
    vmm_pool *pools[3];
    for (int i = 0; i < 3; i++) {
        pools[i] = pool_make(test, .kind = i == 2 ? VMM_POOL_GRAPH : VMM_POOL_GENERAL);
        (void)pool_alloc(test, pools[i], 4 * MIB, 1);
        block_free(test, pool_alloc(test, pools[i], 100, 2));
    }
    assert_ok(vmm_pool_retain(pools[0]));
    cache_restart(test, NULL);
    for (int i = 0; i < 3; i++) {
        void *block = test;
        assert_refused(vmm_alloc_from(pools[i], 1, NULL, &block), "is not a pool");
        assert_ptr_equal(block, test);
    }
}

static void blocks_of_each_kind(struct cache_test *test, vmm_pool *pool)
{
    void *block;
    for (int i = 0; i < MIXED; i++) {
        block = pool_alloc(test, pool, mixed_sizes[i], (unsigned)i % CACHE_STREAMS);
        block_use(test, block, (unsigned)(i + 1) % CACHE_STREAMS);
    }
    assert_ok(vmm_name(test->cache, block, "named"));
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_alloc_aligned(pool, 3 * MIB, 1 << 20, test->streams[1], &block));
    assert_ok(vmm_reserve(pool, 8 * MIB, 0, test->streams[1], &block));
    assert_ok(vmm_commit(test->cache, block, 0, 4 * MIB));
}

CACHE_TEST(all_blocks_of_a_pool_are_freed)
{
    vmm_pool *pool = pool_make(test, .name = "all");
    void *other = block_alloc(test, 3 * MIB, 1);
    assert_ok(vmm_pool_free_all(pool)); /* it has none */
    for (int i = 0; i < 2; i++) {
        blocks_of_each_kind(test, pool);
        assert_ok(vmm_pool_free_all(pool));
        assert_int_equal(pool_stats(pool).allocations.current, 0);
        assert_int_equal(pool_stats(pool).allocated_bytes.current, 0);
    }
    assert_in_pool(test, other, vmm_cache_pool(test->cache));
    assert_ok(vmm_pool_free_all(vmm_cache_pool(test->cache)));
    assert_status(vmm_free(test->cache, other), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_refused(vmm_pool_free_all(pool), "vmm_pool_free_all: ");
}

CACHE_TEST(without_host_memory_no_block_of_a_pool_is_freed)
{
    vmm_pool *pool = pool_make(test, .name = "all");
    (void)pool_alloc(test, pool, 100, 1);
    (void)pool_alloc(test, pool, 3 * MIB, 1);
    (void)vmm__host_fail_at(1);
    vmm_status status = vmm_pool_free_all(pool);
    (void)vmm__host_fail_at(0);
    assert_int_equal(status, VMM_ERR_HOST_OOM);
    assert_int_equal(pool_stats(pool).allocations.current, 2);
    assert_ok(vmm_pool_free_all(pool));
}

CACHE_TEST(a_pool_with_live_blocks_is_destroyed_only_with_adopt)
{
    vmm_pool *pool = pool_make(test, .name = "live");
    void *large = pool_alloc(test, pool, 5 * MIB, 1);
    void *object = pool_alloc(test, pool, 64, 2);
    block_fill(test, large, 5 * MIB, 7, 1);
    assert_refused(vmm_pool_destroy(pool, 0), "pool live has live blocks");
    assert_int_equal(pool_stats(pool).allocations.current, 2);
    assert_ok(vmm_pool_destroy(pool, 1));
    assert_refused(vmm_pool_destroy(pool, 1), "is not a pool");
    assert_in_pool(test, large, vmm_cache_pool(test->cache));
    assert_in_pool(test, object, vmm_cache_pool(test->cache));
    assert_int_equal(pool_stats(vmm_cache_pool(test->cache)).allocations.current, 2);
    block_check(test, large, 5 * MIB, 7, 1);
}

/* Blocks that wait for another stream, and memory in limbo, are adopted as well. */
CACHE_TEST(a_pool_with_work_in_flight_is_adopted)
{
    vmm_pool *pool = pool_make(test, .name = "busy");
    void *used = pool_alloc(test, pool, 4 * MIB, 1);
    void *idle = pool_alloc(test, pool, 8 * MIB, 1);
    bool is_certain = flight_begin(test, used, 4 * MIB, 2);
    block_use(test, used, 2);
    block_free(test, used);
    block_free(test, idle);
    if (is_certain)
        assert_int_equal(pool_stats(pool).active_bytes.current, 4 * MIB);
    assert_ok(vmm_pool_destroy(pool, 0));
    if (is_certain)
        assert_int_equal(cache_stats(test).active_bytes.current, 4 * MIB);
    void *other = block_alloc(test, 4 * MIB, 1);
    if (is_certain)
        assert_ptr_not_equal(other, used);
    block_fill(test, other, 4 * MIB, 9, 1);
    flight_end(test);
    block_check(test, other, 4 * MIB, 9, 1);
}

CACHE_TEST(adopted_free_memory_serves_the_default_pool)
{
    vmm_pool *pool = pool_make(test, .name = "before");
    void *block = pool_alloc(test, pool, 32 * MIB, 1);
    block_free(test, block);
    work_verify(test);
    uint64_t creates = cache_stats(test).create_calls;
    assert_ok(vmm_pool_destroy(pool, 0));
    (void)block_alloc(test, 32 * MIB, 1);
    assert_int_equal(cache_stats(test).create_calls, creates);
}

/* A server may make a pool for each request: lanes of destroyed pools serve later ones. */
CACHE_TEST(pools_that_come_and_go_leave_no_host_memory)
{
    uint64_t host_bytes = 0;
    for (int round = 0; round < 200; round++) {
        vmm_pool *pool = pool_make(test, .name = "request");
        for (unsigned stream = 0; stream < CACHE_STREAMS; stream++)
            block_free(test, pool_alloc(test, pool, 1000, stream));
        work_verify(test);
        (void)pool_trim(pool, 0);
        assert_ok(vmm_pool_destroy(pool, 0));
        if (round == 10)
            host_bytes = vmm__host_outstanding();
    }
    assert_true(vmm__host_outstanding() <= host_bytes);
}

/* Streams that come and go in a pool that stays; each has a handle that no other has had. */
CACHE_TEST(lanes_of_ended_streams_serve_new_streams)
{
    enum { STREAMS = 40 };
    if (driver_choice_kind() == VMM_DRIVER_CUDA)
        skip(); /* CUDA keeps device memory for streams that were destroyed, which the teardown would find */
    vmm_pool *pool = pool_make(test, .name = "streams");
    vmm_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(vmm__driver_stream_create(test->driver, &streams[i]));
        void *block = block_in_pool(pool, 1000, streams[i]);
        assert_ptr_equal(block_find(test, block).stream, streams[i]);
        block_free(test, block);
        assert_ok(vmm_stream_end(test->cache, streams[i]));
        work_verify(test);
        (void)pool_trim(pool, 0);
    }
    assert_true(cache_stats(test).streams <= 4);
    for (int i = 0; i < STREAMS; i++)
        assert_ok(vmm__driver_stream_destroy(test->driver, streams[i]));
}

CACHE_TEST(user_ids_are_unique)
{
    vmm_pool *pool = pool_make(test, .user_id = { 1, 2 });
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *out = pool;
    options.user_id = (vmm_pool_id){ 1, 2 };
    assert_ptr_equal(vmm_pool_find(test->cache, (vmm_pool_id){ 1, 2 }), pool);
    assert_null(vmm_pool_find(test->cache, (vmm_pool_id){ 2, 1 }));
    assert_null(vmm_pool_find(test->cache, (vmm_pool_id){ 0, 0 }));
    assert_refused(vmm_pool_create(test->cache, &options, &out), "user id (1, 2)");
    assert_ptr_equal(out, pool);
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_null(vmm_pool_find(test->cache, (vmm_pool_id){ 1, 2 }));
    assert_ok(vmm_pool_destroy(pool_make(test, .user_id = { 1, 2 }), 0));
}

CACHE_TEST(names_are_copied_and_cut)
{
    char name[100];
    memset(name, 'n', sizeof name);
    name[5] = '\n';
    name[sizeof name - 1] = '\0';
    vmm_pool *pool = pool_make(test, .name = name);
    memset(name, 'x', sizeof name - 1);
    assert_refused(vmm_pool_unroute(pool), "pool nnnnn");
    assert_null(strchr(vmm_last_error(), '\n'));
    assert_null(strchr(vmm_last_error(), 'x'));
    assert_ok(vmm_pool_destroy(pool, 0));
    pool = pool_make(test, .name = NULL);
    assert_refused(vmm_pool_unroute(pool), "pool #2 has no route");
}

CACHE_TEST(either_number_of_an_id_is_enough)
{
    (void)pool_make(test, .name = "no id");
    for (uint64_t number = 1; number <= 2; number++) {
        vmm_pool *first = pool_make(test, .user_id = { number, 0 });
        vmm_pool *second = pool_make(test, .user_id = { 0, number });
        assert_ptr_equal(vmm_pool_find(test->cache, (vmm_pool_id){ number, 0 }), first);
        assert_ptr_equal(vmm_pool_find(test->cache, (vmm_pool_id){ 0, number }), second);
        assert_null(vmm_pool_find(test->cache, (vmm_pool_id){ 0, 0 }));
        assert_ok(vmm_pool_destroy(first, 0));
        assert_ok(vmm_pool_destroy(second, 0));
    }
}

/* ---- Requests ------------------------------------------------------------------------------ */

CACHE_TEST(one_pool_serves_many_streams)
{
    vmm_pool *pool = pool_make(test, .name = "streams");
    void *blocks[CACHE_STREAMS][MIXED];
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        for (int i = 0; i < MIXED; i++) {
            blocks[stream][i] = pool_alloc(test, pool, mixed_sizes[i], stream);
            vmm_item item = block_find(test, blocks[stream][i]);
            assert_ptr_equal(item.stream, test->streams[stream]);
            block_fill(test, blocks[stream][i], mixed_sizes[i], stream, stream);
        }
    }
    assert_int_equal(pool_stats(pool).streams, CACHE_STREAMS);
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        for (int i = 0; i < MIXED; i++) {
            block_check(test, blocks[stream][i], mixed_sizes[i], stream, stream);
            block_free(test, blocks[stream][i]);
        }
    }
}

CACHE_TEST(many_pools_and_streams_take_turns)
{
    enum { POOLS = 6, BLOCKS = 90 };
    vmm_pool *pools[POOLS];
    void *blocks[BLOCKS] = { NULL };
    uint64_t seed = 11;
    for (int i = 0; i < POOLS; i++)
        pools[i] = i == 0 ? vmm_cache_pool(test->cache) : pool_make(test, .name = NULL);
    for (int i = 0; i < 4 * BLOCKS; i++) {
        void **slot = &blocks[random_next(&seed) % BLOCKS];
        vmm_pool *pool = pools[random_next(&seed) % POOLS];
        if (*slot != NULL)
            block_free(test, *slot);
        *slot = pool_alloc(test, pool, random_bytes(&seed, MIB), (unsigned)i % CACHE_STREAMS);
    }
    cache_verify(test);
    for (int i = 1; i < POOLS; i++)
        assert_ok(vmm_pool_destroy(pools[i], 1));
}

CACHE_TEST(a_request_of_no_bytes_has_a_pointer_of_its_own)
{
    vmm_pool *pool = pool_make(test, .name = "empty");
    void *first = pool_alloc(test, pool, 0, 1);
    void *second = pool_alloc(test, pool, 0, 1);
    assert_ptr_not_equal(first, second);
}

static void pushed_check(struct cache_test *test, vmm_pool *pool)
{
    void *block = block_alloc(test, 3000, 1);
    assert_in_pool(test, block, pool);
    block_free(test, block);
}

CACHE_TEST(pushes_nest)
{
    vmm_pool *outer = pool_make(test, .name = "outer");
    vmm_pool *inner = pool_make(test, .name = "inner");
    assert_ok(vmm_pool_push(outer));
    pushed_check(test, outer);
    assert_ok(vmm_pool_push(inner));
    assert_ok(vmm_pool_push(inner));
    pushed_check(test, inner);
    assert_refused(vmm_pool_pop(outer), "is not the pool that this thread pushed last");
    assert_refused(vmm_pool_destroy(inner, 1), "pool inner is pushed or routed");
    block_free(test, pool_alloc(test, outer, 3000, 1));
    assert_ok(vmm_pool_pop(inner));
    pushed_check(test, inner);
    assert_ok(vmm_pool_push(vmm_cache_pool(test->cache)));
    pushed_check(test, vmm_cache_pool(test->cache));
    assert_ok(vmm_pool_pop(vmm_cache_pool(test->cache)));
    assert_ok(vmm_pool_pop(inner));
    pushed_check(test, outer);
    assert_ok(vmm_pool_pop(outer));
    pushed_check(test, vmm_cache_pool(test->cache));
    assert_refused(vmm_pool_pop(outer), "is not the pool that this thread pushed last");
}

CACHE_TEST(a_push_of_a_destroyed_cache_is_popped)
{
    vmm_pool *pool = pool_make(test, .name = "gone");
    assert_ok(vmm_pool_push(pool));
    cache_restart(test, NULL);
    pushed_check(test, vmm_cache_pool(test->cache));
    assert_ok(vmm_pool_pop(pool));
    assert_refused(vmm_pool_pop(pool), "pushed last");
}

static int stream_is(void *context, vmm_stream stream)
{
    return *(const vmm_stream *)context == stream;
}

CACHE_TEST(the_latest_route_that_matches_wins)
{
    vmm_pool *all = pool_make(test, .name = "all");
    vmm_pool *some = pool_make(test, .name = "some");
    vmm_pool *pushed = pool_make(test, .name = "pushed");
    assert_ok(vmm_pool_route(all, NULL, NULL));
    assert_ok(vmm_pool_route(some, stream_is, &test->streams[1]));
    assert_refused(vmm_pool_route(some, NULL, NULL), "pool some has a route already");
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        void *block = block_alloc(test, 9000, stream);
        assert_in_pool(test, block, stream == 1 ? some : all);
        block_free(test, block);
    }
    assert_ok(vmm_pool_push(pushed));
    pushed_check(test, pushed);
    assert_ok(vmm_pool_pop(pushed));
    assert_refused(vmm_pool_destroy(some, 1), "pool some is pushed or routed");
    assert_ok(vmm_pool_unroute(some));
    assert_refused(vmm_pool_unroute(some), "pool some has no route");
    pushed_check(test, all);
    assert_ok(vmm_pool_unroute(all));
    pushed_check(test, vmm_cache_pool(test->cache));
}

/* A route leads a request to the lane that an earlier one made, whatever was active in between. */
CACHE_TEST(the_default_pool_may_be_routed)
{
    vmm_pool *all = pool_make(test, .name = "all");
    assert_ok(vmm_pool_route(all, NULL, NULL));
    assert_ok(vmm_pool_route(vmm_cache_pool(test->cache), stream_is, &test->streams[2]));
    void *block = block_alloc(test, 100, 2);
    assert_in_pool(test, block, vmm_cache_pool(test->cache));
    block_free(test, block);
    pushed_check(test, all);
    assert_ok(vmm_pool_unroute(vmm_cache_pool(test->cache)));
    assert_ok(vmm_pool_unroute(all));
}

static bool is_fast(struct cache_test *test)
{
    return atomic_load(&test->cache->slow_path) == 0;
}

/* Routes, pushes and a sleep of the default pool make every call look where it leads. */
CACHE_TEST(calls_are_fast_again_afterwards)
{
    vmm_pool *own = vmm_cache_pool(test->cache);
    vmm_pool *pool = pool_make(test, .name = "routed");
    assert_true(is_fast(test));
    assert_ok(vmm_pool_route(pool, graph_filter, &test->streams[1]));
    assert_ok(vmm_pool_push(pool));
    assert_ok(vmm_pool_unroute(pool));
    assert_false(is_fast(test));
    assert_ok(vmm_pool_pop(pool));
    assert_true(is_fast(test));
    assert_ok(vmm_pool_route(pool, graph_filter, &test->streams[1]));
    assert_false(is_fast(test));
    assert_ok(vmm_pool_unroute(pool));
    assert_true(is_fast(test));
    assert_ok(vmm_pool_sleep(&own, 1, NULL, NULL));
    assert_false(is_fast(test));
    assert_ok(vmm_pool_wake(&own, 1, NULL, NULL));
    assert_true(is_fast(test));
}

/* ---- Callbacks ----------------------------------------------------------------------------- */

struct inside {
    vmm_pool *pool;
    vmm_status status;
    unsigned calls;
};

static int visitor_pops(void *context, const vmm_item *item)
{
    struct inside *inside = context;
    (void)item;
    inside->status = vmm_pool_pop(inside->pool);
    inside->calls++;
    return 1;
}

CACHE_TEST(a_visitor_cannot_pop)
{
    struct inside inside = { pool_make(test, .name = "inside"), VMM_OK, 0 };
    (void)pool_alloc(test, inside.pool, 100, 1);
    assert_ok(vmm_pool_push(inside.pool));
    assert_ok(vmm_walk(test->cache, visitor_pops, &inside));
    assert_int_equal(inside.status, VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(inside.calls, 1);
    pushed_check(test, inside.pool);
    assert_ok(vmm_pool_pop(inside.pool));
}

/* ---- Streams ------------------------------------------------------------------------------- */

CACHE_TEST(a_stream_ends_in_every_pool)
{
    vmm_pool *pool = pool_make(test, .name = "ends");
    vmm_stream stream;
    void *blocks[2];
    assert_ok(vmm__driver_stream_create(test->driver, &stream));
    assert_ok(vmm_alloc_from(pool, 8 * MIB, stream, &blocks[0]));
    assert_ok(vmm_alloc(test->cache, 8 * MIB, stream, &blocks[1]));
    assert_ok(vmm__driver_fill(test->driver, (uintptr_t)blocks[0], 8 * MIB, 5, stream));
    assert_ok(vmm_stream_end(test->cache, stream));
    work_verify(test);
    assert_ok(vmm__driver_stream_destroy(test->driver, stream));
    uint64_t creates = cache_stats(test).create_calls;
    block_free(test, blocks[0]);
    (void)pool_alloc(test, pool, 8 * MIB, 1);
    assert_int_equal(cache_stats(test).create_calls, creates);
}

CACHE_TEST(a_stream_handle_returns_to_its_pool)
{
    vmm_pool *pool = pool_make(test, .name = "returns");
    block_free(test, pool_alloc(test, pool, 6 * MIB, 1));
    assert_ok(vmm_stream_end(test->cache, test->streams[1]));
    work_verify(test);
    uint64_t creates = cache_stats(test).create_calls;
    void *again = pool_alloc(test, pool, 6 * MIB, 1);
    assert_int_equal(cache_stats(test).create_calls, creates);
    assert_ptr_equal(block_find(test, again).stream, test->streams[1]);
}

CACHE_TEST(the_own_stream_is_no_other_user_of_a_block)
{
    vmm_pool *pool = pool_make(test, .name = "own");
    void *block = pool_alloc(test, pool, 4 * MIB, 1);
    (void)flight_begin(test, block, 4 * MIB, 1);
    block_use(test, block, 1);
    block_free(test, block);
    assert_int_equal(pool_stats(pool).active_bytes.current, 0);
}

/* ---- Reports ------------------------------------------------------------------------------- */

CACHE_TEST(statistics_of_pools_add_up)
{
    vmm_pool *pools[3] = { vmm_cache_pool(test->cache), pool_make(test, .name = "a"),
                           pool_make(test, .name = "b") };
    void *blocks[9];
    vmm_stats sum = { 0 };
    for (unsigned i = 0; i < 9; i++)
        blocks[i] = pool_alloc(test, pools[i % 3], 1000 + i * 700000, i % CACHE_STREAMS);
    for (unsigned i = 0; i < 3; i++)
        block_free(test, blocks[i]);
    for (int i = 0; i < 3; i++) {
        vmm_stats stats = pool_stats(pools[i]);
#define STAT_ADD(name, unit, kind, of, label, text) sum.name.current += stats.name.current;
        VMM_STAT_MAP(STAT_ADD)
        sum.idle_bytes += stats.idle_bytes;
        sum.pinned_bytes += stats.pinned_bytes;
        sum.streams += stats.streams;
        assert_int_equal(stats.create_calls + stats.stalls + stats.driver_ns, 0);
    }
    vmm_stats whole = cache_stats(test);
#define STAT_EQUAL(name, unit, kind, of, label, text)                                              \
    assert_int_equal(sum.name.current, whole.name.current);
    VMM_STAT_MAP(STAT_EQUAL)
    assert_int_equal(sum.idle_bytes, whole.idle_bytes);
    assert_int_equal(sum.pinned_bytes, whole.pinned_bytes);
    assert_int_equal(sum.streams, whole.streams);
}

CACHE_TEST(a_pool_has_peaks_of_its_own)
{
    vmm_pool *pool = pool_make(test, .name = "peaks");
    block_free(test, pool_alloc(test, pool, 10 * MIB, 1));
    block_free(test, block_alloc(test, 3 * MIB, 1));
    assert_int_equal(pool_stats(pool).allocated_bytes.peak, 10 * MIB);
    assert_int_equal(pool_stats(pool).active_bytes.peak, 10 * MIB);
    assert_int_equal(pool_stats(pool).allocated_bytes.allocated, 10 * MIB);
    assert_int_equal(pool_stats(vmm_cache_pool(test->cache)).allocated_bytes.peak, 3 * MIB);
    assert_int_equal(cache_stats(test).allocated_bytes.peak, 10 * MIB);
    assert_ok(vmm_stats_reset_peak(test->cache));
    assert_int_equal(pool_stats(pool).allocated_bytes.peak, 0);
    assert_int_equal(pool_stats(vmm_cache_pool(test->cache)).allocated_bytes.peak, 0);
}

struct visits {
    vmm_pool *pool;
    uint64_t bytes;
    uint64_t live;
    unsigned strangers;
};

static int visit_note(void *context, const vmm_item *item)
{
    struct visits *visits = context;
    visits->strangers += item->pool != visits->pool ? 1 : 0;
    visits->bytes += item->kind == VMM_ITEM_CHUNK ? item->bytes : 0;
    visits->live += item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE ? 1 : 0;
    return 0;
}

CACHE_TEST(a_walk_of_a_pool_shows_only_its_memory)
{
    vmm_pool *pools[2] = { pool_make(test, .name = "a"), vmm_cache_pool(test->cache) };
    void *blocks[2][MIXED];
    for (int i = 0; i < 2 * MIXED; i++)
        blocks[i % 2][i / 2] = pool_alloc(test, pools[i % 2], mixed_sizes[i / 2], 1);
    for (int i = 0; i < 2; i++) {
        struct visits visits = { .pool = pools[i] };
        assert_ok(vmm_pool_walk(pools[i], visit_note, &visits));
        assert_int_equal(visits.strangers, 0);
        assert_int_equal(visits.live, MIXED);
        assert_int_equal(visits.bytes, pool_reserved(pools[i]));
    }
    for (int i = 0; i < 2 * MIXED; i++)
        block_free(test, blocks[i % 2][i / 2]);
}

struct heard {
    vmm_pool *pool;
    vmm_pool_id id;
    uint64_t mapped;
    unsigned waits;
};

static void hear(void *context, const vmm_change *change)
{
    struct heard *heard = context;
    heard->pool = change->pool;
    heard->id = change->pool_id;
    heard->mapped += change->kind == VMM_CHANGE_MAP ? change->bytes : 0;
    heard->waits += change->kind == VMM_CHANGE_WAIT ? 1 : 0;
}

CACHE_TEST(the_listener_learns_the_pool)
{
    struct heard heard = { .mapped = 0 };
    vmm_pool *pool = pool_make(test, .user_id = { 8, 9 });
    assert_ok(vmm_listen(test->cache, hear, &heard));
    void *block = pool_alloc(test, pool, 4 * MIB, 1);
    assert_ptr_equal(heard.pool, pool);
    assert_true(pool_id_is(heard.id, 8, 9));
    assert_int_equal(heard.mapped, pool_reserved(pool));
    bool is_certain = flight_begin(test, block, 4 * MIB, 2);
    block_use(test, block, 2);
    block_free(test, block);
    assert_true(!is_certain || heard.waits == 1);
    flight_end(test);
    assert_ok(vmm_pool_destroy(pool, 0));
    block_free(test, block_alloc(test, 200, 1));
    assert_ptr_equal(heard.pool, vmm_cache_pool(test->cache));
    assert_ok(vmm_listen(test->cache, NULL, NULL));
}

CACHE_TEST(the_listener_agrees_with_walks_while_pools_share)
{
    struct model *model = listen_begin(test);
    vmm_pool *pools[3] = { vmm_cache_pool(test->cache), NULL, NULL };
    void *blocks[40] = { NULL };
    uint64_t seed = 5;
    for (unsigned round = 0; round < 400; round++) {
        unsigned which = (unsigned)(random_next(&seed) % 3);
        void **slot = &blocks[random_next(&seed) % 40];
        if (pools[which] == NULL)
            pools[which] = pool_make(test, .name = NULL);
        if (*slot != NULL)
            block_free(test, *slot);
        *slot = NULL;
        vmm_status status = vmm_alloc_from(pools[which], random_bytes(&seed, 12 * MIB),
                                           test->streams[round % CACHE_STREAMS], slot);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
        if (round % 37 == 0 && which != 0) {
            assert_ok(vmm_pool_destroy(pools[which], 1));
            pools[which] = NULL;
        }
        if (round % 20 == 0)
            model_verify(test, model);
    }
    cache_verify(test);
    for (int i = 0; i < 40; i++)
        block_free(test, blocks[i]);
    listen_end(test, model);
}

/* ---- Modes --------------------------------------------------------------------------------- */

static void mode_check(struct cache_test *test)
{
    vmm_pool *pool = pool_make(test, .name = "mode");
    vmm_pool *other = pool_make(test, .name = "other");
    for (int i = 0; i < 2 * MIXED; i++) {
        void *block = pool_alloc(test, i % 2 == 0 ? pool : other, mixed_sizes[i / 2], 1);
        block_fill(test, block, mixed_sizes[i / 2], 3, 1);
        block_check(test, block, mixed_sizes[i / 2], 3, 1);
        block_free(test, block);
    }
    void *kept = pool_alloc(test, pool, 2 * MIB, 2);
    assert_ok(vmm_pool_push(other));
    pushed_check(test, other);
    assert_ok(vmm_pool_pop(other));
    assert_ok(vmm_pool_destroy(pool, 1));
    assert_ok(vmm_pool_destroy(other, 1));
    assert_in_pool(test, kept, vmm_cache_pool(test->cache));
    block_free(test, kept);
    assert_ok(vmm_wait(test->cache));
    cache_trim_all(test);
}

CACHE_TEST(pools_work_in_each_mode)
{
    const vmm_config configs[] = { CONFIG(.no_caching = VMM_ON), CONFIG(.debug = VMM_DEBUG_ON),
                                   CONFIG(.debug = VMM_DEBUG_RECORD), CONFIG(.zero = VMM_ON) };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        cache_restart(test, &configs[i]);
        mode_check(test);
    }
}

/* Blocks in quarantine are not live. */
CACHE_TEST(quarantine_does_not_keep_a_pool)
{
    cache_restart_with(test, .debug = VMM_DEBUG_ON);
    vmm_pool *pool = pool_make(test, .name = "quarantined");
    block_free(test, pool_alloc(test, pool, 1000, 1));
    assert_ok(vmm_pool_destroy(pool, 0));
    cache_trim_all(test);
}

/* ---- Host memory --------------------------------------------------------------------------- */

static vmm_status all_calls(struct cache_test *test, vmm_pool **pool, void **block)
{
    vmm_status status = vmm_pool_create(test->cache, NULL, pool);
    if (status == VMM_OK)
        status = vmm_pool_route(*pool, NULL, NULL);
    if (status == VMM_OK)
        status = vmm_pool_push(*pool);
    if (status == VMM_OK)
        status = vmm_alloc(test->cache, 100, test->streams[1], block);
    return status;
}

static void all_calls_undo(vmm_pool *pool, void *block, vmm_cache *cache)
{
    assert_ok(vmm_free(cache, block));
    if (pool == NULL)
        return;
    (void)vmm_pool_pop(pool);
    (void)vmm_pool_unroute(pool);
    assert_ok(vmm_pool_destroy(pool, 0));
}

CACHE_TEST(without_host_memory_calls_fail_and_change_nothing)
{
    bool has_failed = true;
    for (uint64_t number = 1; has_failed; number++) {
        vmm_pool *pool = NULL;
        void *block = NULL;
        (void)vmm__host_fail_at(number);
        vmm_status status = all_calls(test, &pool, &block);
        has_failed = vmm__host_fail_at(0) >= number; /* not every one is missed */
        assert_true(number < 100);
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
        assert_true(status == VMM_OK || block == NULL);
        all_calls_undo(pool, block, test->cache);
        pushed_check(test, vmm_cache_pool(test->cache));
        cache_verify(test);
    }
}

/* ---- Many ---------------------------------------------------------------------------------- */

enum { CROWD = 2000, CROWD_ENDS = 40, CROWD_TIMES = 16 };

/* The least times that the end of a use and the end of a pool take. */
struct ends {
    uint64_t use_ns;
    uint64_t pool_ns;
};

/* Beside `count` other pools, each with a block. */
static struct ends ends_of(struct cache_test *test, vmm_pool **pools, void **blocks, unsigned count)
{
    struct ends ends = { .use_ns = UINT64_MAX, .pool_ns = UINT64_MAX };
    for (unsigned i = 0; i < count; i++) {
        pools[i] = pool_make(test, .name = NULL);
        blocks[i] = pool_alloc(test, pools[i], 1000, 1);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_ok(vmm_pool_retain(pools[i]));
        uint64_t start_ns = vmm__time_ns();
        assert_ok(vmm_pool_drop(pools[i]));
        uint64_t middle_ns = vmm__time_ns();
        assert_ok(vmm_pool_destroy(pools[i], 1));
        if (i < CROWD_ENDS) {
            ends.use_ns = vmm__min(ends.use_ns, middle_ns - start_ns);
            ends.pool_ns = vmm__min(ends.pool_ns, vmm__time_ns() - middle_ns);
        }
        block_free(test, blocks[i]);
    }
    return ends;
}

/* A use took 500 times as long to end beside 8000 pools as beside 100, a pool 300 times. */
CACHE_TEST(the_end_of_a_pool_costs_the_same_beside_many)
{
    static vmm_pool *pools[CROWD];
    static void *blocks[CROWD];
    if (VMM_CHECK > 0 || IS_SLOW_BUILD || driver_choice_kind() == VMM_DRIVER_CUDA)
        return;
    cache_restart_with(test, .device_bytes = 16 * GIB);
    struct ends few = ends_of(test, pools, blocks, CROWD_ENDS);
    struct ends many = ends_of(test, pools, blocks, CROWD);
    assert_true(many.use_ns < CROWD_TIMES * few.use_ns);
    assert_true(many.pool_ns < CROWD_TIMES * few.pool_ns);
}

CACHE_MAIN()
