/* One chapter of the workload: begin, operations, end. See run.h. */
#include "run.h"

#include "base/error.h"
#include "base/hostmem.h"
#include "driver/sim.h"
#include "point.h"
#include "policy/cache.h"
#include "shim.h"

#include <stdlib.h>
#include <string.h>

enum { OPERATION_NS = 100000 };

/* ---- Begin ------------------------------------------------------------------------------------- */

static uint64_t clock_read(void *context)
{
    const struct run *run = context;
    uint64_t scale = run->chapter->is_host ? run->chapter->decay_ms / 2 : 1;
    return run->done * OPERATION_NS * scale;
}

static int pressure_relieved(void *context, size_t bytes)
{
    struct run *run = context;
    uint64_t fired = run->call.fired;
    struct holding *block = block_any(run);
    (void)bytes;
    if (block == NULL || run_dice(run, 4))
        return 0;
    block_give(run, block);
    bool gave = block->address == NULL;
    call_again(run, fired);
    return gave;
}

static vmm_config config_of(struct run *run)
{
    const struct chapter *chapter = run->chapter;
    vmm_config config = VMM_CONFIG_INIT;
    config.device_bytes = chapter->device_bytes;
    config.limit_bytes = chapter->limit_bytes;
    config.arena_bytes = chapter->arena_bytes;
    config.decay_ms = chapter->decay_ms;
    config.decay_keep_bytes = chapter->decay_keep_bytes;
    config.footprint_permille = chapter->footprint_permille;
    config.sharing = chapter->sharing;
    config.compaction = chapter->compaction;
    config.no_caching = chapter->no_caching;
    config.guard = chapter->guard;
    config.zero = chapter->zero;
    config.clock = chapter->decay_ms != 0 ? clock_read : NULL;
    config.clock_context = run;
    config.pressure = chapter->has_pressure ? pressure_relieved : NULL;
    config.pressure_context = run;
    config.driver = chapter->is_host ? VMM_DRIVER_HOST : VMM_DRIVER_SIM;
    config.decay_thread = chapter->is_host;
    return config;
}

static void driver_open(struct run *run)
{
    struct driver_options options = { .device_bytes = run->chapter->device_bytes };
    sweep_sleep();
    run_expect(run, "driver open", vmm__driver_sim_open(&options, &run->driver));
    vmm__sim_lag_set(run->driver, run->chapter->lag);
    sweep_wake();
    sweep_shim(run->driver);
}

static void nothing_outstanding(const struct run *run, const char *when)
{
    if (vmm__host_outstanding() != run->host_bytes)
        sweep_broken("%s: %lld bytes of host memory are left", when,
                     (long long)(vmm__host_outstanding() - run->host_bytes));
}

static void census_zero(struct run *run, const char *when)
{
    struct sim_census census = vmm__sim_census(run->driver);
    if (census.reservations + census.mappings + census.handles + census.physical_bytes +
            census.events !=
        0)
        sweep_broken("%s: the device has %llu reservations, %llu mappings, %llu handles and %llu "
                     "events left",
                     when, (unsigned long long)census.reservations,
                     (unsigned long long)census.mappings, (unsigned long long)census.handles,
                     (unsigned long long)census.events);
}

static bool cache_made(struct run *run, vmm_cache **out)
{
    vmm_config config = config_of(run);
    unsigned documented = DRIVER_STATUSES | STATUS_BIT(VMM_ERR_ADDRESS_SPACE);
    if (!run->chapter->is_host)
        return CALL(run, documented, vmm__cache_create_on(&config, run->driver, out));
    documented |= STATUS_BIT(VMM_ERR_INVALID_ARGUMENT); /* VMM_LOG cannot be opened */
    return CALL(run, documented, vmm_create(&config, out));
}

/* A cache that could not be made has left nothing; the next attempt succeeds. */
static void cache_begin(struct run *run)
{
    vmm_cache *out = NULL;
    while (!cache_made(run, &out)) {
        if (out != NULL)
            sweep_broken("a cache that could not be made was handed out");
        if (run->driver == NULL)
            nothing_outstanding(run, "no cache"); /* the sim driver keeps memory of its own */
        if (run->driver != NULL && !run->is_latched)
            census_zero(run, "no cache");
        if (sweep_goes_on())
            sweep_heal();
        if (run->is_latched)
            return;
    }
    run->cache = out;
    run->driver = out->driver;
}

static void tools_begin(struct run *run)
{
    if (run->is_latched)
        return;
    sweep_sleep();
    for (unsigned i = 1; i < RUN_STREAMS; i++) /* the first is the default stream */
        run_expect(run, "stream create", vmm__driver_stream_create(run->driver, &run->streams[i]));
    run_expect(run, "event create", vmm__driver_event_create(run->driver, &run->event));
    sweep_wake();
}

/* ---- Operations -------------------------------------------------------------------------------- */

static void slot_turned(struct run *run)
{
    struct holding *block = &run->blocks[random_next(&run->random) % run->chapter->slots];
    if (block->address == NULL)
        block_take(run, block);
    else
        block_give(run, block);
}

static void cache_trimmed(struct run *run)
{
    size_t keep = random_next(&run->random) % 4 * (run->chapter->live_bytes / 4);
    size_t released = SIZE_MAX;
    bool done = CALL(run, DRIVER_STATUSES, vmm_trim(run->cache, keep, &released));
    if (done != (released != SIZE_MAX))
        sweep_broken("vmm_trim writes its result only on success");
}

static void operation(struct run *run)
{
    uint64_t dice = random_next(&run->random) % 1000;
    struct holding *block = dice < 600 ? NULL : block_any(run);
    if (run->chapter->has_graphs && run_dice(run, 6))
        graph_operation(run);
    else if (run->chapter->guard != VMM_GUARD_OFF && run_dice(run, 40))
        (void)CALL(run, DRIVER_STATUSES, vmm_guard_check(run->cache));
    else if (dice < 30)
        cache_trimmed(run);
    else if (dice < 50)
        (void)CALL(run, DRIVER_STATUSES, vmm_tick(run->cache));
    else if (dice < 56)
        (void)CALL(run, DRIVER_STATUSES, vmm_wait(run->cache));
    else if (dice < 100)
        report_operation(run);
    else if (block == NULL)
        slot_turned(run);
    else if (dice < 850)
        block_use(run, block);
    else if (dice < 950)
        block_touch(run, block);
    else
        block_pin(run, block);
}

/* Work of the host driver ends before the next operation, so that the calls are the same each time. */
static void work_end(struct run *run)
{
    uint64_t places;
    if (!run->chapter->is_host)
        return;
    sweep_sleep();
    run_expect(run, "mismatches", vmm__driver_mismatches(run->driver, &places));
    sweep_wake();
    if (places != 0)
        sweep_broken("operation %llu: %llu places differ", (unsigned long long)run->done,
                     (unsigned long long)places);
}

/* The run goes on for so long after the last fault. */
static void end_move(struct run *run, uint64_t fired)
{
    if (sweep_fired() == fired)
        return;
    if (fired == 0)
        run->fault_at = run->done;
    if (!sweep_goes_on())
        run->end = run->done + RUN_FURTHER;
    else if (fired == 0)
        run->end = run->done + RUN_FAILING;
}

static void operations_run(struct run *run)
{
    for (; run->done < run->end; run->done++) {
        uint64_t fired = sweep_fired();
        operation(run);
        work_end(run);
        reach_note(run);
        end_move(run, fired);
    }
}

/* ---- End --------------------------------------------------------------------------------------- */

static void blocks_end(struct run *run)
{
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        for (unsigned i = 0; i < run->chapter->slots; i++) {
            if (run->blocks[i].address != NULL)
                block_give(run, &run->blocks[i]);
        }
    }
}

static void work_verified(struct run *run)
{
    uint64_t places = 0;
    const char *story = "";
    if (run->is_latched)
        return;
    sweep_sleep();
    run_expect(run, "mismatches", vmm__driver_mismatches(run->driver, &places));
    uint64_t violations = run->chapter->is_host ? 0 : vmm__sim_violations(run->driver, &story);
    sweep_wake();
    if (violations != 0)
        sweep_broken("%llu violations: %s", (unsigned long long)violations, story);
    if (places != 0)
        sweep_broken("%llu places differ: %s", (unsigned long long)places,
                     run->chapter->is_host ? "" : vmm__sim_mismatch(run->driver));
}

/* What a release could not wait for is waited for at the end of the next capture. */
static void privates_end(struct run *run)
{
    static const vmm_pool_id other = { 0, 77 };
    graphs_end(run);
    if (!CALL(run, STATUS_BIT(VMM_ERR_HOST_OOM), vmm_pool_begin(run->cache, other, NULL, NULL)))
        return;
    (void)CALL(run, 0, vmm_pool_end(run->cache, other));
    (void)CALL(run, DRIVER_STATUSES, vmm_pool_release(run->cache, other));
}

static void everything_given_back(struct run *run)
{
    vmm_stats stats = VMM_STATS_INIT;
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        privates_end(run);
        blocks_end(run);
        work_verified(run);
        (void)CALL(run, DRIVER_STATUSES, vmm_trim(run->cache, 0, NULL));
        sweep_heal();
    }
    if (run->is_latched)
        return;
    (void)CALL(run, 0, vmm_stats_get(run->cache, &stats));
    if (stats.reserved_bytes.current + stats.active_bytes.current + stats.kept_bytes +
            stats.unmovable_bytes + stats.requested_bytes.current !=
        0)
        sweep_broken("everything was given back, but %llu bytes are active and %llu reserved",
                     (unsigned long long)stats.active_bytes.current,
                     (unsigned long long)stats.reserved_bytes.current);
    reach_add(run, &stats);
}

/* The first error of the driver is told. What it refuses for ever to take back stays with it. */
static void cache_end(struct run *run)
{
    vmm_cache *cache = run->cache;
    call_begin(run);
    run->call.has_picture = false;
    if (run->event != NULL && !run->chapter->is_host && !run->is_latched) {
        sweep_sleep();
        run_expect(run, "event destroy", vmm__driver_event_destroy(run->driver, run->event));
        sweep_wake();
    }
    run->cache = NULL;
    vmm_status status = vmm_destroy(cache);
    if (status != VMM_OK && sweep_fired() == run->call.fired && !run->is_latched)
        sweep_broken("vmm_destroy: %s: %s", vmm_status_name(status), vmm_last_error());
    if (!run->chapter->is_host) {
        bool refused_twice = status != VMM_OK && sweep_fired() > run->call.fired + 1;
        if (!sweep_goes_on() && !refused_twice && !run_lost(run))
            census_zero(run, "after vmm_destroy");
        vmm__driver_close(run->driver);
    }
    nothing_outstanding(run, "in the end");
}

static void run_begin(struct run *run, unsigned chapter)
{
    run->chapter = &sweep_chapters[chapter - 1];
    run->random = chapter;
    run->limit_bytes = run->chapter->limit_bytes;
    run->host_bytes = vmm__host_outstanding();
    if (!run->chapter->is_host)
        driver_open(run);
    cache_begin(run);
    run->end = sweep_fired() > 0 ? RUN_FURTHER : run->chapter->operations;
    if (run->cache != NULL)
        tools_begin(run);
}

/* Half of the faults that go on for ever end after a while, and everything works again; the others meet
 * the end of the cache. */
static bool meets_end(const struct run *run)
{
    const struct sweep_fault *fault = sweep_fault();
    return run->is_latched || (sweep_goes_on() && (fault->number + fault->variant) % 2 == 0);
}

static void run_go_on(struct run *run)
{
    operations_run(run);
    if (meets_end(run))
        return;
    if (sweep_may_fire() && sweep_fault() != NULL) {
        sweep_heal();
        run->end = run->done + RUN_FURTHER;
        operations_run(run);
    }
    everything_given_back(run);
}

void run_chapter(unsigned chapter)
{
    static struct run run;
    memset(&run, 0, sizeof run);
    run_begin(&run, chapter);
    if (run.cache != NULL)
        run_go_on(&run);
    cache_end(&run);
    sweep_child_end(run.done - run.fault_at);
}
