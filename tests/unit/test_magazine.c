/* Magazines: threads that share a contended pool, including concurrent double frees. */
#define _GNU_SOURCE
#include "support/sim_support.h"
#include "support/thread_support.h"

#include "api/create_on.h"
#include "cache/cache.h"
#include "life/child.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ROUNDS = 20000, BLOCKS_AFTER = 64, SPINS_MOST = 1000, PAIRS = 200 };

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

static void pool_contend(vmm_cache *cache, size_t bytes)
{
    void *block;
    assert_ok(vmm_alloc(cache, bytes, STREAM(1), &block));
    assert_ok(vmm_free(cache, block));
    atomic_store(&vmm__pools_find(&cache->pools, STREAM(1))->is_contended, true);
}

/* Checks that further blocks do not overlap. */
static void check_disjoint(vmm_cache *cache, size_t bytes)
{
    uint64_t blocks[BLOCKS_AFTER];
    for (int i = 0; i < BLOCKS_AFTER; i++) {
        void *block;
        assert_ok(vmm_alloc(cache, bytes, STREAM(1), &block));
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
    pool_contend(shared.cache, bytes);
    assert_int_equal(pthread_create(&other, NULL, other_main, &shared), 0);
    owner_run(&shared);
    (void)pthread_join(other, NULL);
    if (shared.error != NULL)
        fail_msg("%s", shared.error);
    assert_int_equal(shared.freed[0] + shared.freed[1], ROUNDS);
    assert_ok(vmm__cache_check(shared.cache));
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(shared.cache, &stats));
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
        void *block;
        assert_ok(vmm_alloc(cache, MIB, STREAM(1), &block));
        assert_ok(vmm_free(cache, block));
    }
}

static void *visitor_main(void *cache)
{
    pool_contend(cache, MIB);
    return NULL;
}

/* Another thread uses the pool, so that the calling thread is no longer its bias owner and uses a
 * magazine. */
static void bias_owner_remove(vmm_cache *cache)
{
    (void)thread_run(visitor_main, cache);
}

SIM_TEST(idle_memory_decays_while_magazines_serve_requests)
{
    uint64_t now_ns = 1;
    vmm_config config = CONFIG(.decay_ms = 1, .clock = clock_read, .clock_context = &now_ns);
    vmm_cache *cache;
    void *large;
    assert_ok(vmm__cache_create_on(&config, driver, &cache));
    assert_ok(vmm_alloc(cache, 64 * MIB, STREAM(1), &large));
    assert_ok(vmm_free(cache, large));
    bias_owner_remove(cache);
    for (int period = 0; period < 3; period++) {
        pairs_run(cache);
        now_ns += 1000000;
    }
    const struct pool *pool = vmm__pools_find(&cache->pools, STREAM(1));
    assert_null(pool->lock.bias_owner);
    assert_non_null(pool->magazines);
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
    vmm_cache *cache;
    pthread_t makers[2];
    assert_ok(vmm__cache_create_on(NULL, driver, &cache));
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

static bool is_contended_after(vmm_cache *cache, struct pool *pool, uint32_t waits, bool may_bias)
{
    pool->lock.waits = waits;
    pool->lock.may_bias = may_bias;
    atomic_store(&pool->lock.bias_owner, NULL);
    vmm__cache_pool_lock_slow(cache, pool);
    vmm__biased_unlock(&pool->lock);
    return atomic_load(&pool->is_contended);
}

SIM_TEST(pool_is_contended_after_32_waits)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    struct pool *pool;
    assert_ok(vmm__cache_create_on(&config, driver, &cache));
    assert_ok(vmm__cache_pool(cache, STREAM(1), &pool));
    bool may_bias = pool->lock.may_bias;
    assert_false(is_contended_after(cache, pool, 0, true));
    assert_false(is_contended_after(cache, pool, 31, true));
    /* Magazines need the same process-wide barrier as the bias. */
    assert_false(is_contended_after(cache, pool, 32, false));
    assert_true(is_contended_after(cache, pool, 32, true));
    assert_true(is_contended_after(cache, pool, 0, true)); /* never reset */
    pool->lock.may_bias = may_bias;
    assert_ok(vmm_destroy(cache));
}

/* ---- Number of magazines ------------------------------------------------------------------ */

enum { THREADS = 260, NUMBERED = 255 };

/* Threads that exist at the same time, so that no two have the same identity. */
struct group {
    struct pool *pool;
    struct magazine *magazines[THREADS];
    _Atomic unsigned next;
    _Atomic bool may_end;
};

static void *member_main(void *context)
{
    struct group *group = context;
    vmm__pool_lock(group->pool);
    group->magazines[atomic_fetch_add(&group->next, 1)] = vmm__magazine_find_locked(group->pool);
    vmm__pool_unlock(group->pool);
    while (!atomic_load(&group->may_end))
        (void)usleep(1000);
    return NULL;
}

SIM_TEST(up_to_255_threads_have_a_magazine_each)
{
    static pthread_t threads[THREADS];
    static struct group group;
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    assert_ok(vmm__cache_create_on(&config, driver, &cache));
    group = (struct group){ .pool = NULL };
    assert_ok(vmm__cache_pool(cache, STREAM(1), &group.pool));
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &group), 0);
        while (atomic_load(&group.next) <= i)
            (void)sched_yield();
    }
    atomic_store(&group.may_end, true);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < NUMBERED; i++)
        assert_int_equal(group.magazines[i]->number, i + 1);
    for (unsigned i = NUMBERED; i < THREADS; i++)
        assert_null(group.magazines[i]);
    assert_ok(vmm_destroy(cache));
}

/* ---- Bytes of a magazine --------------------------------------------------------------------- */

/* Two blocks of cached memory: only these enter a magazine when they are freed. */
static void two_alloc(vmm_cache *cache, const uint64_t bytes[2], void *blocks[2])
{
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++)
            assert_ok(vmm_alloc(cache, bytes[i], STREAM(1), &blocks[i]));
        for (int i = 0; round == 0 && i < 2; i++)
            assert_ok(vmm_free(cache, blocks[i]));
    }
}

/* 64 MiB, or one block of any size. A block too many empties it. */
SIM_TEST(a_magazine_keeps_64_mib_or_one_block)
{
    static const struct {
        uint64_t bytes[2], retained_bytes;
    } cases[] = { { { 32 * MIB, 32 * MIB }, 64 * MIB },
                  { { 40 * MIB, 26 * MIB }, 0 },
                  { { 100 * MIB, 2 * MIB }, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vmm_cache *cache;
        void *blocks[2];
        assert_ok(vmm__cache_create_on(NULL, driver, &cache));
        bias_owner_remove(cache);
        two_alloc(cache, cases[i].bytes, blocks);
        assert_ok(vmm_free(cache, blocks[0]));
        struct pool *pool = vmm__pools_find(&cache->pools, STREAM(1));
        const struct magazine *magazine = vmm__magazine_mine(pool);
        assert_non_null(magazine);
        assert_int_equal(magazine->retained_bytes, cases[i].bytes[0]);
        assert_ok(vmm_free(cache, blocks[1]));
        assert_int_equal(magazine->retained_bytes, cases[i].retained_bytes);
        for (int freed = 0; freed < 2; freed++)
            assert_status(vmm_free(cache, blocks[freed]), VMM_ERR_UNKNOWN_POINTER);
        assert_ok(vmm__cache_check(cache));
        assert_ok(vmm_destroy(cache));
    }
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
    struct pool *pool;
    void *kept;
    vmm_config config = CONFIG(.log = keeper_log, .log_context = keeper);
    assert_ok(vmm__cache_create_on(&config, driver, &keeper->cache));
    assert_ok(vmm__cache_pool(keeper->cache, STREAM(1), &pool));
    vmm__biased_disable(&pool->lock);
    atomic_store(&pool->is_contended, true);
    for (unsigned i = 0; i < 3; i++) { /* the first block is new to the pool, too */
        assert_ok(vmm_alloc(keeper->cache, 4096, STREAM(1), &kept));
        if (i == 2)
            assert_ok(vmm_alloc(keeper->cache, 4096, STREAM(1), &keeper->known));
        assert_ok(vmm_free(keeper->cache, kept));
    }
    assert_int_equal(vmm__magazine_mine(pool)->kept_count, 1);
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
