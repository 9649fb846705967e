/* Tenants: see tenant_support.h. */
#include "support/tenant_support.h"

const size_t tenant_sizes[TENANT_SIZES] = { 700, 3 * MIB, 40000, 17 * MIB + 512, 5 * MIB, 300000 };

vmm_pool *pool_make(struct cache_test *test, vmm_on_sleep on_sleep)
{
    return pool_in(test->cache, .name = "tenant", .on_sleep = on_sleep);
}

void tenant_add(struct cache_test *test, struct tenant *tenant, unsigned number, size_t bytes)
{
    static uint32_t last_word = 1000;
    unsigned stream = number % 2 + 1;
    tenant->bytes[number] = bytes;
    tenant->words[number] = ++last_word;
    assert_ok(vmm_alloc_from(tenant->pool, bytes, test->streams[stream], &tenant->blocks[number]));
    block_fill(test, tenant->blocks[number], bytes, tenant->words[number], stream);
}

void tenant_refill(struct cache_test *test, struct tenant *tenant)
{
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        if (tenant->blocks[i] == NULL)
            tenant_add(test, tenant, i, tenant_sizes[i % TENANT_SIZES]);
    }
}

static void reserved_visit(struct cache_test *test, const struct tenant *tenant, bool fills)
{
    for (uint32_t unit = 0; unit < TENANT_UNITS && tenant->reserved != NULL; unit++) {
        char *start = tenant->reserved + unit * TENANT_UNIT;
        if ((TENANT_COMMITTED >> unit & 1) == 0)
            continue;
        if (fills)
            block_fill(test, start, TENANT_UNIT, 500 + unit, 1);
        else
            block_check(test, start, TENANT_UNIT, 500 + unit, 1);
    }
}

void tenant_reserved_fill(struct cache_test *test, const struct tenant *tenant)
{
    reserved_visit(test, tenant, true);
}

static void reserved_make(struct cache_test *test, struct tenant *tenant)
{
    void *block = NULL;
    assert_ok(vmm_reserve(tenant->pool, TENANT_UNITS * TENANT_UNIT, TENANT_UNIT, test->streams[1],
                          &block));
    tenant->reserved = block;
    for (size_t unit = 0; unit < TENANT_UNITS; unit++) {
        if ((TENANT_COMMITTED >> unit & 1) != 0)
            assert_ok(vmm_commit(test->cache, block, unit * TENANT_UNIT, TENANT_UNIT));
    }
    tenant_reserved_fill(test, tenant);
}

/* Blocks on two streams, some of them freed again, so that chunks are partly free. */
struct tenant tenant_make(struct cache_test *test, vmm_on_sleep on_sleep)
{
    struct tenant tenant = { .pool = pool_make(test, on_sleep) };
    for (unsigned i = 0; i < TENANT_BLOCKS; i++)
        tenant_add(test, &tenant, i, tenant_sizes[i % TENANT_SIZES] / (1 + i / TENANT_SIZES));
    for (unsigned i = 0; i < TENANT_BLOCKS; i += 5) {
        block_free(test, tenant.blocks[i]);
        tenant.blocks[i] = NULL;
    }
    reserved_make(test, &tenant);
    return tenant;
}

void tenant_check(struct cache_test *test, const struct tenant *tenant)
{
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        if (tenant->blocks[i] != NULL)
            block_check(test, tenant->blocks[i], tenant->bytes[i], tenant->words[i], i % 2 + 1);
    }
    reserved_visit(test, tenant, false);
    work_verify(test);
}

void tenant_free(struct cache_test *test, struct tenant *tenant)
{
    for (unsigned i = 0; i < TENANT_BLOCKS; i++) {
        if (tenant->blocks[i] != NULL)
            block_free(test, tenant->blocks[i]);
        tenant->blocks[i] = NULL;
    }
    if (tenant->reserved != NULL)
        block_free(test, tenant->reserved);
    tenant->reserved = NULL;
}

void tenant_wake_and_refill(struct cache_test *test, struct tenant *tenant)
{
    pool_wake(tenant->pool);
    cache_verify(test);
    tenant_check(test, tenant);
    tenant_refill(test, tenant);
    tenant_check(test, tenant);
}

void tenant_end(struct cache_test *test, struct tenant *tenant)
{
    tenant_free(test, tenant);
    assert_ok(vmm_pool_destroy(tenant->pool, 0));
    cache_verify_empty(test);
}

vmm_pool_phase phase_of(vmm_pool *pool)
{
    vmm_pool_phase phase;
    assert_ok(vmm_pool_state(pool, &phase));
    return phase;
}

void pool_sleep(vmm_pool *pool)
{
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_int_equal(phase_of(pool), VMM_POOL_ASLEEP);
}

void pool_wake(vmm_pool *pool)
{
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_int_equal(phase_of(pool), VMM_POOL_AWAKE);
}
