/*
 * What programs give to others' claims when idle memory is not enough: what their pressure functions free, and pools
 * that they have offered. The device is a file, so no GPU is needed.
 */
#define _GNU_SOURCE
#include "life/neighbour_support.h"

#include "cache/claim.h"

#include <pthread.h>

/* Of claims: time enough for a sleep in the last quarter of it, and for a program in the second half. */
enum { SLEEP_MS = IS_SLOW_BUILD ? 6000 : 2000 };

/* ---- The program of the holder ------------------------------------------------------------------ */

/* That of the test, which its cache may ask until the teardown. */
static struct program {
    vmm_cache *cache;
    void *kept[16];
    bool gives_singly;
    _Atomic unsigned calls;
} program;

static int kept_free(void *context, vmm_pool *pool, size_t bytes)
{
    (void)context;
    (void)pool;
    (void)bytes;
    atomic_fetch_add(&program.calls, 1);
    int freed = 0;
    for (int i = 0; i < 16 && !(freed > 0 && program.gives_singly); i++) {
        if (program.kept[i] == NULL)
            continue;
        if (vmm_free(program.cache, program.kept[i]) != VMM_OK)
            return 0;
        program.kept[i] = NULL;
        freed++;
    }
    return freed > 0;
}

static void program_begin(vmm_switch pressure, uint32_t priority)
{
    program = (struct program){ .calls = 0 };
    program.cache = CACHE(.pressure = kept_free, .neighbours_pressure = pressure,
                          .neighbours_priority = priority);
    for (int i = 0; i < 16; i++)
        program.kept[i] = block(program.cache, 2 * MIB);
}

/* Nothing waits for headroom that no cache can give, and no program is asked for it, also not half a second later, when
 * the threads of the caches look again. */
NEIGHBOURS_TEST(headroom_that_no_cache_has_costs_nothing)
{
    program_begin(VMM_ON, 0);
    vmm_cache *claimant = CACHE();
    (void)block(claimant, 32 * MIB);
    (void)usleep(600000);
    assert_int_equal(device_free_bytes(claimant), 0);
    assert_int_equal(stats_of(claimant).neighbour_claims, 0);
    assert_int_equal(program.calls, 0);
}

static void the_program_gives(bool singly, unsigned calls)
{
    program_begin(VMM_ON, 0);
    program.gives_singly = singly;
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    (void)block(claimant, 48 * MIB);
    assert_int_equal(program.calls, calls);
}

NEIGHBOURS_TEST(the_program_gives_if_it_allows_that)
{
    the_program_gives(false, 1);
}

/* It frees one model a call, as in the guide. */
NEIGHBOURS_TEST(the_program_is_asked_until_it_has_given_enough)
{
    the_program_gives(true, 8);
}

/* What it has is not enough. It is not asked again after it has said so. */
NEIGHBOURS_TEST(the_program_is_not_asked_again_when_it_has_no_more)
{
    program_begin(VMM_ON, 0);
    program.gives_singly = true;
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    vmm_cache *third = CACHE();
    (void)block(third, 8 * MIB);
    in_vain(claimant, 60 * MIB);
    assert_int_equal(program.calls, 16 + 1);
}

static void the_program_is_not_asked(vmm_switch pressure, uint32_t priority)
{
    program_begin(pressure, priority);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = WAIT_MS);
    in_vain(claimant, 48 * MIB);
    assert_int_equal(program.calls, 0);
}

NEIGHBOURS_TEST(the_program_is_not_asked_unless_it_allows_that)
{
    the_program_is_not_asked(VMM_OFF, 0);
}

NEIGHBOURS_TEST(the_program_is_not_asked_for_a_lower_priority)
{
    the_program_is_not_asked(VMM_ON, 1);
}

/* ---- Pools that are offered --------------------------------------------------------------------- */

/* How often an engine sleeps. */
enum { ROUNDS = 2 };

static char told[4096];

static void log_tell(void *context, const char *line)
{
    (void)context;
    (void)strncat(told, line, sizeof told - strlen(told) - 1);
}

/* A pool with one block, which has all of it, and a pattern. */
static vmm_pool *pool_with(vmm_cache *cache, const char *name, size_t bytes, void **made)
{
    vmm_pool *pool = pool_in(cache, .name = name);
    assert_ok(vmm_alloc_from(pool, bytes, NULL, made));
    pages_write(*made, 0x77, bytes);
    return pool;
}

static void offer_with(vmm_pool *pool, vmm_sleep_fn unmapping, void *context)
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_claim = 1;
    options.unmapping = unmapping;
    options.context = context;
    assert_ok(vmm_pool_sleep(&pool, 1, &options, NULL));
}

static vmm_pool_phase phase_of(vmm_pool *pool)
{
    vmm_pool_phase phase;
    assert_ok(vmm_pool_state(pool, &phase));
    return phase;
}

static void pattern_check(const unsigned char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        assert_int_equal(block[i], 0x77);
    assert_int_equal(block[bytes - 1], 0x77);
}

/* The holder sleeps for the claimant; then its wake claims, and gets the memory back. */
NEIGHBOURS_TEST(an_offered_pool_sleeps_for_a_claim_and_wakes_by_one)
{
    vmm_cache *holder = CACHE(.log = log_tell);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS, .neighbours_name = "claimant");
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 40 * MIB, &kept);
    char expected[128];
    told[0] = '\0';
    offer_with(pool, NULL, NULL);
    uint64_t begin_ns = vmm__time_ns();
    void *got = block(claimant, 48 * MIB);
    assert_in_range(ms_since(begin_ns), SLEEP_MS * 3 / 4, SLEEP_MS + SLACK_MS);
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
    assert_int_equal(reserved(holder), 0);
    assert_int_equal(stats_of(holder).neighbour_sleeps, 1);
    assert_int_equal(stats_of(holder).neighbour_given_bytes, 40 * MIB);
    (void)snprintf(expected, sizeof expected, "(claimant) claims");
    (void)usleep(10000); /* the line follows the memory */
    assert_non_null(strstr(told, "neighbours: pool weights sleeps: gave 40.0 MiB, which process "));
    assert_non_null(strstr(told, expected));
    assert_ok(vmm_free(claimant, got));
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_true(stats_of(holder).neighbour_claims > 0);
    assert_true(stats_of(claimant).neighbour_given_bytes > 0);
    pattern_check(kept, 40 * MIB);
}

/* A wake that no process serves fails when its claim ends, and can be tried again. */
NEIGHBOURS_TEST(a_wake_in_vain_ends_in_time)
{
    vmm_cache *holder = CACHE(.neighbours_wait_ms = WAIT_MS);
    vmm_cache *other = CACHE();
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 40 * MIB, &kept);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    void *got = block(other, 40 * MIB);
    uint64_t begin_ns = vmm__time_ns();
    assert_status(vmm_pool_wake(&pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    assert_in_range(ms_since(begin_ns), WAIT_MS, WAIT_MS + SLACK_MS);
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
    assert_int_equal(stats_of(holder).neighbour_misses, 1);
    assert_int_equal(reserved(holder), 0);
    assert_ok(vmm_free(other, got));
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    pattern_check(kept, 40 * MIB);
}

/* The end of the cache waits for the ticket, whose thread claims. */
NEIGHBOURS_TEST(a_cache_ends_while_its_wake_claims)
{
    vmm_cache *holder = CACHE(.neighbours_wait_ms = WAIT_MS);
    vmm_cache *other = CACHE();
    vmm_ticket *ticket;
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 40 * MIB, &kept);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    (void)block(other, 40 * MIB);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, &ticket));
    while (stats_of(holder).neighbour_claims == 0)
        (void)usleep(500);
    assert_ok(vmm_destroy(holder));
}

/* What a limit refuses is not claimed. */
NEIGHBOURS_TEST(a_wake_beyond_a_limit_does_not_claim)
{
    vmm_cache *holder = CACHE();
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 20 * MIB, &kept);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_ok(vmm_limit_set(holder, 10 * MIB));
    assert_status(vmm_pool_wake(&pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    assert_int_equal(stats_of(holder).neighbour_claims, 0);
}

/* Idle memory and the pressure function are cheaper. */
NEIGHBOURS_TEST(no_pool_sleeps_while_others_can_give)
{
    void *kept;
    program_begin(VMM_ON, 0); /* 32 MiB */
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    vmm_pool *pool = pool_with(program.cache, "weights", 20 * MIB, &kept);
    offer_with(pool, NULL, NULL);
    (void)block(claimant, 40 * MIB);
    assert_int_equal(program.calls, 1);
    assert_int_equal(phase_of(pool), VMM_POOL_OFFERED);
    (void)block(claimant, 20 * MIB); /* there is no other way */
    assert_int_equal(program.calls, 2);
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
    assert_int_equal(stats_of(program.cache).neighbour_sleeps, 1);
}

static void no_pool_sleeps(uint32_t priority, uint64_t floor_bytes, bool is_offered)
{
    vmm_cache *holder =
        CACHE(.neighbours_priority = priority, .neighbours_floor_bytes = floor_bytes);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = WAIT_MS);
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 40 * MIB, &kept);
    if (is_offered)
        offer_with(pool, NULL, NULL);
    in_vain(claimant, 40 * MIB);
    assert_int_equal(phase_of(pool), is_offered ? VMM_POOL_OFFERED : VMM_POOL_AWAKE);
    assert_int_equal(stats_of(holder).neighbour_sleeps, 0);
    assert_int_equal(reserved(holder), 40 * MIB);
}

NEIGHBOURS_TEST(no_pool_sleeps_for_a_lower_priority)
{
    no_pool_sleeps(1, 0, true);
}

NEIGHBOURS_TEST(no_pool_sleeps_below_the_floor)
{
    no_pool_sleeps(0, 2 * MIB, true);
}

NEIGHBOURS_TEST(no_pool_sleeps_that_is_not_offered)
{
    no_pool_sleeps(0, 0, false);
}

/* ---- Several wakes ------------------------------------------------------------------------------ */

/* Without a rule, more than half of the rounds fail. */
enum { WAKE_ROUNDS = 4, WAKE_MS = 2 * WAIT_MS };

struct waking {
    vmm_cache *cache;
    vmm_pool **pools;
    size_t count;
    void *kept; /* a block of the last one */
    vmm_status status;
    uint64_t ms;
    pthread_t thread;
};

static void *wakes_on_thread(void *context)
{
    struct waking *waking = context;
    uint64_t begin_ns = vmm__time_ns();
    waking->status = vmm_pool_wake(waking->pools, waking->count, NULL, NULL);
    waking->ms = ms_since(begin_ns);
    return NULL;
}

/* Both wake at once; the one that succeeds has its bytes, and sleeps again. */
static void one_wakes(struct waking waking[2], size_t bytes)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&waking[i].thread, NULL, wakes_on_thread, &waking[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(waking[i].thread, NULL), 0);
    assert_int_not_equal(waking[0].status == VMM_OK, waking[1].status == VMM_OK);
    const struct waking *awake = &waking[waking[0].status == VMM_OK ? 0 : 1];
    pattern_check(awake->kept, bytes);
    assert_ok(vmm_pool_sleep(awake->pools, awake->count, NULL, NULL));
}

/* A pool of chunks of 2 MiB in each cache, asleep. */
static void pools_sleep(struct waking waking[2], vmm_pool *pools[2], vmm_cache *const caches[2],
                        unsigned chunks)
{
    for (int i = 0; i < 2; i++) {
        waking[i] = (struct waking){ .cache = caches[i], .pools = &pools[i], .count = 1 };
        pools[i] = pool_in(caches[i], .name = "weights");
        for (unsigned part = 0; part < chunks; part++) {
            assert_ok(vmm_alloc_from(pools[i], 2 * MIB, NULL, &waking[i].kept));
            pages_write(waking[i].kept, 0x77, 2 * MIB);
        }
        assert_ok(vmm_pool_sleep(&pools[i], 1, NULL, NULL));
    }
}

/* The device has memory for one of them. Neither keeps a part that the other one waits for. */
NEIGHBOURS_TEST(one_of_two_wakes_succeeds)
{
    struct waking waking[2];
    vmm_pool *pools[2];
    vmm_cache *caches[2];
    for (int i = 0; i < 2; i++)
        caches[i] = CACHE(.neighbours_wait_ms = WAKE_MS);
    pools_sleep(waking, pools, caches, 20);
    for (int round = 0; round < WAKE_ROUNDS; round++)
        one_wakes(waking, 2 * MIB);
}

/* Also of two threads of a cache, which take turns while they wake many chunks. Another cache needs the rest. The one
 * that succeeds does not wait for the end of the other one's claim. */
NEIGHBOURS_TEST(one_of_two_wakes_of_a_cache_succeeds)
{
    enum { CHUNKS = CHUNKS_AT_ONCE + 16, POOL = CHUNKS * 2 * MIB };
    vmm_config config = CACHE_CONFIG(.neighbours = VMM_ON, .neighbours_wait_ms = SLEEP_MS);
    config.device_bytes = 5 * POOL / 2;
    struct waking waking[2];
    vmm_pool *pools[2];
    vmm_cache *cache = cache_make(&config);
    (void)block_in(cache_make(&config), POOL, NULL);
    pools_sleep(waking, pools, (vmm_cache *[2]){ cache, cache }, CHUNKS);
    one_wakes(waking, 2 * MIB);
    int awake = waking[0].status == VMM_OK ? 0 : 1;
    assert_true(waking[awake].ms < waking[1 - awake].ms);
}

/* So it is with calls that wake two pools each: what the first pool has is given back, too. */
NEIGHBOURS_TEST(one_of_two_wakes_of_two_pools_succeeds)
{
    struct waking waking[2];
    vmm_pool *pools[2][2];
    for (int i = 0; i < 2; i++) {
        vmm_cache *cache = CACHE(.neighbours_wait_ms = WAKE_MS);
        waking[i] = (struct waking){ .cache = cache, .pools = pools[i], .count = 2 };
        for (int j = 0; j < 2; j++)
            pools[i][j] = pool_with(cache, "weights", 30 * MIB, &waking[i].kept);
        assert_ok(vmm_pool_sleep(pools[i], 2, NULL, NULL));
    }
    for (int round = 0; round < WAKE_ROUNDS; round++)
        one_wakes(waking, 30 * MIB);
}

enum { LATE_MS = IS_SLOW_BUILD ? 1500 : 1000, LATE_WAIT_MS = LATE_MS * 3 / 2 };

struct freeing {
    vmm_cache *cache;
    void *block;
    pthread_t thread;
};

static void *frees_late(void *context)
{
    const struct freeing *freeing = context;
    (void)usleep(LATE_MS * 1000);
    assert_ok(vmm_free(freeing->cache, freeing->block));
    return NULL;
}

/* One call waits once: the first pool gets its memory late, and the others have what is left of the time. */
NEIGHBOURS_TEST(a_wake_of_several_pools_ends_in_time)
{
    vmm_cache *holder = CACHE(.neighbours_wait_ms = LATE_WAIT_MS);
    vmm_cache *other = CACHE();
    vmm_pool *pools[3];
    void *kept;
    for (int i = 0; i < 3; i++)
        pools[i] = pool_with(holder, "weights", 12 * MIB, &kept);
    assert_ok(vmm_pool_sleep(pools, 3, NULL, NULL));
    struct freeing freeing = { .cache = other, .block = block(other, 16 * MIB) };
    (void)block(other, 44 * MIB);
    uint64_t begin_ns = vmm__time_ns();
    assert_int_equal(pthread_create(&freeing.thread, NULL, frees_late, &freeing), 0);
    assert_status(vmm_pool_wake(pools, 3, NULL, NULL), VMM_ERR_DEVICE_OOM);
    assert_in_range(ms_since(begin_ns), LATE_WAIT_MS, LATE_WAIT_MS + LATE_MS - 50);
    assert_int_equal(pthread_join(freeing.thread, NULL), 0);
    assert_true(stats_of(other).neighbour_given_bytes >= 12 * MIB);
}

/* ---- Claims of two priorities ------------------------------------------------------------------- */

struct claimant {
    vmm_cache *cache;
    size_t bytes;
    vmm_status status;
    pthread_t thread;
};

static void *claims_on_thread(void *context)
{
    struct claimant *claimant = context;
    void *got;
    claimant->status = vmm_alloc(claimant->cache, claimant->bytes, NULL, &got);
    return NULL;
}

static void claim_begin(struct claimant *claimant)
{
    assert_int_equal(pthread_create(&claimant->thread, NULL, claims_on_thread, claimant), 0);
    while (stats_of(claimant->cache).neighbour_claims == 0)
        (void)usleep(1000);
}

/* The time of the important claim counts, also if a long one of a low priority began before it. */
NEIGHBOURS_TEST(a_pool_sleeps_in_time_beside_a_long_claim)
{
    vmm_cache *holder = CACHE(.neighbours_priority = 1);
    struct claimant low = { .cache = CACHE(.neighbours_wait_ms = 8 * SLEEP_MS), .bytes = 32 * MIB };
    vmm_cache *high = CACHE(.neighbours_priority = 5, .neighbours_wait_ms = SLEEP_MS);
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 16 * MIB, &kept);
    offer_with(pool, NULL, NULL);
    void *live = block(holder, 44 * MIB);
    claim_begin(&low);
    (void)block(high, 12 * MIB);
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
    assert_ok(vmm_free(holder, live)); /* which serves the other */
    assert_int_equal(pthread_join(low.thread, NULL), 0);
}

/* Two threads of a cache claim. The second one began later, and does not delay what the first one waits for. */
NEIGHBOURS_TEST(a_pool_sleeps_in_time_beside_a_later_claim_of_the_cache)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claiming = CACHE(.neighbours_wait_ms = SLEEP_MS);
    struct claimant first = { .cache = claiming, .bytes = 20 * MIB };
    struct claimant second = { .cache = claiming, .bytes = 40 * MIB }; /* more than there is */
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 24 * MIB, &kept);
    offer_with(pool, NULL, NULL);
    void *live = block(holder, 32 * MIB);
    claim_begin(&first);
    (void)usleep(SLEEP_MS * 600);
    assert_int_equal(pthread_create(&second.thread, NULL, claims_on_thread, &second), 0);
    assert_int_equal(pthread_join(first.thread, NULL), 0);
    assert_ok(vmm_free(holder, live)); /* which serves the other */
    assert_int_equal(pthread_join(second.thread, NULL), 0);
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
    assert_int_equal(first.status, VMM_OK);
}

/* A pool does not sleep for the bytes that a claim of a lower priority wants beside. */
NEIGHBOURS_TEST(no_more_sleeps_than_the_important_claim_needs)
{
    vmm_cache *holder = CACHE(.neighbours_priority = 1);
    struct claimant low = { .cache = CACHE(.neighbours_wait_ms = SLEEP_MS), .bytes = 36 * MIB };
    vmm_cache *high = CACHE(.neighbours_priority = 5, .neighbours_wait_ms = SLEEP_MS);
    void *kept[2];
    vmm_pool *small = pool_with(holder, "small", 8 * MIB, &kept[0]);
    vmm_pool *large = pool_with(holder, "large", 40 * MIB, &kept[1]);
    offer_with(small, NULL, NULL);
    offer_with(large, NULL, NULL);
    (void)block(holder, 14 * MIB);
    claim_begin(&low);
    (void)block(high, 6 * MIB);
    assert_int_equal(pthread_join(low.thread, NULL), 0);
    assert_int_equal(phase_of(small), VMM_POOL_ASLEEP);
    assert_int_equal(phase_of(large), VMM_POOL_OFFERED);
}

/* The sleep goes on only once a flag is set. */
static void unmapping_hold(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    const _Atomic bool *goes_on = context;
    (void)pool;
    (void)address;
    (void)bytes;
    while (!atomic_load(goes_on))
        (void)usleep(500);
}

NEIGHBOURS_TEST(a_claim_that_is_over_puts_no_more_to_sleep)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    void *kept[2];
    vmm_pool *large = pool_with(holder, "large", 32 * MIB, &kept[0]);
    vmm_pool *small = pool_with(holder, "small", 24 * MIB, &kept[1]);
    _Atomic bool is_over = false;
    offer_with(large, unmapping_hold, &is_over);
    offer_with(small, NULL, NULL);
    in_vain(claimant, 60 * MIB); /* it needs both */
    assert_int_equal(phase_of(large), VMM_POOL_SLEEPING);
    atomic_store(&is_over, true);
    while (phase_of(large) != VMM_POOL_ASLEEP)
        (void)usleep(10000);
    (void)usleep(100000);
    assert_int_equal(phase_of(small), VMM_POOL_OFFERED);
    assert_int_equal(stats_of(holder).neighbour_sleeps, 1);
    assert_ok(vmm_pool_wake(&large, 1, NULL, NULL));
    pattern_check(kept[0], 32 * MIB);
}

static void *claim_most(void *context)
{
    void *none;
    (void)!vmm_alloc(context, 60 * MIB, NULL, &none);
    return NULL;
}

struct both {
    vmm_pool *pools[2];
    vmm_status status;
};

static void *both_sleep(void *context)
{
    struct both *both = context;
    both->status = vmm_pool_sleep(both->pools, 2, NULL, NULL);
    return NULL;
}

static void phase_wait(vmm_pool *pool, vmm_pool_phase phase)
{
    while (phase_of(pool) != phase)
        (void)usleep(500);
}

/* While a call waits for the sleep of one pool, the claim takes the other one. */
NEIGHBOURS_TEST(a_call_waits_for_all_of_its_pools)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    void *kept[2];
    vmm_pool *large = pool_with(holder, "large", 32 * MIB, &kept[0]);
    vmm_pool *small = pool_with(holder, "small", 24 * MIB, &kept[1]);
    struct both both = { .pools = { small, large } };
    _Atomic bool goes_on[2] = { false, false };
    pthread_t threads[2];
    offer_with(large, unmapping_hold, &goes_on[0]);
    offer_with(small, unmapping_hold, &goes_on[1]);
    assert_int_equal(pthread_create(&threads[0], NULL, claim_most, claimant), 0);
    phase_wait(large, VMM_POOL_SLEEPING);
    assert_int_equal(pthread_create(&threads[1], NULL, both_sleep, &both), 0);
    (void)usleep(50000); /* it waits for the large one */
    atomic_store(&goes_on[0], true);
    phase_wait(large, VMM_POOL_ASLEEP);
    (void)usleep(50000);
    atomic_store(&goes_on[1], true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_ok(both.status);
    assert_int_equal(phase_of(small), VMM_POOL_ASLEEP);
}

/* A cache can end at any moment of it: here the sleep goes on once the destroy stops its thread. */
NEIGHBOURS_TEST(a_cache_ends_while_its_pool_goes_to_sleep)
{
    struct vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    void *kept;
    vmm_pool *pool = pool_with(holder, "weights", 40 * MIB, &kept);
    offer_with(pool, unmapping_hold, &holder->neighbours->stops);
    in_vain(claimant, 60 * MIB);
    assert_int_equal(phase_of(pool), VMM_POOL_SLEEPING);
    assert_ok(vmm_destroy(holder));
    (void)block(claimant, 60 * MIB);
}

static void wakes_in_child(void *context)
{
    vmm_pool *pool = context;
    CHILD_REQUIRES(vmm_pool_wake(&pool, 1, NULL, NULL) == VMM_ERR_FORKED);
}

/* An engine of another process: offers what it has, and needs it again after the claim. */
static void engine(void *context)
{
    void *kept;
    (void)context;
    vmm_cache *cache = CACHE();
    vmm_pool *pool = pool_with(cache, "engine", 40 * MIB, &kept);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        offer_with(pool, NULL, NULL);
        atomic_fetch_add(&shared->ready, 1);
        while (atomic_load(&shared->go) < round)
            (void)usleep(500);
        CHILD_REQUIRES(vmm_pool_wake(&pool, 1, NULL, NULL) == VMM_OK);
        pattern_check(kept, 40 * MIB);
    }
    CHILD_REQUIRES(stats_of(cache).neighbour_sleeps == ROUNDS);
    child_runs(wakes_in_child, pool);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

NEIGHBOURS_TEST(another_process_sleeps_and_wakes)
{
    pid_t child = child_begun(engine, NULL);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        flag_wait(&shared->ready, round);
        void *got = block(claimant, 60 * MIB);
        assert_ok(vmm_free(claimant, got));
        atomic_store(&shared->go, round);
    }
    assert_true(child_ended(child, 0));
}

static void sleeps_for_ever(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)context;
    (void)pool;
    (void)address;
    (void)bytes;
    atomic_fetch_add(&shared->served, 1);
    for (;;)
        (void)pause();
}

static void is_stuck(void *context)
{
    void *kept;
    (void)context;
    vmm_pool *pool = pool_with(CACHE(), "stuck", 40 * MIB, &kept);
    offer_with(pool, sleeps_for_ever, NULL);
    atomic_fetch_add(&shared->ready, 1);
    for (;;)
        (void)pause();
}

/* Its memory is the device's again; a process that never ends its sleep costs others the deadline. */
NEIGHBOURS_TEST(a_holder_that_is_killed_in_its_sleep_is_forgotten)
{
    pid_t child = child_begun(is_stuck, NULL);
    flag_wait(&shared->ready, 1);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = SLEEP_MS);
    in_vain(claimant, 60 * MIB);
    assert_int_equal(atomic_load(&shared->served), 1);
    child_kill(child);
    (void)block(claimant, 60 * MIB);
}
