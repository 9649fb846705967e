/* A cache on the chosen driver for each API test: see cache_support.h. */
#define _GNU_SOURCE
#include "support/cache_support.h"

#include "base/arith.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/pool/pools.h"
#include "cache/registry.h"
#include "driver/host/host.h"
#include "driver/sim/sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* ---- Life ----------------------------------------------------------------------------------- */

static struct cache_test the_test;
static atomic_bool flight_goes_on;

static uint64_t device_free_bytes(struct driver *driver)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    return free_bytes;
}

static void cache_open(struct cache_test *test, const vmm_config *config)
{
    test->free_bytes = device_free_bytes(test->driver);
    test->stalls = test->driver->counts.stalls;
    assert_ok(vmm__cache_create_on(config, test->driver, &test->cache));
}

static void cache_close(struct cache_test *test)
{
    assert_ok(vmm_destroy(test->cache));
    test->cache = NULL;
    driver_choice_census_is_zero(test->driver);
    assert_int_equal(device_free_bytes(test->driver), test->free_bytes);
}

/* What guards do with memory, on a stream of its own as theirs is. */
static void driver_warm_debug(struct driver *driver, void *block)
{
    vmm_stream stream;
    unsigned char bytes[512];
    struct driver_piece piece = { (uintptr_t)block, sizeof bytes, bytes };
    assert_ok(vmm__driver_device_wait(driver)); /* other work may be on the block */
    assert_ok(vmm__driver_stream_create(driver, &stream));
    assert_ok(vmm__driver_clear(driver, (uintptr_t)block, MIB, 1, stream));
    assert_ok(vmm__driver_read(driver, &piece, 1, stream));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
}

/* Lets the driver load what it loads with the first work, so that its free memory settles. */
static void driver_warm(struct cache_test *test)
{
    cache_open(test, NULL);
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        void *block = block_alloc(test, 4 * MIB, stream);
        block_fill(test, block, 4 * MIB, 1, stream);
        block_check(test, block, 4 * MIB, 1, stream);
        block_use(test, block, (stream + 1) % CACHE_STREAMS);
        block_free(test, block);
    }
    void *block = block_alloc(test, 4 * MIB, 0);
    driver_warm_debug(test->driver, block);
    block_free(test, block);
    work_verify(test);
    assert_ok(vmm_destroy(test->cache));
}

int cache_group_setup(void **state)
{
    struct cache_test *test = &the_test;
    bool is_cuda = driver_choice_kind() == VMM_DRIVER_CUDA;
    test->driver = driver_choice_open(is_cuda ? 0 : CACHE_DEVICE);
    for (int i = 1; i < CACHE_STREAMS; i++)
        assert_ok(vmm__driver_stream_create(test->driver, &test->streams[i]));
    driver_warm(test);
    *state = test;
    return 0;
}

int cache_group_teardown(void **state)
{
    struct cache_test *test = *state;
    for (int i = 1; i < CACHE_STREAMS; i++)
        assert_ok(vmm__driver_stream_destroy(test->driver, test->streams[i]));
    vmm__driver_close(test->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    return 0;
}

int cache_setup(void **state)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = CACHE_LIMIT;
    *state = &the_test;
    cache_open(&the_test, &config);
    return 0;
}

/* ---- The end of a test ---------------------------------------------------------------------- */

struct lives {
    void *blocks[256];
    size_t count;
};

static int life_add(void *context, const vmm_item *item)
{
    struct lives *lives = context;
    if (item->kind == VMM_ITEM_BLOCK && item->state != VMM_ITEM_FREE &&
        item->state != VMM_ITEM_WAITING)
        lives->blocks[lives->count++] = (void *)(uintptr_t)item->address;
    return lives->count == sizeof lives->blocks / sizeof *lives->blocks;
}

/* Imports too. */
static void live_blocks_free(vmm_cache *cache)
{
    struct lives lives;
    do {
        lives.count = 0;
        assert_ok(vmm_walk(cache, life_add, &lives));
        for (size_t i = 0; i < lives.count; i++)
            assert_ok(vmm_free(cache, lives.blocks[i]));
    } while (lives.count > 0);
}

/* Threads of a test share at once. */
void share_note(vmm_share *share)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int place = 0;
    assert_int_equal(pthread_mutex_lock(&lock), 0);
    while (place < CACHE_SHARES && vmm__handle_find(HANDLE_SHARE, the_test.shares[place]) != NULL)
        place++;
    if (place < CACHE_SHARES)
        the_test.shares[place] = share;
    assert_int_equal(pthread_mutex_unlock(&lock), 0);
    assert_true(place < CACHE_SHARES);
}

static void shares_close(struct cache_test *test)
{
    for (int i = 0; i < CACHE_SHARES; i++) {
        if (vmm__handle_find(HANDLE_SHARE, test->shares[i]) != NULL)
            assert_ok(vmm_share_close(test->shares[i], 1));
    }
}

/* The list changes with each pool that ends. */
static struct pool *pool_left(vmm_cache *cache)
{
    struct pool *pool = cache->pools.first;
    while (pool != NULL && pool->handle == NULL)
        pool = pool->next;
    return pool;
}

static void pools_end(vmm_cache *cache)
{
    for (struct pool *pool; (pool = pool_left(cache)) != NULL;) {
        while (pool->uses > vmm__pool_own_uses(pool))
            assert_ok(vmm_pool_drop(pool->handle));
        assert_ok(vmm_pool_destroy(pool->handle, 0));
    }
}

void imports_vanish(vmm_cache *cache)
{
    assert_ok(vmm_wait(cache));
    assert_ok(vmm_poll(cache));
    assert_int_equal(stats_of(cache).imported_bytes, 0);
}

/* The next further cache that the test has left; NULL: none. The test's own may lie where one that has ended lay. */
static vmm_cache *second_left(const struct cache_test *test)
{
    for (int i = 0; i < CACHE_SECONDS; i++) {
        vmm_cache *cache = test->seconds[i];
        if (cache != NULL && cache != test->cache && vmm__registry_has(cache))
            return cache;
    }
    return NULL;
}

static void seconds_end(struct cache_test *test)
{
    for (vmm_cache *cache; (cache = second_left(test)) != NULL;) {
        live_blocks_free(cache);
        imports_vanish(cache);
        assert_ok(vmm_destroy(cache));
    }
    memset(test->seconds, 0, sizeof test->seconds);
}

void cache_give_back(struct cache_test *test)
{
    live_blocks_free(test->cache);
    pools_end(test->cache);
}

/* Gives back all that a test has left, and fails if the cache keeps any memory then. Debug mode keeps freed blocks, and
 * it is for vmm_destroy() to say what is wrong with those that live. */
static void test_clean(struct cache_test *test)
{
    bool has_debug = test->cache->debug != NULL;
    bool has_others = second_left(test) != NULL || cache_stats(test).imported_bytes > 0;
    if (!has_debug && !has_others) /* whose memory is that of the same driver */
        cache_verify(test);
    shares_close(test);
    if (!has_debug)
        cache_give_back(test);
    seconds_end(test);
    imports_vanish(test->cache);
    if (!has_debug)
        cache_verify_empty(test);
}

int cache_teardown(void **state)
{
    struct cache_test *test = *state;
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        if (test->captured[stream])
            capture_end(test, stream);
    }
    flight_end(test);
    test_clean(test);
    cache_close(test);
    return 0;
}

void cache_restart(struct cache_test *test, const vmm_config *config)
{
    cache_close(test);
    cache_open(test, config);
}

vmm_cache *cache_second(struct cache_test *test)
{
    vmm_cache *cache = cache_on(test->driver, .limit_bytes = CACHE_LIMIT);
    int place = 0;
    while (test->seconds[place] != NULL && vmm__registry_has(test->seconds[place]))
        assert_true(++place < CACHE_SECONDS);
    test->seconds[place] = cache;
    return cache;
}

/* ---- Steps that must succeed ---------------------------------------------------------------- */

void *block_alloc(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *block = NULL;
    assert_ok(vmm_alloc(test->cache, bytes, test->streams[stream], &block));
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 512, 0);
    return block;
}

void block_free(struct cache_test *test, void *block)
{
    assert_ok(vmm_free(test->cache, block));
}

void block_use(struct cache_test *test, void *block, unsigned stream)
{
    assert_ok(vmm_record_stream(test->cache, block, test->streams[stream]));
}

size_t cache_trim(struct cache_test *test, size_t keep_bytes)
{
    size_t released = SIZE_MAX;
    assert_ok(vmm_trim(test->cache, keep_bytes, &released));
    assert_int_not_equal(released, SIZE_MAX);
    return released;
}

/* Chunks grow with the square root of reserved memory: other memory is reserved meanwhile. */
void large_chunks_make(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *base = block_alloc(test, 64 * MIB, (stream + 1) % CACHE_STREAMS);
    void *block = block_alloc(test, bytes, stream);
    block_free(test, base);
    assert_ok(vmm_wait(test->cache)); /* zeros may have been written */
    (void)cache_trim(test, 0);
    block_free(test, block);
    assert_int_equal(cache_stats(test).reserved_bytes.current, bytes);
    assert_int_equal(cache_stats(test).chunks.current, bytes / LARGE_CHUNK);
}

vmm_stats cache_stats(struct cache_test *test)
{
    return stats_of(test->cache);
}

void cache_trim_all(struct cache_test *test)
{
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

uint64_t cache_stalls(struct cache_test *test)
{
    return cache_stats(test).stalls - test->stalls;
}

void block_fill(struct cache_test *test, void *block, size_t bytes, uint32_t word, unsigned stream)
{
    assert_ok(vmm__driver_fill(test->driver, (uintptr_t)block, bytes, word, test->streams[stream]));
}

void block_try_fill(struct cache_test *test, size_t bytes, unsigned stream, uint32_t word,
                    void **block)
{
    *block = NULL;
    vmm_status status = vmm_alloc(test->cache, bytes, test->streams[stream], block);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    assert_ok(status);
    block_fill(test, *block, bytes, word, stream);
}

void block_check(struct cache_test *test, void *block, size_t bytes, uint32_t word, unsigned stream)
{
    assert_ok(
        vmm__driver_check(test->driver, (uintptr_t)block, bytes, word, test->streams[stream]));
}

void work_verify(struct cache_test *test)
{
    uint64_t places;
    assert_ok(vmm__driver_mismatches(test->driver, &places));
    if (places != 0 && driver_choice_kind() == VMM_DRIVER_SIM)
        print_error("%s\n", vmm__sim_mismatch(test->driver));
    assert_int_equal(places, 0);
}

void stream_follow(struct cache_test *test, unsigned later, unsigned earlier)
{
    void *event;
    assert_ok(vmm__driver_event_create(test->driver, &event));
    assert_ok(vmm__driver_event_record(test->driver, event, test->streams[earlier]));
    assert_ok(vmm__driver_stream_wait(test->driver, test->streams[later], event));
    assert_ok(vmm__driver_event_destroy(test->driver, event));
}

void capture_begin(struct cache_test *test, unsigned stream)
{
    assert_ok(vmm_capture_announce(test->cache, test->streams[stream]));
    capture_begin_silently(test, stream);
}

void capture_begin_silently(struct cache_test *test, unsigned stream)
{
    assert_ok(vmm__driver_capture_begin(test->driver, test->streams[stream]));
    test->captured[stream] = true;
}

void capture_end(struct cache_test *test, unsigned stream)
{
    test->captured[stream] = false;
    assert_ok(vmm__driver_capture_end(test->driver, test->streams[stream]));
    if (test->cache != NULL)
        assert_ok(vmm_capture_retract(test->cache, test->streams[stream]));
}

static void flight_kernel(void *context)
{
    (void)context;
    const struct timespec pause = { .tv_nsec = 100000 };
    while (atomic_load(&flight_goes_on))
        (void)nanosleep(&pause, NULL);
}

void cache_streams_warm(struct cache_test *test, unsigned count)
{
    vmm_stream *streams = calloc(count, sizeof *streams);
    assert_non_null(streams);
    for (unsigned i = 0; i < count; i++)
        assert_ok(vmm__driver_stream_create(test->driver, &streams[i]));
    for (unsigned i = 0; i < count; i++)
        assert_ok(vmm__driver_stream_destroy(test->driver, streams[i]));
    free(streams);
}

bool flight_begin(struct cache_test *test, void *block, size_t bytes, unsigned stream)
{
    enum { CUDA_FILLS = 2000 };
    vmm_driver_kind kind = driver_choice_kind();
    atomic_store(&flight_goes_on, true);
    if (kind == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, UINT64_C(1) << 40);
    if (kind == VMM_DRIVER_HOST)
        assert_ok(vmm__host_launch(test->driver, flight_kernel, NULL, test->streams[stream]));
    for (int i = 0; i < (kind == VMM_DRIVER_CUDA ? CUDA_FILLS : 1); i++)
        block_fill(test, block, bytes, 77, stream);
    return kind != VMM_DRIVER_CUDA;
}

void flight_end(struct cache_test *test)
{
    atomic_store(&flight_goes_on, false);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, 0);
    work_verify(test);
}

/* ---- Surveys -------------------------------------------------------------------------------- */

/* Bytes at the end of a slab, less than a slot, that are too few for an object: no block covers them. */
enum { SLACK_BYTES = 4096 - 512 };

struct tour {
    struct occupancy_scan sums;
    vmm_item chunk;      /* the last one seen */
    uint64_t block_end;  /* of the last block */
    const char *trouble; /* asserting inside a visit would leave locks behind */
};

/* The chunk must have been covered by the blocks that were seen. */
static void chunk_left(struct tour *tour)
{
    uint64_t chunk_end = tour->chunk.address + tour->chunk.bytes;
    if (tour->chunk.state != VMM_ITEM_WAITING && !tour->chunk.is_reserved &&
        tour->block_end + SLACK_BYTES < chunk_end)
        tour->trouble = "blocks do not cover a chunk";
}

/* Whether graphs may use the item's memory; a pool without a handle is leaving. */
static bool is_kept(const vmm_item *item)
{
    const struct pool *pool = vmm__handle_find(HANDLE_POOL, item->pool);
    return pool == NULL || vmm__pool_is_retained(pool);
}

static void chunk_toured(struct tour *tour, const vmm_item *item)
{
    chunk_left(tour);
    uint64_t chunk_end = tour->chunk.address + tour->chunk.bytes;
    if (item->address < chunk_end && item->address != 0) /* no address: the driver refused a call */
        tour->trouble = "a range does not lie behind the one before";
    if (item->bytes == 0 || item->requested_bytes != 0)
        tour->trouble = "a chunk with strange figures";
    tour->chunk = *item;
    if (item->state == VMM_ITEM_ASLEEP)
        tour->sums.asleep_bytes += item->bytes;
    else
        tour->sums.chunk_bytes += item->bytes;
    if (item->state == VMM_ITEM_FREE && !is_kept(item))
        tour->sums.idle_bytes += item->bytes;
    if (item->state == VMM_ITEM_FREE && item->is_reserved) /* of a freed block of a retained pool */
        tour->sums.retained_bytes += item->bytes;
    if (item->state == VMM_ITEM_WAITING)
        tour->sums.limbo_bytes += item->bytes;
}

/* Its addresses need no chunk, and its chunks no other block. */
static void reserved_toured(struct tour *tour, const vmm_item *item)
{
    if (item->state != VMM_ITEM_LIVE || item->requested_bytes > item->bytes ||
        item->committed_bytes > item->bytes)
        tour->trouble = "a reserved block with strange figures";
    tour->sums.live_blocks++;
    tour->sums.live_bytes += item->committed_bytes;
    tour->sums.requested_bytes += item->committed_bytes;
}

static void block_toured(struct tour *tour, const vmm_item *item)
{
    uint64_t covered_end = vmm__max(tour->block_end, tour->chunk.address);
    if (item->address > covered_end + SLACK_BYTES)
        tour->trouble = "blocks leave a gap";
    if (item->address < tour->block_end)
        tour->trouble = "a block does not lie behind the one before";
    if (item->address < tour->chunk.address ||
        item->address >= tour->chunk.address + tour->chunk.bytes)
        tour->trouble = "a block does not start in the chunk before it";
    if (tour->chunk.state == VMM_ITEM_WAITING)
        tour->trouble = "a block starts in a chunk in limbo";
    if (tour->chunk.state == VMM_ITEM_FREE && item->state != VMM_ITEM_FREE)
        tour->trouble = "an idle chunk under an active block";
    if (item->state != VMM_ITEM_LIVE && item->requested_bytes != 0)
        tour->trouble = "a block that is not live has requested bytes";
    if (item->requested_bytes > item->bytes || item->bytes == 0)
        tour->trouble = "a block smaller than asked for";
    tour->block_end = item->address + item->bytes;
    struct occupancy_scan *sums = &tour->sums;
    if (item->state == VMM_ITEM_LIVE) {
        sums->live_blocks++;
        sums->live_bytes += item->bytes;
        sums->requested_bytes += item->requested_bytes;
    } else if (item->state == VMM_ITEM_WAITING) {
        sums->waiting_blocks++;
        sums->waiting_bytes += item->bytes;
    } else if (is_kept(item)) {
        sums->retained_bytes += item->bytes;
    } else if (item->bytes > sums->largest_free_bytes) {
        sums->largest_free_bytes = item->bytes;
    }
}

static int item_toured(void *context, const vmm_item *item)
{
    struct tour *tour = context;
    if (item->struct_size != sizeof *item)
        tour->trouble = "an item of another size";
    if (item->kind != VMM_ITEM_BLOCK)
        chunk_toured(tour, item);
    else if (item->is_reserved)
        reserved_toured(tour, item);
    else
        block_toured(tour, item);
    return tour->trouble != NULL;
}

struct occupancy_scan cache_scan(struct cache_test *test)
{
    struct tour tour = { .trouble = NULL };
    assert_ok(vmm_walk(test->cache, item_toured, &tour));
    if (tour.trouble == NULL)
        chunk_left(&tour);
    if (tour.trouble != NULL)
        fail_msg("walk: %s, at 0x%llx", tour.trouble, (unsigned long long)tour.block_end);
    return tour.sums;
}

static void stats_verified(struct cache_test *test)
{
    assert_ok(vmm__cache_check(test->cache));
    struct occupancy_scan occupancy_scan = cache_scan(test);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.requested_bytes.current, occupancy_scan.requested_bytes);
    assert_int_equal(stats.allocated_bytes.current, occupancy_scan.live_bytes);
    assert_int_equal(stats.active_bytes.current,
                     occupancy_scan.live_bytes + occupancy_scan.waiting_bytes);
    assert_int_equal(stats.allocations.current, occupancy_scan.live_blocks);
    assert_int_equal(stats.reserved_bytes.current, occupancy_scan.chunk_bytes);
    assert_int_equal(stats.chunks.current, test->driver->handles);
    assert_int_equal(stats.reserved_bytes.current, test->driver->created_bytes);
    assert_int_equal(stats.asleep_bytes, occupancy_scan.asleep_bytes);
    assert_int_equal(stats.idle_bytes, occupancy_scan.idle_bytes);
    assert_int_equal(stats.limbo_bytes, occupancy_scan.limbo_bytes);
    if (stats.asleep_bytes == 0) {
        /* a walk does not show the ends of slabs */
        assert_true(stats.retained_bytes >= occupancy_scan.retained_bytes);
        assert_int_equal(stats.reserved_bytes.current,
                         stats.active_bytes.current + stats.idle_bytes + stats.pinned_bytes +
                             stats.retained_bytes + stats.limbo_bytes);
        assert_int_equal(stats.free_bytes, stats.reserved_bytes.current -
                                               stats.active_bytes.current - stats.limbo_bytes);
    }
#define STAT_VERIFIED(name, unit, kind, of, label, text)                                           \
    assert_true(stats.name.peak >= stats.name.current);                                            \
    assert_int_equal(stats.name.allocated - stats.name.freed, stats.name.current);
    VMM_STAT_MAP(STAT_VERIFIED)
#undef STAT_VERIFIED
    assert_true(test->driver->mapped_bytes >= occupancy_scan.chunk_bytes); /* places of views */
}

/* The cache's own thread, which gives memory back, rests meanwhile. */
void cache_verify(struct cache_test *test)
{
    struct ticker *ticker = &test->cache->ticker;
    bool ticks = ticker->runs;
    vmm__ticker_stop(ticker);
    stats_verified(test);
    if (ticks)
        assert_ok(vmm__ticker_start(ticker, ticker->pause_ms, ticker->function, ticker->context));
}

void cache_verify_empty(struct cache_test *test)
{
    work_verify(test);
    cache_verify(test);
    cache_trim_all(test);
    assert_int_equal(cache_stats(test).active_bytes.current, 0);
}

/* ---- Random blocks -------------------------------------------------------------------------- */

uint64_t random_next(uint64_t *seed)
{
    *seed += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = (*seed ^ *seed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ mixed >> 31;
}

size_t random_bytes(uint64_t *seed, size_t most)
{
    uint64_t dice = random_next(seed) % 100;
    uint64_t limit = dice < 50 ? 9000 : dice < 80 ? MIB : dice < 97 ? most / 4 : most;
    return (size_t)(1 + random_next(seed) % (limit < most ? limit : most));
}
