/* Tenants that take turns: see turns.h. */
#include "fragtest/replay/turns.h"

#include "api/create_on.h"
#include "base/arith.h"
#include "base/error.h"
#include "fragtest/replay/replay.h"

#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

/* Sizes of a tenant's blocks, again and again. */
static const uint64_t block_bytes[] = { 32 * MIB, 40 << 10, 3 * MIB, 700, 18 * MIB, MIB };
enum { SIZES = sizeof block_bytes / sizeof block_bytes[0] };

struct tenant {
    vmm_pool *pool;
    vmm_stream stream;
    void **blocks;
    uint32_t count;
};

struct stage {
    struct driver *driver;
    struct turns *turns;
    const struct trace *trace; /* the blocks of one tenant after the other */
    vmm_cache *cache;
    struct tenant tenants[TURNS_TENANTS];
};

static uint32_t blocks_each(const struct stage *stage)
{
    return stage->trace->block_count / TURNS_TENANTS;
}

static uint64_t block_size(const struct stage *stage, unsigned tenant, uint32_t block)
{
    return stage->trace->blocks[tenant * blocks_each(stage) + block].bytes;
}

/* ---- Tenants ----------------------------------------------------------------------------------- */

/* Block i of tenant t has a pattern of its own. */
static uint32_t word_of(unsigned tenant, uint32_t block)
{
    return block * TURNS_TENANTS + tenant + 1;
}

static vmm_status tenant_begin(struct stage *stage, unsigned number)
{
    struct tenant *tenant = &stage->tenants[number];
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < blocks_each(stage) && status == VMM_OK; i++) {
        uint64_t bytes = block_size(stage, number, i);
        status = vmm_alloc_from(tenant->pool, bytes, tenant->stream, &tenant->blocks[i]);
        if (status == VMM_OK)
            status = vmm__driver_fill(stage->driver, (uintptr_t)tenant->blocks[i], bytes,
                                      word_of(number, i), tenant->stream);
        tenant->count += tenant->blocks[i] != NULL;
    }
    return status;
}

static vmm_status tenant_check(struct stage *stage, unsigned number, struct turn *turn)
{
    const struct tenant *tenant = &stage->tenants[number];
    uint64_t places = 0;
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < tenant->count && status == VMM_OK; i++) {
        uint64_t bytes = block_size(stage, number, i);
        status = vmm__driver_check(stage->driver, (uintptr_t)tenant->blocks[i], bytes,
                                   word_of(number, i), tenant->stream);
        turn->checked_bytes += bytes;
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
    tenant->blocks = calloc(blocks_each(stage), sizeof(*tenant->blocks));
    if (tenant->blocks == NULL)
        return VMM_ERR_HOST_OOM;
    vmm_status status = vmm__driver_stream_create(stage->driver, &tenant->stream);
    return status == VMM_OK ? vmm_pool_create(stage->cache, &options, &tenant->pool) : status;
}

static void stage_close(struct stage *stage)
{
    for (unsigned i = 0; i < TURNS_TENANTS; i++)
        for (uint32_t block = 0; block < stage->tenants[i].count; block++)
            (void)vmm_free(stage->cache, stage->tenants[i].blocks[block]);
    (void)vmm_destroy(stage->cache);
    for (unsigned i = 0; i < TURNS_TENANTS; i++) {
        if (stage->tenants[i].stream != NULL)
            (void)vmm__driver_stream_destroy(stage->driver, stage->tenants[i].stream);
        free(stage->tenants[i].blocks);
    }
}

static vmm_status tenants_run(struct turns *turns, const struct trace *trace)
{
    struct driver *driver = turns->run.driver;
    struct stage stage = { .driver = driver, .turns = turns, .trace = trace };
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

/* Both tenants allocate, one after the other, as far as memory goes. */
static void rival_run(struct turns *turns, const struct trace *trace, const struct policy_ops *ops)
{
    struct turns_rival *rival = &turns->rivals[turns->rival_count++];
    const struct replay_request request = { .trace = trace,
                                            .policy = ops,
                                            .driver = turns->run.driver,
                                            .limit_bytes = turns->run.limit_bytes,
                                            .passes = 1 };
    struct replay_outcome outcome;
    replay_run(&request, &outcome);
    *rival = (struct turns_rival){ .name = ops->name, .holds_both = outcome.ok };
    for (uint64_t i = 0; i < outcome.ops_done; i++)
        rival->live_bytes += trace->blocks[i].bytes;
    replay_outcome_free(&outcome);
}

/* ---- All --------------------------------------------------------------------------------------- */

static bool trace_make(struct trace *trace, uint64_t tenant_bytes)
{
    uint32_t block;
    bool ok = trace_init(trace, "tenants");
    for (unsigned tenant = 0; tenant < TURNS_TENANTS; tenant++) {
        uint64_t left_bytes = tenant_bytes;
        for (unsigned i = 0; ok && left_bytes > 0; i++) {
            uint64_t bytes = vmm__min(block_bytes[i % SIZES], left_bytes);
            ok = trace_add_alloc(trace, bytes, 0, &block) == NULL;
            left_bytes -= bytes;
        }
    }
    return ok;
}

vmm_status turns_run(struct scene_run *run)
{
    struct turns *turns = (struct turns *)run;
    const struct options *options = run->options;
    struct trace trace;
    vmm_status status = VMM_OK;
    run->limit_bytes = policy_limit(options->memory, TURNS_TENANTS * options->scene_bytes);
    if (!trace_make(&trace, options->scene_bytes))
        status = vmm__error(VMM_ERR_HOST_OOM, "out of host memory for the tenants");
    progress_begin(run->progress, TURNS, "tenants take turns");
    if (status == VMM_OK)
        status = tenants_run(turns, &trace);
    for (unsigned i = 0; i < POLICY_COUNT && status == VMM_OK; i++)
        if (options->policies[i] && policy_at(i) != &policy_vmmcache)
            rival_run(turns, &trace, policy_at(i));
    progress_end(run->progress);
    trace_free(&trace);
    run->is_good = turns->mismatches == 0;
    return status;
}
