/* Tenants that take turns: see turns.h. */
#include "fragtest/replay/turns.h"

#include "api/create_on.h"
#include "base/arith.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MIB = 512, LEAST_MIB = 8, MOST_MIB = 1 << 20 };
#define MIB (UINT64_C(1) << 20)

/* Sizes of a tenant's blocks, again and again. */
static const uint64_t block_bytes[] = { 32 * MIB, 40 << 10, 3 * MIB, 700, 18 * MIB, MIB };
enum { SIZES = sizeof block_bytes / sizeof block_bytes[0] };

struct block {
    void *address;
    uint64_t bytes;
};

struct tenant {
    vmm_pool *pool;
    vmm_stream stream;
    struct block *blocks;
    uint64_t count;
};

struct scene {
    struct driver *driver;
    struct turns *turns;
    struct progress *progress;
    vmm_cache *cache;
    struct tenant tenants[TURNS_TENANTS];
};

bool turns_parse(const char *name, uint64_t *tenant_bytes)
{
    *tenant_bytes = DEFAULT_MIB * MIB;
    if (strcmp(name, "sleep") == 0)
        return true;
    return strncmp(name, "sleep:", 6) == 0 && vmm__size_parse(name + 6, tenant_bytes) &&
           *tenant_bytes >= LEAST_MIB * MIB && *tenant_bytes <= MOST_MIB * MIB;
}

/* The size of the next block of a tenant with so many bytes left. */
static uint64_t bytes_next(uint64_t number, uint64_t left_bytes)
{
    return vmm__min(block_bytes[number % SIZES], left_bytes);
}

static uint64_t blocks_count(uint64_t bytes)
{
    uint64_t count = 0;
    for (; bytes > 0; count++)
        bytes -= bytes_next(count, bytes);
    return count;
}

/* ---- Tenants ----------------------------------------------------------------------------------- */

/* Block i of tenant t has a pattern of its own. */
static uint32_t word_of(unsigned tenant, uint64_t block)
{
    return (uint32_t)(block * TURNS_TENANTS + tenant + 1);
}

static vmm_status tenant_begin(struct scene *scene, unsigned number)
{
    struct tenant *tenant = &scene->tenants[number];
    uint64_t left_bytes = scene->turns->tenant_bytes;
    vmm_status status = VMM_OK;
    while (left_bytes > 0 && status == VMM_OK) {
        struct block *block = &tenant->blocks[tenant->count];
        block->bytes = bytes_next(tenant->count, left_bytes);
        status = vmm_alloc_from(tenant->pool, block->bytes, tenant->stream, &block->address);
        if (status == VMM_OK)
            status = vmm__driver_fill(scene->driver, (uintptr_t)block->address, block->bytes,
                                      word_of(number, tenant->count), tenant->stream);
        tenant->count += block->address != NULL;
        left_bytes -= block->bytes;
    }
    return status;
}

static vmm_status tenant_check(struct scene *scene, unsigned number, struct turn *turn)
{
    const struct tenant *tenant = &scene->tenants[number];
    uint64_t places = 0;
    vmm_status status = VMM_OK;
    for (uint64_t i = 0; i < tenant->count && status == VMM_OK; i++) {
        const struct block *block = &tenant->blocks[i];
        status = vmm__driver_check(scene->driver, (uintptr_t)block->address, block->bytes,
                                   word_of(number, i), tenant->stream);
        turn->checked_bytes += block->bytes;
    }
    if (status == VMM_OK)
        status = vmm__driver_mismatches(scene->driver, &places);
    scene->turns->mismatches += places;
    return status;
}

/* ---- Turns ------------------------------------------------------------------------------------- */

static vmm_status stats_read(struct scene *scene, vmm_stats *stats)
{
    *stats = (vmm_stats)VMM_STATS_INIT;
    vmm_status status = vmm_stats_get(scene->cache, stats);
    if (status == VMM_OK)
        scene->turns->peak_bytes = stats->reserved_bytes.peak;
    return status;
}

static vmm_status sleep_measure(struct scene *scene, struct turn *turn)
{
    vmm_stats stats;
    vmm_status status = vmm_wait(scene->cache);
    uint64_t begin = vmm__driver_clock(scene->driver);
    if (status == VMM_OK)
        status = vmm_pool_sleep(&scene->tenants[turn->sleeper].pool, 1, NULL, NULL);
    turn->sleep_ns = vmm__driver_clock(scene->driver) - begin;
    turn->slept_bytes = scene->turns->tenant_bytes;
    return status == VMM_OK ? stats_read(scene, &stats) : status;
}

static vmm_status wake_measure(struct scene *scene, unsigned waker, struct turn *turn)
{
    uint64_t begin = vmm__driver_clock(scene->driver);
    vmm_status status = vmm_pool_wake(&scene->tenants[waker].pool, 1, NULL, NULL);
    turn->wake_ns = vmm__driver_clock(scene->driver) - begin;
    turn->woken_bytes = scene->turns->tenant_bytes;
    return status;
}

/* In the first turn the other tenant begins instead of waking. */
static vmm_status turn_take(struct scene *scene, struct turn *turn)
{
    unsigned waker = 1 - turn->sleeper;
    vmm_stats stats;
    vmm_status status = sleep_measure(scene, turn);
    if (status == VMM_OK)
        status = scene->tenants[waker].count == 0 ? tenant_begin(scene, waker)
                                                  : wake_measure(scene, waker, turn);
    if (status == VMM_OK)
        status = tenant_check(scene, waker, turn);
    if (status == VMM_OK)
        status = stats_read(scene, &stats);
    if (status == VMM_OK)
        turn->reserved_bytes = stats.reserved_bytes.current;
    return status;
}

static vmm_status turns_take(struct scene *scene)
{
    struct turns *turns = scene->turns;
    vmm_status status = tenant_begin(scene, 0);
    while (turns->count < TURNS && status == VMM_OK) {
        struct turn *turn = &turns->turns[turns->count];
        *turn = (struct turn){ .sleeper = turns->count % TURNS_TENANTS };
        status = turn_take(scene, turn);
        turns->count += status == VMM_OK;
        progress_step(scene->progress, turns->count);
    }
    return status;
}

/* ---- The cache --------------------------------------------------------------------------------- */

static vmm_status tenant_open(struct scene *scene, unsigned number)
{
    static const char *const names[TURNS_TENANTS] = { "A", "B" };
    struct tenant *tenant = &scene->tenants[number];
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.name = names[number];
    tenant->blocks = calloc(blocks_count(scene->turns->tenant_bytes), sizeof(*tenant->blocks));
    if (tenant->blocks == NULL)
        return VMM_ERR_HOST_OOM;
    vmm_status status = vmm__driver_stream_create(scene->driver, &tenant->stream);
    return status == VMM_OK ? vmm_pool_create(scene->cache, &options, &tenant->pool) : status;
}

static void scene_close(struct scene *scene)
{
    for (unsigned i = 0; i < TURNS_TENANTS; i++)
        for (uint64_t block = 0; block < scene->tenants[i].count; block++)
            (void)vmm_free(scene->cache, scene->tenants[i].blocks[block].address);
    (void)vmm_destroy(scene->cache);
    for (unsigned i = 0; i < TURNS_TENANTS; i++) {
        if (scene->tenants[i].stream != NULL)
            (void)vmm__driver_stream_destroy(scene->driver, scene->tenants[i].stream);
        free(scene->tenants[i].blocks);
    }
}

static vmm_status tenants_run(struct driver *driver, struct turns *turns, struct progress *progress)
{
    struct scene scene = { .driver = driver, .turns = turns, .progress = progress };
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = turns->limit_bytes;
    vmm_status status = vmm__cache_create_on(&config, driver, &scene.cache);
    if (status != VMM_OK)
        return status;
    for (unsigned i = 0; i < TURNS_TENANTS && status == VMM_OK; i++)
        status = tenant_open(&scene, i);
    if (status == VMM_OK)
        status = turns_take(&scene);
    scene_close(&scene);
    return status;
}

/* ---- Policies without sleep -------------------------------------------------------------------- */

static void rival_free(const struct policy_ops *ops, struct policy *policy,
                       struct policy_place *places, uint64_t count)
{
    while (count > 0)
        (void)ops->free(policy, places[--count]);
    (void)ops->close(policy);
}

/* Both tenants allocate, one after the other, as far as memory goes. */
static vmm_status rival_run(struct driver *driver, const struct policy_ops *ops,
                            const struct turns *turns, struct turns_rival *rival)
{
    uint64_t each = blocks_count(turns->tenant_bytes);
    vmm_stream stream = NULL;
    struct policy_setup setup = {
        .driver = driver, .limit_bytes = turns->limit_bytes, .streams = &stream, .stream_count = 1
    };
    struct policy_place *places = calloc(TURNS_TENANTS * each, sizeof(*places));
    struct policy *policy;
    uint64_t count = 0;
    *rival = (struct turns_rival){ .name = ops->name };
    vmm_status status = places == NULL ? VMM_ERR_HOST_OOM : ops->open(&setup, &policy);
    for (unsigned tenant = 0; tenant < TURNS_TENANTS && status == VMM_OK; tenant++) {
        uint64_t left_bytes = turns->tenant_bytes;
        for (uint64_t i = 0; i < each && rival->status == VMM_OK; i++) {
            uint64_t bytes = bytes_next(i, left_bytes);
            rival->status = ops->alloc(policy, bytes, 0, &places[count]);
            count += rival->status == VMM_OK;
            rival->live_bytes += rival->status == VMM_OK ? bytes : 0;
            left_bytes -= bytes;
        }
    }
    if (status == VMM_OK)
        rival_free(ops, policy, places, count);
    free(places);
    return status;
}

vmm_status turns_run(struct driver *driver, const bool *policies, struct turns *turns,
                     struct progress *progress)
{
    vmm_status status = tenants_run(driver, turns, progress);
    for (unsigned i = 0; i < POLICY_COUNT && status == VMM_OK; i++)
        if (policies[i] && policy_at(i) != policy_vmmcache())
            status = rival_run(driver, policy_at(i), turns, &turns->rivals[turns->rival_count++]);
    return status;
}
