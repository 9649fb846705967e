/* Blocks that are placed where others were: checkpoints of a pool, and what is refused. */
#include "support/pool_support.h"

#include "base/hostmem.h"
#include "cache/cache.h"

#include <string.h>

/* ---- Checkpoints ----------------------------------------------------------------------------- */

enum { LISTED_MOST = 256 };

struct listed_block {
    void *address;
    size_t bytes; /* as requested */
    vmm_stream stream;
    uint32_t word;
};

/* The live blocks of a pool. */
struct list {
    struct listed_block blocks[LISTED_MOST];
    unsigned count;
};

static int block_list(void *context, const vmm_item *item)
{
    struct list *list = context;
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        return 0;
    assert_true(list->count < LISTED_MOST);
    list->blocks[list->count++] =
        (struct listed_block){ .address = (void *)(uintptr_t)item->address,
                               .bytes = item->requested_bytes,
                               .stream = item->stream };
    return 0;
}

static struct list pool_list(vmm_pool *pool)
{
    struct list list = { .count = 0 };
    assert_ok(vmm_pool_walk(pool, block_list, &list));
    return list;
}

static void pool_empty(struct cache_test *test, vmm_pool *pool)
{
    struct list list = pool_list(pool);
    for (unsigned i = 0; i < list.count; i++)
        block_free(test, list.blocks[i].address);
}

static void list_shuffle(struct list *list, uint64_t *seed)
{
    for (unsigned i = list->count; i > 1; i--) {
        unsigned other = (unsigned)(random_next(seed) % i);
        struct listed_block block = list->blocks[i - 1];
        list->blocks[i - 1] = list->blocks[other];
        list->blocks[other] = block;
    }
}

static void block_place(vmm_pool *pool, const struct listed_block *block)
{
    vmm_status status = vmm_pool_place(pool, block->address, block->bytes, block->stream);
    if (status != VMM_OK)
        fail_msg("%s", vmm_last_error());
}

static bool blocks_equal(const struct list *a, const struct list *b)
{
    bool is_equal = a->count == b->count;
    for (unsigned i = 0; i < a->count && is_equal; i++)
        is_equal = a->blocks[i].address == b->blocks[i].address &&
                   a->blocks[i].bytes == b->blocks[i].bytes &&
                   a->blocks[i].stream == b->blocks[i].stream;
    return is_equal;
}

/* Frees all blocks of the pool and places those of the list, in any order. */
static void list_restore(struct cache_test *test, vmm_pool *pool, const struct list *list,
                         uint64_t *seed)
{
    struct list shuffled = *list;
    list_shuffle(&shuffled, seed);
    pool_empty(test, pool);
    for (unsigned i = 0; i < shuffled.count; i++)
        block_place(pool, &shuffled.blocks[i]);
    struct list now = pool_list(pool);
    assert_true(blocks_equal(&now, list));
    if (test->cache->debug == NULL) /* its statistics count more bytes than were requested */
        cache_verify(test);
}

/* Placed blocks are the pool's blocks, which no other one overlaps. */
static void list_use(struct cache_test *test, const struct list *list, uint32_t word)
{
    for (int checks = 0; checks < 2; checks++) {
        for (unsigned i = 0; i < list->count; i++) {
            const struct listed_block *block = &list->blocks[i];
            unsigned stream = block->stream == test->streams[1] ? 1 : 2;
            if (checks)
                block_check(test, block->address, block->bytes, word + i, stream);
            else
                block_fill(test, block->address, block->bytes, word + i, stream);
        }
    }
    work_verify(test);
}

static const size_t sizes[] = { 1,       512,          513,           1500,    4096,
                                5000,    8192,         8193,          40000,   300000,
                                MIB,     MIB + 1,      2 * MIB + 512, 3 * MIB, 4 * MIB,
                                5 * MIB, 6 * MIB - 512 };
enum { SIZES = sizeof sizes / sizeof *sizes, STATES = 5 };

/* Allocates and frees at random, below `most` bytes. */
static void pool_churn(struct cache_test *test, vmm_pool *pool, size_t most, uint64_t *seed)
{
    for (int i = 0; i < 40; i++) {
        struct list list = pool_list(pool);
        bool frees = list.count > 100 || random_next(seed) % 3 == 0 ||
                     pool_stats(pool).allocated_bytes.current > most;
        if (frees && list.count > 0)
            block_free(test, list.blocks[random_next(seed) % list.count].address);
        else
            (void)pool_alloc(test, pool, sizes[random_next(seed) % SIZES],
                             1 + (unsigned)(random_next(seed) % 2));
    }
}

static unsigned views_count(struct cache_test *test, const struct list *list)
{
    unsigned count = 0;
    for (unsigned i = 0; i < list->count; i++)
        count += vmm__views_contain(&test->cache->views, (uintptr_t)list->blocks[i].address);
    return count;
}

/* States are saved, changed and restored as a tree of graphs does. Returns the blocks in views that were placed. */
static unsigned states_restore(struct cache_test *test, vmm_pool *pool, uint64_t seed, int rounds)
{
    static struct list states[STATES];
    unsigned in_views = 0;
    for (unsigned i = 0; i < STATES; i++)
        states[i].count = 0;
    for (int round = 0; round < rounds; round++) {
        pool_churn(test, pool, 24 * MIB, &seed);
        states[random_next(&seed) % STATES] = pool_list(pool);
        const struct list *state = &states[random_next(&seed) % STATES];
        list_restore(test, pool, state, &seed);
        in_views += views_count(test, state);
        if (round % 8 == 0)
            list_use(test, state, (uint32_t)round * 1000);
    }
    pool_empty(test, pool);
    return in_views;
}

CACHE_TEST(any_state_of_a_graph_pool_can_be_restored)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH);
        (void)states_restore(test, pool, seed, 60);
        assert_ok(vmm_pool_destroy(pool, 0));
        cache_trim_all(test);
    }
}

CACHE_TEST(any_state_of_a_retained_pool_can_be_restored)
{
    vmm_pool *pool = pool_make(test, .name = "retained");
    assert_ok(vmm_pool_retain(pool));
    unsigned in_views = states_restore(test, pool, 7, 60);
    bool is_cuda = driver_choice_kind() == VMM_DRIVER_CUDA; /* its events pass when they like */
    assert_true(in_views > 0 || is_cuda);
}

enum { PIECES = 16 };

/* Fills a pool with blocks and frees every second one. */
static void pool_comb(struct cache_test *test, vmm_pool *pool)
{
    void *pieces[PIECES];
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = pool_alloc(test, pool, 4 * MIB, 1);
    for (unsigned i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
}

/* A view stays while its pool is retained: a block at its addresses, and those that lie at home in the same memory. */
CACHE_TEST(blocks_in_views_are_placed)
{
    uint64_t seed = 1;
    vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH, .limit_bytes = PIECES * 4 * MIB);
    pool_comb(test, pool);
    void *whole = pool_alloc(test, pool, 24 * MIB, 1);
    struct list in_view = pool_list(pool);
    assert_int_equal(views_count(test, &in_view), 1);
    block_free(test, whole);
    (void)pool_alloc(test, pool, 4 * MIB, 1); /* in memory of the view */
    struct list at_home = pool_list(pool);
    assert_int_equal(views_count(test, &at_home), 0);
    assert_refused(vmm_pool_place(pool, whole, 24 * MIB, test->streams[1]), "not all of them");
    cache_verify(test);
    for (int round = 0; round < 4; round++) {
        list_restore(test, pool, round % 2 == 0 ? &in_view : &at_home, &seed);
        list_use(test, round % 2 == 0 ? &in_view : &at_home, 1 + (uint32_t)round * 100);
    }
    pool_empty(test, pool);
    assert_refused(vmm_pool_place(pool, whole, 40 * MIB, test->streams[1]), "not all of them");
    assert_ok(vmm_pool_place(pool, (char *)whole + 5 * MIB, 3 * MIB, test->streams[1]));
    cache_verify(test);
    block_free(test, (char *)whole + 5 * MIB);
}

/* What has not been given to another stream or released is there without a retain, too. */
CACHE_TEST(a_block_of_a_general_pool_can_be_placed_again)
{
    vmm_pool *pool = pool_make(test, .name = "general");
    for (unsigned i = 0; i < SIZES; i++) {
        void *block = pool_alloc(test, pool, sizes[i], 1);
        block_free(test, block);
        assert_ok(vmm_pool_place(pool, block, sizes[i], test->streams[1]));
        vmm_item item = block_find(test, block);
        assert_int_equal(item.requested_bytes, sizes[i]);
        assert_ptr_equal(item.pool, pool);
        cache_verify(test);
        block_free(test, block);
    }
}

/* No two blocks of a shareable pool have a chunk together. */
CACHE_TEST(a_block_of_a_shareable_pool_is_placed_as_a_whole)
{
    vmm_pool *pool = NULL;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.shareable = 1;
    vmm_status status = vmm_pool_create(test->cache, &options, &pool);
    if (status == VMM_ERR_UNSUPPORTED) /* so is the device */
        return;
    assert_ok(status);
    for (unsigned i = 0; i < SIZES; i++) {
        char *block = pool_alloc(test, pool, sizes[i], 1);
        block_free(test, block);
        assert_refused(vmm_pool_place(pool, block, sizes[i] + 2 * MIB, test->streams[1]),
                       "begins there");
        assert_refused(vmm_pool_place(pool, block + 512, sizes[i], test->streams[1]),
                       "begins there");
        assert_ok(vmm_pool_place(pool, block, sizes[i], test->streams[1]));
        assert_refused(vmm_pool_place(pool, block, sizes[i], test->streams[1]), "is in the way");
        cache_verify(test);
        block_free(test, block);
    }
}

CACHE_TEST(blocks_of_the_default_pool_can_be_placed)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *block = block_alloc(test, 3 * MIB, 1);
    (void)block_alloc(test, 3 * MIB, 1);
    block_free(test, block);
    assert_ok(vmm_pool_place(pool, (char *)block + MIB, MIB + 512, test->streams[1]));
    void *low = block_alloc(test, MIB + 1, 1);
    assert_true((char *)low + MIB + 1 <= (char *)block + MIB ||
                (char *)low >= (char *)block + 2 * MIB + 512);
    block_free(test, (char *)block + MIB);
}

CACHE_TEST(a_placed_block_counts_and_costs_no_driver_call)
{
    vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH);
    void *block = pool_alloc(test, pool, 5 * MIB, 1);
    vmm_stats before = pool_stats(pool);
    block_free(test, block);
    uint64_t maps = cache_stats(test).map_calls;
    assert_ok(vmm_pool_place(pool, block, 5 * MIB, test->streams[1]));
    vmm_stats after = pool_stats(pool);
    assert_int_equal(after.allocations.current, 1);
    assert_int_equal(after.allocations.allocated, before.allocations.allocated + 1);
    assert_int_equal(after.allocated_bytes.current, before.allocated_bytes.current);
    assert_int_equal(after.requested_bytes.current, 5 * MIB);
    assert_int_equal(after.reserved_bytes.current, before.reserved_bytes.current);
    assert_int_equal(cache_stats(test).map_calls, maps);
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
}

/* Placed blocks sleep and wake like others. */
CACHE_TEST(states_are_restored_after_a_sleep)
{
    uint64_t seed = 3;
    vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH, .name = "asleep");
    pool_churn(test, pool, 24 * MIB, &seed);
    struct list state = pool_list(pool);
    pool_empty(test, pool);
    pool_churn(test, pool, 24 * MIB, &seed);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_status(
        vmm_pool_place(pool, state.blocks[0].address, state.blocks[0].bytes, test->streams[1]),
        VMM_ERR_ASLEEP);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    list_restore(test, pool, &state, &seed);
    list_use(test, &state, 1);
    pool_empty(test, pool);
}

/* ---- Modes ----------------------------------------------------------------------------------- */

CACHE_TEST(states_are_restored_in_debug_mode)
{
    for (vmm_debug_mode mode = VMM_DEBUG_RECORD; mode <= VMM_DEBUG_ON; mode++) {
        cache_restart_with(test, .debug = mode, .limit_bytes = CACHE_LIMIT);
        vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH);
        (void)states_restore(test, pool, 11, 12);
        pool_end(test, pool);
    }
}

/* Also small blocks, which were in quarantine. */
CACHE_TEST(a_block_in_quarantine_can_be_placed)
{
    cache_restart_with(test, .debug = VMM_DEBUG_ON);
    vmm_pool *pool = pool_make(test, .name = "general");
    void *block = pool_alloc(test, pool, 1000, 1);
    void *guard = pool_alloc(test, pool, 1000, 1);
    block_free(test, block);
    assert_ok(vmm_pool_place(pool, block, 1000, test->streams[1]));
    assert_refused(vmm_pool_place(pool, guard, 1000, test->streams[1]), "is in the way");
    block_free(test, block);
    block_free(test, guard);
    pool_end(test, pool);
}

CACHE_TEST(states_are_restored_without_caching)
{
    cache_restart_with(test, .no_caching = 1, .limit_bytes = CACHE_LIMIT);
    uint64_t seed = 5;
    vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH);
    pool_churn(test, pool, 24 * MIB, &seed);
    struct list state = pool_list(pool);
    list_restore(test, pool, &state, &seed);
    pool_empty(test, pool);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

/* A graph pool with free memory of a block, between live ones. */
struct hole {
    vmm_pool *pool;
    char *block; /* of 4 MiB, freed */
    void *before;
    void *after;
};

static struct hole hole_make(struct cache_test *test)
{
    struct hole hole = { .pool = pool_make(test, .kind = VMM_POOL_GRAPH, .name = "graphs") };
    hole.before = pool_alloc(test, hole.pool, 4 * MIB, 1);
    hole.block = pool_alloc(test, hole.pool, 4 * MIB, 1);
    hole.after = pool_alloc(test, hole.pool, 4 * MIB, 1);
    block_free(test, hole.block);
    return hole;
}

static void hole_end(struct cache_test *test, const struct hole *hole)
{
    cache_verify(test);
    assert_int_equal(pool_stats(hole->pool).allocations.current, 2);
    assert_ok(vmm_pool_place(hole->pool, hole->block, 4 * MIB, test->streams[1]));
    block_free(test, hole->block);
    block_free(test, hole->before);
    block_free(test, hole->after);
    assert_ok(vmm_pool_destroy(hole->pool, 0));
    cache_verify_empty(test);
}

CACHE_TEST(an_object_in_the_way_is_named)
{
    char text[64];
    struct hole hole = hole_make(test);
    void *first = pool_alloc(test, hole.pool, 1000, 1);
    void *second = pool_alloc(test, hole.pool, 1000, 1);
    (void)snprintf(text, sizeof text, "the block at 0x%llx is in the way",
                   (unsigned long long)(uintptr_t)second);
    assert_refused(vmm_pool_place(hole.pool, second, 1000, test->streams[1]), text);
    block_free(test, first);
    block_free(test, second);
    hole_end(test, &hole);
}

CACHE_TEST(memory_that_is_not_free_is_refused)
{
    struct hole hole = hole_make(test);
    vmm_stream stream = test->streams[1];
    assert_refused(vmm_pool_place(hole.pool, hole.before, 4 * MIB, stream), "is in the way");
    assert_refused(vmm_pool_place(hole.pool, (char *)hole.before + MIB, 2 * MIB, stream),
                   "is in the way");
    assert_refused(vmm_pool_place(hole.pool, hole.block, 4 * MIB + 1, stream),
                   "not all of them are free");
    assert_refused(vmm_pool_place(hole.pool, hole.block + MIB, 4 * MIB, stream),
                   "not all of them are free");
    assert_refused(vmm_pool_place(hole.pool, hole.block, SIZE_MAX, stream),
                   "not all of them are free");
    assert_refused(vmm_pool_place(hole.pool, hole.block, SIZE_MAX / 2, stream),
                   "not all of them are free");
    hole_end(test, &hole);
}

CACHE_TEST(addresses_at_which_no_block_begins_are_refused)
{
    struct hole hole = hole_make(test);
    vmm_stream stream = test->streams[1];
    assert_refused(vmm_pool_place(hole.pool, hole.block + 1, 2 * MIB, stream), "begins there");
    assert_refused(vmm_pool_place(hole.pool, hole.block, MIB, stream), "for blocks above 1 MiB");
    char *small = pool_alloc(test, hole.pool, 8192, 1);
    block_free(test, small);
    assert_refused(vmm_pool_place(hole.pool, small, 2 * MIB, stream), "for blocks of up to 1 MiB");
    assert_refused(vmm_pool_place(hole.pool, small + 512, 1024, stream), "begins there");
    assert_refused(vmm_pool_place(hole.pool, small + 512, 9000, stream), "begins there");
    hole_end(test, &hole);
}

CACHE_TEST(addresses_of_others_are_refused)
{
    struct hole hole = hole_make(test);
    vmm_stream stream = test->streams[1];
    char *other = block_alloc(test, 4 * MIB, 1);
    int outside = 0;
    block_free(test, other);
    assert_refused(vmm_pool_place(hole.pool, other, 4 * MIB, stream), "belongs to pool default");
    assert_refused(vmm_pool_place(vmm_cache_pool(test->cache), hole.block, 4 * MIB, stream),
                   "belongs to pool graphs");
    assert_refused(vmm_pool_place(hole.pool, hole.block, 4 * MIB, test->streams[2]),
                   "belongs to stream");
    assert_refused(vmm_pool_place(hole.pool, &outside, 1000, stream), "has no free memory there");
    assert_refused(vmm_pool_place(hole.pool, (void *)(uintptr_t)1, 1000, stream),
                   "has no free memory there");
    (void)cache_trim(test, 0);
    assert_refused(vmm_pool_place(vmm_cache_pool(test->cache), other, 4 * MIB, stream),
                   "has no free memory there");
    hole_end(test, &hole);
}

CACHE_TEST(reserved_blocks_are_refused)
{
    vmm_pool *pool = pool_make(test, .name = "general");
    void *reserved = NULL;
    assert_ok(vmm_reserve(pool, 4 * MIB, 0, test->streams[1], &reserved));
    assert_ok(vmm_commit(test->cache, reserved, 0, 2 * MIB));
    assert_refused(vmm_pool_place(pool, reserved, 2 * MIB, test->streams[1]),
                   "has no free memory there");
}

CACHE_TEST(memory_that_another_stream_still_uses_is_refused)
{
    struct hole hole = hole_make(test);
    assert_ok(vmm_pool_place(hole.pool, hole.block, 4 * MIB, test->streams[1]));
    block_use(test, hole.block, 2);
    bool is_certain = flight_begin(test, hole.block, 4 * MIB, 2);
    block_free(test, hole.block);
    if (is_certain)
        assert_refused(vmm_pool_place(hole.pool, hole.block, 4 * MIB, test->streams[1]),
                       "other streams still use");
    flight_end(test);
    work_verify(test);
    hole_end(test, &hole); /* the work has ended: nothing is in the way */
}

CACHE_TEST(a_block_is_placed_during_a_capture)
{
    struct hole hole = hole_make(test);
    capture_begin(test, 1);
    assert_ok(vmm_pool_place(hole.pool, hole.block, 4 * MIB, test->streams[1]));
    assert_ok(vmm_free(test->cache, hole.block));
    capture_end(test, 1);
    hole_end(test, &hole);
}

/* Without host memory nothing changes. */
CACHE_TEST(a_place_without_host_memory_changes_nothing)
{
    static const size_t wanted[] = { 4 * MIB, 2 * MIB, 700 };
    for (unsigned i = 0; i < 3; i++) {
        struct hole hole = hole_make(test);
        char *block = hole.block;
        if (wanted[i] < MIB) {
            block = pool_alloc(test, hole.pool, wanted[i], 1);
            block_free(test, block);
        } else {
            block += 4 * MIB - wanted[i];
        }
        bool has_failed = true;
        for (uint64_t call = 1; has_failed; call++) {
            assert_true(call < 100);
            (void)vmm__host_fail_at(call);
            vmm_status status = vmm_pool_place(hole.pool, block, wanted[i], test->streams[1]);
            has_failed = vmm__host_fail_at(0) >= call; /* not every one is missed */
            assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
            cache_verify(test);
            if (status == VMM_OK)
                block_free(test, block);
        }
        hole_end(test, &hole);
    }
}

CACHE_MAIN()
