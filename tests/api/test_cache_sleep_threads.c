/* Pools sleep and wake, on tickets and in calls, while threads use other pools of the cache, free blocks of the
 * sleeping ones, and read reports. Also runs under ThreadSanitizer. */
#define _GNU_SOURCE
#include "support/tenant_support.h"

#include "cache/cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPERS = 2, ORDERS = IS_SLOW_BUILD ? 8 : 40, SLOTS = 12, CROWD = 20 };

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned number;
    vmm_pool *pool;
    vmm_pool *sleepers[SLEEPERS];
    const char *trouble; /* assertions belong to the main thread */
};

static atomic_bool workers_go_on;

static void trouble_note(struct worker *worker, bool is_good, const char *what)
{
    if (!is_good && worker->trouble == NULL)
        worker->trouble = what;
}

/* ---- Threads ----------------------------------------------------------------------------------- */

struct live {
    void *block;
    size_t bytes;
    uint32_t word;
};

static bool live_end(const struct worker *worker, struct live *live, vmm_stream stream)
{
    struct cache_test *test = worker->test;
    void *block = live->block;
    live->block = NULL;
    return vmm__driver_check(test->driver, (uintptr_t)block, live->bytes, live->word, stream) ==
               VMM_OK &&
           vmm_record_stream(test->cache, block, test->streams[3]) == VMM_OK &&
           vmm_free(test->cache, block) == VMM_OK;
}

static bool live_begin(const struct worker *worker, struct live *live, vmm_stream stream,
                       uint64_t *seed)
{
    live->bytes = random_bytes(seed, 4 * MIB);
    live->word = (uint32_t)(random_next(seed) << 3 | worker->number);
    vmm_status status = vmm_alloc_from(worker->pool, live->bytes, stream, &live->block);
    return status == VMM_ERR_DEVICE_OOM ||
           (status == VMM_OK && vmm__driver_fill(worker->test->driver, (uintptr_t)live->block,
                                                 live->bytes, live->word, stream) == VMM_OK);
}

/* Uses a pool that stays awake. */
static void *user_main(void *context)
{
    struct worker *worker = context;
    struct live lives[SLOTS] = { { NULL, 0, 0 } };
    uint64_t seed = worker->number + 5;
    vmm_stream stream = worker->test->streams[1 + worker->number % 2];
    for (unsigned round = 0; atomic_load(&workers_go_on) && worker->trouble == NULL; round++) {
        struct live *live = &lives[random_next(&seed) % SLOTS];
        trouble_note(worker,
                     live->block != NULL ? live_end(worker, live, stream)
                                         : live_begin(worker, live, stream, &seed),
                     "a block of an awake pool could not be had, checked or freed");
        if (round % 32 == 0)
            trouble_note(worker, vmm_trim(worker->test->cache, 8 * MIB, NULL) == VMM_OK,
                         "a trim failed");
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (lives[i].block != NULL)
            trouble_note(worker, live_end(worker, &lives[i], stream), "a last block failed");
    }
    return NULL;
}

/* Allocates from pools of any phase, and frees whatever their phase. */
static void *intruder_main(void *context)
{
    struct worker *worker = context;
    struct cache_test *test = worker->test;
    void *blocks[SLOTS] = { NULL };
    uint64_t seed = worker->number + 11;
    while (atomic_load(&workers_go_on) && worker->trouble == NULL) {
        unsigned slot = (unsigned)(random_next(&seed) % SLOTS);
        vmm_pool *pool = worker->sleepers[slot % SLEEPERS];
        void *block = blocks[slot];
        blocks[slot] = NULL;
        vmm_status status = block != NULL ? vmm_free(test->cache, block)
                                          : vmm_alloc_from(pool, random_bytes(&seed, 3 * MIB),
                                                           test->streams[2], &blocks[slot]);
        trouble_note(worker,
                     status == VMM_OK || status == VMM_ERR_ASLEEP || status == VMM_ERR_DEVICE_OOM,
                     "an allocation or a free failed otherwise");
    }
    return NULL;
}

static int item_count(void *context, const vmm_item *item)
{
    *(uint64_t *)context += item->kind == VMM_ITEM_BLOCK;
    return 0;
}

/* Reads reports, retains and creates pools, ends streams that the cache does not know. */
static void *observer_main(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    while (atomic_load(&workers_go_on) && worker->trouble == NULL) {
        vmm_stats stats = VMM_STATS_INIT;
        vmm_item item = VMM_ITEM_INIT;
        vmm_pool *pool;
        vmm_pool_phase phase;
        uint64_t blocks = 0;
        trouble_note(worker, vmm_stats_get(cache, &stats) == VMM_OK, "no statistics");
        trouble_note(worker, vmm__cache_check(cache) == VMM_OK, "an invariant is broken");
        trouble_note(worker, vmm_walk(cache, item_count, &blocks) == VMM_OK, "a walk failed");
        trouble_note(worker, vmm_find(cache, worker, &item) == VMM_ERR_UNKNOWN_POINTER,
                     "a foreign address was found");
        trouble_note(worker, vmm_pool_state(worker->sleepers[0], &phase) == VMM_OK, "no phase");
        trouble_note(worker, vmm_pool_retain(worker->sleepers[0]) == VMM_OK, "no use");
        trouble_note(worker, vmm_pool_drop(worker->sleepers[0]) == VMM_OK, "no end of a use");
        trouble_note(worker, vmm_pool_create(cache, NULL, &pool) == VMM_OK, "no new pool");
        trouble_note(worker, vmm_pool_destroy(pool, 0) == VMM_OK, "no end of a pool");
    }
    return NULL;
}

/* ---- Tests ------------------------------------------------------------------------------------- */

static void worker_start(struct worker *worker, struct cache_test *test, unsigned number,
                         const struct tenant *tenants, void *(*function)(void *context))
{
    *worker = (struct worker){ .test = test, .number = number };
    worker->pool = vmm_cache_pool(test->cache);
    for (unsigned i = 0; i < SLEEPERS; i++)
        worker->sleepers[i] = tenants[i].pool;
    assert_int_equal(pthread_create(&worker->thread, NULL, function, worker), 0);
}

static const char *worker_join(const struct worker *worker)
{
    (void)pthread_join(worker->thread, NULL);
    return worker->trouble;
}

/* Puts the pools to sleep and wakes them, each on a ticket of its own, or all in one call. */
static void tenants_turn(const struct tenant *tenants, unsigned round)
{
    vmm_pool *pools[SLEEPERS];
    vmm_ticket *tickets[SLEEPERS];
    bool is_wake = round % 2 == 1;
    for (unsigned i = 0; i < SLEEPERS; i++)
        pools[i] = tenants[i].pool;
    if (round / 2 % 2 == 0) {
        assert_ok(is_wake ? vmm_pool_wake(pools, SLEEPERS, NULL, NULL)
                          : vmm_pool_sleep(pools, SLEEPERS, NULL, NULL));
        return;
    }
    for (unsigned i = 0; i < SLEEPERS; i++)
        assert_ok(is_wake ? vmm_pool_wake(&pools[i], 1, NULL, &tickets[i])
                          : vmm_pool_sleep(&pools[i], 1, NULL, &tickets[i]));
    for (unsigned i = 0; i < SLEEPERS; i++)
        assert_ok(vmm_ticket_wait(tickets[i]));
}

CACHE_TEST(pools_sleep_while_threads_use_others)
{
    void *(*const functions[])(void *) = { user_main, user_main, observer_main };
    enum { WORKERS = sizeof functions / sizeof functions[0] };
    struct worker workers[WORKERS];
    struct tenant tenants[SLEEPERS];
    cache_restart(test, NULL);
    for (unsigned i = 0; i < SLEEPERS; i++)
        tenants[i] = tenant_make(test, i == 0 ? VMM_ON_SLEEP_KEEP : VMM_ON_SLEEP_DISCARD);
    atomic_store(&workers_go_on, true);
    for (unsigned i = 0; i < WORKERS; i++)
        worker_start(&workers[i], test, i, tenants, functions[i]);
    for (unsigned round = 0; round < ORDERS; round++)
        tenants_turn(tenants, round);
    atomic_store(&workers_go_on, false);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_null(worker_join(&workers[i]));
    tenant_check(test, &tenants[0]);
}

/* Threads allocate from pools that go to sleep, and free their blocks at every moment of it. */
CACHE_TEST(blocks_are_freed_at_every_moment_of_a_sleep)
{
    enum { WORKERS = 2 };
    struct worker workers[WORKERS];
    struct tenant tenants[SLEEPERS];
    cache_restart(test, NULL);
    for (unsigned i = 0; i < SLEEPERS; i++)
        tenants[i] = tenant_make(test, VMM_ON_SLEEP_KEEP);
    atomic_store(&workers_go_on, true);
    for (unsigned i = 0; i < WORKERS; i++)
        worker_start(&workers[i], test, i, tenants, intruder_main);
    for (unsigned round = 0; round < ORDERS; round++) {
        tenants_turn(tenants, round);
        if (round % 10 == 3)
            assert_ok(vmm__cache_check(test->cache));
        if (round % 10 == 9) {
            assert_ok(vmm_backup_drop(tenants[0].pool));
            tenant_check(test, &tenants[0]);
        }
    }
    atomic_store(&workers_go_on, false);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_null(worker_join(&workers[i]));
    tenant_check(test, &tenants[0]);
    tenant_check(test, &tenants[1]);
    cache_restart(test, NULL); /* with what the intruders left */
}

/* More pools of one cache sleep at once than a stream has events for. */
CACHE_TEST(a_crowd_of_pools_sleeps_at_once)
{
    vmm_pool *pools[CROWD];
    void *blocks[CROWD];
    vmm_ticket *tickets[CROWD];
    cache_restart(test, NULL);
    for (unsigned i = 0; i < CROWD; i++) {
        pools[i] = pool_make(test, VMM_ON_SLEEP_KEEP);
        assert_ok(vmm_alloc_from(pools[i], 6 * MIB, test->streams[1], &blocks[i]));
        block_fill(test, blocks[i], 6 * MIB, i, 1);
    }
    for (int round = 0; round < 8; round++) {
        for (unsigned i = 0; i < CROWD; i++)
            assert_ok(round % 2 == 0 ? vmm_pool_sleep(&pools[i], 1, NULL, &tickets[i])
                                     : vmm_pool_wake(&pools[i], 1, NULL, &tickets[i]));
        for (unsigned i = 0; i < CROWD; i++)
            assert_ok(vmm_ticket_wait(tickets[i]));
    }
    for (unsigned i = 0; i < CROWD; i++) {
        block_check(test, blocks[i], 6 * MIB, i, 1);
        block_free(test, blocks[i]);
        assert_ok(vmm_pool_destroy(pools[i], 0));
    }
}

/* ---- Work of the library ----------------------------------------------------------------------- */

/* Before the driver gets the next clear or copy, another thread puts the pool to sleep, if it can. */
static struct {
    const struct driver_ops *real;
    struct driver_ops table;
    pthread_t thread;
    vmm_pool *pool;
    bool is_due;
    vmm_status status;
    atomic_bool has_slept;
} late;

enum { LATE_WAITS = 50, LATE_WAIT_NS = 1000000 };

static void *late_main(void *context)
{
    (void)context;
    late.status = vmm_pool_sleep(&late.pool, 1, NULL, NULL);
    atomic_store(&late.has_slept, true);
    return NULL;
}

static void late_begin(void)
{
    if (!late.is_due)
        return;
    late.is_due = false;
    if (pthread_create(&late.thread, NULL, late_main, NULL) != 0)
        abort();
    const struct timespec pause = { .tv_nsec = LATE_WAIT_NS };
    for (unsigned i = 0; i < LATE_WAITS && !atomic_load(&late.has_slept); i++)
        (void)nanosleep(&pause, NULL);
}

static vmm_status late_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                             vmm_stream stream)
{
    late_begin();
    return late.real->clear(driver, address, bytes, value, stream);
}

static vmm_status late_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                            vmm_stream stream)
{
    late_begin();
    return late.real->copy(driver, to, from, bytes, stream);
}

static void late_arm(struct cache_test *test, vmm_pool *pool)
{
    late.pool = pool;
    late.is_due = true;
    atomic_store(&late.has_slept, false);
    late.real = test->driver->ops;
    late.table = *late.real;
    late.table.clear = late_clear;
    late.table.copy = late_copy;
    test->driver->ops = &late.table;
}

static void late_end(struct cache_test *test)
{
    assert_false(late.is_due);
    assert_int_equal(pthread_join(late.thread, NULL), 0);
    test->driver->ops = late.real;
    assert_ok(late.status);
    pool_wake(late.pool);
    work_verify(test);
}

/* A pool goes to sleep between an allocation and the clear of the new block, or the copy of a block that grows. */
CACHE_TEST(a_sleep_waits_for_clears_and_copies_of_the_library)
{
    void *longer = NULL;
    cache_restart_with(test, .zero = VMM_ON);
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    late_arm(test, pool);
    void *block = block_in_pool(pool, 100000, test->streams[1]);
    late_end(test);
    block_free(test, block);
    assert_ok(vmm_pool_destroy(pool, 0));

    cache_restart(test, NULL);
    pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    assert_ok(vmm_alloc_from(pool, 100000, test->streams[1], &block));
    block_fill(test, block, 100000, 5, 1);
    late_arm(test, pool);
    assert_ok(vmm_resize(test->cache, block, 200000, &longer));
    late_end(test);
}

/* ---- Tickets ----------------------------------------------------------------------------------- */

static _Atomic(vmm_ticket *) polled;

static void *poll_main(void *context)
{
    struct worker *worker = context;
    while (atomic_load(&workers_go_on)) {
        int done = 7;
        vmm_status status = vmm_ticket_poll(atomic_load(&polled), &done);
        bool is_good = status == VMM_OK ? done == 0 || done == 1 : done == 7;
        trouble_note(worker, is_good && (status == VMM_OK || status == VMM_ERR_INVALID_ARGUMENT),
                     "a poll failed, or wrote what it should not");
    }
    return NULL;
}

/* A ticket ends while other threads poll it. */
CACHE_TEST(tickets_end_while_threads_poll_them)
{
    enum { POLLERS = 2 };
    struct worker pollers[POLLERS];
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    (void)block_in_pool(pool, MIB, test->streams[1]);
    atomic_store(&workers_go_on, true);
    for (unsigned i = 0; i < POLLERS; i++) {
        pollers[i] = (struct worker){ .test = test };
        assert_int_equal(pthread_create(&pollers[i].thread, NULL, poll_main, &pollers[i]), 0);
    }
    for (unsigned round = 0; round < 10 * ORDERS; round++) {
        vmm_ticket *ticket;
        assert_ok(round % 2 == 0 ? vmm_pool_sleep(&pool, 1, NULL, &ticket)
                                 : vmm_pool_wake(&pool, 1, NULL, &ticket));
        atomic_store(&polled, ticket);
        assert_ok(vmm_ticket_wait(ticket));
    }
    atomic_store(&workers_go_on, false);
    for (unsigned i = 0; i < POLLERS; i++)
        assert_null(worker_join(&pollers[i]));
}

/* A sleep that stays under way until `go_on`. */
struct held_sleep {
    vmm_ticket *ticket;
    atomic_bool go_on;
    atomic_bool waits;
    vmm_status waited;
};

static void sleep_hold(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    struct held_sleep *held = context;
    (void)pool;
    (void)address;
    (void)bytes;
    while (!atomic_load(&held->go_on))
        (void)usleep(100);
}

static void *wait_main(void *context)
{
    struct held_sleep *held = context;
    atomic_store(&held->waits, true);
    held->waited = vmm_ticket_wait(held->ticket);
    return NULL;
}

/* While one thread waits for a ticket, others may poll it. */
CACHE_TEST(a_ticket_can_be_polled_while_a_thread_waits_for_it)
{
    enum { POLLS = 200 };
    struct held_sleep held = { .ticket = NULL };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    pthread_t thread;
    int done = 7;
    (void)block_in_pool(pool, MIB, test->streams[1]);
    options.unmapping = sleep_hold;
    options.context = &held;
    assert_ok(vmm_pool_sleep(&pool, 1, &options, &held.ticket));
    assert_int_equal(pthread_create(&thread, NULL, wait_main, &held), 0);
    while (!atomic_load(&held.waits))
        (void)usleep(100);
    for (unsigned i = 0; i < POLLS; i++) {
        assert_ok(vmm_ticket_poll(held.ticket, &done));
        assert_int_equal(done, 0);
        (void)usleep(100);
    }
    assert_status(vmm_ticket_wait(held.ticket), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "another thread"));
    atomic_store(&held.go_on, true);
    (void)pthread_join(thread, NULL);
    assert_ok(held.waited);
    assert_status(vmm_ticket_poll(held.ticket, &done), VMM_ERR_INVALID_ARGUMENT);
    pool_wake(pool);
}

CACHE_MAIN()
