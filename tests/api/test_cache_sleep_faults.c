/* Sleep and wake when the driver, the host or another call gets in the way. */
#include "support/graph_support.h"
#include "support/tenant_support.h"

#include "base/hostmem.h"
#include "cache/cache.h"
#include "driver/sim/sim.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { LINE_BYTES = 512 };

/* ---- The driver -------------------------------------------------------------------------------- */

/* Runs a sleep in which the driver fails from call `call` on, or a wake in which that call finds no memory. Returns
 * whether a call failed. */
static bool order_fail(struct cache_test *test, bool is_wake, vmm_pool *pool, uint64_t call)
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.staging_bytes = 8 * MIB;
    vmm__sim_fail_at(test->driver, call, is_wake ? VMM_ERR_DEVICE_OOM : VMM_ERR_DRIVER, !is_wake);
    vmm_status status = is_wake ? vmm_pool_wake(&pool, 1, &options, NULL)
                                : vmm_pool_sleep(&pool, 1, &options, NULL);
    bool has_failed = vmm__sim_faults_fired(test->driver) > 0;
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    assert_true(has_failed || status == VMM_OK);
    assert_ok(vmm__cache_check(test->cache));
    return has_failed;
}

/* A sleep fails for good halfway, so that the pool stays asleep with a part of its contents on the device alone. No
 * wake that fails may lose that part. */
CACHE_TEST(what_never_slept_survives_a_wake_that_fails)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    unsigned halves = 0;
    for (uint64_t call = 1; order_fail(test, false, tenant.pool, call); call++) {
        bool is_half = phase_of(tenant.pool) == VMM_POOL_ASLEEP;
        halves += is_half;
        for (uint64_t wake = 1; is_half && wake < 80; wake += 6)
            (void)order_fail(test, true, tenant.pool, wake);
        pool_wake(tenant.pool);
        (void)cache_trim(test, SIZE_MAX); /* releases what the driver refused to take */
        tenant_check(test, &tenant);
    }
    assert_true(halves > 10);
    pool_wake(tenant.pool);
}

/* Puts a pool to sleep; the driver fails once, at call `call`. Returns whether the sleep failed, and how many chunks
 * had slept by then. */
static bool discard_fail(struct cache_test *test, vmm_pool *pool, uint64_t call, uint64_t *slept)
{
    uint64_t creates = cache_stats(test).create_calls;
    vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
    vmm_status status = vmm_pool_sleep(&pool, 1, NULL, NULL);
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    assert_int_equal(phase_of(pool), status == VMM_OK ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE);
    *slept = cache_stats(test).create_calls - creates;
    return status != VMM_OK;
}

/* With zero on, what a sleep discarded before it failed is cleared: new memory shows bytes of others. The rest keeps
 * its contents. */
CACHE_TEST(what_a_failed_sleep_discarded_is_cleared)
{
    enum { BLOCKS = 3, BLOCK_BYTES = 12 * MIB };
    uint64_t most = 0;
    uint64_t slept = 0;
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    cache_restart_with(test, .zero = VMM_ON);
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_DISCARD);
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_ok(vmm_alloc_from(pool, BLOCK_BYTES, test->streams[1], &blocks[i]));
        block_fill(test, blocks[i], BLOCK_BYTES, i + 1, 1);
    }
    uint64_t clears = vmm__driver_calls(test->driver, DRIVER_CALL_clear);
    for (uint64_t call = 1; discard_fail(test, pool, call, &slept); call++) {
        clears += slept;
        assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_clear), clears);
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (i >= slept) /* each has at least one chunk */
                block_check(test, blocks[i], BLOCK_BYTES, i + 1, 1);
            block_fill(test, blocks[i], BLOCK_BYTES, i + 1, 1);
        }
        work_verify(test);
        most = slept > most ? slept : most;
    }
    assert_true(most >= BLOCKS - 1);
    pool_wake(pool);
}

/* A pool with a block in a view: see blocks_in_views_sleep. */
static struct tenant tenant_with_view(struct cache_test *test)
{
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    for (unsigned i = 0; i < TENANT_BLOCKS; i += 2)
        tenant_add(test, &tenant, i, 4 * MIB);
    for (unsigned i = 0; i < TENANT_BLOCKS; i += 4) {
        block_free(test, tenant.blocks[i]);
        tenant.blocks[i] = NULL;
    }
    tenant_add(test, &tenant, 0, 12 * MIB);
    assert_true(block_find(test, tenant.blocks[0]).is_view);
    return tenant;
}

/* A sleep fails for good halfway: the walk tells what is asleep from what is not, under one block, too. */
CACHE_TEST(a_walk_of_a_pool_that_is_half_asleep_adds_up)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_with_view(test);
    unsigned halves = 0;
    for (uint64_t call = 1; order_fail(test, false, tenant.pool, call); call++) {
        struct occupancy_scan scan = cache_scan(test);
        vmm_stats stats = cache_stats(test);
        halves += stats.asleep_bytes != 0 && stats.reserved_bytes.current != 0;
        assert_int_equal(scan.chunk_bytes, stats.reserved_bytes.current);
        assert_int_equal(scan.asleep_bytes, stats.asleep_bytes);
        pool_wake(tenant.pool);
        (void)cache_trim(test, SIZE_MAX); /* releases what the driver refused to take */
        cache_verify(test);
        tenant_check(test, &tenant);
    }
    assert_true(halves > 10);
    pool_wake(tenant.pool);
}

/* Whether a wake restores all of a block from the backup: its memory was released. */
static bool is_saved(const struct cache_test *test, const void *block, size_t bytes)
{
    const struct vm *vm = &test->cache->vm;
    uint64_t at = vmm__arena_granule(&vm->arena, (uintptr_t)block);
    uint64_t end = vmm__arena_granule(&vm->arena, (uintptr_t)block + bytes - 1);
    while (at <= end && vmm__vm_chunk(vm, at)->has_slept)
        at++;
    return at > end;
}

/* Fails unless the backup has exactly what a wake restores from it. */
static void backup_check(const struct cache_test *test, const struct tenant *tenant,
                         unsigned counts[2])
{
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        void *host = NULL;
        if (tenant->blocks[i] == NULL)
            continue;
        bool has = is_saved(test, tenant->blocks[i], tenant->bytes[i]);
        assert_status(vmm_backup_find(tenant->pool, tenant->blocks[i], &host),
                      has ? VMM_OK : VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(host != NULL, has);
        counts[has]++;
    }
}

/* A sleep fails for good halfway. What is on the device alone is not in the backup: a program would read there what
 * was never copied, and the wake would ignore what it writes. */
CACHE_TEST(the_backup_of_half_a_sleep_has_what_the_wake_restores)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_with_view(test);
    unsigned counts[2] = { 0, 0 };
    for (uint64_t call = 1; order_fail(test, false, tenant.pool, call); call++) {
        if (phase_of(tenant.pool) == VMM_POOL_ASLEEP)
            backup_check(test, &tenant, counts);
        pool_wake(tenant.pool);
        (void)cache_trim(test, SIZE_MAX); /* releases what the driver refused to take */
        tenant_check(test, &tenant);
    }
    assert_true(counts[false] > 10 && counts[true] > 10);
    pool_wake(tenant.pool);
}

/* A driver that maps nothing any longer once it has copied something: a compaction then has live memory unmapped. */
static struct {
    const struct driver_ops *real;
    struct driver_ops table;
    bool has_copied;
} refusing;

static vmm_status copy_note(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                            vmm_stream stream)
{
    refusing.has_copied = true;
    return refusing.real->copy(driver, to, from, bytes, stream);
}

static vmm_status map_refuse(struct driver *driver, uint64_t address, uint64_t bytes,
                             uint64_t handle)
{
    if (!refusing.has_copied)
        return refusing.real->map(driver, address, bytes, handle);
    return vmm__error(VMM_ERR_DRIVER, "map: refused");
}

/* CUDA's: success also where nothing is mapped. */
static vmm_status unmap_accept(struct driver *driver, uint64_t address, uint64_t bytes)
{
    (void)refusing.real->unmap(driver, address, bytes);
    return VMM_OK;
}

static void refusing_begin(struct driver *driver)
{
    refusing.real = driver->ops;
    refusing.table = *driver->ops;
    refusing.table.map = map_refuse;
    refusing.table.unmap = unmap_accept;
    refusing.table.copy = copy_note;
    refusing.has_copied = false;
    driver->ops = &refusing.table;
}

enum { PIECES = 32, PIECE = 3 * MIB };

/* Every second piece of the memory is live, and some of it is mapped nowhere. */
static void pieces_strand(struct cache_test *test, void *pieces[PIECES])
{
    cache_restart_with(test, .footprint_permille = VMM_FOOTPRINT_ANY);
    large_chunks_make(test, (size_t)PIECES * PIECE, 1);
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i] = block_alloc(test, PIECE, 1);
        block_fill(test, pieces[i], PIECE, i + 1, 1);
    }
    for (unsigned i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    refusing_begin(test->driver);
    assert_status(vmm_compact(test->cache, 0, NULL, NULL), VMM_ERR_DRIVER);
    assert_true(test->cache->vm.remap_pending > 0);
}

static void sleep_is_refused(struct cache_test *test, vmm_on_sleep way)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_sleep = way;
    assert_status(vmm_pool_sleep(&pool, 1, &options, NULL), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "refuses to map"));
    assert_int_equal(phase_of(pool), VMM_POOL_AWAKE);
    assert_ok(vmm__cache_check(test->cache));
}

/* A compaction leaves live memory mapped nowhere. Nothing can be copied from there, so the pool does not go to sleep
 * until the driver maps it again. */
CACHE_TEST(a_pool_whose_memory_waits_for_its_mapping_does_not_sleep)
{
    static const vmm_on_sleep ways[] = { VMM_ON_SLEEP_KEEP, VMM_ON_SLEEP_DISCARD };
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        void *pieces[PIECES];
        pieces_strand(test, pieces);
        sleep_is_refused(test, ways[way]);
        test->driver->ops = refusing.real;
        (void)cache_trim(test, SIZE_MAX); /* maps it again */
        vmm_pool *pool = vmm_cache_pool(test->cache);
        pool_sleep(pool);
        pool_wake(pool);
        for (unsigned i = 1; i < PIECES; i += 2) {
            block_check(test, pieces[i], PIECE, i + 1, 1);
            block_free(test, pieces[i]);
        }
        work_verify(test);
    }
}

/* Such memory stays also if all its blocks are free: it has addresses. */
CACHE_TEST(free_memory_that_waits_for_its_mapping_stays)
{
    void *pieces[PIECES];
    pieces_strand(test, pieces);
    for (unsigned i = 1; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    sleep_is_refused(test, VMM_ON_SLEEP_KEEP);
    test->driver->ops = refusing.real;
    (void)cache_trim(test, SIZE_MAX); /* maps it again */
}

/* Host memory that is still pinned cannot be pinned again, so nothing else may get it. */
CACHE_TEST(a_backup_that_stays_pinned_is_used_no_more)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    vmm__sim_fail_at(test->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm_backup_drop(tenant.pool), VMM_ERR_DRIVER);
    assert_true(cache_stats(test).backup_bytes > 0);
    assert_ok(vmm_backup_drop(tenant.pool));
    assert_int_equal(cache_stats(test).backup_bytes, 0);
    tenant_check(test, &tenant);
}

/* Notes whether the library holds the grow lock when it unpins. */
static struct {
    const struct driver_ops *real;
    struct driver_ops table;
    vmm_cache *cache;
    unsigned unpins;
    unsigned locked;
} unpinning;

static vmm_status unpin_note(struct driver *driver, void *host, uint64_t bytes)
{
    unpinning.unpins++;
    if (vmm__fair_try_lock(&unpinning.cache->grow_lock))
        vmm__fair_unlock(&unpinning.cache->grow_lock);
    else
        unpinning.locked++;
    return unpinning.real->unpin(driver, host, bytes);
}

/* Unpinning takes long: threads that allocate do not wait for it. */
CACHE_TEST(a_backup_is_given_back_without_the_lock)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    tenant_free(test, &tenant);
    unpinning.real = test->driver->ops;
    unpinning.table = *test->driver->ops;
    unpinning.table.unpin = unpin_note;
    unpinning.cache = test->cache;
    unpinning.unpins = 0;
    unpinning.locked = 0;
    test->driver->ops = &unpinning.table;
    assert_ok(vmm_pool_destroy(tenant.pool, 0));
    test->driver->ops = unpinning.real;
    assert_true(unpinning.unpins > 0);
    assert_int_equal(unpinning.locked, 0);
    assert_int_equal(test->driver->pinned_bytes, 0);
}

/* The cache gives such a backup back at its end. */
CACHE_TEST(a_pool_whose_backup_stays_pinned_can_be_destroyed)
{
    bool has_failed = driver_choice_kind() == VMM_DRIVER_SIM;
    uint64_t host_bytes = vmm__host_outstanding();
    for (uint64_t call = 1; has_failed; call++) {
        struct tenant leaver = tenant_make(test, VMM_ON_SLEEP_KEEP);
        struct tenant stayer = tenant_make(test, VMM_ON_SLEEP_KEEP);
        pool_sleep(leaver.pool);
        pool_wake(leaver.pool);
        tenant_free(test, &leaver);
        assert_status(vmm_free(test->cache, test), VMM_ERR_UNKNOWN_POINTER);
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm_pool_destroy(leaver.pool, 1);
        has_failed = vmm__sim_faults_fired(test->driver) > 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        if (status == VMM_OK)
            assert_non_null(strstr(vmm_last_error(), "vmm_free"));
        pool_sleep(stayer.pool);
        pool_wake(stayer.pool);
        tenant_check(test, &stayer);
        tenant_end(test, &stayer);
        cache_restart(test, NULL);
        assert_int_equal(vmm__host_outstanding(), host_bytes);
    }
}

/* Sleeps, and wakes while the driver refuses call `call`, and those after it if is_for_ever. Leaves the line in
 * `line`. */
static vmm_status wake_refused(struct cache_test *test, vmm_pool *pool, uint64_t call,
                               bool is_for_ever, char line[LINE_BYTES])
{
    pool_sleep(pool);
    if (!is_for_ever)
        assert_ok(vmm_limit_set(test->cache, 32 * MIB)); /* too little for the whole pool */
    vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, is_for_ever);
    vmm_status status = vmm_pool_wake(&pool, 1, NULL, NULL);
    (void)snprintf(line, LINE_BYTES, "%s", vmm_last_error());
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    assert_ok(vmm_limit_set(test->cache, 0));
    pool_wake(pool);
    return status;
}

/* The driver may also refuse a call that puts back to sleep what woke. */
CACHE_TEST(a_wake_says_what_failed_first)
{
    enum { CALLS = 150 };
    char first[LINE_BYTES];
    char line[LINE_BYTES];
    unsigned undone = 0;
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    assert_status(wake_refused(test, tenant.pool, 0, false, first), VMM_ERR_DEVICE_OOM);
    for (uint64_t call = 1; call < CALLS; call++) {
        if (wake_refused(test, tenant.pool, call, false, line) != VMM_ERR_DEVICE_OOM)
            continue;
        assert_string_equal(line, first);
        undone++;
    }
    assert_true(undone > CALLS / 2);
    for (unsigned call = CALLS / 3; call < 2 * CALLS / 3; call++) { /* these map chunks */
        (void)snprintf(first, sizeof first, "made to fail as call %u", call);
        assert_status(wake_refused(test, tenant.pool, call, true, line), VMM_ERR_DRIVER);
        if (strstr(line, first) == NULL)
            fail_msg("%s, not: %s", first, line);
    }
    tenant_check(test, &tenant);
}

/* A sleep whose backup cannot be pinned leaves no host memory behind. */
CACHE_TEST(a_sleep_that_fails_keeps_no_new_backup)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    bool has_failed = false;
    for (uint64_t call = 1; !has_failed; call++) {
        struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm_pool_sleep(&tenant.pool, 1, NULL, NULL);
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        has_failed = status != VMM_OK && strstr(vmm_last_error(), " pin:") != NULL;
        if (has_failed)
            assert_int_equal(cache_stats(test).backup_bytes, 0);
        pool_wake(tenant.pool);
        tenant_check(test, &tenant);
        cache_restart(test, NULL); /* so that the calls have the same numbers next time */
        assert_true(call < 200);
    }
}

/* ---- The host ---------------------------------------------------------------------------------- */

/* Each allocation of host memory fails in turn, with a ticket and without. */
CACHE_TEST(orders_without_host_memory_change_nothing)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    for (uint64_t number = 1;; number++) {
        vmm_ticket *ticket = NULL;
        bool has_ticket = number % 2 == 0;
        bool is_asleep = phase_of(tenant.pool) == VMM_POOL_ASLEEP;
        vmm_pool_phase phase = phase_of(tenant.pool);
        (void)vmm__host_fail_at((number + 1) / 2);
        vmm_status status =
            is_asleep ? vmm_pool_wake(&tenant.pool, 1, NULL, has_ticket ? &ticket : NULL)
                      : vmm_pool_sleep(&tenant.pool, 1, NULL, has_ticket ? &ticket : NULL);
        if (status == VMM_OK && has_ticket)
            status = vmm_ticket_wait(ticket);
        bool is_over = vmm__host_fail_at(0) < (number + 1) / 2;
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
        assert_int_equal(phase_of(tenant.pool) == phase, status != VMM_OK);
        if (is_over && number > 40)
            break;
        if (number % 3 == 0 && phase_of(tenant.pool) == VMM_POOL_AWAKE)
            assert_ok(vmm_backup_drop(tenant.pool));
        cache_verify(test);
    }
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* ---- Other calls ------------------------------------------------------------------------------- */

struct meddler {
    vmm_pool *first;
    vmm_pool *second;
    vmm_status destroyed;
    vmm_status woken;
    vmm_status found;
};

/* Meddles with the pool that slept first, while the second goes to sleep, and makes that fail. */
static void first_meddle(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    struct meddler *meddler = context;
    void *host;
    (void)bytes;
    if (pool != meddler->second)
        return;
    meddler->woken = vmm_pool_wake(&meddler->first, 1, NULL, NULL);
    meddler->found = vmm_backup_find(meddler->first, (void *)(uintptr_t)address, &host);
    meddler->destroyed = vmm_pool_destroy(meddler->first, 0);
}

/* No other call gets hold of a pool before the whole order has ended, which may have to wake it again. */
CACHE_TEST(pools_of_one_order_belong_to_it_until_its_end)
{
    struct tenant second = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct meddler meddler = { .first = pool_make(test, VMM_ON_SLEEP_KEEP), .second = second.pool };
    vmm_pool *pools[2] = { meddler.first, meddler.second };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.unmapping = first_meddle;
    options.context = &meddler;
    assert_ok(vmm_pool_sleep(pools, 2, &options, NULL));
    assert_int_equal(meddler.woken, VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(meddler.found, VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(meddler.destroyed, VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_pool_wake(pools, 2, NULL, NULL));
    assert_ok(vmm_pool_destroy(meddler.first, 0));
    tenant_check(test, &second);
}

struct selfish {
    vmm_cache *cache;
    _Atomic(vmm_ticket *) ticket;
    vmm_status waited;
    vmm_status destroyed;
};

static void selfish_run(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    struct selfish *selfish = context;
    (void)pool;
    (void)address;
    (void)bytes;
    while (atomic_load(&selfish->ticket) == NULL)
        (void)sched_yield();
    selfish->waited = vmm_ticket_wait(atomic_load(&selfish->ticket));
    selfish->destroyed = vmm_destroy(selfish->cache);
}

/* A function of a sleep runs on the thread of the ticket: it cannot wait for it, nor end the cache. */
CACHE_TEST(a_function_of_a_sleep_ends_neither_its_ticket_nor_its_cache)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct selfish selfish = { .cache = test->cache };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    vmm_ticket *ticket;
    options.unmapping = selfish_run;
    options.context = &selfish;
    assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, &ticket));
    atomic_store(&selfish.ticket, ticket);
    assert_ok(vmm_ticket_wait(ticket));
    assert_int_equal(selfish.waited, VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(selfish.destroyed, VMM_ERR_INVALID_ARGUMENT);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* Each call of the driver fails in turn: two pools are both awake afterwards, or what could not wake sleeps. */
CACHE_TEST(pools_of_one_order_wake_again_if_one_fails)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant first = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct tenant second = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_pool *pools[2] = { first.pool, second.pool };
    bool has_failed = true;
    for (uint64_t call = 1; has_failed; call++) {
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm_pool_sleep(pools, 2, NULL, NULL);
        has_failed = vmm__sim_faults_fired(test->driver) > 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        vmm_pool_phase expected = status == VMM_OK ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE;
        assert_int_equal(phase_of(first.pool), expected);
        assert_int_equal(phase_of(second.pool), expected);
        assert_ok(vmm_pool_wake(pools, 2, NULL, NULL));
        tenant_check(test, &first);
        tenant_check(test, &second);
    }
}

/* ---- Registrations ----------------------------------------------------------------------------- */

enum { RANGES_MOST = 512 };

/* What a program has registered, such as with NCCL: it drops a range before it is unmapped, and registers it again. */
struct registry {
    struct {
        vmm_pool *pool;
        uint64_t address;
        bool is_dropped;
    } ranges[RANGES_MOST];
    size_t count;
};

static void registry_change(void *context, vmm_pool *pool, uint64_t address, bool is_dropped)
{
    struct registry *registry = context;
    size_t at = 0;
    while (at < registry->count && registry->ranges[at].address != address)
        at++;
    if (at == registry->count) { /* of a pool that was never asleep */
        assert_true(is_dropped && at < RANGES_MOST);
        registry->ranges[registry->count++].address = address;
        registry->ranges[at].pool = pool;
        registry->ranges[at].is_dropped = false;
    }
    assert_ptr_equal(registry->ranges[at].pool, pool);
    assert_int_not_equal(registry->ranges[at].is_dropped, is_dropped);
    registry->ranges[at].is_dropped = is_dropped;
}

static void range_drop(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)bytes;
    registry_change(context, pool, address, true);
}

static void range_register(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)bytes;
    registry_change(context, pool, address, false);
}

/* All ranges of a pool are dropped while it sleeps, and registered while it is awake. */
static void registry_check(const struct registry *registry, vmm_pool *pool)
{
    bool is_asleep = phase_of(pool) == VMM_POOL_ASLEEP;
    for (size_t i = 0; i < registry->count; i++) {
        if (registry->ranges[i].pool == pool)
            assert_int_equal(registry->ranges[i].is_dropped, is_asleep);
    }
}

/* Runs an order in which the driver fails from call `call` on, or at it only. Returns whether a call failed. */
static bool registry_fail(struct cache_test *test, struct registry *registry, vmm_pool *pools[2],
                          bool is_wake, uint64_t call, bool is_for_ever)
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.unmapping = range_drop;
    options.mapped = range_register;
    options.context = registry;
    vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, is_for_ever);
    (void)(is_wake ? vmm_pool_wake(pools, 2, &options, NULL)
                   : vmm_pool_sleep(pools, 2, &options, NULL));
    bool has_failed = vmm__sim_faults_fired(test->driver) > 0;
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    registry_check(registry, pools[0]);
    registry_check(registry, pools[1]);
    return has_failed;
}

static void registrations_follow(struct cache_test *test, bool fails_wake, bool is_for_ever)
{
    struct tenant first = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct tenant second = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_pool *pools[2] = { first.pool, second.pool };
    struct registry registry = { .count = 0 };
    bool has_failed = true;
    for (uint64_t call = 1; has_failed; call += 3) {
        if (fails_wake)
            assert_false(registry_fail(test, &registry, pools, false, 0, false));
        has_failed = registry_fail(test, &registry, pools, fails_wake, call, is_for_ever);
        assert_false(registry_fail(test, &registry, pools, true, 0, false));
        assert_int_equal(phase_of(first.pool), VMM_POOL_AWAKE);
        tenant_check(test, &first);
        tenant_check(test, &second);
    }
    assert_true(registry.count > 2);
    tenant_free(test, &first);
    assert_ok(vmm_pool_destroy(first.pool, 0));
    tenant_end(test, &second);
}

/* Each call of the driver fails in turn, in a sleep and in a wake, once and for good. */
CACHE_TEST(registrations_follow_sleeps_and_wakes_that_fail)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    for (unsigned kind = 0; kind < 4; kind++)
        registrations_follow(test, kind % 2 != 0, kind / 2 != 0);
}

/* ---- Destruction ------------------------------------------------------------------------------- */

CACHE_TEST(a_sleeping_pool_with_empty_slabs_can_be_destroyed)
{
    enum { SMALL = 9000 };
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    void **blocks = calloc(SMALL, sizeof *blocks);
    assert_non_null(blocks);
    for (unsigned i = 0; i < SMALL; i++)
        assert_ok(vmm_alloc_from(pool, 512 + i % 3 * 512, test->streams[1], &blocks[i]));
    pool_sleep(pool);
    for (unsigned i = 0; i < SMALL; i++)
        block_free(test, blocks[i]);
    free(blocks);
}

/* A block that was freed while its pool sleeps still waits for another stream. */
CACHE_TEST(a_sleeping_pool_whose_blocks_wait_is_not_destroyed)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    void *other = block_alloc(test, MIB, 3);
    pool_sleep(tenant.pool);
    bool is_certain = flight_begin(test, other, MIB, 3);
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        if (tenant.blocks[i] != NULL)
            block_use(test, tenant.blocks[i], 3);
    }
    tenant_free(test, &tenant);
    vmm_status status = vmm_pool_destroy(tenant.pool, 0);
    if (is_certain)
        assert_status(status, VMM_ERR_INVALID_ARGUMENT);
}

/* The last use of a pool ended during a capture, so that its wait for the device is still due. */
CACHE_TEST(a_sleeping_pool_that_leaves_can_be_destroyed)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    block_free(test, block_alloc(test, MIB, 3)); /* the cache knows the stream */
    assert_ok(vmm_pool_retain(tenant.pool));
    capture_begin(test, 3);
    assert_ok(vmm_pool_drop(tenant.pool));
    capture_end(test, 3);
    pool_sleep(tenant.pool);
}

/* Destroys a pool while others go to sleep. */
static vmm_pool *leaver;

static void leaver_destroy(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)context;
    (void)pool;
    (void)address;
    (void)bytes;
    if (leaver != NULL)
        assert_ok(vmm_pool_destroy(leaver, 1));
    leaver = NULL;
}

/* The default pool adopts blocks after it was asked to sleep, and before its turn. The request did not name them. */
CACHE_TEST(what_the_default_pool_adopts_on_its_way_to_sleep_stays_awake)
{
    cache_restart_with(test, .limit_bytes = 2 * CACHE_LIMIT); /* on a busy machine work ends late */
    struct tenant first = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct tenant adopted = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_pool *pools[] = { first.pool, vmm_cache_pool(test->cache) };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    void *block = block_alloc(test, 3 * MIB, 1);
    block_fill(test, block, 3 * MIB, 77, 1);
    work_verify(test);
    leaver = adopted.pool;
    options.unmapping = leaver_destroy;
    assert_ok(vmm_pool_sleep(pools, 2, &options, NULL));
    assert_null(leaver);
    tenant_check(test, &adopted);
    assert_ok(vmm__cache_check(test->cache));
    assert_ok(vmm_pool_wake(pools, 2, NULL, NULL));
    block_check(test, block, 3 * MIB, 77, 1);
    tenant_check(test, &first);
    tenant_check(test, &adopted);
    pool_sleep(pools[1]); /* now they belong to it */
    pool_wake(pools[1]);
    tenant_check(test, &adopted);
}

/* The default pool sleeps while it adopts the blocks of another one; these stay awake. */
CACHE_TEST(a_sleeping_default_pool_adopts)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *block = block_alloc(test, 3 * MIB, 1);
    block_fill(test, block, 3 * MIB, 77, 1);
    pool_sleep(pool);
    assert_ok(vmm_pool_destroy(tenant.pool, 1));
    tenant_check(test, &tenant);
    assert_ok(vmm__cache_check(test->cache));
    assert_int_equal(cache_stats(test).idle_bytes + cache_stats(test).retained_bytes, 0);
    assert_ok(vmm_limit_set(test->cache, MIB));
    assert_status(vmm_pool_wake(&pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    tenant_check(test, &tenant);
    assert_ok(vmm_limit_set(test->cache, 0));
    pool_wake(pool);
    block_check(test, block, 3 * MIB, 77, 1);
    tenant_check(test, &tenant);
}

/* A pool with two blocks. Either lets the first go before its memory is unmapped, or keeps it. */
struct failing {
    struct cache_test *test;
    vmm_pool *pool;
    void *blocks[2];
    bool is_wake;
    bool frees_early;
};

static void first_free(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    struct failing *failing = context;
    (void)pool;
    (void)address;
    (void)bytes;
    if (failing->frees_early && failing->blocks[0] != NULL)
        block_free(failing->test, failing->blocks[0]);
    failing->blocks[0] = failing->frees_early ? NULL : failing->blocks[0];
}

static void failing_begin(struct failing *failing)
{
    struct cache_test *test = failing->test;
    failing->pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(vmm_alloc_from(failing->pool, 8 * MIB, test->streams[1], &failing->blocks[i]));
        block_fill(test, failing->blocks[i], 8 * MIB, 7, 1);
    }
    if (failing->is_wake)
        assert_ok(vmm_pool_sleep(&failing->pool, 1, NULL, NULL));
}

/* A sleep or a wake in which the driver fails from call `call` on. Then the pool loses its blocks, and ends. Returns
 * whether a call failed. */
static bool life_fail(struct failing failing, uint64_t call)
{
    struct cache_test *test = failing.test;
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.unmapping = first_free;
    options.context = &failing;
    failing_begin(&failing);
    vmm__sim_lag_set(test->driver, UINT64_C(1) << 40);
    vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, true);
    vmm_status status = failing.is_wake ? vmm_pool_wake(&failing.pool, 1, &options, NULL)
                                        : vmm_pool_sleep(&failing.pool, 1, &options, NULL);
    bool has_failed = vmm__sim_faults_fired(test->driver) > 0;
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    assert_true(has_failed || status == VMM_OK);
    (void)cache_trim(test, SIZE_MAX); /* unmaps what waits for that */
    for (unsigned i = 0; i < 2; i++)
        block_free(test, failing.blocks[i]);
    assert_ok(vmm_pool_destroy(failing.pool, 0));
    (void)cache_trim(test, 0);
    vmm__sim_lag_set(test->driver, 0);
    work_verify(test);
    return has_failed;
}

/* The copies of a sleep or a wake may be under way when the driver refuses to wait for them. */
CACHE_TEST(nothing_is_unmapped_below_copies)
{
    struct failing kinds[] = { { .test = test },
                               { .test = test, .frees_early = true },
                               { .test = test, .is_wake = true } };
    for (unsigned i = 0; driver_choice_kind() == VMM_DRIVER_SIM && i < 3; i++) {
        uint64_t call = 1;
        while (life_fail(kinds[i], call))
            call++;
        assert_true(call > 4);
    }
}

CACHE_MAIN()
