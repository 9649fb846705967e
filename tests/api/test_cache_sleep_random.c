/*
 * Random calls while some pools sleep, on the sim driver also while calls of the driver fail. A small model knows which
 * pools are asleep and what is in their blocks: no call changes that but those that may, blocks of sleeping pools
 * cannot change but be freed, and walks add up to the statistics after each call.
 */
#include "support/tenant_support.h"

#include "cache/cache.h"
#include "driver/sim/sim.h"

enum {
    RUNS = IS_SLOW_BUILD ? 4 : 40,
    CALLS = 300,
    POOLS = 4,
    GRAPH_POOL = 1,
    BLOCKS = 32,
    UNITS = 6
};
#define UNIT    (2 * MIB)
#define LARGEST (8 * MIB)

/* A result that no call may write when it fails. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a5a5a5a5a)

struct model_block {
    char *start; /* NULL: none */
    size_t bytes;
    unsigned pool;
    unsigned stream;
    bool is_reserved;
    bool is_used; /* by another stream, which a moved block would lose */
    uint32_t
        words[UNITS]; /* of its units, or the first one of its contents; 0: unknown, or no memory */
};

struct model {
    struct cache_test *test;
    uint64_t seed;
    bool has_faults;
    uint32_t word;
    vmm_pool *pools[POOLS];
    bool sleeps[POOLS];
    bool is_lost[POOLS]; /* its contents may have been discarded */
    unsigned uses[POOLS];
    struct model_block blocks[BLOCKS];
};

static uint64_t draw(struct model *model, uint64_t count)
{
    return random_next(&model->seed) % count;
}

/* ---- Contents ---------------------------------------------------------------------------------- */

static size_t part_bytes(const struct model_block *block)
{
    return block->is_reserved ? UNIT : block->bytes;
}

static void part_fill(struct model *model, struct model_block *block, unsigned part)
{
    size_t bytes = part_bytes(block);
    block->words[part] = ++model->word;
    if (bytes > 0)
        block_fill(model->test, block->start + part * bytes, bytes, block->words[part],
                   block->stream);
}

static void block_verify(struct model *model, const struct model_block *block)
{
    size_t bytes = part_bytes(block);
    if (block->start == NULL || model->sleeps[block->pool] || bytes == 0)
        return;
    for (unsigned part = 0; part < UNITS; part++) {
        if (block->words[part] != 0)
            block_check(model->test, block->start + part * bytes, bytes, block->words[part],
                        block->stream);
    }
}

/* Contents that were discarded are written anew. A unit without memory has no word. */
static void blocks_refill(struct model *model, unsigned pool)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct model_block *block = &model->blocks[i];
        for (unsigned part = 0; block->start != NULL && block->pool == pool && part < UNITS;
             part++) {
            if (block->words[part] != 0)
                part_fill(model, block, part);
        }
    }
}

static void model_verify(struct model *model)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        block_verify(model, &model->blocks[i]);
    work_verify(model->test);
    assert_ok(vmm__cache_check(model->test->cache));
    struct occupancy_scan scan = cache_scan(model->test);
    vmm_stats stats = cache_stats(model->test);
    assert_int_equal(stats.reserved_bytes.current, scan.chunk_bytes);
    assert_int_equal(stats.asleep_bytes, scan.asleep_bytes);
    assert_int_equal(stats.allocated_bytes.current, scan.live_bytes);
    assert_int_equal(stats.requested_bytes.current, scan.requested_bytes);
    assert_int_equal(stats.active_bytes.current, scan.live_bytes + scan.waiting_bytes);
    assert_int_equal(stats.allocations.current, scan.live_blocks);
    assert_int_equal(stats.idle_bytes, scan.idle_bytes);
    for (unsigned i = 0; i < POOLS; i++)
        assert_int_equal(phase_of(model->pools[i]) == VMM_POOL_ASLEEP, model->sleeps[i]);
}

/* Whether a call on a pool succeeded. It must fail while the pool sleeps; else only if memory ran out, or by a
 * fault. */
static bool is_done(const struct model *model, unsigned pool, vmm_status status)
{
    if (model->sleeps[pool] && !model->has_faults)
        assert_status(status, VMM_ERR_ASLEEP);
    else if (model->sleeps[pool])
        assert_int_not_equal(status, VMM_OK);
    else if (!model->has_faults)
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
    return status == VMM_OK;
}

/* ---- Blocks ------------------------------------------------------------------------------------ */

enum kind { KIND_NONE, KIND_PLAIN, KIND_RESERVED };

static enum kind kind_of(const struct model_block *block)
{
    if (block->start == NULL)
        return KIND_NONE;
    return block->is_reserved ? KIND_RESERVED : KIND_PLAIN;
}

/* NULL: there is no such block. */
static struct model_block *block_draw(struct model *model, enum kind kind)
{
    unsigned first = (unsigned)draw(model, BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct model_block *block = &model->blocks[(first + i) % BLOCKS];
        if (kind_of(block) == kind)
            return block;
    }
    return NULL;
}

static struct model_block *live_draw(struct model *model)
{
    return block_draw(model, draw(model, 5) == 0 ? KIND_RESERVED : KIND_PLAIN);
}

static void call_alloc(struct model *model)
{
    struct model_block *block = block_draw(model, KIND_NONE);
    struct model_block made = { .pool = (unsigned)draw(model, POOLS),
                                .stream = (unsigned)draw(model, CACHE_STREAMS),
                                .is_reserved = draw(model, 6) == 0 };
    void *out = UNTOUCHED;
    vmm_pool *pool = model->pools[made.pool];
    vmm_stream stream = model->test->streams[made.stream];
    if (block == NULL)
        return;
    made.bytes = made.is_reserved ? UNITS * UNIT : random_bytes(&model->seed, LARGEST);
    vmm_status status = made.is_reserved ? vmm_reserve(pool, made.bytes, UNIT, stream, &out)
                                         : vmm_alloc_from(pool, made.bytes, stream, &out);
    if (!is_done(model, made.pool, status)) {
        assert_ptr_equal(out, UNTOUCHED);
        return;
    }
    *block = made;
    block->start = out;
    if (!block->is_reserved)
        part_fill(model, block, 0);
}

static void call_free(struct model *model)
{
    struct model_block *block = live_draw(model);
    if (block == NULL)
        return;
    vmm_status status = vmm_free(model->test->cache, block->start);
    assert_true(status == VMM_OK || model->has_faults);
    if (status == VMM_OK)
        block->start = NULL;
}

static void call_use(struct model *model)
{
    struct model_block *block = live_draw(model);
    vmm_stream other = model->test->streams[draw(model, CACHE_STREAMS)];
    if (block == NULL)
        return;
    vmm_status status = vmm_record_stream(model->test->cache, block->start, other);
    assert_true(status == VMM_OK || model->has_faults);
    block->is_used = true;
}

static void call_resize(struct model *model)
{
    struct model_block *block = block_draw(model, KIND_PLAIN);
    size_t bytes = random_bytes(&model->seed, LARGEST) + 1;
    void *out = UNTOUCHED;
    if (block == NULL || block->is_used)
        return;
    vmm_status status = vmm_resize(model->test->cache, block->start, bytes, &out);
    if (!is_done(model, block->pool, status)) {
        assert_ptr_equal(out, UNTOUCHED);
        return;
    }
    block->start = out;
    block->bytes = bytes;
    part_fill(model, block, 0);
}

static bool is_retained(const struct model *model, unsigned pool)
{
    return pool == GRAPH_POOL || model->uses[pool] > 0;
}

static void call_commit(struct model *model)
{
    struct model_block *block = block_draw(model, KIND_RESERVED);
    unsigned first = (unsigned)draw(model, UNITS);
    unsigned end = first + 1 + (unsigned)draw(model, UNITS - first);
    bool is_commit = draw(model, 3) != 0;
    if (block == NULL || (!is_commit && is_retained(model, block->pool)))
        return;
    vmm_status status = (is_commit ? vmm_commit : vmm_decommit)(model->test->cache, block->start,
                                                                first * UNIT, (end - first) * UNIT);
    if (!is_done(model, block->pool, status))
        return;
    for (unsigned unit = first; unit < end; unit++) {
        if (!is_commit)
            block->words[unit] = 0;
        else if (block->words[unit] == 0)
            part_fill(model, block, unit);
    }
}

/* ---- Pools ------------------------------------------------------------------------------------- */

static vmm_status order_give(struct model *model, bool is_wake, vmm_pool **pools, size_t count,
                             bool discards)
{
    vmm_ticket *ticket = NULL;
    vmm_ticket **out = draw(model, 3) == 0 ? &ticket : NULL;
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_sleep = discards ? VMM_ON_SLEEP_DISCARD : VMM_ON_SLEEP_KEEP;
    options.staging_bytes = draw(model, 2) * UNIT;
    vmm_status status = is_wake ? vmm_pool_wake(pools, count, &options, out)
                                : vmm_pool_sleep(pools, count, &options, out);
    return status == VMM_OK && out != NULL ? vmm_ticket_wait(ticket) : status;
}

/* Some of the pools, in any order, sleep or wake. */
static void call_order(struct model *model)
{
    vmm_pool *pools[POOLS];
    size_t count = 0;
    unsigned first = (unsigned)draw(model, POOLS);
    uint64_t chosen = 1 + draw(model, (1 << POOLS) - 1);
    bool is_wake = draw(model, 2) == 0;
    bool discards = draw(model, 4) == 0;
    for (unsigned i = 0; i < POOLS; i++) {
        if ((chosen >> i & 1) != 0)
            pools[count++] = model->pools[(first + i) % POOLS];
    }
    vmm_status status = order_give(model, is_wake, pools, count, discards);
    assert_true(status == VMM_OK || model->has_faults || (is_wake && status == VMM_ERR_DEVICE_OOM));
    for (unsigned i = 0; i < POOLS; i++) {
        if ((chosen >> ((i + POOLS - first) % POOLS) & 1) == 0)
            continue;
        bool slept = model->sleeps[i];
        bool sleeps = phase_of(model->pools[i]) == VMM_POOL_ASLEEP;
        assert_true(sleeps == (status == VMM_OK ? !is_wake : slept) || model->has_faults);
        model->sleeps[i] = sleeps;
        model->is_lost[i] = model->is_lost[i] || (!is_wake && !slept && discards);
        if (!sleeps && model->is_lost[i])
            blocks_refill(model, i);
        model->is_lost[i] = model->is_lost[i] && sleeps;
    }
}

static void call_retain(struct model *model)
{
    unsigned pool = (unsigned)draw(model, POOLS);
    if (model->uses[pool] == 0) {
        assert_ok(vmm_pool_retain(model->pools[pool]));
        model->uses[pool]++;
        return;
    }
    vmm_status status = vmm_pool_drop(model->pools[pool]);
    assert_true(status == VMM_OK || model->has_faults);
    model->uses[pool]--;
}

static void call_release(struct model *model)
{
    vmm_cache *cache = model->test->cache;
    vmm_pool *pool = model->pools[draw(model, POOLS)];
    vmm_status status = VMM_OK;
    switch (draw(model, 5)) {
    case 0:
        status = vmm_trim(cache, draw(model, 2) * UNIT, NULL);
        break;
    case 1:
        status = vmm_pool_trim(pool, 0, NULL);
        break;
    case 2:
        status = vmm_compact(cache, 0, NULL, NULL);
        break;
    case 3:
        status = vmm_limit_set(cache, draw(model, 2) == 0 ? CACHE_LIMIT : CACHE_LIMIT / 3);
        break;
    default:
        status = vmm_poll(cache);
    }
    assert_true(status == VMM_OK || model->has_faults);
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static void (*const calls[])(struct model *model) = {
    call_alloc,  call_alloc, call_alloc, call_alloc,  call_free,
    call_free,   call_free,  call_use,   call_resize, call_commit,
    call_commit, call_order, call_order, call_retain, call_release,
};

static void call_random(struct model *model)
{
    static const vmm_status faults[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM, VMM_ERR_HOST_OOM };
    uint64_t at = 1 + draw(model, 40);
    if (model->has_faults && draw(model, 3) == 0)
        vmm__sim_fail_at(model->test->driver, at, faults[draw(model, 3)], draw(model, 4) == 0);
    calls[draw(model, sizeof calls / sizeof *calls)](model);
    if (model->has_faults)
        vmm__sim_fail_at(model->test->driver, 0, VMM_OK, false);
}

static void model_end(struct model *model)
{
    vmm_cache *cache = model->test->cache;
    assert_ok(vmm_limit_set(cache, 0));
    assert_ok(vmm_pool_wake(model->pools, POOLS, NULL, NULL));
    for (unsigned i = 0; i < POOLS; i++) {
        model->sleeps[i] = false;
        if (model->is_lost[i])
            blocks_refill(model, i);
    }
    model_verify(model);
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_ok(vmm_free(cache, model->blocks[i].start));
    for (unsigned i = 0; i < POOLS; i++) {
        if (model->uses[i] > 0)
            assert_ok(vmm_pool_drop(model->pools[i]));
        assert_ok(vmm_pool_destroy(model->pools[i], 0));
    }
    cache_verify_empty(model->test);
}

static void model_run(struct cache_test *test, uint64_t seed, bool has_faults)
{
    struct model model = { .test = test, .seed = seed, .has_faults = has_faults };
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT,
                       .reuse = seed % 2 == 0 ? VMM_REUSE_STREAM_WAIT : VMM_REUSE_ANY_USE,
                       .footprint_permille = seed % 3 == 0 ? 1 : 0,
                       .zero = seed % 5 == 0 ? VMM_ON : VMM_OFF,
                       .no_caching = seed % 7 == 0 ? VMM_ON : VMM_OFF);
    for (unsigned i = 0; i < POOLS; i++) {
        vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
        options.kind = i == GRAPH_POOL ? VMM_POOL_GRAPH : VMM_POOL_GENERAL;
        options.no_split = i == 2;
        options.reserve_bytes = i == 3 ? 4 * MIB : 0;
        assert_ok(vmm_pool_create(test->cache, &options, &model.pools[i]));
    }
    for (unsigned call = 0; call < CALLS; call++) {
        call_random(&model);
        if (call % 4 == 0)
            model_verify(&model);
    }
    model_end(&model);
}

CACHE_TEST(random_calls_while_pools_sleep)
{
    unsigned runs = driver_choice_kind() == VMM_DRIVER_SIM ? RUNS : RUNS / 4;
    for (uint64_t seed = 1; seed <= runs; seed++)
        model_run(test, seed, false);
}

CACHE_TEST(random_calls_and_faults_while_pools_sleep)
{
    for (uint64_t seed = 1; seed <= RUNS && driver_choice_kind() == VMM_DRIVER_SIM; seed++)
        model_run(test, 1000 + seed, true);
}

CACHE_MAIN()
