/* Magazines: threads that free blocks without the lane's lock, including concurrent double frees. */
#define _GNU_SOURCE
#include "support/made_support.h"
#include "support/sim_support.h"
#include "support/thread_support.h"

#include "api/create_on.h"
#include "api/find.h"
#include "cache/cache.h"
#include "cache/streams.h"
#include "life/child.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ROUNDS = IS_SLOW_BUILD ? 4000 : 20000, BLOCKS_AFTER = 64, SPINS_MOST = 1000, PAIRS = 200 };

static struct magazines *magazines_of(const struct lane *lane)
{
    return atomic_load(&lane->magazines);
}

/* The magazine of the calling thread. */
static struct magazine *magazine_mine(const struct lane *lane)
{
    return &magazines_of(lane)->each[vmm__thread_slot_number() % MAGAZINES];
}

/* Gives a lane magazines at once, and the calling thread a slot. */
static void lane_share(struct lane *lane)
{
    vmm__lane_lock(lane);
    if (magazines_of(lane) == NULL)
        vmm__magazines_make_locked(lane);
    vmm__lane_unlock(lane);
    (void)vmm__thread_slot_mine();
}

/* Two threads that free the same block at the same time. */
struct double_free {
    vmm_cache *cache;
    size_t bytes;
    _Atomic(void *) block;
    _Atomic unsigned arrived; /* each thread adds 1 twice a round */
    unsigned freed[2];
    const char *error; /* only the main thread may assert */
};

static void threads_meet(struct double_free *shared, unsigned round)
{
    atomic_fetch_add(&shared->arrived, 1);
    for (unsigned spins = 0; atomic_load(&shared->arrived) < 2 * (round + 1); spins++) {
        if (spins > SPINS_MOST)
            (void)sched_yield();
    }
}

static void block_free(struct double_free *shared, void *block, unsigned thread)
{
    vmm_status status = vmm_free(shared->cache, block);
    if (status == VMM_OK)
        shared->freed[thread]++;
    else if (status != VMM_ERR_UNKNOWN_POINTER)
        shared->error = "vmm_free failed";
}

static void *other_main(void *context)
{
    struct double_free *shared = context;
    for (unsigned round = 0; round < 2 * ROUNDS; round += 2) {
        threads_meet(shared, round);
        block_free(shared, atomic_load(&shared->block), 1);
        threads_meet(shared, round + 1);
    }
    return NULL;
}

static void owner_run(struct double_free *shared)
{
    for (unsigned round = 0; round < 2 * ROUNDS; round += 2) {
        void *block = NULL;
        if (vmm_alloc(shared->cache, shared->bytes, STREAM(1), &block) != VMM_OK || block == NULL)
            shared->error = "vmm_alloc failed or returned NULL";
        atomic_store(&shared->block, block);
        threads_meet(shared, round);
        block_free(shared, block, 0);
        threads_meet(shared, round + 1);
    }
}

static void lane_contend(vmm_cache *cache, size_t bytes)
{
    void *block = block_in(cache, bytes, STREAM(1));
    assert_ok(vmm_free(cache, block));
    lane_share(vmm__lane_table_find(&cache->pool.table, STREAM(1)));
}

/* Checks that further blocks do not overlap. */
static void check_disjoint(vmm_cache *cache, size_t bytes)
{
    uint64_t blocks[BLOCKS_AFTER];
    for (int i = 0; i < BLOCKS_AFTER; i++) {
        void *block = block_in(cache, bytes, STREAM(1));
        blocks[i] = (uint64_t)(uintptr_t)block;
        for (int j = 0; j < i; j++)
            assert_true(blocks[i] >= blocks[j] + bytes || blocks[j] >= blocks[i] + bytes);
    }
}

static void free_twice(struct driver *driver, size_t bytes)
{
    struct double_free shared = { .bytes = bytes };
    pthread_t other;
    assert_ok(vmm__cache_create_on(NULL, driver, &shared.cache));
    lane_contend(shared.cache, bytes);
    assert_int_equal(pthread_create(&other, NULL, other_main, &shared), 0);
    owner_run(&shared);
    (void)pthread_join(other, NULL);
    if (shared.error != NULL)
        fail_msg("%s", shared.error);
    assert_int_equal(shared.freed[0] + shared.freed[1], ROUNDS);
    assert_ok(vmm__cache_check(shared.cache));
    vmm_stats stats = stats_of(shared.cache);
    assert_int_equal(stats.allocations.current, 0);
    assert_int_equal(stats.allocated_bytes.current, 0);
    assert_int_equal(stats.requested_bytes.current, 0);
    check_disjoint(shared.cache, bytes);
    assert_ok(vmm_destroy(shared.cache));
}

SIM_TEST(concurrent_double_free_of_a_block_frees_it_once)
{
    free_twice(driver, MIB);
}

SIM_TEST(concurrent_double_free_of_an_object_frees_it_once)
{
    free_twice(driver, 4096);
}

/* ---- Decay -------------------------------------------------------------------------------- */

static uint64_t clock_read(void *context)
{
    return *(const uint64_t *)context;
}

static void pairs_run(vmm_cache *cache)
{
    for (int i = 0; i < PAIRS; i++) {
        void *block = block_in(cache, MIB, STREAM(1));
        assert_ok(vmm_free(cache, block));
    }
}

static void *visitor_main(void *cache)
{
    lane_contend(cache, MIB);
    return NULL;
}

/* Another thread uses the lane, so that the calling thread is no longer its bias owner and uses a
 * magazine. */
static void bias_owner_remove(vmm_cache *cache)
{
    (void)thread_run(visitor_main, cache);
}

SIM_TEST(idle_memory_decays_while_magazines_serve_requests)
{
    uint64_t now_ns = 1;
    vmm_cache *cache =
        cache_on(driver, .decay_ms = 1, .clock = clock_read, .clock_context = &now_ns);
    void *large = block_in(cache, 64 * MIB, STREAM(1));
    assert_ok(vmm_free(cache, large));
    bias_owner_remove(cache);
    for (int period = 0; period < 3; period++) {
        pairs_run(cache);
        now_ns += 1000000;
    }
    const struct lane *lane = vmm__lane_table_find(&cache->pool.table, STREAM(1));
    assert_null(lane->lock.bias_owner);
    assert_non_null(magazines_of(lane));
    assert_in_range(vmm__stat_now(&cache->vm.reserved_bytes), MIB, 32 * MIB);
    assert_ok(vmm_destroy(cache));
}

/* ---- Identities --------------------------------------------------------------------------- */

/* An ended thread, and a new one that has the same identity but was created without
 * synchronisation with the first. */
struct successor {
    vmm_cache *cache;
    struct successor *before; /* NULL: the first */
    uintptr_t identity;
    atomic_bool has_ended;
};

static void *successor_main(void *context)
{
    struct successor *successor = context;
    successor->identity = vmm__thread_self();
    pairs_run(successor->cache);
    return NULL;
}

static void *maker_main(void *context)
{
    struct successor *successor = context;
    pthread_t thread;
    while (successor->before != NULL &&
           !atomic_load_explicit(&successor->before->has_ended, memory_order_relaxed))
        (void)sched_yield();
    assert_int_equal(pthread_create(&thread, NULL, successor_main, successor), 0);
    (void)pthread_join(thread, NULL);
    atomic_store_explicit(&successor->has_ended, true, memory_order_relaxed);
    return NULL;
}

static void reuse_identity(struct driver *driver, bool is_contended)
{
    pthread_t makers[2];
    vmm_cache *cache = cache_on_with(driver, NULL);
    if (is_contended)
        bias_owner_remove(cache);
    struct successor successors[2] = { { .cache = cache },
                                       { .cache = cache, .before = &successors[0] } };
    for (int i = 1; i >= 0; i--)
        assert_int_equal(pthread_create(&makers[i], NULL, maker_main, &successors[i]), 0);
    for (int i = 1; i >= 0; i--) /* the first maker must live until the second thread exists */
        (void)pthread_join(makers[i], NULL);
    assert_int_equal(successors[0].identity, successors[1].identity);
    assert_ok(vmm__cache_check(cache));
    assert_ok(vmm_destroy(cache));
}

/* ThreadSanitizer reports a missing order in these two tests. */
SIM_TEST(thread_slot_passes_to_a_thread_of_the_same_identity)
{
    reuse_identity(driver, false);
}

SIM_TEST(magazine_passes_to_a_thread_of_the_same_identity)
{
    reuse_identity(driver, true);
}

/* ---- Contention --------------------------------------------------------------------------- */

static bool is_contended_after(vmm_cache *cache, struct lane *lane, uint32_t waits, bool may_bias)
{
    lane->lock.waits = waits;
    lane->lock.may_bias = may_bias;
    atomic_store(&lane->lock.bias_owner, NULL);
    vmm__cache_lane_lock_slow(cache, lane);
    vmm__biased_unlock(&lane->lock);
    return magazines_of(lane) != NULL;
}

SIM_TEST(lane_gets_magazines_after_32_waits)
{
    struct lane *lane;
    vmm_cache *cache = cache_on_with(driver, NULL);
    assert_ok(vmm__stream_lane(cache, STREAM(1), &lane));
    bool may_bias = lane->lock.may_bias;
    assert_false(is_contended_after(cache, lane, 0, true));
    assert_false(is_contended_after(cache, lane, 31, true));
    /* A lane whose lock has no bias needs none, and in debug mode every call takes the slow path. */
    assert_false(is_contended_after(cache, lane, 32, false));
    (void)vmm__host_fail_at(1);
    assert_false(is_contended_after(cache, lane, 32, true));
    (void)vmm__host_fail_at(0);
    assert_true(is_contended_after(cache, lane, 32, true));
    assert_true(is_contended_after(cache, lane, 0, true)); /* for good */
    lane->lock.may_bias = may_bias;
    assert_ok(vmm_destroy(cache));
}

/* ---- Pending magazines ----------------------------------------------------------------------- */

/* A thread that frees blocks of another. */
struct consumer {
    vmm_cache *cache;
    void **blocks;
    unsigned count;
    vmm_status status;
};

static void *consumer_main(void *context)
{
    struct consumer *consumer = context;
    (void)vmm__thread_slot_mine();
    for (unsigned i = 0; i < consumer->count && consumer->status == VMM_OK; i++)
        consumer->status = vmm_free(consumer->cache, consumer->blocks[i]);
    return NULL;
}

static vmm_status foreign_free(vmm_cache *cache, void **blocks, unsigned count)
{
    struct consumer consumer = { .cache = cache, .blocks = blocks, .count = count };
    (void)thread_run(consumer_main, &consumer);
    return consumer.status;
}

static unsigned kept_count(const struct lane *lane)
{
    unsigned count = 0;
    for (unsigned m = 0; m < MAGAZINES; m++)
        count += magazines_of(lane)->each[m].kept_count;
    return count;
}

static struct lane *shared_cache(struct driver *driver, vmm_cache **cache)
{
    struct lane *lane;
    assert_ok(vmm__cache_create_on(NULL, driver, cache));
    assert_ok(vmm__stream_lane(*cache, STREAM(1), &lane));
    lane_share(lane);
    return lane;
}

/* Another thread frees blocks. The bias stays, and the next allocation drains the magazine if it keeps enough. */
static void check_pending(struct driver *driver, uint64_t bytes, unsigned count, bool is_pending)
{
    vmm_cache *cache;
    void *blocks[MAGAZINE_KEPT];
    struct lane *lane = shared_cache(driver, &cache);
    uint64_t other_bytes = bytes > MIB ? 512 : 2 * MIB; /* of the other heap */
    void *block = block_in(cache, other_bytes, STREAM(1));
    assert_ok(vmm_free(cache, block));
    for (unsigned i = 0; i < count; i++)
        assert_ok(vmm_alloc(cache, bytes, STREAM(1), &blocks[i]));
    const struct thread_slot *owner = atomic_load(&lane->lock.bias_owner);
    assert_non_null(owner);
    assert_ok(foreign_free(cache, blocks, count));
    assert_ptr_equal(atomic_load(&lane->lock.bias_owner), owner);
    assert_int_equal(kept_count(lane), count);
    assert_ok(vmm_alloc(cache, other_bytes, STREAM(1), &block));
    assert_int_equal(kept_count(lane), is_pending ? 0 : count);
    for (unsigned i = 0; i < count; i++)
        assert_status(vmm_free(cache, blocks[i]), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm__cache_check(cache));
    assert_int_equal(kept_count(lane), 0);
    assert_ok(vmm_destroy(cache));
}

/* One block of any size, or several of 64 MiB. One more drains the magazine. */
SIM_TEST(a_magazine_keeps_64_mib_or_one_block)
{
    static const struct {
        uint64_t bytes[2];
        unsigned kept;
    } cases[] = { { { 32 * MIB, 32 * MIB }, 2 },
                  { { 2 * MIB, 34 * MIB }, 1 },
                  { { 100 * MIB, 2 * MIB }, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vmm_cache *cache;
        void *blocks[2];
        struct lane *lane = shared_cache(driver, &cache);
        for (unsigned j = 0; j < 2; j++)
            assert_ok(vmm_alloc(cache, cases[i].bytes[j], STREAM(1), &blocks[j]));
        assert_ok(foreign_free(cache, blocks, 2));
        assert_int_equal(kept_count(lane), cases[i].kept);
        assert_ok(vmm__cache_check(cache));
        assert_ok(vmm_destroy(cache));
    }
}

SIM_TEST(a_magazine_is_pending_with_16_blocks_or_several_of_32_mib)
{
    check_pending(driver, 512, 15, false);
    check_pending(driver, 512, 16, true);
    check_pending(driver, 20000, 15, false);
    check_pending(driver, 20000, 16, true);
    check_pending(driver, 2 * MIB, 15, false);
    check_pending(driver, 8 * MIB, 4, false);
    check_pending(driver, 8 * MIB, 5, true);
    check_pending(driver, 512 * MIB, 1, false);
    check_pending(driver, 32 * MIB, 2, true);
}

/* A thread that finds its magazine full uses the next, and after four of them the lane's lock, which drains them. */
SIM_TEST(full_magazines_are_drained)
{
    enum { ROOM = 4 * MAGAZINE_KEPT };
    static void *blocks[ROOM + 2];
    vmm_cache *cache;
    struct lane *lane = shared_cache(driver, &cache);
    for (unsigned i = 0; i < ROOM + 2; i++)
        assert_ok(vmm_alloc(cache, 4096, STREAM(1), &blocks[i]));
    assert_ok(foreign_free(cache, blocks, ROOM));
    assert_int_equal(kept_count(lane), ROOM);
    assert_ok(foreign_free(cache, &blocks[ROOM], 1));
    assert_int_equal(kept_count(lane), 0);
    assert_ok(foreign_free(cache, &blocks[ROOM + 1], 1));
    assert_int_equal(kept_count(lane), 1);
    vmm_stats stats = stats_of(cache);
    assert_int_equal(stats.allocations.current, 0);
    assert_int_equal(stats.allocated_bytes.current, 0);
    assert_ok(vmm_destroy(cache));
}

/* What one thread frees serves the allocations of another without the lane's lock or its heaps. */
SIM_TEST(a_thread_that_allocates_takes_what_another_frees)
{
    vmm_cache *cache;
    void *blocks[MAGAZINE_KEPT];
    void *again[MAGAZINE_KEPT];
    struct lane *lane = shared_cache(driver, &cache);
    for (unsigned i = 0; i < MAGAZINE_KEPT; i++)
        assert_ok(vmm_alloc(cache, 2 * MIB, STREAM(1), &blocks[i]));
    assert_ok(foreign_free(cache, blocks, MAGAZINE_KEPT));
    for (unsigned i = 0; i < MAGAZINE_KEPT; i++) {
        assert_ok(vmm_alloc(cache, 2 * MIB, STREAM(1), &again[i]));
        assert_int_equal(kept_count(lane), MAGAZINE_KEPT - 1 - i);
    }
    for (unsigned i = 0; i < MAGAZINE_KEPT; i++)
        assert_ok(vmm_free(cache, again[i]));
    vmm_stats stats = stats_of(cache);
    assert_int_equal(stats.allocations.current, 0);
    assert_int_equal(stats.allocations.allocated, 2 * MAGAZINE_KEPT);
    assert_int_equal(stats.requested_bytes.allocated, 2 * MAGAZINE_KEPT * 2 * MIB);
    assert_int_equal(stats.allocated_bytes.allocated, 2 * MAGAZINE_KEPT * 2 * MIB);
    assert_int_equal(stats.allocated_bytes.peak, MAGAZINE_KEPT * 2 * MIB);
    assert_ok(vmm__cache_check(cache));
    assert_ok(vmm_destroy(cache));
}

/* Only a block of exactly the size is taken, from a magazine of several sizes and into one that is full. */
SIM_TEST(an_allocation_takes_a_block_of_its_size)
{
    vmm_cache *cache;
    void *blocks[2 * MAGAZINE_KEPT];
    void *block;
    struct lane *lane = shared_cache(driver, &cache);
    for (unsigned i = 0; i < 2 * MAGAZINE_KEPT; i++)
        assert_ok(vmm_alloc(cache, i % 2 == 0 ? 20000 : 60000, STREAM(1), &blocks[i]));
    assert_ok(foreign_free(cache, blocks, MAGAZINE_KEPT));
    assert_ok(vmm_alloc(cache, 60000, STREAM(1), &block)); /* moves all to this thread's magazine */
    assert_int_equal(kept_count(lane), MAGAZINE_KEPT - 1);
    assert_int_equal(vmm__heap_find(&lane->small, (uint64_t)(uintptr_t)block)->requested_bytes,
                     60000);
    blocks[0] = block;
    struct magazine *mine = magazine_mine(lane);
    uint64_t frees;
    for (unsigned i = 0; mine->kept_count < MAGAZINE_KEPT; i++) /* fill it with the other size */
        assert_true(
            vmm__magazine_give(lane, (uint64_t)(uintptr_t)blocks[MAGAZINE_KEPT + 2 * i], &frees));
    while (vmm__magazine_take(lane, 60000, &block))
        assert_true(vmm_free(cache, block) == VMM_OK);
    assert_ok(vmm__cache_check(cache));
    assert_ok(vmm_destroy(cache));
}

/* A block in a view is kept, taken again and drained as any other. */
SIM_TEST(blocks_in_views_are_kept)
{
    enum { BLOCKS = 64 };
    vmm_cache *cache;
    void *blocks[BLOCKS];
    struct lane *lane = shared_cache(driver, &cache);
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_ok(vmm_alloc(cache, 8 * MIB, STREAM(1), &blocks[i]));
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i / 8 % 2 == 1)
            assert_ok(vmm_free(cache, blocks[i]));
    }
    void *large = block_in(cache, 100 * MIB, STREAM(1));
    uint64_t address = (uint64_t)(uintptr_t)large;
    assert_true(vmm__heap_find(&lane->large, address)->is_in_view);
    assert_ok(foreign_free(cache, &large, 1));
    assert_int_equal(kept_count(lane), 1);
    assert_status(foreign_free(cache, &large, 1), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm__cache_check(cache));
    void *again = block_in(cache, 100 * MIB, STREAM(1));
    assert_ptr_equal(again, large);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i / 8 % 2 == 0)
            assert_ok(foreign_free(cache, &blocks[i], 1));
    }
    assert_ok(foreign_free(cache, &again, 1));
    size_t released;
    assert_ok(vmm_trim(cache, 0, &released));
    assert_int_equal(vmm__stat_now(&cache->vm.reserved_bytes), 0);
    assert_ok(vmm_destroy(cache));
}

/* Passes each block on without ordering memory, as a program with a race would. ThreadSanitizer reports a missing order
 * in the library. */
struct passage {
    vmm_cache *cache;
    _Atomic(void *) block;
    vmm_status status;
};

enum { PASSED = 3000 };

static void *receiver_main(void *context)
{
    struct passage *passage = context;
    (void)vmm__thread_slot_mine();
    for (unsigned i = 0; i < PASSED; i++) {
        void *block;
        while ((block = atomic_load_explicit(&passage->block, memory_order_relaxed)) == NULL)
            (void)sched_yield();
        vmm_status status = vmm_free(passage->cache, block);
        passage->status = passage->status == VMM_OK ? status : passage->status;
        atomic_store_explicit(&passage->block, NULL, memory_order_relaxed);
    }
    return NULL;
}

SIM_TEST(blocks_may_pass_without_an_order_of_memory)
{
    struct passage passage = { .status = VMM_OK };
    pthread_t thread;
    (void)shared_cache(driver, &passage.cache);
    assert_int_equal(pthread_create(&thread, NULL, receiver_main, &passage), 0);
    for (unsigned i = 0; i < PASSED; i++) {
        void *block;
        while (atomic_load_explicit(&passage.block, memory_order_relaxed) != NULL)
            (void)sched_yield();
        assert_ok(vmm_alloc(passage.cache, 512 + i % 7 * 512, STREAM(1), &block));
        atomic_store_explicit(&passage.block, block, memory_order_relaxed);
    }
    (void)pthread_join(thread, NULL);
    assert_ok(passage.status);
    assert_ok(vmm__cache_check(passage.cache));
    vmm_stats stats = stats_of(passage.cache);
    assert_int_equal(stats.requested_bytes.current, 0);
    assert_int_equal(stats.allocations.allocated, PASSED);
    assert_ok(vmm_destroy(passage.cache));
}

/* A thread has found the lane, and then the pool goes to sleep: what is freed until it wakes has no memory. */
SIM_TEST(a_magazine_of_a_sleeping_pool_serves_no_request)
{
    vmm_cache *cache;
    void *again;
    struct lane *lane = shared_cache(driver, &cache);
    vmm_pool *pool = vmm_cache_pool(cache);
    vmm__biased_disable(&lane->lock);
    void *block = block_in(cache, 4096, STREAM(1));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_ok(vmm_free(cache, block));
    assert_int_equal(kept_count(lane), 1);
    assert_false(vmm__magazine_take(lane, 4096, &again));
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_alloc(cache, 4096, STREAM(1), &block));
    assert_ok(vmm_destroy(cache));
}

/* ---- What only the lock frees ---------------------------------------------------------------- */

/* A block that another stream uses waits for it, also if another thread frees it; a pinned one is unpinned. */
SIM_TEST(used_and_pinned_blocks_are_never_kept)
{
    vmm_cache *cache;
    void *blocks[2];
    struct lane *lane = shared_cache(driver, &cache);
    for (unsigned i = 0; i < 2; i++)
        assert_ok(vmm_alloc(cache, 4 * MIB, STREAM(1), &blocks[i]));
    assert_ok(vmm_record_stream(cache, blocks[0], STREAM(2)));
    assert_ok(vmm_pin(cache, blocks[1]));
    assert_ok(vmm__driver_delay(driver, 1000000, STREAM(2)));
    assert_ok(foreign_free(cache, blocks, 2));
    assert_int_equal(kept_count(lane), 0);
    assert_true(vmm__notes_have_waits(&lane->notes));
    assert_int_equal(vmm__heap_unmovable(&lane->large), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_status(foreign_free(cache, &blocks[i], 1), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_destroy(cache));
}

/* Blocks that were allocated before the lane had magazines, and blocks beyond the room of the table. */
SIM_TEST(blocks_that_are_not_listed_are_freed_under_the_lock)
{
    enum { OLD = 3, MANY = 3 * LIVE_SETS * LIVE_WAYS / 2 };
    static void *blocks[MANY];
    void *old[OLD];
    struct lane *lane;
    vmm_cache *cache = cache_on_with(driver, NULL);
    assert_ok(vmm__stream_lane(cache, STREAM(1), &lane));
    for (unsigned i = 0; i < OLD; i++)
        assert_ok(vmm_alloc(cache, 700, STREAM(1), &old[i]));
    lane_share(lane);
    for (unsigned i = 0; i < MANY; i++)
        assert_ok(vmm_alloc(cache, 700, STREAM(1), &blocks[i]));
    assert_ok(vmm__cache_check(cache));
    assert_ok(foreign_free(cache, old, OLD));
    assert_int_equal(kept_count(lane), 0);
    assert_ok(foreign_free(cache, blocks, MANY));
    assert_ok(vmm__cache_check(cache));
    vmm_stats stats = stats_of(cache);
    assert_int_equal(stats.allocations.current, 0);
    assert_int_equal(stats.requested_bytes.current, 0);
    assert_int_equal(stats.allocations.allocated, MANY + OLD);
    assert_ok(vmm_destroy(cache));
}

static void assert_broken(vmm_cache *cache)
{
    assert_status(vmm__cache_check(cache), VMM_ERR_INTERNAL);
    assert_non_null(strstr(vmm_last_error(), "magazine 1"));
}

/* Seeded bugs: a block or an object that is listed but not in the table, and one in the table that is not listed. */
SIM_TEST(checks_find_a_live_table_that_is_wrong)
{
    static const uint64_t sizes[] = { 700, 40000, 4 * MIB };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        vmm_cache *cache;
        struct lane *lane = shared_cache(driver, &cache);
        void *block = block_in(cache, sizes[i], STREAM(1));
        assert_ok(vmm__cache_check(cache));
        struct live_table *live = lane->large.directory->live;
        uint64_t address = (uint64_t)(uintptr_t)block;
        assert_true(vmm__live_table_remove(live, address));
        assert_broken(cache);
        assert_true(vmm__live_table_add(live, address, sizes[i]));
        assert_true(vmm__live_table_add(live, address + 512, sizes[i]));
        assert_broken(cache);
        assert_true(vmm__live_table_remove(live, address + 512));
        assert_ok(vmm__cache_check(cache));
        assert_ok(vmm_free(cache, block));
        assert_ok(vmm_destroy(cache));
    }
}

/* The addresses that follow a block, and the one with the mark of a claimed entry, while a magazine keeps the block. */
SIM_TEST(an_address_beside_that_of_a_kept_block_is_none)
{
    vmm_cache *cache;
    struct lane *lane = shared_cache(driver, &cache);
    void *block = block_in(cache, 700, STREAM(1));
    assert_ok(foreign_free(cache, &block, 1));
    assert_int_equal(kept_count(lane), 1);
    uint64_t address = (uint64_t)(uintptr_t)block;
    const uint64_t wrong[] = { address + 1, address + 511, address | LIVE_CLAIMED };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        void *beside = (void *)(uintptr_t)wrong[i];
        struct owned_block owned;
        assert_status(vmm__find_owned(cache, beside, &owned), VMM__NOT_FOUND);
        assert_status(foreign_free(cache, &beside, 1), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_free(cache, beside), VMM_ERR_UNKNOWN_POINTER);
    }
    assert_int_equal(kept_count(lane), 1);
    assert_ok(vmm_destroy(cache));
}

/* Frees of what is not the start of a live block. */
SIM_TEST(foreign_frees_refuse_what_is_no_block)
{
    vmm_cache *cache;
    int outside;
    struct lane *lane = shared_cache(driver, &cache);
    void *block = block_in(cache, 4 * MIB, STREAM(1));
    void *wrong[] = { (char *)block + 512, (char *)block + 4 * MIB, &outside };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(foreign_free(cache, &wrong[i], 1), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(kept_count(lane), 0);
    assert_ok(foreign_free(cache, &block, 1));
    assert_status(foreign_free(cache, &block, 1), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_record_stream(cache, block, STREAM(2)), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_pin(cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_destroy(cache));
}

/* ---- Disabled fast path ------------------------------------------------------------------- */

/* A thread whose magazine keeps one block, and can keep `known` when that is freed. */
struct keeper {
    vmm_cache *cache;
    void *known;
    vmm_status alloc_status, free_status;
};

static void keeper_try(struct keeper *keeper)
{
    void *block;
    keeper->alloc_status = vmm_alloc(keeper->cache, 4096, STREAM(1), &block);
    keeper->free_status = vmm_free(keeper->cache, keeper->known);
}

static void keeper_log(void *context, const char *line)
{
    struct keeper *keeper = context;
    if (strcmp(line, "now") == 0)
        keeper_try(keeper);
}

static void keeper_child(void *context)
{
    struct keeper *keeper = context;
    keeper_try(keeper);
    CHILD_REQUIRES(keeper->alloc_status == VMM_ERR_FORKED && keeper->free_status == VMM_ERR_FORKED);
}

static void keeper_open(struct driver *driver, struct keeper *keeper)
{
    struct lane *lane;
    void *kept;
    vmm_config config = CONFIG(.log = keeper_log, .log_context = keeper);
    assert_ok(vmm__cache_create_on(&config, driver, &keeper->cache));
    assert_ok(vmm__stream_lane(keeper->cache, STREAM(1), &lane));
    vmm__biased_disable(&lane->lock);
    lane_share(lane);
    for (unsigned i = 0; i < 3; i++) { /* the first block is new to the lane, too */
        assert_ok(vmm_alloc(keeper->cache, 4096, STREAM(1), &kept));
        if (i == 2)
            assert_ok(vmm_alloc(keeper->cache, 4096, STREAM(1), &keeper->known));
        assert_ok(vmm_free(keeper->cache, kept));
    }
    assert_int_equal(magazine_mine(lane)->kept_count, 1);
}

/* Both calls succeed afterwards, so the magazine could have served them. */
static void keeper_close(struct keeper *keeper)
{
    keeper_try(keeper);
    assert_true(keeper->alloc_status == VMM_OK && keeper->free_status == VMM_OK);
    assert_ok(vmm_destroy(keeper->cache));
}

SIM_TEST(callbacks_under_locks_use_no_magazine)
{
    struct keeper keeper = { 0 };
    keeper_open(driver, &keeper);
    assert_ok(vmm_log_write(keeper.cache, "now"));
    assert_true(keeper.alloc_status == VMM_ERR_INVALID_ARGUMENT &&
                keeper.free_status == keeper.alloc_status);
    keeper_close(&keeper);
}

SIM_TEST(child_of_fork_uses_no_magazine)
{
    struct keeper keeper = { 0 };
    keeper_open(driver, &keeper);
    child_runs(keeper_child, &keeper);
    keeper_close(&keeper);
}
