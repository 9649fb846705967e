/*
 * Pools that are offered (vmm_sleep_options.on_claim): what a program finds from the offer to the wake, whether a claim
 * of another process came or not. The tests claim with the call that the answering thread makes; claims of processes
 * are in tests/life. Also runs under ThreadSanitizer.
 */
#define _GNU_SOURCE
#include "support/graph_support.h"
#include "support/share_support.h"
#include "support/tenant_support.h"

#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/pool/offer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static vmm_status offer_with(vmm_pool *pool, vmm_sleep_fn unmapping, vmm_sleep_fn mapped,
                             void *context)
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_claim = 1;
    options.unmapping = unmapping;
    options.mapped = mapped;
    options.context = context;
    return vmm_pool_sleep(&pool, 1, &options, NULL);
}

static void offer(vmm_pool *pool)
{
    assert_ok(offer_with(pool, NULL, NULL, NULL));
    assert_int_equal(phase_of(pool), VMM_POOL_OFFERED);
}

/* Returns the bytes that a claim of so many gets; 0: nothing may sleep. */
static uint64_t claim_above(struct cache_test *test, uint64_t bytes, uint64_t floor_bytes)
{
    struct offer_taken taken;
    if (!vmm__offer_take(test->cache, bytes, floor_bytes, &taken))
        return 0;
    assert_false(taken.has_failed);
    return taken.bytes;
}

static uint64_t claim(struct cache_test *test, uint64_t bytes)
{
    return claim_above(test, bytes, 0);
}

/* After all work: a clock that only looks once sees that it has ended. */
static uint64_t claim_after_work(struct cache_test *test, uint64_t bytes)
{
    work_verify(test);
    return claim(test, bytes);
}

static uint64_t reserved_of(vmm_pool *pool)
{
    vmm_stats stats = pool_stats(pool);
    return stats.reserved_bytes.current;
}

/* A pool with one block, which has all of it. */
static vmm_pool *pool_of(struct cache_test *test, size_t bytes)
{
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_DISCARD);
    (void)block_in_pool(pool, bytes, test->streams[1]);
    assert_int_equal(reserved_of(pool), bytes);
    return pool;
}

static void pool_end(vmm_pool *pool)
{
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_free_all(pool));
    assert_ok(vmm_pool_destroy(pool, 0));
}

/* ---- From the offer to the wake ---------------------------------------------------------------- */

/* A program that forgets the wake finds out in its first test, not when another process first claims. */
static void nothing_is_served(struct cache_test *test, const struct tenant *tenant)
{
    void *none = NULL;
    assert_status(vmm_alloc_from(tenant->pool, 100, test->streams[1], &none), VMM_ERR_ASLEEP);
    assert_non_null(strstr(vmm_last_error(), "pool tenant sleeps: wake it first"));
    assert_status(vmm_commit(test->cache, tenant->reserved, 0, TENANT_UNIT), VMM_ERR_ASLEEP);
    assert_status(vmm_backup_drop(tenant->pool), VMM_ERR_ASLEEP);
    assert_status(vmm_pool_destroy(tenant->pool, 1), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "has live blocks, and sleeps: wake it first"));
}

CACHE_TEST(what_is_offered_serves_no_request_claimed_or_not)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    for (int claims = 0; claims < 2; claims++) {
        offer(tenant.pool);
        uint64_t reserved = reserved_of(tenant.pool);
        if (claims > 0)
            assert_int_equal(claim_after_work(test, 1), reserved);
        assert_int_equal(phase_of(tenant.pool), claims > 0 ? VMM_POOL_ASLEEP : VMM_POOL_OFFERED);
        nothing_is_served(test, &tenant);
        cache_verify(test);
        block_free(test, tenant.blocks[1]);
        tenant.blocks[1] = NULL;
        pool_wake(tenant.pool);
        assert_int_equal(phase_of(tenant.pool), VMM_POOL_AWAKE);
        tenant_refill(test, &tenant);
        tenant_check(test, &tenant);
    }
}

CACHE_TEST(an_unclaimed_offer_costs_the_driver_nothing)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    work_verify(test);
    vmm_stats before = cache_stats(test);
    offer(tenant.pool);
    assert_int_equal(cache_stats(test).free_bytes, before.free_bytes);
    assert_int_equal(cache_stats(test).backup_bytes, 0);
    pool_wake(tenant.pool);
    vmm_stats after = cache_stats(test);
    assert_int_equal(after.reserved_bytes.current, before.reserved_bytes.current);
    assert_int_equal(after.create_calls, before.create_calls);
    assert_int_equal(after.unmap_calls, before.unmap_calls);
    assert_int_equal(after.event_calls, before.event_calls);
    assert_int_equal(after.stalls, before.stalls);
    tenant_check(test, &tenant);
}

/* Its idle memory goes first. */
CACHE_TEST(idle_memory_of_an_offered_pool_is_as_of_an_awake_one)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        if (tenant.blocks[i] == NULL || i == 1)
            continue;
        block_free(test, tenant.blocks[i]);
        tenant.blocks[i] = NULL;
    }
    work_verify(test);
    uint64_t idle = cache_stats(test).idle_bytes;
    assert_true(idle > 0);
    offer(tenant.pool);
    assert_int_equal(cache_stats(test).idle_bytes, idle);
    assert_int_equal(cache_scan(test).idle_bytes, idle);
    assert_ok(vmm_free(test->cache, tenant.reserved)); /* its units go at once, too */
    tenant.reserved = NULL;
    cache_verify(test);
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).idle_bytes, 0);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(the_default_pool_can_be_offered)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    struct tenant adopted = tenant_make(test, VMM_ON_SLEEP_KEEP);
    void *block = block_alloc(test, 3 * MIB, 1);
    void *none;
    block_fill(test, block, 3 * MIB, 77, 1);
    offer(pool);
    assert_status(vmm_alloc(test->cache, 100, test->streams[1], &none), VMM_ERR_ASLEEP);
    assert_ok(vmm_pool_destroy(adopted.pool, 1)); /* the offer did not name its blocks */
    assert_true(claim_after_work(test, 1) >= 3 * MIB);
    tenant_check(test, &adopted);
    cache_verify(test);
    pool_wake(pool);
    block_check(test, block, 3 * MIB, 77, 1);
    tenant_check(test, &adopted);
}

/* A sleep that the program asks for names all blocks that the pool has by then. */
CACHE_TEST(the_program_may_put_an_offered_pool_to_sleep)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    struct tenant adopted = tenant_make(test, VMM_ON_SLEEP_KEEP);
    offer(pool);
    assert_ok(vmm_pool_destroy(adopted.pool, 1));
    pool_sleep(pool);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    assert_ok(offer_with(pool, NULL, NULL, NULL)); /* it sleeps already */
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
    pool_wake(pool);
    tenant_check(test, &adopted);
}

CACHE_TEST(an_offered_pool_without_blocks_can_be_destroyed)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    tenant_free(test, &tenant);
    offer(tenant.pool);
}

CACHE_TEST(a_cache_can_end_while_a_pool_is_offered)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    offer(tenant.pool);
    cache_restart(test, NULL);
}

/* ---- Which pool sleeps ------------------------------------------------------------------------- */

CACHE_TEST(the_smallest_pool_that_is_large_enough_sleeps)
{
    vmm_pool *pools[] = { pool_of(test, 16 * MIB), pool_of(test, 4 * MIB), pool_of(test, 8 * MIB),
                          pool_of(test, 32 * MIB) };
    assert_int_equal(claim_after_work(test, MIB), 0); /* none is offered */
    for (unsigned i = 0; i < 3; i++)
        offer(pools[i]);
    assert_int_equal(claim(test, 6 * MIB), 8 * MIB);
    assert_int_equal(claim(test, 100 * MIB), 16 * MIB);
    assert_int_equal(claim(test, 100 * MIB), 4 * MIB);
    assert_int_equal(claim(test, 1), 0);
    assert_int_equal(phase_of(pools[3]), VMM_POOL_AWAKE);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 32 * MIB);
    for (unsigned i = 0; i < 4; i++)
        pool_end(pools[i]);
}

CACHE_TEST(the_floor_stays)
{
    vmm_pool *large = pool_of(test, 16 * MIB);
    vmm_pool *small = pool_of(test, 8 * MIB);
    offer(large);
    offer(small);
    work_verify(test);
    assert_int_equal(claim_above(test, 16 * MIB, 17 * MIB), 0);
    assert_int_equal(claim_above(test, 16 * MIB, 16 * MIB), 8 * MIB);
    assert_int_equal(claim_above(test, 16 * MIB, 16 * MIB), 0);
    assert_int_equal(claim_above(test, 16 * MIB, 0), 16 * MIB);
    pool_end(large);
    pool_end(small);
}

/* No thread waits for it: the next look finds that it has ended. */
CACHE_TEST(a_pool_sleeps_once_its_work_has_ended)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    work_verify(test);
    bool is_certain = flight_begin(test, tenant.blocks[1], tenant.bytes[1], 2);
    offer(tenant.pool);
    uint64_t stalls = cache_stalls(test);
    if (is_certain) {
        assert_int_equal(claim(test, 1), 0);
        assert_int_equal(phase_of(tenant.pool), VMM_POOL_OFFERED);
        assert_int_equal(cache_stalls(test), stalls);
    }
    flight_end(test);
    block_fill(test, block_alloc(test, 100, 1), 100, 3, 1); /* later work is of others */
    for (unsigned i = 0; i < 1000 && phase_of(tenant.pool) == VMM_POOL_OFFERED; i++) {
        (void)claim(test, 1);
        (void)usleep(1000);
    }
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_ASLEEP);
    assert_ok(vmm_pool_free_all(vmm_cache_pool(test->cache)));
    pool_wake(tenant.pool);
    tenant.words[1] = 0;
    assert_ok(vmm_pool_free_all(tenant.pool));
}

/* With an older driver the offer waits, because no later look could tell. */
CACHE_TEST(a_clock_of_streams_waits_at_the_offer)
{
    cache_restart_with(test, .clock_kind = VMM_CLOCK_STREAMS);
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    offer(tenant.pool);
    assert_true(claim(test, 1) > 0);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* ---- Graphs, captures, exports, sources -------------------------------------------------------- */

CACHE_TEST(a_graph_replays_after_an_offer)
{
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    vmm_pool *pool = vmm_pool_find(test->cache, graph.id);
    for (int claims = 0; claims < 2; claims++) {
        work_verify(test);
        offer(pool);
        if (claims > 0)
            assert_true(claim_after_work(test, 1) > 0);
        pool_wake(pool);
        graph_replay(test, &graph, 2);
        work_verify(test);
    }
    graph_discard(test, &graph);
}

/* The program cannot know when a claim comes, so it may come beside a capture of other work. */
CACHE_TEST(a_capture_may_go_on_beside_the_sleep)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct graph graph;
    work_verify(test);
    offer(tenant.pool);
    assert_true(claim(test, 1) > 0); /* the clock has passed */
    pool_wake(tenant.pool);
    offer(tenant.pool);
    (void)vmm_poll(test->cache);
    graph_begin(test, &graph, 1, 3);
    (void)claim(test, 1);
    void *block = graph_alloc(test, &graph, 3 * MIB);
    graph_free(test, &graph, block);
    assert_status(vmm_pool_wake(&tenant.pool, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "a capture is under way"));
    assert_status(offer_with(tenant.pool, NULL, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    graph_end(test, &graph);
    graph_replay(test, &graph, 3);
    graph_release(test, &graph);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(exported_blocks_are_not_offered)
{
    vmm_pool *pool = pool_with_reach(test->cache, VMM_SHARE_MACHINE);
    vmm_share *share;
    void *block = block_in_pool(pool, 4 * MIB, test->streams[1]);
    offer(pool);
    assert_status(vmm_share_export(test->cache, block, &share), VMM_ERR_ASLEEP);
    pool_wake(pool);
    assert_ok(vmm_share_export(test->cache, block, &share));
    assert_status(offer_with(pool, NULL, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_pool_sleep: pool "));
    assert_non_null(strstr(vmm_last_error(), "has exported blocks"));
    assert_int_equal(phase_of(pool), VMM_POOL_AWAKE);
    assert_ok(vmm_share_close(share, 0));
}

/* All, or none. */
CACHE_TEST(an_offer_that_is_refused_changes_nothing)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_pool *shared = pool_with_reach(test->cache, VMM_SHARE_MACHINE);
    vmm_pool *pools[] = { tenant.pool, shared };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    vmm_share *share;
    options.on_claim = 1;
    void *block = block_in_pool(shared, 4 * MIB, test->streams[1]);
    assert_ok(vmm_share_export(test->cache, block, &share));
    assert_status(vmm_pool_sleep(pools, 2, &options, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_AWAKE);
    assert_ok(vmm_share_close(share, 0));
    block_free(test, block);
    assert_ok(vmm_pool_sleep(pools, 2, &options, NULL));
    assert_ok(vmm_pool_wake(pools, 2, NULL, NULL));
    assert_ok(vmm_pool_destroy(shared, 0));
    tenant_check(test, &tenant);
}

/* A program that was built before offers were made. */
CACHE_TEST(older_options_put_pools_to_sleep)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.struct_size = offsetof(vmm_sleep_options, on_claim);
    options.on_claim = 1; /* another variable of it */
    assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, NULL));
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_ASLEEP);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(an_offer_may_have_a_ticket)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    vmm_ticket *ticket;
    options.on_claim = 1;
    assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, &ticket));
    assert_ok(vmm_ticket_wait(ticket));
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_OFFERED);
    assert_ok(vmm_pool_wake(&tenant.pool, 1, NULL, &ticket));
    assert_ok(vmm_ticket_wait(ticket));
    tenant_check(test, &tenant);
}

/* ---- Calls beside the sleep -------------------------------------------------------------------- */

struct claimant {
    struct cache_test *test;
    struct tenant tenant;
    pthread_t threads[2];
    vmm_status inner[3]; /* of calls that its function makes */
    atomic_bool has_begun;
    atomic_bool may_end;
    atomic_bool has_ended;
    atomic_int mapped;
};

/* In the middle of the sleep: the same thread may not wait for itself. */
static void unmapping_hold(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    struct claimant *claimant = context;
    (void)address;
    (void)bytes;
    if (atomic_exchange(&claimant->has_begun, true))
        return;
    claimant->inner[0] = vmm_pool_wake(&pool, 1, NULL, NULL);
    claimant->inner[1] = vmm_pool_sleep(&pool, 1, NULL, NULL);
    claimant->inner[2] = vmm_pool_destroy(pool, 1);
    while (!atomic_load(&claimant->may_end))
        (void)usleep(1000);
}

static void mapped_count(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)pool;
    (void)address;
    (void)bytes;
    atomic_fetch_add(&((struct claimant *)context)->mapped, 1);
}

static void *claim_main(void *context)
{
    struct claimant *claimant = context;
    struct offer_taken taken;
    (void)vmm__offer_take(claimant->test->cache, 1, 0, &taken);
    return NULL;
}

static void *release_main(void *context)
{
    struct claimant *claimant = context;
    (void)usleep(50000);
    atomic_store(&claimant->has_ended, true);
    atomic_store(&claimant->may_end, true);
    return NULL;
}

/* A claim that is putting the pool to sleep, and waits in a function; another thread lets it go on after a while. */
static void claim_begin(struct claimant *claimant)
{
    assert_ok(offer_with(claimant->tenant.pool, unmapping_hold, mapped_count, claimant));
    work_verify(claimant->test);
    assert_int_equal(pthread_create(&claimant->threads[0], NULL, claim_main, claimant), 0);
    while (!atomic_load(&claimant->has_begun))
        (void)usleep(1000);
    assert_int_equal(phase_of(claimant->tenant.pool), VMM_POOL_SLEEPING);
    assert_int_equal(pthread_create(&claimant->threads[1], NULL, release_main, claimant), 0);
}

static void claim_end(const struct claimant *claimant)
{
    assert_true(atomic_load(&claimant->has_ended)); /* so the call has waited */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(claimant->threads[i], NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(claimant->inner[i], VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(a_wake_waits_for_a_sleep_that_a_claim_has_begun)
{
    struct claimant claimant = { .test = test, .tenant = tenant_make(test, VMM_ON_SLEEP_KEEP) };
    claim_begin(&claimant);
    void *other = block_alloc(test, 3 * MIB, 1); /* other pools go on */
    pool_wake(claimant.tenant.pool);
    claim_end(&claimant);
    assert_int_equal(claimant.mapped, 0); /* a wake has its own functions */
    block_free(test, other);
    tenant_check(test, &claimant.tenant);
}

CACHE_TEST(a_sleep_waits_for_one_that_a_claim_has_begun)
{
    struct claimant claimant = { .test = test, .tenant = tenant_make(test, VMM_ON_SLEEP_KEEP) };
    claim_begin(&claimant);
    pool_sleep(claimant.tenant.pool);
    claim_end(&claimant);
    pool_wake(claimant.tenant.pool);
    tenant_check(test, &claimant.tenant);
}

CACHE_TEST(a_destroy_waits_for_a_sleep_that_a_claim_has_begun)
{
    struct claimant claimant = { .test = test, .tenant = tenant_make(test, VMM_ON_SLEEP_KEEP) };
    claim_begin(&claimant);
    assert_ok(vmm_pool_free_all(claimant.tenant.pool));
    assert_ok(vmm_pool_destroy(claimant.tenant.pool, 0));
    claim_end(&claimant);
}

static atomic_bool claims_go_on;

static void *claims_main(void *context)
{
    struct offer_taken taken;
    while (atomic_load(&claims_go_on)) {
        if (!vmm__offer_take(context, 1, 0, &taken))
            (void)usleep(100);
    }
    return NULL;
}

/* Claims come at every moment of the cycle. */
CACHE_TEST(offers_and_wakes_race_with_claims)
{
    enum { CYCLES = IS_SLOW_BUILD ? 16 : 40 };
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pthread_t thread;
    unsigned slept = 0;
    atomic_store(&claims_go_on, true);
    assert_int_equal(pthread_create(&thread, NULL, claims_main, test->cache), 0);
    for (unsigned cycle = 0; cycle < CYCLES; cycle++) {
        assert_ok(offer_with(tenant.pool, NULL, NULL, NULL));
        (void)usleep(cycle % 8 * 50);
        slept += phase_of(tenant.pool) != VMM_POOL_OFFERED;
        pool_wake(tenant.pool);
        block_free(test, tenant.blocks[cycle % 2 + 1]);
        tenant.blocks[cycle % 2 + 1] = NULL;
        tenant_refill(test, &tenant);
        if (cycle % 10 == 0)
            tenant_check(test, &tenant);
    }
    atomic_store(&claims_go_on, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(slept > 0);
    tenant_check(test, &tenant);
}

/* ---- A sleep that fails ------------------------------------------------------------------------ */

/* Each allocation of host memory fails in turn. The pool stays offered and whole, and is not tried again. */
CACHE_TEST(a_sleep_for_a_claim_that_fails_is_not_tried_again)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct offer_taken taken = { .has_failed = true };
    unsigned failures = 0;
    for (uint64_t number = 1; taken.has_failed; number++) {
        offer(tenant.pool);
        work_verify(test);
        (void)vmm__host_fail_at(number);
        bool is_taken = vmm__offer_take(test->cache, 1, 0, &taken);
        bool has_fired = vmm__host_fail_at(0) >= number;
        assert_true(has_fired || (is_taken && !taken.has_failed));
        assert_int_equal(phase_of(tenant.pool),
                         taken.has_failed ? VMM_POOL_OFFERED : VMM_POOL_ASLEEP);
        if (is_taken) /* else the clock could not look, and looks again */
            assert_int_equal(claim(test, 1), 0);
        failures += is_taken && taken.has_failed;
        cache_verify(test);
        pool_wake(tenant.pool);
        tenant_check(test, &tenant);
        assert_ok(vmm_backup_drop(tenant.pool));
    }
    assert_true(failures > 2);
}

CACHE_MAIN()
