/* Tenants that take turns: see turns.h. */
#include "fragtest/replay/turns.h"

#include "api/create_on.h"
#include "base/arith.h"

#include <stdlib.h>

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

struct stage {
    struct driver *driver;
    struct turns *turns;
    vmm_cache *cache;
    struct tenant tenants[TURNS_TENANTS];
};

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

static vmm_status tenant_begin(struct stage *stage, unsigned number)
{
    struct tenant *tenant = &stage->tenants[number];
    uint64_t left_bytes = stage->turns->run.options->scene_bytes;
    vmm_status status = VMM_OK;
    while (left_bytes > 0 && status == VMM_OK) {
        struct block *block = &tenant->blocks[tenant->count];
        block->bytes = bytes_next(tenant->count, left_bytes);
        status = vmm_alloc_from(tenant->pool, block->bytes, tenant->stream, &block->address);
        if (status == VMM_OK)
            status = vmm__driver_fill(stage->driver, (uintptr_t)block->address, block->bytes,
                                      word_of(number, tenant->count), tenant->stream);
        tenant->count += block->address != NULL;
        left_bytes -= block->bytes;
    }
    return status;
}

static vmm_status tenant_check(struct stage *stage, unsigned number, struct turn *turn)
{
    const struct tenant *tenant = &stage->tenants[number];
    uint64_t places = 0;
    vmm_status status = VMM_OK;
    for (uint64_t i = 0; i < tenant->count && status == VMM_OK; i++) {
        const struct block *block = &tenant->blocks[i];
        status = vmm__driver_check(stage->driver, (uintptr_t)block->address, block->bytes,
                                   word_of(number, i), tenant->stream);
        turn->checked_bytes += block->bytes;
    }
    if (status == VMM_OK)
        status = vmm__driver_mismatches(stage->driver, &places);
    stage->turns->mismatches += places;
    return status;
}

/* ---- Turns ------------------------------------------------------------------------------------- */

static vmm_status stats_read(struct stage *stage, vmm_stats *stats)
{
    *stats = (vmm_stats)VMM_STATS_INIT;
    vmm_status status = vmm_stats_get(stage->cache, stats);
    if (status == VMM_OK)
        stage->turns->peak_bytes = stats->reserved_bytes.peak;
    return status;
}

static vmm_status sleep_measure(struct stage *stage, struct turn *turn)
{
    vmm_stats stats;
    vmm_status status = vmm_wait(stage->cache);
    uint64_t begin = vmm__driver_clock(stage->driver);
    if (status == VMM_OK)
        status = vmm_pool_sleep(&stage->tenants[turn->sleeper].pool, 1, NULL, NULL);
    turn->sleep_ns = vmm__driver_clock(stage->driver) - begin;
    turn->slept_bytes = stage->turns->run.options->scene_bytes;
    return status == VMM_OK ? stats_read(stage, &stats) : status;
}

static vmm_status wake_measure(struct stage *stage, unsigned waker, struct turn *turn)
{
    uint64_t begin = vmm__driver_clock(stage->driver);
    vmm_status status = vmm_pool_wake(&stage->tenants[waker].pool, 1, NULL, NULL);
    turn->wake_ns = vmm__driver_clock(stage->driver) - begin;
    turn->woken_bytes = stage->turns->run.options->scene_bytes;
    return status;
}

/* In the first turn the other tenant begins instead of waking. */
static vmm_status turn_take(struct stage *stage, struct turn *turn)
{
    unsigned waker = 1 - turn->sleeper;
    vmm_stats stats;
    vmm_status status = sleep_measure(stage, turn);
    if (status == VMM_OK)
        status = stage->tenants[waker].count == 0 ? tenant_begin(stage, waker)
                                                  : wake_measure(stage, waker, turn);
    if (status == VMM_OK)
        status = tenant_check(stage, waker, turn);
    if (status == VMM_OK)
        status = stats_read(stage, &stats);
    if (status == VMM_OK)
        turn->reserved_bytes = stats.reserved_bytes.current;
    return status;
}

static vmm_status turns_take(struct stage *stage)
{
    struct turns *turns = stage->turns;
    vmm_status status = tenant_begin(stage, 0);
    while (turns->count < TURNS && status == VMM_OK) {
        struct turn *turn = &turns->turns[turns->count];
        *turn = (struct turn){ .sleeper = turns->count % TURNS_TENANTS };
        status = turn_take(stage, turn);
        turns->count += status == VMM_OK;
        progress_step(turns->run.progress, turns->count);
    }
    return status;
}

/* ---- The cache --------------------------------------------------------------------------------- */

static vmm_status tenant_open(struct stage *stage, unsigned number)
{
    static const char *const names[TURNS_TENANTS] = { "A", "B" };
    struct tenant *tenant = &stage->tenants[number];
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.name = names[number];
    tenant->blocks =
        calloc(blocks_count(stage->turns->run.options->scene_bytes), sizeof(*tenant->blocks));
    if (tenant->blocks == NULL)
        return VMM_ERR_HOST_OOM;
    vmm_status status = vmm__driver_stream_create(stage->driver, &tenant->stream);
    return status == VMM_OK ? vmm_pool_create(stage->cache, &options, &tenant->pool) : status;
}

static void stage_close(struct stage *stage)
{
    for (unsigned i = 0; i < TURNS_TENANTS; i++)
        for (uint64_t block = 0; block < stage->tenants[i].count; block++)
            (void)vmm_free(stage->cache, stage->tenants[i].blocks[block].address);
    (void)vmm_destroy(stage->cache);
    for (unsigned i = 0; i < TURNS_TENANTS; i++) {
        if (stage->tenants[i].stream != NULL)
            (void)vmm__driver_stream_destroy(stage->driver, stage->tenants[i].stream);
        free(stage->tenants[i].blocks);
    }
}

static vmm_status tenants_run(struct turns *turns)
{
    struct driver *driver = turns->run.driver;
    struct stage stage = { .driver = driver, .turns = turns };
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = turns->run.limit_bytes;
    vmm_status status = vmm__cache_create_on(&config, driver, &stage.cache);
    if (status != VMM_OK)
        return status;
    for (unsigned i = 0; i < TURNS_TENANTS && status == VMM_OK; i++)
        status = tenant_open(&stage, i);
    if (status == VMM_OK)
        status = turns_take(&stage);
    stage_close(&stage);
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
    uint64_t each = blocks_count(turns->run.options->scene_bytes);
    vmm_stream stream = NULL;
    struct policy_setup setup = { .driver = driver,
                                  .limit_bytes = turns->run.limit_bytes,
                                  .streams = &stream,
                                  .stream_count = 1 };
    struct policy_place *places = calloc(TURNS_TENANTS * each, sizeof(*places));
    struct policy *policy;
    uint64_t count = 0;
    *rival = (struct turns_rival){ .name = ops->name };
    vmm_status status = places == NULL ? VMM_ERR_HOST_OOM : ops->open(&setup, &policy);
    for (unsigned tenant = 0; tenant < TURNS_TENANTS && status == VMM_OK; tenant++) {
        uint64_t left_bytes = turns->run.options->scene_bytes;
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

vmm_status turns_run(struct scene_run *run)
{
    struct turns *turns = (struct turns *)run;
    run->limit_bytes =
        policy_limit(run->options->memory, TURNS_TENANTS * run->options->scene_bytes);
    progress_begin(run->progress, TURNS, "tenants take turns");
    vmm_status status = tenants_run(turns);
    for (unsigned i = 0; i < POLICY_COUNT && status == VMM_OK; i++)
        if (run->options->policies[i] && policy_at(i) != policy_vmmcache())
            status =
                rival_run(run->driver, policy_at(i), turns, &turns->rivals[turns->rival_count++]);
    progress_end(run->progress);
    run->is_good = turns->mismatches == 0;
    return status;
}
