/*
 * A capture and its replays in which one driver call or one allocation of host memory fails, once or for
 * ever. Whatever fails, the capture is whole, replays keep their bytes and others theirs, and in the end
 * everything can be given back; or the device is lost, and frees and the end of the cache are all that is left.
 */
#include "support/sim_support.h"

#include "cache_on.h"

enum { BLOCKS = 12, STEPS = 24, CAPTURED = 2, REPLAYED = 3 };

#define STATUS_BIT(status) (1U << (status))
#define DRIVER_STATUSES    (STATUS_BIT(VMM_ERR_DRIVER) | STATUS_BIT(VMM_ERR_LOST))
#define FREE_STATUSES      (DRIVER_STATUSES | STATUS_BIT(VMM_ERR_HOST_OOM))
#define ALLOC_STATUSES                                                                             \
    (FREE_STATUSES | STATUS_BIT(VMM_ERR_DEVICE_OOM) | STATUS_BIT(VMM_ERR_ADDRESS_SPACE))

struct block {
    void *address; /* NULL: there is none */
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

struct step {
    struct block block;
    bool is_check;
};

struct run {
    struct driver *driver;
    vmm_cache *cache;
    struct block blocks[BLOCKS]; /* of no graph */
    struct block graph[BLOCKS];  /* live ones of the graph */
    struct step steps[STEPS];
    unsigned step_count;
    uint32_t words;
    uint64_t fail_allocation; /* the one that fails; 0: none */
    uint64_t allocations;
};

struct fault {
    uint64_t call; /* of the driver; 0: none */
    vmm_status status;
    bool for_ever;
    uint64_t allocation; /* 0: none */
};

static const vmm_pool_id graph_id = { 4, 2 };
static const struct fault *fault_under_way;

static int fault_told(void **state)
{
    (void)state;
    (void)vmm__host_fail_at(0);
    const struct fault *fault = fault_under_way;
    if (fault != NULL)
        print_error("driver call %llu (%s%s), allocation %llu\n", (unsigned long long)fault->call,
                    vmm_status_name(fault->status), fault->for_ever ? ", for ever" : "",
                    (unsigned long long)fault->allocation);
    fault_under_way = NULL;
    return 0;
}

/* ---- Calls --------------------------------------------------------------------------------------- */

/* What the driver needs for the test's own work is spared. */
static void allocations_pause(struct run *run)
{
    run->allocations += vmm__host_fail_at(0);
}

static void allocations_go_on(struct run *run)
{
    if (run->fail_allocation > run->allocations)
        (void)vmm__host_fail_at(run->fail_allocation - run->allocations);
}

static bool succeeded(struct run *run, vmm_status status, unsigned documented, const char *call)
{
    if (status == VMM_OK)
        return true;
    if ((STATUS_BIT(status) & documented) == 0 || vmm_last_error()[0] == '\0')
        fail_msg("%s: undocumented %s: %s", call, vmm_status_name(status), vmm_last_error());
    assert_ok(vmm__cache_check(run->cache));
    return false;
}

static void worked(struct run *run, const struct block *block, unsigned stream, bool is_check)
{
    uint64_t address = (uintptr_t)block->address;
    if (vmm__driver_is_lost(run->driver))
        return;
    allocations_pause(run);
    if (is_check)
        sim_checked(run->driver, address, block->bytes, block->word, STREAM(stream));
    else
        sim_filled(run->driver, address, block->bytes, block->word, STREAM(stream));
    allocations_go_on(run);
}

static bool block_had(struct run *run, struct block *block, size_t bytes, unsigned stream)
{
    *block = (struct block){ .bytes = bytes, .word = ++run->words, .stream = stream };
    void *out = run;
    vmm_status status = vmm_alloc(run->cache, bytes, STREAM(stream), &out);
    if (!succeeded(run, status, ALLOC_STATUSES, "vmm_alloc")) {
        assert_ptr_equal(out, run);
        return false;
    }
    block->address = out;
    return true;
}

/* A free that fails leaves the block live. */
static void block_left(struct run *run, struct block *block)
{
    void *address = block->address;
    if (address != NULL && succeeded(run, vmm_free(run->cache, address), FREE_STATUSES, "vmm_free"))
        block->address = NULL;
}

/* ---- Scenes -------------------------------------------------------------------------------------- */

static const size_t sizes[] = { 3 * MIB, 600, 9000, 5 * MIB, 300000, MIB };

static void others_had(struct run *run, unsigned avoided)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct block *block = &run->blocks[i];
        unsigned stream = 1 + i % 3;
        if (block->address != NULL || stream == avoided)
            continue;
        if (block_had(run, block, sizes[i % 6], stream))
            worked(run, block, stream, false);
    }
}

static void others_left(struct run *run, unsigned captured)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct block *block = &run->blocks[i];
        if (block->address == NULL)
            continue;
        if (block->stream != captured)
            worked(run, block, block->stream, true);
        if (i % 3 != 2)
            (void)succeeded(run, vmm_use(run->cache, block->address, STREAM(CAPTURED)),
                            STATUS_BIT(VMM_ERR_HOST_OOM), "vmm_use");
        if (i % 4 != 3)
            block_left(run, block);
    }
}

static void step_noted(struct run *run, const struct block *block, bool is_check)
{
    assert_true(run->step_count < STEPS);
    run->steps[run->step_count++] = (struct step){ .block = *block, .is_check = is_check };
}

static void graph_captured(struct run *run)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct block *block = &run->graph[i];
        if (block->address == NULL && block_had(run, block, sizes[(i + 3) % 6], CAPTURED))
            step_noted(run, block, false);
        if (i % 2 == 0 && block->address != NULL) {
            struct block before = *block;
            block_left(run, block);
            if (block->address == NULL)
                step_noted(run, &before, true);
        }
    }
}

static void graph_replayed(struct run *run, unsigned stream)
{
    for (unsigned i = 0; i < run->step_count; i++)
        worked(run, &run->steps[i].block, stream, run->steps[i].is_check);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (run->graph[i].address != NULL)
            worked(run, &run->graph[i], stream, true);
    }
}

static int filter(void *context, vmm_stream stream)
{
    (void)context;
    return stream == STREAM(CAPTURED);
}

static void capture_changed(struct run *run, vmm_status (*change)(struct driver *, vmm_stream))
{
    vmm_status wanted = vmm__driver_is_lost(run->driver) ? VMM_ERR_LOST : VMM_OK;
    assert_status(change(run->driver, STREAM(CAPTURED)), wanted);
}

static bool capture_run(struct run *run)
{
    vmm_status status = vmm_pool_begin(run->cache, graph_id, filter, NULL);
    unsigned documented = STATUS_BIT(VMM_ERR_HOST_OOM) | STATUS_BIT(VMM_ERR_LOST);
    if (!succeeded(run, status, documented, "vmm_pool_begin")) {
        assert_status(vmm_pool_end(run->cache, graph_id), VMM_ERR_INVALID_ARGUMENT);
        assert_status(vmm_pool_release(run->cache, graph_id), VMM_ERR_INVALID_ARGUMENT);
        return false;
    }
    allocations_pause(run);
    capture_changed(run, vmm__driver_capture_begin);
    allocations_go_on(run);
    graph_captured(run);
    others_left(run, CAPTURED);
    others_had(run, CAPTURED);
    (void)succeeded(run, vmm_trim(run->cache, 0, NULL), FREE_STATUSES, "vmm_trim");
    others_left(run, CAPTURED);
    capture_changed(run, vmm__driver_capture_end);
    assert_ok(vmm_pool_end(run->cache, graph_id));
    return true;
}

static void scenes_run(struct run *run)
{
    others_had(run, 0);
    others_left(run, 0);
    others_had(run, 0);
    if (!capture_run(run))
        return;
    graph_replayed(run, REPLAYED);
    others_left(run, 0);
    others_had(run, 0);
    (void)succeeded(run, vmm_trim(run->cache, 0, NULL), FREE_STATUSES, "vmm_trim");
    graph_replayed(run, REPLAYED);
    for (unsigned i = 0; i < BLOCKS; i++)
        block_left(run, &run->graph[i]);
    (void)succeeded(run, vmm_pool_release(run->cache, graph_id), DRIVER_STATUSES,
                    "vmm_pool_release");
    assert_status(vmm_pool_release(run->cache, graph_id), VMM_ERR_INVALID_ARGUMENT);
    others_had(run, 0);
    others_left(run, 0);
}

/* ---- Runs ---------------------------------------------------------------------------------------- */

static void run_begin(struct run *run, uint64_t lag)
{
    struct driver_options options = { .device_bytes = 64 * MIB };
    vmm_config config = VMM_CONFIG_INIT;
    config.arena_bytes = 256 * MIB;
    config.limit_bytes = 44 * MIB;
    *run = (struct run){ .words = 1 };
    assert_ok(vmm__driver_sim_open(&options, &run->driver));
    vmm__sim_lag_set(run->driver, lag);
    assert_ok(vmm__cache_create_on(&config, run->driver, &run->cache));
}

/* The next end of a capture finishes what a release could not. */
static void everything_given_back(struct run *run)
{
    static const vmm_pool_id other = { 0, 1 };
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_pool_begin(run->cache, other, NULL, NULL));
    assert_ok(vmm_pool_end(run->cache, other));
    assert_ok(vmm_pool_release(run->cache, other));
    if (sim_mismatches(run->driver) != 0)
        fail_msg("%s", vmm__sim_mismatch(run->driver));
    assert_ok(vmm__cache_check(run->cache));
    assert_ok(vmm_trim(run->cache, 0, NULL));
    assert_ok(vmm_stats_get(run->cache, &stats));
    assert_int_equal(stats.kept_bytes, 0);
    assert_int_equal(stats.active_bytes.current, 0);
    assert_int_equal(stats.reserved_bytes.current, 0);
    assert_ok(vmm_destroy(run->cache));
    assert_true(sim_census_is_zero(run->driver));
}

static void run_end(struct run *run)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_ok(vmm_free(run->cache, run->blocks[i].address));
        assert_ok(vmm_free(run->cache, run->graph[i].address));
    }
    if (vmm__driver_is_lost(run->driver))
        assert_status(vmm_destroy(run->cache), VMM_ERR_LOST);
    else
        everything_given_back(run);
    sim_assert_clean(run->driver);
    vmm__driver_close(run->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

/* Returns how many driver calls, or allocations, there were. */
static uint64_t fault_run(const struct fault *fault, uint64_t lag)
{
    static struct fault kept;
    struct run run;
    kept = *fault;
    fault_under_way = &kept;
    run_begin(&run, lag);
    vmm__sim_fail_at(run.driver, fault->call, fault->status, fault->for_ever);
    run.fail_allocation = fault->allocation;
    allocations_go_on(&run);
    scenes_run(&run);
    allocations_pause(&run);
    run.fail_allocation = 0;
    uint64_t calls = vmm__sim_calls(run.driver);
    vmm__sim_fail_at(run.driver, 0, VMM_OK, false);
    run_end(&run);
    fault_under_way = NULL;
    return fault->allocation != 0 ? run.allocations : calls;
}

static void calls_swept(bool for_ever)
{
    static const vmm_status statuses[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM, VMM_ERR_LOST };
    static const uint64_t lags[] = { 0, 4, 1000 };
    for (unsigned i = 0; i < 3; i++) {
        uint64_t calls = fault_run(&(struct fault){ .call = 0 }, lags[i]);
        assert_true(calls > 100);
        for (uint64_t call = 1; call <= calls; call++) {
            struct fault fault = { .call = call, .status = statuses[i], .for_ever = for_ever };
            (void)fault_run(&fault, lags[(i + call) % 3]);
        }
    }
}

static void driver_calls_fail_once(void **state)
{
    (void)state;
    calls_swept(false);
}

static void driver_calls_fail_for_ever(void **state)
{
    (void)state;
    calls_swept(true);
}

/* Calls of the driver that a release makes, the last of which is the wait. */
static uint64_t release_calls(void)
{
    struct run run;
    run_begin(&run, 4);
    assert_true(capture_run(&run));
    vmm__sim_fail_at(run.driver, 0, VMM_OK, false);
    assert_ok(vmm_pool_release(run.cache, graph_id));
    uint64_t calls = vmm__sim_calls(run.driver);
    run_end(&run);
    return calls;
}

/* What a release could not wait for is waited for later, and said once. */
static void a_wait_that_failed_is_made_later(void **state)
{
    (void)state;
    struct run run;
    vmm_stats stats = VMM_STATS_INIT;
    uint64_t calls = release_calls();
    run_begin(&run, 4);
    assert_true(capture_run(&run));
    vmm__sim_fail_at(run.driver, calls, VMM_ERR_DRIVER, true);
    assert_status(vmm_pool_release(run.cache, graph_id), VMM_ERR_DRIVER);
    assert_status(vmm_pool_release(run.cache, graph_id), VMM_ERR_INVALID_ARGUMENT);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    static const vmm_pool_id other = { 0, 9 };
    assert_ok(vmm_pool_begin(run.cache, other, NULL, NULL));
    assert_ok(vmm_pool_end(run.cache, other)); /* which tries, and does not fail for it */
    assert_string_equal(vmm_last_error(), line);
    assert_ok(vmm_stats_get(run.cache, &stats));
    assert_true(stats.kept_bytes > 0);
    vmm__sim_fail_at(run.driver, 0, VMM_OK, false);
    assert_ok(vmm_pool_release(run.cache, other));
    assert_ok(vmm_stats_get(run.cache, &stats));
    assert_int_equal(stats.kept_bytes, 0);
    run_end(&run);
}

static void allocations_fail(void **state)
{
    (void)state;
    uint64_t allocations = fault_run(&(struct fault){ .allocation = UINT64_MAX }, 4);
    assert_true(allocations > 20);
    for (uint64_t number = 1; number <= allocations; number++)
        (void)fault_run(&(struct fault){ .allocation = number }, 4);
}

#define FAULT_TEST(name) cmocka_unit_test_teardown(name, fault_told)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        FAULT_TEST(driver_calls_fail_once),
        FAULT_TEST(driver_calls_fail_for_ever),
        FAULT_TEST(a_wait_that_failed_is_made_later),
        FAULT_TEST(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
