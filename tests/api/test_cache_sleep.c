/* Sleep and wake: what a program finds before, meanwhile and after. */
#include "support/cache_support.h"
#include "support/graph_support.h"
#include "support/pool_calls.h"
#include "support/tenant_support.h"

#include "cache/cache.h"
#include "driver/sim/sim.h"

#include <stdatomic.h>
#include <string.h>

/* ---- Contents ---------------------------------------------------------------------------------- */

static uint64_t asleep_bytes_of(vmm_pool *pool)
{
    vmm_stats stats = pool_stats(pool);
    return stats.asleep_bytes;
}

CACHE_TEST(live_bytes_survive_a_sleep)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    for (int cycle = 0; cycle < 3; cycle++) {
        pool_sleep(tenant.pool);
        vmm_stats stats = cache_stats(test);
        assert_int_equal(stats.reserved_bytes.current, 0);
        assert_int_equal(test->driver->created_bytes, 0);
        assert_int_equal(test->driver->mapped_bytes, 0);
        assert_true(stats.asleep_bytes >= stats.allocated_bytes.current);
        assert_int_equal(asleep_bytes_of(tenant.pool), stats.asleep_bytes);
        assert_int_equal(asleep_bytes_of(vmm_cache_pool(test->cache)), 0);
        assert_true(stats.backup_bytes >= stats.allocated_bytes.current);
        cache_verify(test);
        pool_wake(tenant.pool);
        assert_int_equal(asleep_bytes_of(tenant.pool), 0);
        cache_verify(test);
        tenant_check(test, &tenant);
    }
    assert_ok(vmm_backup_drop(tenant.pool));
    assert_int_equal(cache_stats(test).backup_bytes, 0);
}

CACHE_TEST(a_discarded_pool_has_no_backup)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_DISCARD);
    pool_sleep(tenant.pool);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    assert_int_equal(cache_stats(test).backup_bytes, 0);
    pool_wake(tenant.pool);
    cache_verify(test);
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        if (tenant.blocks[i] != NULL)
            block_fill(test, tenant.blocks[i], tenant.bytes[i], tenant.words[i], i % 2 + 1);
    }
    tenant_reserved_fill(test, &tenant);
    tenant_check(test, &tenant);
}

/* The options of a call come before those of the pool. */
CACHE_TEST(a_call_may_override_what_a_sleep_keeps)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_DISCARD);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_sleep = VMM_ON_SLEEP_KEEP;
    options.staging_bytes = 4 * MIB;
    assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, NULL));
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(blocks_in_views_sleep)
{
    enum { PIECES = 16 };
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    for (unsigned i = 0; i < PIECES; i++) {
        tenant_add(test, &tenant, 2 * (i % 2) + 4 * (i / 2), 4 * MIB);
        assert_true(2 * (i % 2) + 4 * (i / 2) < 4 * PIECES);
        if (4 * (i / 2) + 4 >= TENANT_BLOCKS)
            break;
    }
    for (unsigned i = 0; i < TENANT_BLOCKS; i += 4) {
        if (tenant.blocks[i] != NULL)
            block_free(test, tenant.blocks[i]);
        tenant.blocks[i] = NULL;
    }
    tenant_add(test, &tenant, 4, 12 * MIB);
    pool_sleep(tenant.pool);
    cache_verify(test);
    pool_wake(tenant.pool);
    cache_verify(test);
    tenant_check(test, &tenant);
}

/* ---- Reserved blocks --------------------------------------------------------------------------- */

CACHE_TEST(units_sleep_and_wake_where_they_were)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    uint64_t committed = block_find(test, tenant.reserved).committed_bytes;
    pool_sleep(tenant.pool);
    for (uint32_t unit = 0; unit < TENANT_UNITS; unit++) {
        void *host = NULL;
        char *address = tenant.reserved + unit * TENANT_UNIT + 5;
        vmm_status status = vmm_backup_find(tenant.pool, address, &host);
        bool has_memory = (TENANT_COMMITTED >> unit & 1) != 0;
        assert_int_equal(status, has_memory ? VMM_OK : VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(host != NULL, has_memory);
    }
    pool_wake(tenant.pool);
    assert_int_equal(block_find(test, tenant.reserved).committed_bytes, committed);
    assert_ok(vmm_commit(test->cache, tenant.reserved, 0, TENANT_UNITS * TENANT_UNIT));
    block_fill(test, tenant.reserved, TENANT_UNIT, 7, 1);
    block_check(test, tenant.reserved, TENANT_UNIT, 7, 1);
    tenant_check(test, &tenant);
    assert_ok(vmm_decommit(test->cache, tenant.reserved, 0, TENANT_UNITS * TENANT_UNIT));
    pool_sleep(tenant.pool);
    pool_wake(tenant.pool);
    assert_int_equal(block_find(test, tenant.reserved).committed_bytes, 0);
    block_free(test, tenant.reserved);
    tenant.reserved = NULL;
    tenant_check(test, &tenant);
}

CACHE_TEST(the_memory_of_a_sleeping_reserved_block_cannot_change)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    void *out = NULL;
    pool_sleep(tenant.pool);
    assert_status(vmm_commit(test->cache, tenant.reserved, 0, TENANT_UNIT), VMM_ERR_ASLEEP);
    assert_non_null(strstr(vmm_last_error(), "vmm_commit: pool tenant sleeps"));
    assert_status(vmm_decommit(test->cache, tenant.reserved, 0, TENANT_UNIT), VMM_ERR_ASLEEP);
    for (size_t units = 1; units <= 2 * TENANT_UNITS; units += TENANT_UNITS)
        assert_status(vmm_resize(test->cache, tenant.reserved, units * TENANT_UNIT, &out),
                      VMM_ERR_ASLEEP);
    assert_status(vmm_reserve(tenant.pool, MIB, 0, test->streams[1], &out), VMM_ERR_ASLEEP);
    assert_null(out);
    cache_verify(test);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(a_reserved_block_can_be_freed_while_its_pool_sleeps)
{
    for (int destroys = 0; destroys < 2; destroys++) {
        struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
        uint64_t committed = block_find(test, tenant.reserved).committed_bytes;
        pool_sleep(tenant.pool);
        uint64_t asleep = cache_stats(test).asleep_bytes;
        block_free(test, tenant.reserved);
        assert_status(vmm_free(test->cache, tenant.reserved), VMM_ERR_UNKNOWN_POINTER);
        tenant.reserved = NULL;
        cache_verify(test);
        if (destroys)
            tenant_free(test, &tenant);
        else
            pool_wake(tenant.pool);
        if (!destroys) {
            assert_true(cache_stats(test).reserved_bytes.current <= asleep - committed);
            tenant_check(test, &tenant);
        }
        tenant_end(test, &tenant);
    }
}

/* Graphs may use the memory of a freed reserved block, too. */
CACHE_TEST(a_freed_reserved_block_of_a_retained_pool_wakes)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    char *reserved = tenant.reserved;
    assert_ok(vmm_pool_retain(tenant.pool));
    block_free(test, reserved);
    tenant.reserved = NULL;
    pool_sleep(tenant.pool);
    cache_verify(test);
    pool_wake(tenant.pool);
    cache_verify(test);
    block_fill(test, reserved + TENANT_UNIT, TENANT_UNIT, 3, 2); /* as a launch of a graph */
    block_check(test, reserved + TENANT_UNIT, TENANT_UNIT, 3, 2);
    tenant_check(test, &tenant);
}

struct free_once {
    vmm_cache *cache;
    void *block; /* NULL: it is free */
};

static void once_free(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    struct free_once *once = context;
    (void)pool;
    (void)address;
    (void)bytes;
    if (once->block != NULL)
        assert_ok(vmm_free(once->cache, once->block));
    once->block = NULL;
}

/* In these moments the order has listed the chunks of the block already. */
CACHE_TEST(a_reserved_block_that_is_freed_during_an_order_keeps_no_memory)
{
    for (int is_wake = 0; is_wake < 2; is_wake++) {
        struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
        struct free_once once = { test->cache, tenant.reserved };
        vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
        options.context = &once;
        *(is_wake ? &options.mapped : &options.unmapping) = once_free;
        tenant.reserved = NULL;
        assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, NULL));
        assert_ok(vmm_pool_wake(&tenant.pool, 1, &options, NULL));
        assert_null(once.block);
        cache_verify(test);
        tenant_free(test, &tenant);
        assert_ok(vmm_trim(test->cache, 0, NULL));
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        tenant_end(test, &tenant);
    }
}

/* ---- While a pool sleeps ----------------------------------------------------------------------- */

CACHE_TEST(a_sleeping_pool_serves_no_request)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    void *out = NULL;
    pool_sleep(tenant.pool);
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        for (unsigned i = 0; i < TENANT_SIZES; i++)
            assert_status(vmm_alloc_from(tenant.pool, tenant_sizes[i], test->streams[stream], &out),
                          VMM_ERR_ASLEEP);
    }
    assert_non_null(strstr(vmm_last_error(), "tenant"));
    assert_ok(vmm_pool_push(tenant.pool));
    assert_status(vmm_alloc(test->cache, 1000, test->streams[1], &out), VMM_ERR_ASLEEP);
    assert_ok(vmm_pool_pop(tenant.pool));
    void *other = block_alloc(test, 3 * MIB, 1); /* the default pool is awake */
    block_free(test, other);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

CACHE_TEST(blocks_can_be_freed_while_their_pool_sleeps)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    for (unsigned i = 1; i < TENANT_BLOCKS; i += 2) {
        if (tenant.blocks[i] == NULL)
            continue;
        block_free(test, tenant.blocks[i]);
        assert_status(vmm_free(test->cache, tenant.blocks[i]), VMM_ERR_UNKNOWN_POINTER);
        tenant.blocks[i] = NULL;
    }
    cache_verify(test);
    assert_int_equal(cache_trim(test, 0), 0);
    tenant_wake_and_refill(test, &tenant);
}

CACHE_TEST(a_pool_without_live_blocks_can_be_destroyed_asleep)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    assert_status(vmm_pool_destroy(tenant.pool, 1), VMM_ERR_INVALID_ARGUMENT);
    tenant_free(test, &tenant);
    assert_ok(vmm_pool_destroy(tenant.pool, 0));
    cache_verify_empty(test);
    assert_int_equal(cache_stats(test).asleep_bytes, 0);
}

/* Each counts its own, and what sleeps of a pool without blocks goes with it. */
CACHE_TEST(pools_count_what_sleeps_of_them)
{
    struct tenant tenants[2];
    uint64_t asleep[2];
    for (int i = 0; i < 2; i++)
        tenants[i] = tenant_make(test, VMM_ON_SLEEP_DISCARD);
    for (int i = 0; i < 2; i++) {
        uint64_t before = cache_stats(test).asleep_bytes;
        pool_sleep(tenants[i].pool);
        asleep[i] = cache_stats(test).asleep_bytes - before;
        assert_true(asleep[i] > 0);
        assert_int_equal(asleep_bytes_of(tenants[i].pool), asleep[i]);
    }
    tenant_free(test, &tenants[0]);
    assert_ok(vmm_pool_destroy(tenants[0].pool, 0));
    assert_int_equal(cache_stats(test).asleep_bytes, asleep[1]);
    assert_int_equal(asleep_bytes_of(tenants[1].pool), asleep[1]);
    assert_int_equal(asleep_bytes_of(vmm_cache_pool(test->cache)), 0);
    pool_wake(tenants[1].pool);
}

CACHE_TEST(a_cache_can_end_while_pools_sleep)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(tenant.pool);
    cache_restart(test, NULL);
}

CACHE_TEST(sleeping_twice_is_sleeping_once)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_wake(tenant.pool);
    pool_sleep(tenant.pool);
    pool_sleep(tenant.pool);
    assert_status(vmm_backup_drop(tenant.pool), VMM_ERR_ASLEEP);
    pool_wake(tenant.pool);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* Two tenants take turns in memory that holds one. */
CACHE_TEST(tenants_take_turns)
{
    struct tenant first = tenant_make(test, VMM_ON_SLEEP_KEEP);
    assert_ok(vmm_limit_set(test->cache, cache_stats(test).reserved_bytes.current + 8 * MIB));
    pool_sleep(first.pool);
    struct tenant second = tenant_make(test, VMM_ON_SLEEP_KEEP);
    assert_status(vmm_pool_wake(&first.pool, 1, NULL, NULL), VMM_ERR_DEVICE_OOM);
    assert_int_equal(phase_of(first.pool), VMM_POOL_ASLEEP);
    for (int turn = 0; turn < 3; turn++) {
        pool_sleep(second.pool);
        pool_wake(first.pool);
        tenant_check(test, &first);
        pool_sleep(first.pool);
        pool_wake(second.pool);
        tenant_check(test, &second);
    }
    assert_ok(vmm_limit_set(test->cache, 0));
    pool_wake(first.pool);
    tenant_check(test, &first);
}

CACHE_TEST(the_default_pool_sleeps)
{
    struct tenant tenant = { .pool = vmm_cache_pool(test->cache) };
    tenant_refill(test, &tenant);
    void *out = NULL;
    pool_sleep(tenant.pool);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++)
        assert_status(vmm_alloc(test->cache, 1000, test->streams[stream], &out), VMM_ERR_ASLEEP);
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* ---- Graphs ------------------------------------------------------------------------------------ */

CACHE_TEST(graphs_replay_after_a_wake)
{
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    graph_replay(test, &graph, 3);
    work_verify(test);
    vmm_pool *pool = vmm_pool_find(test->cache, graph.id);
    uint64_t bytes = cache_stats(test).reserved_bytes.current;
    for (int cycle = 0; cycle < 2; cycle++) {
        pool_sleep(pool);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        pool_wake(pool);
        assert_int_equal(cache_stats(test).reserved_bytes.current, bytes);
        graph_replay(test, &graph, 3);
        work_verify(test);
    }
    graph_discard(test, &graph);
}

CACHE_TEST(no_pool_sleeps_during_a_capture)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct graph graph;
    graph_begin(test, &graph, 1, 3);
    assert_status(vmm_pool_sleep(&tenant.pool, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    graph_end(test, &graph);
    graph_release(test, &graph);
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_AWAKE);
    tenant_check(test, &tenant);
}

/* ---- Backups ----------------------------------------------------------------------------------- */

CACHE_TEST(saved_bytes_can_be_replaced)
{
    enum { BYTES = 9 * MIB };
    struct tenant tenant = { .pool = pool_make(test, VMM_ON_SLEEP_KEEP) };
    tenant_add(test, &tenant, 0, BYTES);
    tenant_add(test, &tenant, 1, 2000);
    void *host = NULL;
    assert_status(vmm_backup_find(tenant.pool, tenant.blocks[0], &host), VMM_ERR_INVALID_ARGUMENT);
    pool_sleep(tenant.pool);
    assert_ok(vmm_backup_find(tenant.pool, (char *)tenant.blocks[0] + 4096, &host));
    void *start;
    assert_ok(vmm_backup_find(tenant.pool, tenant.blocks[0], &start));
    assert_ptr_equal(host, (char *)start + 4096);
    assert_status(vmm_backup_find(tenant.pool, (char *)tenant.blocks[0] + BYTES + 1024, &host),
                  VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_backup_find(tenant.pool, &host, &host), VMM_ERR_UNKNOWN_POINTER);
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        memset(start, 0x5A, BYTES);
    pool_wake(tenant.pool);
    if (driver_choice_kind() != VMM_DRIVER_SIM) {
        unsigned char bytes[64];
        struct driver_piece piece = { .address = (uintptr_t)tenant.blocks[0] + BYTES - sizeof bytes,
                                      .bytes = sizeof bytes,
                                      .host = bytes };
        assert_ok(vmm__driver_read(test->driver, &piece, 1, test->streams[1]));
        for (unsigned i = 0; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], 0x5A);
    }
    block_check(test, tenant.blocks[1], 2000, tenant.words[1], 2);
}

/* ---- Tickets and callbacks --------------------------------------------------------------------- */

static vmm_status ticket_finish(vmm_ticket *ticket)
{
    int done = 0;
    while (!done)
        assert_ok(vmm_ticket_poll(ticket, &done));
    return vmm_ticket_wait(ticket);
}

CACHE_TEST(tickets_carry_out_sleep_and_wake)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_ticket *ticket;
    for (int cycle = 0; cycle < 3; cycle++) {
        assert_ok(vmm_pool_sleep(&tenant.pool, 1, NULL, &ticket));
        assert_ok(ticket_finish(ticket));
        assert_status(vmm_ticket_wait(ticket), VMM_ERR_INVALID_ARGUMENT);
        assert_int_equal(phase_of(tenant.pool), VMM_POOL_ASLEEP);
        assert_ok(vmm_pool_wake(&tenant.pool, 1, NULL, &ticket));
        assert_ok(vmm_ticket_wait(ticket));
        assert_int_equal(phase_of(tenant.pool), VMM_POOL_AWAKE);
    }
    tenant_check(test, &tenant);
    assert_ok(vmm_pool_sleep(&tenant.pool, 1, NULL, &ticket)); /* the cache's end waits for it */
    cache_restart(test, NULL);
    assert_status(vmm_ticket_wait(ticket), VMM_ERR_INVALID_ARGUMENT);
}

struct ranges_told {
    uint64_t unmapped_bytes;
    uint64_t mapped_bytes;
};

static void unmapping_told(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)pool;
    (void)address;
    ((struct ranges_told *)context)->unmapped_bytes += bytes;
}

static void mapped_told(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)pool;
    (void)address;
    ((struct ranges_told *)context)->mapped_bytes += bytes;
}

CACHE_TEST(the_program_is_told_of_mappings)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    struct ranges_told told = { 0, 0 };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.unmapping = unmapping_told;
    options.mapped = mapped_told;
    options.context = &told;
    assert_ok(vmm_pool_sleep(&tenant.pool, 1, &options, NULL));
    assert_true(told.unmapped_bytes >= cache_stats(test).asleep_bytes);
    assert_int_equal(told.mapped_bytes, 0);
    assert_ok(vmm_pool_wake(&tenant.pool, 1, &options, NULL));
    assert_int_equal(told.mapped_bytes, told.unmapped_bytes);
    tenant_check(test, &tenant);
}

/* ---- Refusals ---------------------------------------------------------------------------------- */

CACHE_TEST(wrong_orders_are_refused)
{
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_pool *twice[2] = { tenant.pool, tenant.pool };
    vmm_pool *wrong[2] = { tenant.pool, NULL };
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_sleep = (vmm_on_sleep)7;
    assert_status(vmm_pool_sleep(twice, 2, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_pool_sleep(wrong, 2, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_pool_sleep(NULL, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_pool_sleep(twice, 0, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_pool_sleep(twice, 1, &options, NULL), VMM_ERR_INVALID_ARGUMENT);
    options.struct_size = 3;
    assert_status(vmm_pool_wake(twice, 1, &options, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(phase_of(tenant.pool), VMM_POOL_AWAKE);
    assert_status(vmm_pool_wake(twice, 2, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    pool_sleep(tenant.pool);
    assert_status(vmm_pool_sleep(twice, 2, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_pool_wake(twice, 2, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "pool tenant is named twice"));
    pool_wake(tenant.pool);
    tenant_check(test, &tenant);
}

/* ---- Faults ------------------------------------------------------------------------------------ */

/* Each driver call of a sleep fails in turn. The pool is whole afterwards, awake or asleep. */
CACHE_TEST(a_sleep_that_fails_loses_nothing)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.staging_bytes = 8 * MIB;
    for (uint64_t call = 1;; call++) {
        for (int lasts = 0; lasts < 2; lasts++) {
            vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, lasts != 0);
            vmm_status status = vmm_pool_sleep(&tenant.pool, 1, &options, NULL);
            bool is_over = vmm__sim_faults_fired(test->driver) == 0;
            vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
            assert_true(status == VMM_OK || status == VMM_ERR_DRIVER);
            assert_ok(vmm__cache_check(test->cache));
            pool_wake(tenant.pool);
            (void)cache_trim(test, SIZE_MAX); /* releases what the driver refused to take */
            cache_verify(test);
            tenant_check(test, &tenant);
            if (is_over) {
                tenant_end(test, &tenant);
                return;
            }
        }
    }
}

/* Each driver call of a wake reports out of memory in turn: the pool sleeps, and the next wake succeeds. */
CACHE_TEST(a_wake_that_fails_can_be_tried_again)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct tenant tenant = tenant_make(test, VMM_ON_SLEEP_KEEP);
    for (uint64_t call = 1;; call++) {
        for (int lasts = 0; lasts < 2; lasts++) {
            pool_sleep(tenant.pool);
            vmm__sim_fail_at(test->driver, call, VMM_ERR_DEVICE_OOM, lasts != 0);
            vmm_status status = vmm_pool_wake(&tenant.pool, 1, NULL, NULL);
            bool is_over = vmm__sim_faults_fired(test->driver) == 0;
            vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
            assert_ok(vmm__cache_check(test->cache));
            if (status != VMM_OK) {
                assert_int_equal(phase_of(tenant.pool), VMM_POOL_ASLEEP);
                if (lasts == 0) /* else the driver takes nothing back, either */
                    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
                pool_wake(tenant.pool);
            }
            cache_verify(test);
            tenant_check(test, &tenant);
            if (is_over) {
                tenant_end(test, &tenant);
                return;
            }
        }
    }
}

CACHE_MAIN()
