/*
 * Caches on one device give each other idle memory: caches of one process, and processes that are stopped, killed, or
 * fork. The device is a file, so no GPU is needed. test_life_offers.c has what programs give besides.
 */
#define _GNU_SOURCE
#include "life/neighbour_support.h"

#include "base/hostmem.h"
#include "cache/reclaim/answer.h"
#include "neighbour/record.h"
#include "support/folder_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

/* ---- Who gives what ---------------------------------------------------------------------------- */

NEIGHBOURS_TEST(a_holder_gives_idle_memory)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    idle_make(holder, 28, 4);
    uint64_t before = stats_of(claimant).create_calls;
    uint64_t begin_ns = vmm__time_ns();
    (void)block(claimant, 40 * MIB);
    assert_true(ms_since(begin_ns) < LONG_MS + SLACK_MS);
    assert_int_equal(stats_of(claimant).neighbour_claims, 1);
    assert_int_equal(stats_of(claimant).neighbour_misses, 0);
    assert_true(stats_of(claimant).neighbour_wait_ns > 0);
    /* nothing was created that the device then refused to complete */
    assert_int_equal(stats_of(claimant).create_calls - before, stats_of(claimant).chunks.current);
    uint64_t given = stats_of(holder).neighbour_given_bytes;
    assert_in_range(given, 32 * MIB, 48 * MIB);
    assert_int_equal(reserved(holder), 56 * MIB - given);
}

/* Beside it: the same without neighbours, which costs no file and no thread. */
NEIGHBOURS_TEST(without_neighbours_it_is_out_of_memory)
{
    int threads = count_entries("/proc/self/task");
    vmm_cache *holder = cache_make(&CACHE_CONFIG());
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = WAIT_MS);
    idle_make(holder, 28, 4);
    in_vain(claimant, 40 * MIB);
    assert_ok(vmm_destroy(claimant));
    assert_int_equal(count_entries("/proc/self/task"), threads);
    assert_int_equal(count_entries(neighbours_folder), 2);
    in_vain(holder, 60 * MIB);
    assert_int_equal(stats_of(holder).neighbour_claims, 0);
}

NEIGHBOURS_TEST(no_more_is_given_than_is_missing)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    idle_make(holder, 30, 0);
    (void)block(claimant, 8 * MIB);
    assert_in_range(stats_of(holder).neighbour_given_bytes, 4 * MIB, 6 * MIB);
}

/* CUDA and its libraries allocate without the cache. They find memory while caches have idle memory. */
static void headroom_expect(vmm_cache *cache)
{
    uint64_t begin_ns = vmm__time_ns();
    while (device_free_bytes(cache) < DEVICE / 128)
        assert_true(ms_since(begin_ns) < LONG_MS);
}

NEIGHBOURS_TEST(the_device_keeps_headroom)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    idle_make(holder, 30, 0);
    (void)block(claimant, 4 * MIB); /* what the device has: nothing is refused */
    headroom_expect(claimant);
    assert_int_equal(stats_of(claimant).neighbour_claims, 0);
    (void)block(claimant, 8 * MIB); /* the device refuses this */
    headroom_expect(claimant);
    assert_in_range(stats_of(holder).neighbour_given_bytes, 10 * MIB, 14 * MIB);
}

NEIGHBOURS_TEST(headroom_comes_from_a_caches_own_idle_memory_too)
{
    vmm_cache *cache = CACHE(.neighbours_wait_ms = WAIT_MS);
    vmm_cache *floored = CACHE(.neighbours_floor_bytes = 8 * MIB);
    idle_make(floored, 4, 0);
    idle_make(cache, 28, 0);
    headroom_expect(cache);
    assert_in_range(stats_of(cache).neighbour_given_bytes, 2 * MIB, 4 * MIB);
    in_vain(cache, DEVICE); /* a claim, but no process took what this one gave */
    assert_int_equal(stats_of(cache).neighbour_claims, 1);
    assert_int_equal(stats_of(cache).neighbour_turns, 0);
    assert_int_equal(stats_of(floored).neighbour_given_bytes, 0);
}

NEIGHBOURS_TEST(the_floor_stays)
{
    vmm_cache *holder = CACHE(.neighbours_floor_bytes = 40 * MIB);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = WAIT_MS);
    idle_make(holder, 30, 0);
    in_vain(claimant, 32 * MIB);
    assert_int_equal(reserved(holder), 40 * MIB);
    assert_int_equal(stats_of(claimant).neighbour_misses, 1);
    (void)block(claimant, 24 * MIB); /* what is left */
}

NEIGHBOURS_TEST(what_a_limit_refuses_is_not_claimed)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE(.limit_bytes = 16 * MIB);
    void *none;
    idle_make(holder, 30, 0);
    in_vain(claimant, 20 * MIB);
    vmm_pool *pool = pool_in(claimant, .limit_bytes = 4 * MIB);
    assert_status(vmm_alloc_from(pool, 6 * MIB, NULL, &none), VMM_ERR_DEVICE_OOM);
    assert_int_equal(stats_of(claimant).neighbour_claims, 0);
    assert_int_equal(reserved(holder), 60 * MIB);
}

NEIGHBOURS_TEST(a_claim_in_vain_ends_in_time)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = WAIT_MS);
    idle_make(holder, 30, 30);
    uint64_t begin_ns = vmm__time_ns();
    in_vain(claimant, 8 * MIB);
    assert_in_range(ms_since(begin_ns), WAIT_MS, WAIT_MS + SLACK_MS);
    assert_int_equal(stats_of(holder).neighbour_given_bytes, 0);
}

/* It ends at once, and the others keep what they have. */
NEIGHBOURS_TEST(what_the_device_can_never_serve_is_not_claimed)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    idle_make(holder, 12, 0);
    in_vain(claimant, DEVICE + 2 * MIB);
    (void)block(claimant, 32 * MIB);
    in_vain(claimant, 34 * MIB);
    assert_int_equal(stats_of(claimant).neighbour_claims, 0);
    assert_int_equal(reserved(holder), 24 * MIB);
}

/* Blocks that sleep have no memory of the device, so the device could serve the request. */
NEIGHBOURS_TEST(a_cache_claims_beside_its_pool_that_sleeps)
{
    vmm_cache *claimant = CACHE();
    vmm_cache *holder = CACHE();
    vmm_pool *pool = pool_in(claimant, .on_sleep = VMM_ON_SLEEP_DISCARD);
    void *kept;
    assert_ok(vmm_alloc_from(pool, 40 * MIB, NULL, &kept));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    idle_make(holder, 31, 0);
    (void)block(claimant, 30 * MIB);
    assert_int_equal(stats_of(claimant).neighbour_claims, 1);
}

struct later {
    vmm_cache *cache;
    void *block;
};

static void *free_later(void *context)
{
    const struct later *later = context;
    while (stats_of(later->cache).neighbour_claims == 0)
        (void)usleep(1000);
    (void)usleep(50000);
    assert_ok(vmm_free(later->cache, later->block));
    return NULL;
}

NEIGHBOURS_TEST(what_its_own_process_frees_ends_a_claim)
{
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = 4 * LONG_MS);
    struct later later = { .cache = claimant, .block = block(claimant, 30 * MIB) };
    (void)block(CACHE(), 30 * MIB);
    pthread_t thread;
    uint64_t begin_ns = vmm__time_ns();
    assert_int_equal(pthread_create(&thread, NULL, free_later, &later), 0);
    (void)block(claimant, 28 * MIB);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(ms_since(begin_ns) < LONG_MS);
}

/* Whether the larger one gave all, or with a priority the smaller one. */
static bool is_in_order(uint32_t priority_of_large)
{
    vmm_cache *small = CACHE();
    vmm_cache *large = CACHE(.neighbours_priority = priority_of_large);
    vmm_cache *claimant = CACHE();
    idle_make(small, 10, 0);
    idle_make(large, 20, 0);
    vmm__neighbours_show(small);
    vmm__neighbours_show(large);
    (void)block(claimant, 10 * MIB);
    vmm_cache *giver = priority_of_large > 0 ? small : large;
    vmm_cache *other = priority_of_large > 0 ? large : small;
    uint64_t given = stats_of(giver).neighbour_given_bytes;
    uint64_t others = stats_of(other).neighbour_given_bytes;
    assert_true(given + others >= 6 * MIB);
    assert_ok(vmm_destroy(claimant));
    assert_ok(vmm_destroy(large));
    assert_ok(vmm_destroy(small));
    return others == 0 && given <= 10 * MIB;
}

/* On a busy machine the first may be late, and the second begin. */
static void one_of_two_gives(uint32_t priority_of_large)
{
    bool was_in_order = false;
    for (int tries = 0; tries < 10 && !was_in_order; tries++)
        was_in_order = is_in_order(priority_of_large);
    assert_true(was_in_order || IS_SLOW_BUILD);
}

NEIGHBOURS_TEST(who_has_most_gives_first)
{
    one_of_two_gives(0);
}

NEIGHBOURS_TEST(a_lower_priority_gives_first)
{
    one_of_two_gives(1);
}

/* Another process, which is to give first, has begun to release a part, and stands still. */
NEIGHBOURS_TEST(others_wait_for_one_that_releases_a_part)
{
    vmm_cache *holder = CACHE(.neighbours_priority = 1);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = LONG_MS);
    struct neighbour_record record;
    struct neighbour_slot slot = { .idle_bytes = 8 * MIB, .reserved_bytes = 8 * MIB };
    const struct driver *driver = holder->driver;
    assert_ok(vmm__neighbour_join(&record, neighbours_folder, driver->uuid, sizeof driver->uuid));
    idle_make(holder, 20, 0);
    uint64_t begin_ns = vmm__time_ns();
    slot.giving_ns = begin_ns;
    vmm__neighbour_write(&record, &slot);
    (void)block(claimant, 50 * MIB);
    uint64_t waited_ns = vmm__time_ns() - begin_ns;
    vmm__neighbour_leave(&record);
    assert_in_range(waited_ns, CLAIM_TRY_NS, LONG_MS * UINT64_C(1000000));
}

NEIGHBOURS_TEST(what_finishes_in_time_is_given)
{
    struct vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    void *used = block(holder, 56 * MIB);
    assert_ok(vmm__driver_delay(holder->driver, WAIT_MS * UINT64_C(300000), NULL));
    assert_ok(vmm_free(holder, used));
    uint64_t begin_ns = vmm__time_ns();
    (void)block(claimant, 40 * MIB);
    assert_in_range(ms_since(begin_ns), WAIT_MS / 10, LONG_MS + SLACK_MS);
}

/* The holder makes no call any more, so its thread must see that what waited has finished. */
NEIGHBOURS_TEST(what_another_stream_has_used_is_given)
{
    struct vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    vmm_stream user = (vmm_stream)(uintptr_t)0x1000;
    void *used = block(holder, 56 * MIB);
    assert_ok(vmm__driver_delay(holder->driver, WAIT_MS * UINT64_C(300000), user));
    assert_ok(vmm_record_stream(holder, used, user));
    assert_ok(vmm_free(holder, used));
    (void)block(claimant, 40 * MIB);
}

NEIGHBOURS_TEST(what_was_decommitted_is_given)
{
    struct vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    void *grown;
    vmm_pool *pool = pool_in_with(holder, NULL);
    assert_ok(vmm_reserve(pool, 56 * MIB, 2 * MIB, NULL, &grown));
    assert_ok(vmm_commit(holder, grown, 0, 56 * MIB));
    assert_ok(vmm__driver_delay(holder->driver, WAIT_MS * UINT64_C(300000), NULL));
    assert_ok(vmm_decommit(holder, grown, 0, 56 * MIB));
    (void)block(claimant, 40 * MIB);
}

/* Processes take turns if they claim within TURN_MS of what they gave: see cache/claim.c. */
enum { TURN_MS = 1000, ATTEMPTS = 5 };

/* False: a claim took so long that its cache may not count it as a turn. */
static bool turns_are_counted(void)
{
    vmm_cache *caches[2] = { CACHE(), CACHE() };
    bool was_quick = true;
    for (int round = 0; round < 4; round++) {
        uint64_t begin_ns = vmm__time_ns();
        void *whole = block(caches[round % 2], 60 * MIB);
        assert_ok(vmm_free(caches[round % 2], whole));
        was_quick = was_quick && ms_since(begin_ns) < TURN_MS;
    }
    for (int i = 0; i < 2; i++) {
        if (was_quick)
            assert_int_equal(stats_of(caches[i]).neighbour_turns, 1); /* its second round */
        assert_ok(vmm_destroy(caches[i]));
    }
    return was_quick;
}

/* One attempt says it: the others are for machines that have no time for this process. */
NEIGHBOURS_TEST(memory_that_goes_to_and_fro_is_counted)
{
    bool was_quick = false;
    for (int i = 0; i < ATTEMPTS && !was_quick; i++)
        was_quick = turns_are_counted();
    assert_true(was_quick);
}

/* ---- Processes ---------------------------------------------------------------------------------- */

static void holds_idle(void *context)
{
    (void)context;
    idle_make(CACHE(), 28, 0);
    atomic_fetch_add(&shared->ready, 1);
    for (;;)
        (void)pause();
}

static pid_t holder_begun(void)
{
    pid_t child = child_begun(holds_idle, NULL);
    flag_wait(&shared->ready, 1);
    return child;
}

NEIGHBOURS_TEST(another_process_gives)
{
    pid_t child = holder_begun();
    vmm_cache *claimant = CACHE();
    (void)block(claimant, 60 * MIB);
    child_kill(child);
}

/* It cannot answer, and delays the request until the deadline. Then it can. */
NEIGHBOURS_TEST(a_stopped_holder_costs_the_deadline)
{
    pid_t child = holder_begun();
    int status;
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    vmm_cache *claimant = CACHE(.neighbours_wait_ms = WAIT_MS);
    uint64_t begin_ns = vmm__time_ns();
    in_vain(claimant, 40 * MIB);
    assert_in_range(ms_since(begin_ns), WAIT_MS, WAIT_MS + SLACK_MS);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_ok(vmm_destroy(claimant));
    claimant = CACHE();
    (void)block(claimant, 40 * MIB);
    child_kill(child);
}

NEIGHBOURS_TEST(the_memory_of_a_killed_holder_comes_back)
{
    pid_t child = holder_begun();
    vmm_cache *claimant = CACHE();
    assert_int_equal(kill(child, SIGSTOP), 0);
    child_kill(child);
    (void)block(claimant, 60 * MIB);
    assert_int_equal(stats_of(claimant).neighbour_claims, 0);
}

static void claims_for_long(void *context)
{
    void *none;
    (void)context;
    flag_wait(&shared->go, 1);
    vmm_cache *cache = CACHE(.neighbours_wait_ms = 30000);
    (void)!vmm_alloc(cache, 60 * MIB, NULL, &none);
    CHILD_REQUIRES(false);
}

/* Its claim ends with it, whatever its deadline was. */
NEIGHBOURS_TEST(a_killed_claimant_is_forgotten)
{
    pid_t child = child_begun(claims_for_long, NULL);
    vmm_cache *holder = CACHE(.neighbours_floor_bytes = 40 * MIB);
    idle_make(holder, 30, 10);
    atomic_store(&shared->go, 1);
    while (stats_of(holder).neighbour_given_bytes < 20 * MIB)
        (void)usleep(1000);
    child_kill(child);
    idle_make(holder, 10, 0);
    uint64_t given = stats_of(holder).neighbour_given_bytes;
    (void)usleep(50000);
    assert_int_equal(stats_of(holder).neighbour_given_bytes, given);
}

static void takes_its_turn(void *context)
{
    (void)context;
    vmm_cache *cache = CACHE(.neighbours_wait_ms = 20000);
    atomic_fetch_add(&shared->ready, 1);
    flag_wait(&shared->go, 1);
    for (int round = 0; round < 20; round++) {
        void *whole;
        CHILD_REQUIRES(vmm_alloc(cache, 60 * MIB, NULL, &whole) == VMM_OK);
        pages_write(whole, (unsigned char)round, 60 * MIB);
        (void)usleep(1000);
        CHILD_REQUIRES(*((char *)whole + 60 * MIB - 1) == round);
        CHILD_REQUIRES(vmm_free(cache, whole) == VMM_OK);
    }
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

static uint64_t process_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void (*runs_late)(void); /* when the process ends with caches */

static void rest_expect(void)
{
    uint64_t begin_ns = process_ns();
    (void)usleep(2 * MONITOR_PERIOD_MS * 1000);
    CHILD_REQUIRES(process_ns() - begin_ns < MONITOR_PERIOD_MS * UINT64_C(500000));
    child_leave(); /* LeakSanitizer does not know that the cache is left on purpose */
}

static void late_run(void)
{
    if (runs_late != NULL)
        runs_late();
}

/* Registered first, so it runs after the library's handler. */
__attribute__((constructor)) static void late_register(void)
{
    (void)atexit(late_run);
}

static void caches_leave(void (*late)(void))
{
    vmm_cache *cache = CACHE(.neighbours_wait_ms = WAIT_MS);
    (void)block(cache, DEVICE - 8 * MIB);
    in_vain(cache, 16 * MIB); /* its claim rings for all */
    runs_late = late;
    exit(0);
}

static void rests_late(void *context)
{
    (void)context;
    caches_leave(rest_expect);
}

/* As in PyTorch, which never destroys its cache: the threads do not run in circles while the process ends. */
NEIGHBOURS_TEST(threads_rest_while_the_process_ends)
{
    child_runs(rests_late, NULL);
}

/* No other process sees a claim any more. */
static void no_wait_expect(void)
{
    uint64_t begin_ns = vmm__time_ns();
    void *none;
    CHILD_REQUIRES(vmm_alloc(caches_made[0], 16 * MIB, NULL, &none) == VMM_ERR_DEVICE_OOM);
    CHILD_REQUIRES(ms_since(begin_ns) < WAIT_MS / 2);
    child_leave();
}

static void requests_late(void *context)
{
    (void)context;
    (void)CACHE(.neighbours_wait_ms = WAIT_MS);
    caches_leave(no_wait_expect);
}

NEIGHBOURS_TEST(a_request_of_a_late_handler_does_not_wait)
{
    child_runs(requests_late, NULL);
}

static void destroy_expect(void)
{
    (void)usleep(20000); /* the thread rests by then */
    uint64_t begin_ns = vmm__time_ns();
    CHILD_REQUIRES(vmm_destroy(caches_made[caches_count - 1]) == VMM_OK);
    CHILD_REQUIRES(ms_since(begin_ns) < MONITOR_PERIOD_MS / 2);
    child_leave();
}

static void destroys_late(void *context)
{
    (void)context;
    caches_leave(destroy_expect);
}

/* By a handler that runs after the library's: the thread that rests is woken, and does not sleep its time out. */
NEIGHBOURS_TEST(a_late_handler_destroys_quickly)
{
    child_runs(destroys_late, NULL);
}

/* Three that each need nearly all: any two claim at once, all the time. */
NEIGHBOURS_TEST(claimants_of_the_same_memory_take_turns)
{
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        children[i] = child_begun(takes_its_turn, NULL);
    flag_wait(&shared->ready, 3);
    atomic_store(&shared->go, 1);
    for (int i = 0; i < 3; i++)
        assert_true(child_ended(children[i], 0));
}

static void *claim_on_thread(void *context)
{
    void *got = NULL;
    (void)!vmm_alloc(context, 20 * MIB, NULL, &got);
    return got;
}

/* Two threads of one cache claim at once; others of it allocate and free cached memory meanwhile. */
NEIGHBOURS_TEST(threads_claim_together)
{
    vmm_cache *holder = CACHE();
    vmm_cache *claimant = CACHE();
    void *small = block(claimant, 2 * MIB);
    pthread_t threads[2];
    void *got[2];
    idle_make(holder, 30, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, claim_on_thread, claimant), 0);
    for (int i = 0; i < 100; i++) {
        assert_ok(vmm_free(claimant, small));
        assert_ok(vmm_alloc(claimant, 2 * MIB, NULL, &small));
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], &got[i]), 0);
    assert_non_null(got[0]);
    assert_non_null(got[1]);
}

/* While a thread of a cache waits in a claim, the cache itself still gives. */
NEIGHBOURS_TEST(a_cache_answers_after_a_claim_of_its_own)
{
    vmm_cache *first = CACHE(.neighbours_wait_ms = 50);
    vmm_cache *second = CACHE(.neighbours_wait_ms = 5000);
    idle_make(first, 16, 0);
    (void)block(second, 20 * MIB);
    in_vain(first, 60 * MIB); /* gave up, and has idle memory */
    (void)block(second, 30 * MIB);
}

static void forks(void *context)
{
    vmm_cache *cache = context;
    void *none;
    CHILD_REQUIRES(vmm_alloc(cache, MIB, NULL, &none) == VMM_ERR_FORKED);
#ifndef VMM_THREAD_SANITIZER /* which has no threads after a fork of several */
    vmm_cache *own = CACHE();
    CHILD_REQUIRES(vmm_alloc(own, 56 * MIB, NULL, &none) == VMM_OK); /* its parent gives */
    CHILD_REQUIRES(vmm_destroy(own) == VMM_OK);
#endif
}

NEIGHBOURS_TEST(a_child_of_fork_is_a_neighbour_of_its_parent)
{
    vmm_cache *cache = CACHE();
    idle_make(cache, 30, 0);
    child_runs(forks, cache);
#ifndef VMM_THREAD_SANITIZER
    assert_true(stats_of(cache).neighbour_given_bytes > 0);
#endif
}

/* ---- What a cache tells of others ----------------------------------------------------------------- */

struct seen {
    vmm_neighbour all[4];
    unsigned count;
    unsigned most;
};

static int neighbour_see(void *context, const vmm_neighbour *neighbour)
{
    struct seen *seen = context;
    seen->all[seen->count++] = *neighbour;
    return seen->count == seen->most;
}

/* Walks until the second cache has shown so much idle memory, which it does twice a second. */
static struct seen shown_wait(vmm_cache *cache, uint64_t idle_bytes)
{
    uint64_t begin_ns = vmm__time_ns();
    struct seen seen;
    do {
        (void)usleep(10000);
        seen = (struct seen){ .most = 4 };
        assert_ok(vmm_neighbours_walk(cache, neighbour_see, &seen));
    } while (seen.all[1].idle_bytes != idle_bytes && ms_since(begin_ns) < LONG_MS);
    return seen;
}

NEIGHBOURS_TEST(a_walk_shows_all_caches)
{
    vmm_cache *first = CACHE(.neighbours_priority = 3, .neighbours_name = "first",
                             .neighbours_floor_bytes = 5 * MIB, .limit_bytes = 32 * MIB);
    vmm_cache *second = CACHE();
    idle_make(first, 8, 2);
    struct seen seen = shown_wait(second, 12 * MIB);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.all[0].is_self, 1);
    assert_string_equal(seen.all[0].name, "test_life_claims");
    assert_int_equal(seen.all[1].is_self, 0);
    assert_int_equal(seen.all[1].pid, getpid());
    assert_string_equal(seen.all[1].name, "first");
    assert_int_equal(seen.all[1].priority, 3);
    assert_int_equal(seen.all[1].floor_bytes, 5 * MIB);
    assert_int_equal(seen.all[1].limit_bytes, 32 * MIB);
    assert_int_equal(seen.all[1].live_bytes, 4 * MIB);
    assert_int_equal(seen.all[1].reserved_bytes, 16 * MIB);
    assert_int_equal(seen.all[1].idle_bytes, 12 * MIB);
    seen = (struct seen){ .most = 1 };
    assert_ok(vmm_neighbours_walk(second, neighbour_see, &seen));
    assert_int_equal(seen.count, 1);
}

NEIGHBOURS_TEST(what_others_could_give_is_available)
{
    vmm_cache *holder = CACHE(.neighbours_floor_bytes = 20 * MIB);
    vmm_cache *cache = CACHE();
    uint64_t bytes;
    idle_make(holder, 24, 8);
    vmm__neighbours_show(holder);
    assert_ok(vmm_available_get(cache, &bytes));
    assert_int_equal(bytes, 16 * MIB + 28 * MIB); /* the floor leaves so much of 32 MiB */
    (void)block(cache, bytes);
}

/* What a pool was promised is not given, so it does not count. */
NEIGHBOURS_TEST(what_is_never_given_is_not_available)
{
    struct vmm_cache *holder = CACHE();
    vmm_cache *cache = CACHE();
    vmm_pool *pool = pool_in(holder, .reserve_bytes = 20 * MIB);
    vmm_stream streams[2] = { NULL };
    void *blocks[16];
    uint64_t bytes;
    assert_ok(vmm__driver_stream_create(holder->driver, &streams[1]));
    for (int i = 0; i < 16; i++)
        assert_ok(vmm_alloc_from(pool, 2 * MIB, streams[i % 2], &blocks[i]));
    for (int i = 0; i < 16; i++)
        assert_ok(vmm_free(holder, blocks[i]));
    vmm__neighbours_show(holder);
    assert_ok(vmm_available_get(cache, &bytes));
    assert_int_equal(bytes, 12 * MIB + 32 * MIB);
    (void)block(cache, bytes);
    assert_int_equal(reserved(holder), 20 * MIB);
}

/* ---- Hostile processes ---------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252U;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Random numbers, but a claim that waits now in every second one. */
static void hostile_show(struct neighbour_record *record)
{
    union {
        struct neighbour_slot slot;
        uint64_t words[sizeof(struct neighbour_slot) / sizeof(uint64_t)];
    } random;
    for (size_t i = 0; i < sizeof random / sizeof(uint64_t); i++)
        random.words[i] = random_next();
    if (random_next() % 2 == 0) {
        random.slot.begin_ns = vmm__time_ns();
        random.slot.end_ns = random.slot.begin_ns + 10000000000;
    }
    vmm__neighbour_write(record, &random.slot);
    vmm__neighbour_ring(record, (enum neighbour_bell)(random_next() % BELLS));
}

static int neighbour_check(void *context, const vmm_neighbour *neighbour)
{
    ++*(unsigned *)context;
    return memchr(neighbour->name, '\0', sizeof neighbour->name) == NULL;
}

/* What a process of the user writes costs others idle memory and time while it does, and nothing else. */
NEIGHBOURS_TEST(hostile_slots_do_no_harm)
{
    struct vmm_cache *holder = CACHE(.neighbours_floor_bytes = 16 * MIB);
    vmm_cache *claimant = CACHE();
    struct neighbour_record records[3];
    unsigned char *live = block(holder, 10 * MIB);
    for (int i = 0; i < 3; i++)
        assert_ok(vmm__neighbour_join(&records[i], neighbours_folder, holder->driver->uuid,
                                      sizeof holder->driver->uuid));
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t bytes = 0;
        unsigned count = 0;
        hostile_show(&records[round % 3]);
        if (round % 500 != 0)
            continue;
        assert_ok(vmm_available_get(claimant, &bytes));
        assert_true(bytes <= DEVICE);
        assert_ok(vmm_neighbours_walk(claimant, neighbour_check, &count));
        assert_in_range(count, 2, 5);
        assert_ok(vmm_free(holder, block(holder, 20 * MIB)));
    }
    for (int i = 0; i < 3; i++)
        vmm__neighbour_leave(&records[i]);
    for (size_t i = 0; i < 10 * MIB; i += 4096)
        assert_int_equal(live[i], 0x5A);
    (void)block(claimant, 44 * MIB); /* as soon as they have left */
    assert_true(reserved(holder) >= 16 * MIB);
}

/* ---- Without a record ---------------------------------------------------------------------------- */

static char logged[4096];

static void log_add(void *context, const char *line)
{
    (void)context;
    (void)strncat(logged, line, sizeof logged - strlen(logged) - 1);
}

/* The cache works, and says once why it is alone. */
static void works_alone(const char *part, const vmm_config *config)
{
    logged[0] = '\0';
    vmm_cache *cache = cache_make(config);
    if (strstr(logged, part) == NULL)
        print_error("%s\n", logged);
    assert_non_null(strstr(logged, part));
    assert_non_null(strstr(logged, "works without"));
    void *got = block_in(cache, MIB, NULL);
    assert_status(vmm_alloc(cache, 80 * MIB, NULL, &got), VMM_ERR_DEVICE_OOM);
    assert_ok(vmm_destroy(cache));
}

/* Without host memory a cache is made without neighbours, or not at all, and nothing is left. */
NEIGHBOURS_TEST(every_allocation_may_fail)
{
    vmm_config config = CACHE_CONFIG(.neighbours = VMM_ON);
    uint64_t before = vmm__host_outstanding();
    unsigned failures = 0;
    vmm_status status = VMM_ERR_HOST_OOM;
    bool has_failed = true;
    for (uint64_t number = 1; has_failed; number++) {
        vmm_cache *cache = NULL;
        (void)vmm__host_fail_at(number);
        status = vmm_create(&config, &cache);
        has_failed = vmm__host_fail_at(0) >= number;
        failures += status != VMM_OK;
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
        assert_ok(vmm_destroy(cache));
        assert_int_equal(vmm__host_outstanding(), before);
        assert_int_equal(count_entries(neighbours_folder), 2);
    }
    assert_int_equal(status, VMM_OK);
    assert_true(failures > 5);
}

NEIGHBOURS_TEST(a_cache_without_a_record_works)
{
    vmm_config config = CACHE_CONFIG(.neighbours = VMM_ON, .log = log_add);
    assert_int_equal(setenv("VMM_NEIGHBOURS_DIR", "/absent", 1), 0);
    works_alone("No such file", &config);
    assert_int_equal(setenv("VMM_NEIGHBOURS_DIR", "absent", 1), 0);
    works_alone("VMM_NEIGHBOURS_DIR=absent: does not begin with /", &config);
    assert_int_equal(unsetenv("VMM_HOST_DEVICE"), 0);
    works_alone("no other process", &config);
    config.driver = VMM_DRIVER_SIM;
    works_alone("no other process", &config);
    assert_int_equal(close(creat(neighbours_device, 0600)), 0);
}
