/* Magazines: threads that share a crowded pool and do what they should not. */
#define _GNU_SOURCE
#include "support/sim_support.h"

#include "cache_on.h"
#include "life/child.h"
#include "policy/cache.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ROUNDS = 20000, BLOCKS_AFTER = 64, SPINS_MOST = 1000, PAIRS = 200 };

/* Two threads and the block that both give back at the same time. */
struct twice {
    vmm_cache *cache;
    size_t bytes;
    _Atomic(void *) block;
    _Atomic unsigned arrived; /* twice a round */
    unsigned freed[2];
    const char *trouble; /* assertions belong to the main thread */
};

static void twice_meet(struct twice *twice, unsigned round)
{
    atomic_fetch_add(&twice->arrived, 1);
    for (unsigned spins = 0; atomic_load(&twice->arrived) < 2 * (round + 1); spins++) {
        if (spins > SPINS_MOST)
            (void)sched_yield();
    }
}

static void twice_give(struct twice *twice, void *block, unsigned giver)
{
    vmm_status status = vmm_free(twice->cache, block);
    if (status == VMM_OK)
        twice->freed[giver]++;
    else if (status != VMM_ERR_UNKNOWN_POINTER)
        twice->trouble = "giving a block back failed";
}

static void *other_main(void *context)
{
    struct twice *twice = context;
    for (unsigned round = 0; round < 2 * ROUNDS; round += 2) {
        twice_meet(twice, round);
        twice_give(twice, atomic_load(&twice->block), 1);
        twice_meet(twice, round + 1);
    }
    return NULL;
}

static void owner_run(struct twice *twice)
{
    for (unsigned round = 0; round < 2 * ROUNDS; round += 2) {
        void *block = NULL;
        if (vmm_alloc(twice->cache, twice->bytes, STREAM(1), &block) != VMM_OK || block == NULL)
            twice->trouble = "no block, or a block at no address, was handed out";
        atomic_store(&twice->block, block);
        twice_meet(twice, round);
        twice_give(twice, block, 0);
        twice_meet(twice, round + 1);
    }
}

static void pool_crowded(vmm_cache *cache, size_t bytes)
{
    void *block;
    assert_ok(vmm_alloc(cache, bytes, STREAM(1), &block));
    assert_ok(vmm_free(cache, block));
    atomic_store(&vmm__pools_find(&cache->pools, STREAM(1))->is_crowded, true);
}

/* What is handed out from now on does not overlap. */
static void blocks_disjoint(vmm_cache *cache, size_t bytes)
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

static void twice_given(struct driver *driver, size_t bytes)
{
    struct twice twice = { .bytes = bytes };
    pthread_t other;
    assert_ok(vmm__cache_create_on(NULL, driver, &twice.cache));
    pool_crowded(twice.cache, bytes);
    assert_int_equal(pthread_create(&other, NULL, other_main, &twice), 0);
    owner_run(&twice);
    (void)pthread_join(other, NULL);
    if (twice.trouble != NULL)
        fail_msg("%s", twice.trouble);
    assert_int_equal(twice.freed[0] + twice.freed[1], ROUNDS);
    assert_ok(vmm__cache_check(twice.cache));
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(twice.cache, &stats));
    assert_int_equal(stats.allocations.current, 0);
    assert_int_equal(stats.allocated_bytes.current, 0);
    assert_int_equal(stats.requested_bytes.current, 0);
    blocks_disjoint(twice.cache, bytes);
    assert_ok(vmm_destroy(twice.cache));
}

static void a_block_given_by_two_threads_at_once_is_given_once(void **state)
{
    twice_given(*state, MIB);
}

static void an_object_given_by_two_threads_at_once_is_given_once(void **state)
{
    twice_given(*state, 4096);
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
    pool_crowded(cache, MIB);
    return NULL;
}

/* Another thread comes, so that this one is the pool's favourite no more and has to use its magazine. */
static void favourite_dismissed(vmm_cache *cache)
{
    pthread_t visitor;
    assert_int_equal(pthread_create(&visitor, NULL, visitor_main, cache), 0);
    (void)pthread_join(visitor, NULL);
}

static void idle_memory_decays_while_magazines_serve(void **state)
{
    uint64_t now_ns = 1;
    vmm_config config = VMM_CONFIG_INIT;
    config.decay_ms = 1;
    config.clock = clock_read;
    config.clock_context = &now_ns;
    vmm_cache *cache;
    void *large;
    assert_ok(vmm__cache_create_on(&config, *state, &cache));
    assert_ok(vmm_alloc(cache, 64 * MIB, STREAM(1), &large));
    assert_ok(vmm_free(cache, large));
    favourite_dismissed(cache);
    for (int period = 0; period < 3; period++) {
        pairs_run(cache);
        now_ns += 1000000;
    }
    const struct pool *pool = vmm__pools_find(&cache->pools, STREAM(1));
    assert_null(pool->lock.favourite);
    assert_non_null(pool->magazines);
    assert_in_range(vmm__figure_now(&cache->memory.reserved_bytes), MIB, 32 * MIB);
    assert_ok(vmm_destroy(cache));
}

/* ---- Identities --------------------------------------------------------------------------- */

/* A thread that has ended and one that has its identity, made by one that did not wait for its end. */
struct heir {
    vmm_cache *cache;
    struct heir *before; /* NULL: the first */
    uintptr_t identity;
    atomic_bool has_ended;
};

static void *heir_main(void *context)
{
    struct heir *heir = context;
    heir->identity = vmm__thread_self();
    pairs_run(heir->cache);
    return NULL;
}

static void *maker_main(void *context)
{
    struct heir *heir = context;
    pthread_t thread;
    while (heir->before != NULL &&
           !atomic_load_explicit(&heir->before->has_ended, memory_order_relaxed))
        (void)sched_yield();
    assert_int_equal(pthread_create(&thread, NULL, heir_main, heir), 0);
    (void)pthread_join(thread, NULL);
    atomic_store_explicit(&heir->has_ended, true, memory_order_relaxed);
    return NULL;
}

static void identity_inherited(struct driver *driver, bool is_crowded)
{
    vmm_cache *cache;
    pthread_t makers[2];
    assert_ok(vmm__cache_create_on(NULL, driver, &cache));
    if (is_crowded)
        favourite_dismissed(cache);
    struct heir heirs[2] = { { .cache = cache }, { .cache = cache, .before = &heirs[0] } };
    for (int i = 1; i >= 0; i--)
        assert_int_equal(pthread_create(&makers[i], NULL, maker_main, &heirs[i]), 0);
    for (int i = 1; i >= 0; i--) /* the first maker keeps its own identity until the heir has one */
        (void)pthread_join(makers[i], NULL);
    assert_int_equal(heirs[0].identity, heirs[1].identity);
    assert_ok(vmm__cache_check(cache));
    assert_ok(vmm_destroy(cache));
}

/* ThreadSanitizer is the judge of these two. */
static void a_favourite_leaves_its_seat_to_its_heir(void **state)
{
    identity_inherited(*state, false);
}

static void a_thread_leaves_its_magazine_to_its_heir(void **state)
{
    identity_inherited(*state, true);
}

/* ---- When -------------------------------------------------------------------------------------- */

static bool is_crowded_after(vmm_cache *cache, struct pool *pool, uint32_t waits, bool may_favour)
{
    pool->lock.waits = waits;
    pool->lock.may_favour = may_favour;
    atomic_store(&pool->lock.favourite, NULL);
    vmm__cache_visit(cache, pool);
    vmm__biased_drop(&pool->lock);
    return atomic_load(&pool->is_crowded);
}

static void a_pool_is_crowded_once_threads_have_waited_32_times(void **state)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    struct pool *pool;
    assert_ok(vmm__cache_create_on(&config, *state, &cache));
    assert_ok(vmm__cache_pool(cache, STREAM(1), &pool));
    bool may_favour = pool->lock.may_favour;
    assert_false(is_crowded_after(cache, pool, 0, true));
    assert_false(is_crowded_after(cache, pool, 31, true));
    assert_false(is_crowded_after(cache, pool, 32, false)); /* magazines need what favour needs */
    assert_true(is_crowded_after(cache, pool, 32, true));
    assert_true(is_crowded_after(cache, pool, 0, true)); /* for ever */
    pool->lock.may_favour = may_favour;
    assert_ok(vmm_destroy(cache));
}

/* ---- How many ---------------------------------------------------------------------------------- */

enum { THREADS = 260, NUMBERED = 255 };

/* Threads that are there at the same time: no two have the same identity. */
struct crowd {
    struct pool *pool;
    struct magazine *magazines[THREADS];
    _Atomic unsigned next;
    _Atomic bool may_end;
};

static void *member_main(void *context)
{
    struct crowd *crowd = context;
    vmm__pool_lock(crowd->pool);
    crowd->magazines[atomic_fetch_add(&crowd->next, 1)] = vmm__magazine_find_locked(crowd->pool);
    vmm__pool_unlock(crowd->pool);
    while (!atomic_load(&crowd->may_end))
        (void)usleep(1000);
    return NULL;
}

static void each_thread_has_a_magazine_of_its_own_up_to_255(void **state)
{
    struct driver *driver = *state;
    static pthread_t threads[THREADS];
    static struct crowd crowd;
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    assert_ok(vmm__cache_create_on(&config, driver, &cache));
    crowd = (struct crowd){ .pool = NULL };
    assert_ok(vmm__cache_pool(cache, STREAM(1), &crowd.pool));
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &crowd), 0);
        while (atomic_load(&crowd.next) <= i)
            (void)sched_yield();
    }
    atomic_store(&crowd.may_end, true);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < NUMBERED; i++)
        assert_int_equal(crowd.magazines[i]->number, i + 1);
    for (unsigned i = NUMBERED; i < THREADS; i++)
        assert_null(crowd.magazines[i]);
    assert_ok(vmm_destroy(cache));
}

/* ---- Who must not use it ----------------------------------------------------------------------- */

/* A thread that could take `kept` of its magazine, and give `known` to it. */
struct keeper {
    vmm_cache *cache;
    void *known;
    vmm_status taking, giving;
};

static void keeper_tries(struct keeper *keeper)
{
    void *block;
    keeper->taking = vmm_alloc(keeper->cache, 4096, STREAM(1), &block);
    keeper->giving = vmm_free(keeper->cache, keeper->known);
}

static void keeper_listens(void *context, const char *line)
{
    struct keeper *keeper = context;
    if (strcmp(line, "now") == 0)
        keeper_tries(keeper);
}

static void keeper_is_a_child(void *context)
{
    struct keeper *keeper = context;
    keeper_tries(keeper);
    CHILD_REQUIRES(keeper->taking == VMM_ERR_FORKED && keeper->giving == VMM_ERR_FORKED);
}

static void keeper_open(struct driver *driver, struct keeper *keeper)
{
    vmm_config config = VMM_CONFIG_INIT;
    struct pool *pool;
    void *kept;
    config.log = keeper_listens;
    config.log_context = keeper;
    assert_ok(vmm__cache_create_on(&config, driver, &keeper->cache));
    assert_ok(vmm__cache_pool(keeper->cache, STREAM(1), &pool));
    vmm__biased_deny(&pool->lock);
    atomic_store(&pool->is_crowded, true);
    for (unsigned i = 0; i < 3; i++) { /* what the first one is given is new to the pool, too */
        assert_ok(vmm_alloc(keeper->cache, 4096, STREAM(1), &kept));
        if (i == 2)
            assert_ok(vmm_alloc(keeper->cache, 4096, STREAM(1), &keeper->known));
        assert_ok(vmm_free(keeper->cache, kept));
    }
    assert_int_equal(vmm__magazine_mine(pool)->kept_count, 1);
}

/* Both work again afterwards, which shows that they could have. */
static void keeper_close(struct keeper *keeper)
{
    keeper_tries(keeper);
    assert_true(keeper->taking == VMM_OK && keeper->giving == VMM_OK);
    assert_ok(vmm_destroy(keeper->cache));
}

static void a_function_that_is_called_with_locks_held_uses_no_magazine(void **state)
{
    struct keeper keeper = { 0 };
    keeper_open(*state, &keeper);
    assert_ok(vmm_log_write(keeper.cache, "now"));
    assert_true(keeper.taking == VMM_ERR_INVALID_ARGUMENT && keeper.giving == keeper.taking);
    keeper_close(&keeper);
}

static void a_child_of_fork_uses_no_magazine(void **state)
{
    struct keeper keeper = { 0 };
    keeper_open(*state, &keeper);
    child_runs(keeper_is_a_child, &keeper);
    keeper_close(&keeper);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SIM_TEST(a_block_given_by_two_threads_at_once_is_given_once),
        SIM_TEST(an_object_given_by_two_threads_at_once_is_given_once),
        SIM_TEST(idle_memory_decays_while_magazines_serve),
        SIM_TEST(a_favourite_leaves_its_seat_to_its_heir),
        SIM_TEST(a_thread_leaves_its_magazine_to_its_heir),
        SIM_TEST(a_pool_is_crowded_once_threads_have_waited_32_times),
        SIM_TEST(each_thread_has_a_magazine_of_its_own_up_to_255),
        SIM_TEST(a_function_that_is_called_with_locks_held_uses_no_magazine),
        SIM_TEST(a_child_of_fork_uses_no_magazine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
