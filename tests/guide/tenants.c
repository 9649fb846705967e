/* A quota for each tenant of a server, and memory that is kept free for one of them. */
#include "gpu.h"

#include <string.h>

#define MIB ((size_t)1 << 20)

/* [tenant] */
static vmm_pool *create_tenant(vmm_cache *cache, const char *name, uint64_t most, uint64_t least)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *tenant;
    options.name = name;
    options.limit_bytes = most;    /* the tenant's requests fail beyond */
    options.reserve_bytes = least; /* other tenants leave this much free */
    check(vmm_pool_create(cache, &options, &tenant));
    return tenant;
}
/* [end] */

/* A library that knows of no pools. */
static void *library_alloc(vmm_cache *cache, vmm_stream stream)
{
    void *block;
    check(vmm_alloc(cache, 4 * MIB, stream, &block));
    return block;
}

/* [serve] */
static void *serve(vmm_cache *cache, vmm_pool *tenant, vmm_stream stream)
{
    check(vmm_pool_push(tenant)); /* vmm_alloc() of this thread is the tenant's */
    void *result = library_alloc(cache, stream);
    check(vmm_pool_pop(tenant));
    return result;
}
/* [end] */

static void report(vmm_pool *tenant)
{
    /* [report] */
    vmm_stats stats = VMM_STATS_INIT;
    check(vmm_pool_stats_get(tenant, &stats));
    printf("live %llu, reserved %llu, most %llu\n",
           (unsigned long long)stats.requested_bytes.current,
           (unsigned long long)stats.reserved_bytes.current,
           (unsigned long long)stats.reserved_bytes.peak);
    /* [end] */
    EXPECT(stats.requested_bytes.current == 4 * MIB);
}

int main(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    void *block;
    config.limit_bytes = 128 * MIB;
    check(vmm_create(&config, &cache));
    vmm_stream stream = gpu_stream_create();
    vmm_pool *small = create_tenant(cache, "small", 32 * MIB, 0);
    vmm_pool *large = create_tenant(cache, "large", 0, 64 * MIB);
    void *result = serve(cache, small, stream);
    EXPECT(vmm_alloc_from(small, 40 * MIB, stream, &block) == VMM_ERR_DEVICE_OOM);
    EXPECT(strstr(vmm_last_error(), "pool small") != NULL);
    EXPECT(vmm_alloc(cache, 80 * MIB, stream, &block) == VMM_ERR_DEVICE_OOM);
    check(vmm_alloc_from(large, 64 * MIB, stream, &block));
    report(small);
    check(vmm_free(cache, block));
    /* [leave] */
    check(vmm_pool_destroy(small, 1)); /* the default pool adopts what is live */
    /* [end] */
    check(vmm_free(cache, result));
    check(vmm_pool_destroy(large, 0));
    check(vmm_destroy(cache));
    gpu_stream_destroy(stream);
    return 0;
}
