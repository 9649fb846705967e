/* Caches: created with drawn settings, emptied, destroyed. See engine.h. */
#include "engine.h"

#include "base/hostmem.h"
#include "driver/sim.h"

#include <inttypes.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/*
 * The bits of operation_create():
 *    0     sharing               7-8   pressure callback, one in four      13     the cache before ends live
 *    1-2   compaction            9     watched from the start              14-15  what decay keeps
 *    3-6   no caching, one in 16 10    a log                               16-23  how much memory there is
 *    24-27 a fault while it is created, two in 16; 28-31 which
 *    11-12 how often everything is looked at: after each operation, each 8th, each 64th, when told to
 * The upper five bits of footprint:
 *    0-15  work finishes by lag    16-29 in an order of one of seven kinds, chosen by the seed in bits    30-31 by lag
 * Those of memory: see engine_guard_draw().
 */
static unsigned bits_of(const struct operation *operation, unsigned first, unsigned count)
{
    return (unsigned)(operation->number >> first & ((1U << count) - 1));
}

/* ---- Settings -------------------------------------------------------------------------------- */

static uint64_t clock_read(void *context)
{
    return ((struct engine *)context)->clock_ns;
}

static void line_logged(void *context, const char *line)
{
    if (line == NULL || strchr(line, '\n') != NULL)
        engine_trouble(context, "log: not one line");
}

/* 16 MiB to 4 GiB. */
static uint64_t memory_drawn(const struct operation *operation)
{
    unsigned drawn = bits_of(operation, 16, 8);
    return (UINT64_C(16) << (drawn >> 4) % 8) * (16 + drawn % 16) / 16 * MIB;
}

/* Plenty; or a limit, or a small device, with as few addresses as may be. */
static void memory_set(struct engine *engine, const struct operation *operation)
{
    uint64_t bytes = memory_drawn(operation);
    vmm_config *config = &engine->config;
    engine->device_bytes = 0;
    engine->live_most = 0;
    switch (operation->a % 8) {
    case 1:
        config->limit_bytes = bytes;
        break;
    case 2:
        engine->device_bytes = bytes;
        break;
    case 3:
        engine->device_bytes = bytes;
        config->arena_bytes = 1;
        break;
    case 4:
        engine->device_bytes = bytes;
        config->limit_bytes = bytes / 2 + 1;
        break;
    case 5:
        config->limit_bytes = 4 * bytes;
        break;
    default:
        engine->live_most = 4 * GIB;
        break;
    }
}

static void config_set(struct engine *engine, const struct operation *operation)
{
    static const uint32_t footprints[] = { 0, 1, 5, 10, 50, 200, 1000, VMM_FOOTPRINT_ANY };
    static const uint64_t checks_every[] = { 1, 8, 64, 0 };
    vmm_config *config = &engine->config;
    *config = (vmm_config)VMM_CONFIG_INIT;
    memory_set(engine, operation);
    config->footprint_permille = footprints[operation->b % 8];
    if (operation->c >= 128) {
        config->decay_ms = 1 + operation->c % 10;
        config->decay_keep_bytes = bits_of(operation, 14, 2) * 16 * MIB;
        config->clock = clock_read;
        config->clock_context = engine;
    }
    config->sharing = (vmm_sharing)bits_of(operation, 0, 1);
    config->compaction = (vmm_compaction)(bits_of(operation, 1, 2) % 3);
    config->no_caching = bits_of(operation, 3, 4) == 15;
    if (bits_of(operation, 7, 2) == 3) {
        config->pressure = engine_pressure;
        config->pressure_context = engine;
    }
    if (bits_of(operation, 10, 1) != 0) {
        config->log = line_logged;
        config->log_context = engine;
    }
    engine->checks_every = checks_every[bits_of(operation, 11, 2)];
    engine_guard_draw(engine, operation->a / 8U);
}

/* ---- Creating -------------------------------------------------------------------------------- */

static bool driver_is_empty(struct engine *engine)
{
    static const struct sim_census zero = { 0 };
    struct sim_census census = vmm__sim_census(engine->driver);
    return memcmp(&census, &zero, sizeof zero) == 0;
}

static void order_draw(struct engine *engine, const struct operation *operation)
{
    enum { FIRST = 16, KINDS = 2 * ORDER_KINDS };
    unsigned drawn = operation->b / 8U;
    if (drawn < FIRST || drawn >= FIRST + KINDS)
        return;
    engine->order = order_make((enum order_kind)((drawn - FIRST) % ORDER_KINDS), operation->number,
                               MODEL_STREAMS);
    order_begin(engine->driver, &engine->order);
}

static void driver_open(struct engine *engine, const struct operation *operation)
{
    struct driver_options options = { .device_bytes = engine->device_bytes };
    engine_expect_ok(engine, "driver open", vmm__driver_sim_open(&options, &engine->driver));
    if (engine_is_troubled(engine))
        return;
    engine->device_bytes = engine->driver->total_bytes;
    for (unsigned i = 1; i < MODEL_STREAMS; i++) /* the first is the default stream */
        engine_expect_ok(engine, "stream create",
                         vmm__driver_stream_create(engine->driver, &engine->streams[i]));
    order_draw(engine, operation);
}

/* What fails leaves nothing behind; host memory is counted when the driver, which has some too, is closed. */
static void cache_refused(struct engine *engine, const vmm_cache *cache)
{
    if (cache != NULL)
        engine_trouble(engine, "create: failed and wrote its result");
    if (!driver_is_empty(engine))
        engine_trouble(engine, "create: failed and left something on the device");
}

static void create_faults_set(struct engine *engine, const struct operation *operation)
{
    unsigned kind = bits_of(operation, 24, 4);
    unsigned number = 1 + bits_of(operation, 28, 4);
    engine->faults.driver_call = kind == 14 ? number : 0;
    engine->faults.host_call = kind == 15 ? number : 0;
    engine->faults.status = VMM_ERR_DRIVER;
    engine->faults.for_ever = false;
}

static void cache_create(struct engine *engine, const struct operation *operation)
{
    vmm_cache *cache = NULL;
    create_faults_set(engine, operation);
    engine_enter(engine);
    vmm_status status = vmm__cache_create_on(&engine->config, engine->driver, &cache);
    engine_leave(engine);
    engine->faults.driver_call = 0;
    engine->faults.host_call = 0;
    if (!engine_expect(engine, "vmm_create", status, STATUS_BIT(OK), STATUS_FAULTS)) {
        cache_refused(engine, cache);
        status = vmm__cache_create_on(&engine->config, engine->driver, &cache);
        engine_expect_ok(engine, "vmm_create", status);
    }
    engine->was_hurt = false;
    engine->cache = cache;
    engine->sums.caches++;
}

static void state_begin(struct engine *engine)
{
    model_init(&engine->model, engine->config.limit_bytes);
    memset(engine->graphs, 0, sizeof engine->graphs);
    plant_begin(&engine->plant);
    engine->watch.is_on = false;
    engine->watch.trouble = NULL;
    engine->misuse = (struct engine_misuse){ .told = 0 };
    engine->gone = 0;
    engine->ended = 0;
    engine->has_strays = false;
    engine->known = 0;
    engine->captured = 0;
    engine->graph_bound = 0;
    engine->done = 0;
    engine->pressure_turn = 0;
    engine->has_waited = false;
    engine->is_lost = false;
    engine->was_hurt = false;
    engine->has_launched = false;
}

void engine_open(struct engine *engine, const struct operation *operation)
{
    config_set(engine, operation);
    state_begin(engine);
    driver_open(engine, operation);
    if (engine_is_troubled(engine))
        return;
    cache_create(engine, operation);
    engine_expect_ok(engine, "event create",
                     vmm__driver_event_create(engine->driver, &engine->event));
    if (!engine_is_troubled(engine) && bits_of(operation, 9, 1) != 0)
        engine_watch_set(engine, true);
}

void operation_create(struct engine *engine, const struct operation *operation)
{
    bool ends_live = bits_of(operation, 13, 1) != 0;
    if (engine->cache != NULL && !ends_live)
        engine_empty(engine);
    if (engine->cache != NULL && !engine_is_troubled(engine))
        engine_close(engine);
    if (!engine_is_troubled(engine))
        engine_open(engine, operation);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void emptiness_verify(struct engine *engine)
{
    vmm_stats stats = engine_stats(engine);
    if (stats.active_bytes.current != 0 || stats.reserved_bytes.current != 0 ||
        stats.unmovable_bytes != 0 || stats.kept_bytes != 0 || stats.limbo_bytes != 0)
        engine_trouble(engine,
                       "end: %" PRIu64 " bytes active, %" PRIu64 " reserved, %" PRIu64
                       " in limbo after everything was given back",
                       stats.active_bytes.current, stats.reserved_bytes.current, stats.limbo_bytes);
}

static void everything_trim(struct engine *engine)
{
    engine_expect_ok(engine, "vmm_wait", vmm_wait(engine->cache));
    engine_expect_ok(engine, "vmm_trim", vmm_trim(engine->cache, 0, NULL));
}

/*
 * What compaction had lent, or a guard kept, of the memory of a stream that is gone without a word comes back to it in
 * a trim, after the wait: it takes another of both.
 */
void engine_empty(struct engine *engine)
{
    struct model *model = &engine->model;
    engine->faults.driver_call = 0;
    engine->faults.host_call = 0;
    if (engine->is_lost)
        return;
    engine_pools_end(engine);
    while (model->live > 0 && !engine_is_troubled(engine))
        engine_block_give(engine, &model->blocks[model->order[model->live - 1]]);
    if (engine_is_troubled(engine))
        return;
    engine_work_verify(engine);
    engine_verify(engine);
    everything_trim(engine);
    if (engine->has_strays)
        everything_trim(engine);
    emptiness_verify(engine);
}

/*
 * Captures end before: nobody can wait for work that was on such a stream already. If a fault happens some may be
 * left on the device, which the driver refused to take back. Memory may go under work only if the driver refuses
 * to wait more than once, or for graphs on streams that the cache has not seen.
 */
void engine_close(struct engine *engine)
{
    uint64_t faults = engine->sums.faults;
    engine_captures_end(engine);
    vmm_stats stats = engine_stats(engine);
    if (stats.map_calls > stats.create_calls) /* which a failing map may have spoilt */
        engine->sums.moves += stats.map_calls - stats.create_calls;
    engine->sums.compactions += stats.compactions;
    engine_enter(engine);
    vmm_status status = vmm_destroy(engine->cache);
    engine_leave(engine);
    bool is_refused = engine->faults.fired != 0 || engine->is_lost;
    bool is_refused_often = engine->faults.for_ever || engine->sums.faults - faults > 1;
    bool may_race = engine->is_lost || (is_refused && (is_refused_often || engine->has_launched));
    (void)engine_expect(engine, "vmm_destroy", status, STATUS_BIT(OK), STATUS_FAULTS);
    engine_misuse_none(engine);
    engine->cache = NULL;
    if (!engine->is_lost)
        engine_expect_ok(engine, "event destroy",
                         vmm__driver_event_destroy(engine->driver, engine->event));
    if (!is_refused && !driver_is_empty(engine))
        engine_trouble(engine, "end: the device has something left");
    const char *story = "";
    if (!may_race && vmm__sim_violations(engine->driver, &story) != 0)
        engine_trouble(engine, "violation: %s", story);
    vmm__driver_close(engine->driver);
    engine->driver = NULL;
    if (vmm__host_outstanding() != 0)
        engine_trouble(engine, "end: %" PRIu64 " bytes of host memory are left",
                       vmm__host_outstanding());
}
