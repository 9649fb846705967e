/* Sleep and wake of pools in caches with other settings, and of blocks of other kinds. */
#include "support/tenant_support.h"

#include "cache/cache.h"

#include <string.h>

/* ---- Settings ---------------------------------------------------------------------------------- */

static void tenant_turns(struct cache_test *test, vmm_on_sleep on_sleep)
{
    struct tenant tenant = tenant_make(test, on_sleep);
    for (int turn = 0; turn < 2; turn++) {
        pool_sleep(tenant.pool);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        pool_wake(tenant.pool);
        assert_ok(vmm__cache_check(test->cache));
    }
    if (on_sleep == VMM_ON_SLEEP_KEEP)
        tenant_check(test, &tenant);
    tenant_end(test, &tenant);
}

CACHE_TEST(pools_sleep_whatever_the_settings)
{
    const vmm_config configs[] = {
        CONFIG(.zero = VMM_ON),
        CONFIG(.no_caching = VMM_ON),
        CONFIG(.debug = VMM_DEBUG_RECORD),
        CONFIG(.reuse = VMM_REUSE_STREAM_WAIT),
        CONFIG(.decay_ms = 1),
    };
    for (unsigned i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        cache_restart(test, &configs[i]);
        tenant_turns(test, VMM_ON_SLEEP_KEEP);
        tenant_turns(test, VMM_ON_SLEEP_DISCARD);
    }
}

/* With zero on, discarded contents are zeros after the wake. */
CACHE_TEST(discarded_blocks_wake_as_zeros)
{
    cache_restart_with(test, .zero = VMM_ON);
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_DISCARD);
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        unsigned char bytes[512];
        struct driver_piece piece = { .bytes = sizeof bytes, .host = bytes };
        if (tenant.blocks[i] == NULL || driver_choice_kind() == VMM_DRIVER_SIM)
            continue;
        memset(bytes, 1, sizeof bytes);
        piece.address = (uintptr_t)tenant.blocks[i] + tenant.bytes[i] / 1024 * 512;
        assert_ok(vmm__driver_read(test->driver, &piece, 1, test->streams[1]));
        for (unsigned k = 0; k < sizeof bytes; k++)
            assert_int_equal(bytes[k], 0);
    }
}

CACHE_TEST(the_smallest_staging_is_enough)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    const uint64_t staging[] = { 1, UINT64_MAX };
    for (unsigned i = 0; i < 2; i++) {
        options.staging_bytes = staging[i];
        assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, NULL));
        pool_wake(tenant.pool);
        tenant_check(test, &tenant);
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------ */

/* Blocks that cross the borders of what is pinned at once. */
CACHE_TEST(blocks_of_several_segments_sleep)
{
    static const size_t bytes[] = { MIB, 514 * MIB, 3 * MIB };
    enum { COUNT = sizeof bytes / sizeof bytes[0] };
    struct tenant tenant = { .pool = NULL };
    cache_restart(test, NULL);
    tenant.pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    for (unsigned i = 0; i < COUNT; i++)
        tenant_add(test, &tenant, i, bytes[i]);
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
    block_free(test, tenant.blocks[0]); /* the offsets of the others change */
    tenant.blocks[0] = NULL;
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* The backup stays as long as it is large enough, and grows once it is not. */
CACHE_TEST(a_backup_is_used_again)
{
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    tenant_add(test, &tenant, 0, 20 * MIB);
    pool_sleep(tenant.pool);
    uint64_t bytes = cache_stats(test).backup_bytes;
    assert_int_equal(bytes, test->driver->pinned_bytes);
    pool_wake(tenant.pool);
    block_free(test, tenant.blocks[0]);
    tenant_add(test, &tenant, 0, 4 * MIB);
    pool_sleep(tenant.pool);
    assert_int_equal(cache_stats(test).backup_bytes, bytes);
    pool_wake(tenant.pool);
    tenant_add(test, &tenant, 1, 40 * MIB);
    pool_sleep(tenant.pool);
    assert_true(cache_stats(test).backup_bytes > bytes);
    assert_int_equal(cache_stats(test).backup_bytes, test->driver->pinned_bytes);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
    assert_ok(vmm_backup_drop(tenant.pool));
    assert_int_equal(test->driver->pinned_bytes, 0);
}

CACHE_TEST(many_small_blocks_sleep)
{
    enum { SMALL = 20000 };
    void **blocks = calloc(SMALL, sizeof *blocks);
    assert_non_null(blocks);
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    for (unsigned i = 0; i < SMALL; i++) {
        size_t bytes = 512 + i % 7 * 1024;
        assert_ok(vmm_alloc_from(tenant.pool, bytes, test->streams[1], &blocks[i]));
        block_fill(test, blocks[i], bytes, i, 1);
    }
    pool_sleep(tenant.pool);
    for (unsigned i = 0; i < SMALL; i += 3)
        block_free(test, blocks[i]);
    pool_wake(tenant.pool);
    for (unsigned i = 0; i < SMALL; i++) {
        if (i % 3 == 0)
            continue;
        block_check(test, blocks[i], 512 + i % 7 * 1024, i, 1);
        block_free(test, blocks[i]);
    }
    free(blocks);
}

CACHE_TEST(pinned_blocks_sleep)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    for (unsigned i = 1; i < 4; i++)
        assert_ok(vmm_pin(test->cache, tenant.blocks[i]));
    pool_sleep(tenant.pool);
    assert_ok(vmm_pin(test->cache, tenant.blocks[4]));
    assert_ok(vmm_unpin(test->cache, tenant.blocks[1]));
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(a_cache_can_end_while_its_pools_have_memory)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    cache_restart(test, NULL);
}

/* ---- Other calls meanwhile --------------------------------------------------------------------- */

/* The stream of a tenant ends while its pool sleeps; a new stream uses the pool after the wake. */
CACHE_TEST(streams_end_while_a_pool_sleeps)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    assert_ok(vmm_stream_end(test->cache, test->streams[1]));
    assert_ok(vmm_stream_end(test->cache, test->streams[2]));
    assert_ok(vmm__cache_check(test->cache));
    tenant_wake_and_refill(test, &tenant);
}

/* A wake waits for work on memory that it needs. */
CACHE_TEST(a_wake_waits_for_idle_memory)
{
    struct tenant tenant = { .pool = NULL };
    cache_restart_with(test, .limit_bytes = 96 * MIB);
    tenant.pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    tenant_add(test, &tenant, 0, 60 * MIB);
    pool_sleep(tenant.pool);
    void *block = block_alloc(test, 70 * MIB, 3);
    assert_ok(vmm__driver_delay(test->driver, 50 * 1000 * 1000, test->streams[3]));
    block_fill(test, block, 70 * MIB, 5, 3);
    block_free(test, block);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* More is reserved than the limit allows by now, so more than the wake needs must go. */
CACHE_TEST(a_wake_below_a_lowered_limit_takes_idle_memory)
{
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    tenant_add(test, &tenant, 0, 20 * MIB);
    pool_sleep(tenant.pool);
    void *live = block_alloc(test, 20 * MIB, 1);
    block_free(test, block_alloc(test, 60 * MIB, 1));
    assert_ok(vmm_wait(test->cache));
    assert_ok(vmm_limit_set(test->cache, 48 * MIB));
    pool_wake(tenant.pool);
    assert_ok(vmm_limit_set(test->cache, 0));
    block_free(test, live);
    tenant_check(test, &tenant);
}

/* A tenant of 60 MiB sleeps, and another pool is promised as much; both do not fit into the limit. */
static vmm_pool *promised_make(struct cache_test *test, struct tenant *tenant)
{
    cache_restart_with(test, .limit_bytes = 96 * MIB);
    tenant->pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    tenant_add(test, tenant, 0, 60 * MIB);
    pool_sleep(tenant->pool);
    return pool_in(test->cache, .reserve_bytes = 60 * MIB);
}

/* A pool may be promised memory that a sleeping one had. */
/* It says so before any memory wakes, and names the call, the pool and all that it needs. */
CACHE_TEST(a_wake_beyond_a_limit_fails_at_once)
{
    vmm_pool *pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    void *blocks[8];
    for (unsigned i = 0; i < 8; i++)
        assert_ok(vmm_alloc_from(pool, 8 * MIB, test->streams[1], &blocks[i]));
    pool_sleep(pool);
    assert_ok(vmm_pool_limit_set(pool, 16 * MIB));
    uint64_t creates = cache_stats(test).create_calls;
    assert_status(vmm_pool_wake(&pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "vmm_pool_wake: pool "));
    assert_non_null(strstr(vmm_last_error(), ": 0 are reserved, 67108864 more were needed"));
    assert_int_equal(cache_stats(test).create_calls, creates);
    assert_ok(vmm_pool_limit_set(pool, 0));
    pool_wake(pool);
}

CACHE_TEST(a_wake_leaves_what_others_were_promised)
{
    struct tenant tenant = { .pool = NULL };
    vmm_pool *other = promised_make(test, &tenant);
    assert_status(vmm_pool_wake(&tenant.pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "are reserved, or promised to other pools"));
    assert_ok(vmm_pool_destroy(other, 0));
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* Idle memory below a promise would not help: the promise stays. */
CACHE_TEST(a_wake_leaves_idle_memory_that_others_were_promised)
{
    struct tenant tenant = { .pool = NULL };
    vmm_pool *other = promised_make(test, &tenant);
    void *block = block_in_pool(other, 60 * MIB, test->streams[1]);
    block_free(test, block);
    assert_ok(vmm_wait(test->cache));
    assert_status(vmm_pool_wake(&tenant.pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    vmm_stats stats = pool_stats(other);
    assert_true(stats.reserved_bytes.current >= 60 * MIB);
    assert_ok(vmm_pool_destroy(other, 0));
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* What sleeps is live, and has no memory. */
CACHE_TEST(an_out_of_memory_line_names_what_sleeps)
{
    void *out;
    cache_restart_with(test, .limit_bytes = 96 * MIB);
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_DISCARD);
    char asleep[64];
    pool_sleep(tenant.pool);
    (void)snprintf(asleep, sizeof asleep, ", %llu.0 MiB asleep, 0 KiB reserved of",
                   (unsigned long long)(cache_stats(test).asleep_bytes / MIB));
    assert_status(vmm_alloc(test->cache, 120 * MIB, NULL, &out), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), asleep));
    assert_null(strstr(vmm_last_error(), "retained"));
    pool_wake(tenant.pool);
}

/* Out of memory, the program's function puts another pool to sleep, and the request succeeds. */
struct relief {
    vmm_pool *pool;
    unsigned calls;
};

static int pool_relieve(void *context, vmm_pool *pool, size_t bytes)
{
    struct relief *relief = context;
    (void)pool;
    (void)bytes;
    relief->calls++;
    return vmm_pool_sleep(&relief->pool, 1, NULL, NULL) == VMM_OK;
}

CACHE_TEST(pressure_puts_a_pool_to_sleep)
{
    struct relief relief = { .calls = 0 };
    cache_restart_with(test, .limit_bytes = 96 * MIB, .pressure = pool_relieve,
                       .pressure_context = &relief);
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    relief.pool = tenant.pool;
    tenant_add(test, &tenant, 0, 60 * MIB);
    void *block = block_alloc(test, 70 * MIB, 1);
    assert_true(relief.calls > 0);
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_ASLEEP);
    block_free(test, block);
    pool_wake(tenant.pool); /* takes the idle memory of the other pool */
    tenant_check(test, &tenant);
}

/* The same with the pool that asks: it sleeps when the function returns, and serves no request. */
enum { RELIEF_ALLOC, RELIEF_ALIGNED, RELIEF_COMMIT, RELIEF_RESIZE, RELIEF_REQUESTS };

static vmm_status relief_request(struct cache_test *test, vmm_pool *pool, unsigned request,
                                 void *block, void *reserved, void **out)
{
    switch (request) {
    case RELIEF_ALLOC:
        return vmm_alloc_from(pool, 60 * MIB, test->streams[1], out);
    case RELIEF_ALIGNED:
        return vmm_alloc_aligned(pool, 60 * MIB, 4 * MIB, test->streams[1], out);
    case RELIEF_COMMIT:
        return vmm_commit(test->cache, reserved, 0, 60 * MIB);
    default:
        return vmm_resize(test->cache, block, 100 * MIB, out);
    }
}

CACHE_TEST(a_pool_that_pressure_puts_to_sleep_serves_no_request)
{
    for (unsigned request = 0; request < RELIEF_REQUESTS; request++) {
        struct relief relief = { .calls = 0 };
        void *reserved = NULL;
        void *out = test;
        cache_restart_with(test, .limit_bytes = 96 * MIB, .pressure = pool_relieve,
                           .pressure_context = &relief);
        struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
        relief.pool = tenant.pool;
        tenant_add(test, &tenant, 0, 60 * MIB);
        assert_ok(vmm_reserve(tenant.pool, 60 * MIB, 0, test->streams[1], &reserved));
        assert_status(relief_request(test, tenant.pool, request, tenant.blocks[0], reserved, &out),
                      VMM_ERR_ASLEEP);
        assert_int_equal(relief.calls, 1);
        assert_ptr_equal(out, test);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        pool_wake(tenant.pool);
        tenant_check(test, &tenant);
        block_free(test, reserved);
        tenant_end(test, &tenant);
    }
}

CACHE_MAIN()
