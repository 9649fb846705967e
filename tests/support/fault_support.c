/* A workload that something fails in: see fault_support.h. */
#include "support/fault_support.h"

#include "cache_on.h"
#include "policy/cache.h"

#include <stdlib.h>

enum { SLOTS = 40, OPERATIONS = 300, STREAMS = 3 };

#define STATUS_BIT(status) (1U << (status))
#define ALLOC_STATUSES                                                                             \
    (STATUS_BIT(VMM_ERR_DEVICE_OOM) | STATUS_BIT(VMM_ERR_ADDRESS_SPACE) |                          \
     STATUS_BIT(VMM_ERR_HOST_OOM) | STATUS_BIT(VMM_ERR_DRIVER) | STATUS_BIT(VMM_ERR_LOST))
#define FREE_STATUSES                                                                              \
    (STATUS_BIT(VMM_ERR_HOST_OOM) | STATUS_BIT(VMM_ERR_DRIVER) | STATUS_BIT(VMM_ERR_LOST))
#define TRIM_STATUSES FREE_STATUSES
#define USE_STATUSES  STATUS_BIT(VMM_ERR_HOST_OOM)

struct workload {
    uint64_t seed;
    uint64_t lag; /* of the sim driver's work */
    uint64_t limit_bytes;
    uint32_t decay_ms; /* operations take a tenth of a millisecond */
};

static const struct workload workloads[FAULT_WORKLOADS] = {
    { .seed = 7, .lag = 6, .limit_bytes = 40 * MIB, .decay_ms = 2 },
    { .seed = 8, .lag = 1000, .limit_bytes = 56 * MIB, .decay_ms = 1 },
    { .seed = 9, .lag = 0, .limit_bytes = 30 * MIB },
};

struct holding {
    void *pointer;
    size_t bytes;
    uint32_t word; /* 0: nobody knows what it holds */
    unsigned stream;
};

struct run {
    struct driver *driver;
    vmm_cache *cache;
    struct holding blocks[SLOTS];
    uint64_t live_bytes;
    uint64_t seed;
    uint64_t clock_ns;
    uint32_t words;
    void *orphans[OPERATIONS]; /* events of the test that a fault kept alive */
    unsigned orphan_count;
    bool is_lost;    /* see copies_note() */
    uint64_t copies; /* of the driver, and its failed waits, before the public call */
    uint64_t failed_waits;
    uint64_t host_bytes;      /* outstanding before */
    uint64_t fail_allocation; /* the one that fails; 0: none */
    uint64_t allocations;     /* of those before the last pause */
};

static uint64_t number_next(struct run *run)
{
    run->seed = run->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return run->seed >> 33;
}

static size_t size_next(struct run *run)
{
    static const size_t limits[] = { 600, 9000, 300000, 3 * MIB, 13 * MIB };
    size_t limit = limits[number_next(run) % 5];
    return 1 + number_next(run) % limit;
}

static vmm_stats stats_of(struct run *run)
{
    vmm_stats stats = { .struct_size = sizeof stats };
    assert_ok(vmm_stats_get(run->cache, &stats));
    return stats;
}

/* Copies whose end the driver neither tells nor waits for are the end of a device. */
static void copies_note(struct run *run)
{
    uint64_t copies = vmm__driver_calls(run->driver, DRIVER_CALL_copy);
    uint64_t failed_waits = run->driver->tally[DRIVER_CALL_device_wait].failures;
    run->is_lost |= copies > run->copies && failed_waits > run->failed_waits;
    run->copies = copies;
    run->failed_waits = failed_waits;
}

/* After a public call: a failure is one that is documented, and has broken nothing. */
static bool succeeded(struct run *run, vmm_status status, unsigned documented, const char *call)
{
    copies_note(run);
    if (status == VMM_OK)
        return true;
    if ((STATUS_BIT(status) & documented) == 0)
        fail_msg("%s: undocumented %s: %s", call, vmm_status_name(status), vmm_last_error());
    if (vmm_last_error()[0] == '\0')
        fail_msg("%s: %s without a word", call, vmm_status_name(status));
    assert_ok(vmm__cache_check(run->cache));
    assert_int_equal(stats_of(run).requested_bytes.current, run->live_bytes);
    return false;
}

/* ---- Work ---------------------------------------------------------------------------------- */

/* The test's own work is spared from failing allocations: they are the cache's. */
static void allocations_pause(struct run *run)
{
    run->allocations += vmm__host_fail_at(0);
}

static void allocations_go_on(struct run *run)
{
    if (run->fail_allocation > run->allocations)
        (void)vmm__host_fail_at(run->fail_allocation - run->allocations);
}

/* Also when the driver would not map again what it had mapped: until it does, no work may touch it. */
static bool is_unusable(const struct run *run)
{
    return run->is_lost || vmm__driver_is_lost(run->driver) || run->cache->memory.astray > 0;
}

static void filled(struct run *run, struct holding *block)
{
    if (is_unusable(run)) {
        block->word = 0;
        return;
    }
    allocations_pause(run);
    assert_ok(vmm__driver_fill(run->driver, (uintptr_t)block->pointer, block->bytes, block->word,
                               STREAM(block->stream)));
    allocations_go_on(run);
}

static void checked(struct run *run, const struct holding *block, unsigned stream)
{
    if (is_unusable(run) || block->word == 0)
        return;
    allocations_pause(run);
    assert_ok(vmm__driver_check(run->driver, (uintptr_t)block->pointer, block->bytes, block->word,
                                STREAM(stream)));
    allocations_go_on(run);
}

static bool event_recorded(struct run *run, void *event, unsigned later, unsigned earlier)
{
    return vmm__driver_event_record(run->driver, event, STREAM(earlier)) == VMM_OK &&
           vmm__driver_stream_wait(run->driver, STREAM(later), event) == VMM_OK;
}

/* False if a fault hit it. The event must go, even if faults go on for ever. */
static bool stream_follows(struct run *run, unsigned later, unsigned earlier)
{
    allocations_pause(run);
    void *event = NULL;
    bool follows = vmm__driver_event_create(run->driver, &event) == VMM_OK &&
                   event_recorded(run, event, later, earlier);
    if (event != NULL && vmm__driver_event_destroy(run->driver, event) != VMM_OK)
        run->orphans[run->orphan_count++] = event;
    allocations_go_on(run);
    return follows;
}

/* ---- Operations ---------------------------------------------------------------------------- */

static void operation_alloc(struct run *run, struct holding *block)
{
    block->bytes = size_next(run);
    block->stream = (unsigned)(number_next(run) % STREAMS);
    block->word = ++run->words;
    void *out = run;
    vmm_status status = vmm_alloc(run->cache, block->bytes, STREAM(block->stream), &out);
    if (!succeeded(run, status, ALLOC_STATUSES, "vmm_alloc")) {
        assert_ptr_equal(out, run);
        return;
    }
    block->pointer = out;
    run->live_bytes += block->bytes;
    filled(run, block);
}

/* A free that failed leaves the block live. */
static void operation_free(struct run *run, struct holding *block)
{
    checked(run, block, block->stream);
    vmm_status status = vmm_free(run->cache, block->pointer);
    if (status == VMM_OK) {
        run->live_bytes -= block->bytes;
        assert_status(vmm_free(run->cache, block->pointer), VMM_ERR_UNKNOWN_POINTER);
        block->pointer = NULL;
    }
    (void)succeeded(run, status, FREE_STATUSES, "vmm_free");
}

static void operation_use(struct run *run, struct holding *block)
{
    unsigned other = (unsigned)(number_next(run) % STREAMS);
    vmm_status status = vmm_use(run->cache, block->pointer, STREAM(other));
    if (succeeded(run, status, USE_STATUSES, "vmm_use") &&
        stream_follows(run, other, block->stream))
        checked(run, block, other);
}

static void operation_trim(struct run *run)
{
    size_t keep = number_next(run) % 3 * 8 * MIB;
    size_t released = SIZE_MAX;
    vmm_status status = vmm_trim(run->cache, keep, &released);
    bool success = succeeded(run, status, TRIM_STATUSES, "vmm_trim");
    assert_true(success == (released != SIZE_MAX));
}

static void operation(struct run *run)
{
    run->clock_ns += 100000;
    struct holding *block = &run->blocks[number_next(run) % SLOTS];
    uint64_t dice = number_next(run) % 100;
    if (dice < 5)
        operation_trim(run);
    else if (dice < 7)
        (void)succeeded(run, vmm_tick(run->cache), TRIM_STATUSES, "vmm_tick");
    else if (block->pointer == NULL)
        operation_alloc(run, block);
    else if (dice < 30)
        operation_use(run, block);
    else
        operation_free(run, block);
}

/* ---- Runs ---------------------------------------------------------------------------------- */

static void run_begin(struct run *run, const struct workload *workload)
{
    struct driver_options options = { .device_bytes = 64 * MIB };
    *run = (struct run){ .seed = workload->seed, .host_bytes = vmm__host_outstanding() };
    assert_ok(vmm__driver_sim_open(&options, &run->driver));
    vmm__sim_lag_set(run->driver, workload->lag);
}

static uint64_t clock_read(void *run)
{
    return ((const struct run *)run)->clock_ns;
}

static vmm_status cache_begin(struct run *run, const struct workload *workload)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.arena_bytes = 256 * MIB;
    config.limit_bytes = workload->limit_bytes;
    config.decay_ms = workload->decay_ms;
    config.compaction = VMM_COMPACTION_AUTO;
    config.clock = clock_read;
    config.clock_context = run;
    vmm_cache *out = NULL;
    vmm_status status = vmm__cache_create_on(&config, run->driver, &out);
    assert_true((status == VMM_OK) == (out != NULL));
    run->cache = out;
    return status;
}

/* After all frees the cache holds nothing live, and has let go of no memory. */
static void lost_given_up(struct run *run)
{
    void *out = run;
    uint64_t calls = vmm__sim_calls(run->driver);
    uint64_t reserved = stats_of(run).reserved_bytes.current;
    for (int i = 0; i < SLOTS; i++)
        assert_ok(vmm_free(run->cache, run->blocks[i].pointer));
    assert_status(vmm_alloc(run->cache, 512, STREAM(0), &out), VMM_ERR_LOST);
    assert_status(vmm_trim(run->cache, 0, NULL), VMM_ERR_LOST);
    assert_ok(vmm__cache_check(run->cache));
    assert_int_equal(stats_of(run).requested_bytes.current, 0);
    assert_int_equal(stats_of(run).reserved_bytes.current, reserved);
    assert_status(vmm_destroy(run->cache), VMM_ERR_LOST);
    assert_int_equal(vmm__sim_calls(run->driver), calls);
}

static void everything_given_back(struct run *run)
{
    assert_ok(vmm__driver_device_wait(run->driver));
    run->is_lost = false;
    assert_ok(vmm_trim(run->cache, SIZE_MAX, NULL));
    assert_false(is_unusable(run));
    for (int i = 0; i < SLOTS; i++) {
        struct holding *block = &run->blocks[i];
        if (block->pointer == NULL)
            continue;
        checked(run, block, block->stream);
        assert_ok(vmm_free(run->cache, block->pointer));
    }
    assert_int_equal(sim_mismatches(run->driver), 0); /* and all work is done */
    assert_ok(vmm__cache_check(run->cache));
    assert_ok(vmm_trim(run->cache, 0, NULL));
    assert_int_equal(stats_of(run).reserved_bytes.current, 0);
    assert_int_equal(stats_of(run).active_bytes.current, 0);
    assert_ok(vmm_destroy(run->cache));
}

static void run_end(struct run *run, bool created)
{
    if (vmm__driver_is_lost(run->driver)) {
        if (created)
            lost_given_up(run);
        return;
    }
    if (created)
        everything_given_back(run);
    for (unsigned i = 0; i < run->orphan_count; i++)
        assert_ok(vmm__driver_event_destroy(run->driver, run->orphans[i]));
    assert_true(sim_census_is_zero(run->driver));
}

uint64_t fault_run(const struct fault *fault)
{
    const struct workload *workload = &workloads[fault->workload];
    struct run run;
    run_begin(&run, workload);
    vmm__sim_fail_at(run.driver, fault->call, fault->status, fault->for_ever);
    run.fail_allocation = fault->allocation;
    allocations_go_on(&run);
    bool created = cache_begin(&run, workload) == VMM_OK;
    for (int i = 0; created && i < OPERATIONS; i++)
        operation(&run);
    allocations_pause(&run);
    uint64_t calls = vmm__sim_calls(run.driver);
    vmm__sim_fail_at(run.driver, 0, VMM_OK, false);
    run.fail_allocation = 0;
    run_end(&run, created);
    sim_assert_clean(run.driver);
    vmm__driver_close(run.driver);
    assert_int_equal(vmm__host_outstanding(), run.host_bytes);
    return fault->allocation != 0 ? run.allocations : calls;
}

/* ---- What workloads reach ------------------------------------------------------------------------- */

static void reach_add(struct fault_reach *sum, const struct workload *workload)
{
    struct run run;
    run_begin(&run, workload);
    assert_ok(cache_begin(&run, workload));
    for (int i = 0; i < OPERATIONS; i++) {
        operation(&run);
        sum->stale += run.driver->mapped_bytes > run.driver->created_bytes;
        sum->ordered += run.cache->order_stands;
        sum->decayed += run.cache->decay.is_stuck;
        sum->twins += run.cache->memory.twins;
    }
    vmm_stats stats = stats_of(&run);
    sum->retries += stats.retries;
    sum->ooms += stats.ooms;
    sum->stalls += stats.stalls;
    sum->compactions += run.cache->compactions;
    sum->copies += vmm__driver_calls(run.driver, DRIVER_CALL_copy);
    everything_given_back(&run);
    vmm__driver_close(run.driver);
}

struct fault_reach fault_reach(void)
{
    struct fault_reach sum = { 0 };
    for (unsigned i = 0; i < FAULT_WORKLOADS; i++)
        reach_add(&sum, &workloads[i]);
    return sum;
}
