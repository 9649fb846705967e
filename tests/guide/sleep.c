/* Training and inference take turns on one device, in memory that holds one of them. */
#include "gpu.h"

enum { TENANTS = 2, BLOCKS = 8, BLOCK_BYTES = 16 << 20, ROUNDS = 3 };

struct tenant {
    vmm_pool *pool;
    void *blocks[BLOCKS];
};

/* [tenant] */
static vmm_pool *tenant_create(vmm_cache *cache, const char *name, vmm_on_sleep on_sleep)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    options.name = name;
    options.on_sleep = on_sleep; /* KEEP for weights; DISCARD for what is computed again */
    check(vmm_pool_create(cache, &options, &pool));
    return pool;
}
/* [end] */

/* [turn] */
/* The next tenant gets the memory of the last one. Addresses stay, so pointers and captured graphs stay valid. */
static void turn(vmm_pool *last, vmm_pool *next)
{
    check(vmm_pool_sleep(&last, 1, NULL, NULL)); /* waits for the work of all streams */
    check(vmm_pool_wake(&next, 1, NULL, NULL));  /* nothing to do the first time */
}
/* [end] */

/* [ticket] */
/* The same while the calling thread does something else on the host. */
static void sleep_meanwhile(vmm_pool *pool, void (*do_something_else)(void))
{
    vmm_ticket *ticket;
    check(vmm_pool_sleep(&pool, 1, NULL, &ticket));
    do_something_else();
    check(vmm_ticket_wait(ticket));
}
/* [end] */

/* [offer] */
/* Idle: another process may have the memory of the pool, if it needs it. */
static void idle_begin(vmm_pool *pool)
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_claim = 1;
    check(vmm_pool_sleep(&pool, 1, &options, NULL)); /* waits for nothing */
}

/* Before the next use, whether another process came or not. */
static void idle_end(vmm_pool *pool)
{
    check(vmm_pool_wake(&pool, 1, NULL, NULL));
}
/* [end] */

static void tenant_fill(struct tenant *tenant, int byte, vmm_stream stream)
{
    for (int i = 0; i < BLOCKS; i++) {
        check(vmm_alloc_from(tenant->pool, BLOCK_BYTES, stream, &tenant->blocks[i]));
        gpu_fill(tenant->blocks[i], byte + i, BLOCK_BYTES, stream);
    }
}

static void tenant_expect(const struct tenant *tenant, int byte, vmm_stream stream)
{
    for (int i = 0; i < BLOCKS; i++)
        EXPECT(gpu_byte((char *)tenant->blocks[i] + BLOCK_BYTES - 1, stream) == byte + i);
}

static void tenant_end(vmm_cache *cache, struct tenant *tenant)
{
    for (int i = 0; i < BLOCKS; i++)
        check(vmm_free(cache, tenant->blocks[i]));
    check(vmm_pool_destroy(tenant->pool, 0));
}

static void nothing_else(void)
{
}

static void tenants_run(vmm_cache *cache, struct tenant tenants[TENANTS], vmm_stream stream)
{
    tenant_fill(&tenants[0], 10, stream);
    turn(tenants[0].pool, tenants[1].pool);
    tenant_fill(&tenants[1], 60, stream);
    void *out;
    EXPECT(vmm_alloc_from(tenants[0].pool, 1, stream, &out) == VMM_ERR_ASLEEP);
    for (int round = 0; round < ROUNDS; round++) {
        turn(tenants[1].pool, tenants[0].pool);
        tenant_expect(&tenants[0], 10, stream);
        turn(tenants[0].pool, tenants[1].pool);
        tenant_expect(&tenants[1], 60, stream);
    }
    idle_begin(tenants[1].pool);
    EXPECT(vmm_alloc_from(tenants[1].pool, 1, stream, &out) == VMM_ERR_ASLEEP);
    idle_end(tenants[1].pool);
    tenant_expect(&tenants[1], 60, stream);
    tenant_end(cache, &tenants[1]);
    sleep_meanwhile(tenants[0].pool, nothing_else); /* it sleeps already */
    tenant_end(cache, &tenants[0]);
}

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    struct tenant tenants[TENANTS];
    vmm_cache *cache;
    config.limit_bytes = (uint64_t)BLOCKS * BLOCK_BYTES + (32 << 20); /* holds one tenant */
    check(vmm_create(&config, &cache));
    vmm_stream stream = gpu_stream_create();
    tenants[0].pool = tenant_create(cache, "training", VMM_ON_SLEEP_KEEP);
    tenants[1].pool = tenant_create(cache, "inference", VMM_ON_SLEEP_KEEP);
    tenants_run(cache, tenants, stream);
    check(vmm_destroy(cache));
    gpu_stream_destroy(stream);
    return 0;
}
