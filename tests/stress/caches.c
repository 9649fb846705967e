/* Caches: created with drawn settings, emptied, destroyed. See stress.h. */
#include "stress.h"

#include "base/hostmem.h"
#include "cache/cache.h"
#include "driver/sim/sim.h"

#include <inttypes.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define HOST_DEVICE_BYTES (512 * MIB)

/*
 * The bits of operation_create():
 *    0     sharing               7-8   pressure callback, one in four      13     the cache before ends live
 *    1-2   compaction            9     watched from the start              14-15  what decay keeps
 *    3-6   no caching, one in 16 10    a log                               16-23  how much memory there is
 *    24-27 a fault while it is created, two in 16; 28-31 which; 32 a thread for decay, only where it is written down
 *    11-12 how often everything is looked at: after each operation, each 8th, each 64th, when told to
 * The upper five bits of footprint:
 *    0-15  work finishes by lag    16-29 in an order of one of seven kinds, chosen by the seed in bits    30-31 by lag
 * Those of memory: see stress_debug_draw(). Those of decay: 128-255 there is decay; 96-127 the cache is shareable,
 * without debug mode; its tens: how memory is reused, see reuse_set().
 */
static unsigned bits_of(const struct operation *operation, unsigned first, unsigned count)
{
    return (unsigned)(operation->number >> first & ((1U << count) - 1));
}

/* ---- Settings -------------------------------------------------------------------------------- */

static uint64_t clock_read(void *context)
{
    return ((struct stress *)context)->clock_ns;
}

static void line_logged(void *context, const char *line)
{
    if (line == NULL || strchr(line, '\n') != NULL)
        stress_trouble(context, "log: not one line");
}

/* 16 MiB to 4 GiB. */
static uint64_t memory_drawn(const struct operation *operation)
{
    unsigned drawn = bits_of(operation, 16, 8);
    return (UINT64_C(16) << (drawn >> 4) % 8) * (16 + drawn % 16) / 16 * MIB;
}

/* Plenty; or a limit, or a small device, with few addresses. */
static void memory_set(struct stress *stress, const struct operation *operation)
{
    uint64_t bytes = memory_drawn(operation);
    vmm_config *config = &stress->config;
    stress->device_bytes = 0;
    stress->live_most = 0;
    if (!stress_is_sim(stress)) { /* whose memory is real */
        stress->device_bytes = HOST_DEVICE_BYTES;
        config->limit_bytes = bytes < HOST_DEVICE_BYTES / 2 ? bytes : HOST_DEVICE_BYTES / 2;
        return;
    }
    switch (operation->a % 8) {
    case 1:
        config->limit_bytes = bytes;
        break;
    case 2:
        stress->device_bytes = bytes;
        break;
    case 3:
        stress->device_bytes = bytes;
        config->arena_bytes = 2 * bytes;
        break;
    case 4:
        stress->device_bytes = bytes;
        config->limit_bytes = bytes / 2 + 1;
        break;
    case 5:
        config->limit_bytes = 4 * bytes;
        break;
    default:
        stress->live_most = 4 * GIB;
        break;
    }
}

static void reuse_set(vmm_config *config, const struct operation *operation)
{
    enum { DECLARED = 2, KNOWN_STREAMS = 3, KINDS = 4 };
    unsigned drawn = operation->c / 10 % KINDS;
    bool is_any = bits_of(operation, 0, 1) == 0;
    config->reuse = is_any ? VMM_REUSE_ANY_USE : VMM_REUSE_STREAM_WAIT;
    if (is_any && drawn == DECLARED)
        config->reuse = VMM_REUSE_DECLARED;
    config->clock_kind = drawn == KNOWN_STREAMS ? VMM_CLOCK_STREAMS : VMM_CLOCK_CONTEXT;
}

static void config_set(struct stress *stress, const struct operation *operation)
{
    static const uint32_t footprints[] = { 0, 1, 5, 10, 50, 200, 1000, VMM_FOOTPRINT_ANY };
    static const uint64_t checks_every[] = { 1, 8, 64, 0 };
    enum { DECAY_HOUR_MS = 3600000 };
    vmm_config *config = &stress->config;
    *config = (vmm_config)VMM_CONFIG_INIT;
    memory_set(stress, operation);
    config->footprint_permille = footprints[operation->b % 8];
    if (operation->c >= 128) {
        config->decay_ms = 1 + operation->c % 10;
        config->decay_keep_bytes = bits_of(operation, 14, 2) * 16 * MIB;
        config->clock = clock_read;
        config->clock_context = stress;
    }
    if (bits_of(operation, 32, 1) != 0) {
        config->decay_thread = 1;
        config->decay_ms = DECAY_HOUR_MS;
        stress->clock_step_ns = DECAY_HOUR_MS * UINT64_C(50000);
    }
    reuse_set(config, operation);
    config->compaction = bits_of(operation, 1, 2) % 3 != 0 ? VMM_ON : VMM_OFF;
    config->no_caching = bits_of(operation, 3, 4) == 15;
    if (bits_of(operation, 7, 2) == 3) {
        config->pressure = stress_pressure;
        config->pressure_context = stress;
    }
    if (bits_of(operation, 10, 1) != 0) {
        config->log = line_logged;
        config->log_context = stress;
    }
    stress->checks_every = checks_every[bits_of(operation, 11, 2)];
    stress_debug_draw(stress, operation->a / 8U);
}

/* ---- Creating -------------------------------------------------------------------------------- */

/* The sim driver counts by itself. */
static bool driver_is_empty(const struct stress *stress)
{
    static const struct sim_census zero = { 0 };
    const struct driver *driver = stress->driver;
    if (!stress_is_sim(stress))
        return driver->reservations == 0 && driver->handles == 0 && driver->mapped_bytes == 0 &&
               driver->events == 0;
    struct sim_census census = vmm__sim_census(stress->driver);
    return memcmp(&census, &zero, sizeof zero) == 0;
}

static void order_draw(struct stress *stress, const struct operation *operation)
{
    enum { FIRST = 16, KINDS = 2 * ORDER_KINDS };
    unsigned drawn = operation->b / 8U;
    if (drawn >= FIRST && drawn < FIRST + KINDS)
        stress_order_set(stress, drawn - FIRST, operation->number);
}

/* Only where the driver shares memory, which the library says for a driver of its own. */
static void sharing_draw(struct stress *stress, const struct operation *operation)
{
    enum { FIRST = 96, END = 128 };
    bool is_drawn = operation->c >= FIRST && operation->c < END && !stress_is_padded(stress);
    if (is_drawn && stress->driver != NULL && stress->driver->has_sharing)
        stress->config.shareable = VMM_ON;
}

static void driver_open(struct stress *stress)
{
    struct driver_options options = { .device_bytes = stress->device_bytes };
    stress_expect_ok(stress, "driver open",
                     vmm__driver_open(stress->kind, &options, &stress->driver));
    if (stress_is_troubled(stress))
        return;
    stress->device_bytes = stress->driver->total_bytes;
    if (stress->points != NULL)
        stress->points->open(stress->driver);
}

/* The first is the default stream. */
static void streams_make(struct stress *stress)
{
    for (unsigned i = 1; i < stress_streams(stress) && !stress_is_troubled(stress); i++)
        stress_expect_ok(stress, "stream create",
                         vmm__driver_stream_create(stress->driver, &stress->streams[i]));
}

/* Whether the driver has refused to take something back more than once: the library asks once more, then leaves it. */
static bool driver_keeps(const struct stress *stress)
{
    const struct driver_tally *tally = stress->driver->tally;
    return tally[DRIVER_CALL_address_free].failures + tally[DRIVER_CALL_stream_destroy].failures +
               tally[DRIVER_CALL_event_destroy].failures >
           1;
}

/* What the driver kept stays with it: the next attempt gets a new one. */
static void driver_renew(struct stress *stress)
{
    vmm__driver_close(stress->driver);
    stress->driver = NULL;
    driver_open(stress);
}

/* What fails leaves nothing behind; host memory is counted when the driver, which has some too, is closed. */
static void create_refused(struct stress *stress, const vmm_cache *cache)
{
    if (cache != NULL)
        stress_trouble(stress, "create: failed and wrote its result");
    bool is_left = stress->driver != NULL && !stress->is_lost && !driver_is_empty(stress);
    if (is_left && !driver_keeps(stress))
        stress_trouble(stress, "create: failed and left something on the device");
    if (stress_has_own_driver(stress) && vmm__host_outstanding() != 0)
        stress_trouble(stress, "create: failed and left host memory");
    if (is_left && !stress_is_troubled(stress))
        driver_renew(stress);
}

static void create_faults_set(struct stress *stress, const struct operation *operation)
{
    unsigned kind = bits_of(operation, 24, 4);
    unsigned number = 1 + bits_of(operation, 28, 4);
    stress->faults.driver_call = kind == 14 && stress_is_sim(stress) ? number : 0;
    stress->faults.host_call = kind == 15 ? number : 0;
    stress->faults.status = VMM_ERR_DRIVER;
    stress->faults.for_ever = false;
}

/* On the driver that is open; or with a driver of its own, whose calls of the system may fail, too. */
static vmm_status create_call(struct stress *stress, vmm_cache **cache)
{
    if (!stress_has_own_driver(stress))
        return vmm__cache_create_on(&stress->config, stress->driver, cache);
    stress->config.driver = stress->kind;
    stress->config.device_bytes = stress->device_bytes;
    return vmm_create(&stress->config, cache);
}

/* The next attempt succeeds. */
static void cache_create(struct stress *stress, const struct operation *operation)
{
    const unsigned faulty =
        STATUS_FAULTS | STATUS_BIT(ERR_ADDRESS_SPACE) | STATUS_BIT(ERR_INVALID_ARGUMENT);
    vmm_cache *cache = NULL;
    create_faults_set(stress, operation);
    while (cache == NULL && !stress_is_troubled(stress) && !stress->is_lost) {
        stress_enter(stress);
        vmm_status status = create_call(stress, &cache);
        stress_leave(stress);
        stress->faults.driver_call = 0;
        stress->faults.host_call = 0;
        if (stress_expect(stress, "vmm_create", status, STATUS_BIT(OK), faulty))
            break;
        create_refused(stress, cache);
        if (stress->points != NULL)
            stress->points->heal();
    }
    stress->cache = cache;
    stress->was_hurt = false;
    stress->sums.caches += cache != NULL;
    if (cache != NULL)
        stress->driver = cache->driver;
}

void stress_state_begin(struct stress *stress)
{
    model_init(&stress->model, stress->config.limit_bytes, stress->worker);
    memset(stress->graphs, 0, sizeof stress->graphs);
    memset(stress->share_records, 0, sizeof stress->share_records);
    control_begin(&stress->control);
    stress->watch.is_on = false;
    stress->watch.trouble = NULL;
    stress->misuse = (struct stress_misuse){ .told = 0 };
    stress->gone = 0;
    stress->ended = 0;
    stress->has_strays = false;
    stress->known = 0;
    stress->captured = 0;
    stress->graph_bound = 0;
    stress->done = 0;
    stress->opens = 0;
    stress->pressure_turn = 0;
    stress->has_waited = false;
    stress->may_stall = false;
    stress->is_lost = false;
    stress->was_hurt = false;
    stress->has_launched = false;
    stress->has_undeclared = false;
    stress->has_abandoned = false;
    memset(stress->freed_under, 0, sizeof stress->freed_under);
    stress->has_resized = false;
}

void stress_open(struct stress *stress, const struct operation *operation)
{
    config_set(stress, operation);
    stress_state_begin(stress);
    if (!stress_has_own_driver(stress))
        driver_open(stress);
    if (stress_is_troubled(stress))
        return;
    sharing_draw(stress, operation);
    cache_create(stress, operation);
    if (stress->cache == NULL)
        return;
    order_draw(stress, operation);
    streams_make(stress);
    stress_expect_ok(stress, "event create",
                     vmm__driver_event_create(stress->driver, &stress->event));
    if (!stress_is_troubled(stress) && bits_of(operation, 9, 1) != 0)
        stress_watch_set(stress, true);
}

void operation_create(struct stress *stress, const struct operation *operation)
{
    bool ends_live = bits_of(operation, 13, 1) != 0;
    if (stress->cache != NULL && !ends_live)
        stress_empty(stress);
    if (stress->cache != NULL && !stress_is_troubled(stress))
        stress_close(stress);
    if (!stress_is_troubled(stress))
        stress_open(stress, operation);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void emptiness_verify(struct stress *stress)
{
    vmm_stats stats = stress_stats(stress);
    if (stats.active_bytes.current != 0 || stats.reserved_bytes.current != 0 ||
        stats.imported_bytes != 0 || stats.unmovable_bytes != 0 || stats.retained_bytes != 0 ||
        stats.limbo_bytes != 0)
        stress_trouble(stress,
                       "end: %" PRIu64 " bytes active, %" PRIu64 " reserved, %" PRIu64
                       " in limbo after everything was given back",
                       stats.active_bytes.current, stats.reserved_bytes.current, stats.limbo_bytes);
}

static void everything_trim(struct stress *stress)
{
    stress_expect_ok(stress, "vmm_wait", vmm_wait(stress->cache));
    stress_expect_ok(stress, "vmm_trim", vmm_trim(stress->cache, 0, NULL));
}

void stress_give_all(struct stress *stress)
{
    struct model *model = &stress->model;
    stress_pools_end(stress);
    stress_tenants_end(stress);
    while (model->live > 0 && !stress_is_troubled(stress)) {
        unsigned live = model->live;
        stress_block_give(stress, &model->blocks[model->order[live - 1]]);
        if (model->live == live && stress->points != NULL)
            stress->points->heal();
    }
    if (!stress_is_troubled(stress))
        stress_shares_end(stress);
}

/*
 * What a guard kept or other streams used of the memory of a stream that is gone without a word comes back to it in a
 * trim, after the wait: it takes another of both. So does what other streams used, if the
 * clock has met a capture that was not announced.
 */
void stress_empty(struct stress *stress)
{
    stress->faults.driver_call = 0;
    stress->faults.host_call = 0;
    if (stress->is_lost)
        return;
    stress_give_all(stress);
    if (stress_is_troubled(stress))
        return;
    stress_work_verify(stress);
    stress_verify(stress);
    everything_trim(stress);
    if (stress->has_strays || stress->was_hurt || stress_has_met_a_capture(stress))
        everything_trim(stress);
    if (!stress->is_lost)
        emptiness_verify(stress);
}

static void driver_close(struct stress *stress, bool is_refused, bool may_race)
{
    const char *report_text = "";
    stress_source_close(stress);
    if (!stress->is_lost)
        stress_expect_ok(stress, "event destroy",
                         vmm__driver_event_destroy(stress->driver, stress->event));
    for (unsigned i = 1; i < stress_streams(stress) && !stress_is_sim(stress); i++) {
        if ((stress->gone >> i & 1) == 0 && !stress->is_lost)
            stress_expect_ok(stress, "stream destroy",
                             vmm__driver_stream_destroy(stress->driver, stress->streams[i]));
    }
    if (!is_refused && !driver_is_empty(stress))
        stress_trouble(stress, "end: the device has something left");
    if (!may_race && stress->kind != VMM_DRIVER_CUDA &&
        vmm__soft_violations(stress->driver, &report_text) != 0)
        stress_trouble(stress, "violation: %s", report_text);
    vmm__driver_close(stress->driver);
    stress->driver = NULL;
}

static void stats_add(struct stress *stress)
{
    vmm_stats stats = stress_stats(stress);
    if (stats.map_calls > stats.create_calls) /* which a failing map may have spoilt */
        stress->sums.moves += stats.map_calls - stats.create_calls;
    stress->sums.compactions += stats.compactions;
    stress->sums.stream_waits += stats.stream_waits;
    stress->sums.stalls += stats.stalls;
}

/*
 * Ends captures first, because no call can wait for work on a captured stream. After a fault, memory that the driver
 * refused to release may stay on the device. Memory may be unmapped under work only if the driver refuses to wait more
 * than once, or for graphs and undeclared uses on streams that the cache has not seen.
 */
void stress_close(struct stress *stress)
{
    uint64_t faults = stress->sums.faults;
    vmm_cache *cache = stress->cache;
    stress_captures_end(stress);
    stats_add(stress);
    stress->cache = NULL;
    stress_enter(stress);
    vmm_status status = vmm_destroy(cache);
    stress_pushes_end(stress);
    stress->driver = stress_has_own_driver(stress) ? NULL : stress->driver;
    stress_leave(stress);
    bool is_refused = stress->faults.fired != 0 || stress->is_lost;
    bool is_refused_often = stress->faults.for_ever || stress->sums.faults - faults > 1;
    bool has_unseen = stress->has_launched || stress->has_undeclared;
    bool may_race = stress->is_lost || (is_refused && (is_refused_often || has_unseen));
    (void)stress_expect(stress, "vmm_destroy", status, STATUS_BIT(OK), STATUS_FAULTS);
    stress_misuse_none(stress);
    stress_shares_end(stress);
    if (stress->driver != NULL)
        driver_close(stress, is_refused, may_race);
    if (vmm__host_outstanding() != 0)
        stress_trouble(stress, "end: %" PRIu64 " bytes of host memory are left",
                       vmm__host_outstanding());
}
