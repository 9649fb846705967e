/* Reclaim: each step runs, frees what it can, and the report names everything. */
#include "support/policy_support.h"

#include "cache/pool/pools.h"
#include "cache/reclaim/reclaim.h"
#include "cache/streams.h"

enum {
#define RECLAIM_STEP_NUMBER(number, function, restarts) number,
    RECLAIM_STEP_MAP(RECLAIM_STEP_NUMBER)
#undef RECLAIM_STEP_NUMBER
        RECLAIM_END = 99
};

/* As a refill makes it: the lane counts as stocked. */
static struct request request_of(struct scene *scene, uint64_t bytes)
{
    vmm__lanes_touch(&scene->cache->lanes, scene->lane);
    return (struct request){ .lane = scene->lane,
                             .bytes = bytes,
                             .heap = &scene->lane->large,
                             .block_bytes = bytes,
                             .owner = scene->lane->owner.pool->handle };
}

static vmm_status reclaim_run(struct scene *scene, struct request *request)
{
    vmm__fair_lock(&scene->cache->grow_lock);
    vmm__lane_lock(request->lane);
    vmm_status status = vmm__reclaim_next(scene->cache, request);
    vmm__lane_unlock(request->lane);
    vmm__fair_unlock(&scene->cache->grow_lock);
    return status;
}

/* Runs reclaim from a step on; returns the step that succeeded, or RECLAIM_END. */
static unsigned run_from(struct scene *scene, struct request *request, unsigned step)
{
    request->step = step;
    vmm_status status = reclaim_run(scene, request);
    assert_ok(vmm__cache_check(scene->cache));
    if (status == VMM__NOTHING)
        return RECLAIM_END;
    assert_ok(status);
    return request->step;
}

static void limit_to_reserved(struct scene *scene)
{
    scene->cache->vm.limit_bytes = scene_reserved_bytes(scene);
}

POLICY_TEST(reclaim_ends_without_memory)
{
    struct request request = request_of(scene, GRANULE);
    request.from = GROW_FOLLOW;
    assert_int_equal(run_from(scene, &request, PASSED), RECLAIM_END);
}

POLICY_TEST(empty_slabs_are_purged_first)
{
    struct request request = request_of(scene, GRANULE);
    void *objects[2 * SLAB_OBJECTS];
    for (unsigned i = 0; i < 2 * SLAB_OBJECTS; i++)
        assert_ok(vmm_alloc(scene->cache, 100, STREAM(2), &objects[i]));
    for (unsigned i = 0; i <= SLAB_OBJECTS; i++)
        assert_ok(vmm_free(scene->cache, objects[i]));
    assert_int_equal(run_from(scene, &request, PASSED),
                     PASSED); /* one of two empty slabs is purged */
    assert_int_not_equal(run_from(scene, &request, PASSED), PASSED);
}

POLICY_TEST(finished_waits_end_first)
{
    struct request request = request_of(scene, GRANULE);
    void *block = block_in(scene->cache, 3 * GRANULE, STREAM(2));
    assert_ok(vmm_record_stream(scene->cache, block, STREAM(1)));
    assert_ok(vmm_free(scene->cache, block));
    assert_int_equal(run_from(scene, &request, PASSED), PASSED);
    vmm__lanes_counters_flush(&scene->cache->lanes, NULL);
    assert_int_equal(vmm__stat_now(&scene->cache->totals.active_bytes), 0);
}

POLICY_TEST(growth_makes_views)
{
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(run_from(scene, &request, PASSED), VIEW);
    assert_int_equal(request.from, GROW_VIEW);
    assert_int_equal(run_from(scene, &request, VIEW), RECLAIM_END);
    assert_int_equal(request.from, GROW_VIEW);
}

/* Streams follow only work of one stream, which a lane's own clock knows. */
POLICY_TEST(growth_makes_views_then_follows)
{
    scene_renew_as(scene, CONFIG(.reuse = VMM_REUSE_STREAM_WAIT));
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(run_from(scene, &request, PASSED), VIEW);
    assert_int_equal(request.from, GROW_VIEW);
    assert_int_equal(run_from(scene, &request, VIEW), FOLLOW);
    assert_int_equal(request.from, GROW_FOLLOW);
    assert_int_equal(run_from(scene, &request, VIEW), RECLAIM_END);
}

/* Stream 2 has freed four granules, and its work on them goes on. */
static void other_free_busy(struct scene *scene)
{
    struct heap *other = &scene->other->large;
    struct block *block = block_make_live(other, extent(scene, other, 20, 4, 4), 4 * GRANULE);
    (void)block_free_busy(scene, other, block);
}

POLICY_TEST(a_whole_run_is_transferred_with_a_stream_wait)
{
    scene_renew_as(scene, CONFIG(.reuse = VMM_REUSE_STREAM_WAIT));
    struct request request = request_of(scene, 3 * GRANULE);
    other_free_busy(scene);
    assert_int_equal(run_from(scene, &request, FOLLOW), FOLLOW);
    assert_int_equal(scene->lane->large.free_bytes, 4 * GRANULE);
    assert_int_equal(scene->driver->counts.stalls, 0);
}

/* No stream waits on the device for work that the program did not declare. */
POLICY_TEST(without_clocks_of_their_own_no_stream_follows)
{
    struct request request = request_of(scene, 3 * GRANULE);
    other_free_busy(scene);
    limit_to_reserved(scene);
    assert_int_equal(run_from(scene, &request, FOLLOW), 0); /* after WAIT_IDLE */
    assert_int_equal(scene->driver->counts.stalls, 1);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 0);
}

/* A part of another stream's chunk, on which work goes on: the host waits for it once, and it serves both requests. */
POLICY_TEST(reclaim_waits_for_a_hole_of_another_stream)
{
    enum { BYTES = 512 * KIB };
    struct heap *other = &scene->other->small;
    struct block *block = block_make_live(other, extent(scene, other, 20, 1, 1), BYTES);
    (void)block_make_live(other, block->next, BYTES);
    struct request request = request_of(scene, 64 * KIB);
    request.heap = &scene->lane->small;
    request.from = GROW_FOLLOW;
    uint64_t epoch = vmm__clock_now(&scene->cache->clock);
    (void)block_free_busy(scene, other, block);
    for (int i = 0; i < 2; i++) {
        request.found = NULL;
        assert_int_equal(run_from(scene, &request, WAIT_BORROW), WAIT_BORROW);
        assert_non_null(request.found);
        assert_int_equal(scene->driver->counts.stalls, 1);
        assert_ok(vmm__clock_query(&scene->cache->clock, epoch));
    }
}

/* A request needs three of eight granules that are idle. */
static void just_enough_is_released(struct scene *scene, unsigned step)
{
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(run_from(scene, &request, step), step);
    assert_int_equal(scene_reserved_bytes(scene), 5 * GRANULE);
}

POLICY_TEST(just_enough_finished_chunks_are_released)
{
    (void)extent(scene, &scene->other->large, 20, 8, 1);
    limit_to_reserved(scene);
    just_enough_is_released(scene, IDLE_FINISHED);
}

/* Without a limit the driver refuses: reclaim releases only what the request needs. */
POLICY_TEST(just_enough_chunks_are_released_for_the_driver)
{
    (void)extent(scene, &scene->other->large, 20, 8, 1);
    just_enough_is_released(scene, IDLE_FINISHED);
}

/* A growth within the footprint target that the driver refuses goes to reclaim at once. */
POLICY_TEST(a_refused_growth_is_not_tried_again_before_reclaim)
{
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DEVICE_OOM, false);
    void *block = block_in(scene->cache, 3 * GRANULE, STREAM(1));
    assert_int_equal(scene->cache->counts.retries, 1);
    assert_ok(vmm_free(scene->cache, block));
}

/* Captures stop the clocks of the streams that a request looks at first: that costs none of its waits. */
SIM_TEST(streams_that_are_captured_cost_no_waits)
{
    enum { CAPTURED = 8, WAITING = 130 }; /* each of these needs another look at all of those */
    vmm_cache *cache = cache_on(driver, .reuse = VMM_REUSE_DECLARED,
                                .limit_bytes = (2 * CAPTURED + 2 * WAITING + 2) * MIB);
    void *stuck[CAPTURED];
    void *blocks[WAITING];
    for (unsigned i = 0; i < CAPTURED; i++)
        stuck[i] = block_in(cache, 2 * MIB, STREAM(1 + i));
    for (unsigned i = 0; i < WAITING; i++) {
        blocks[i] = block_in(cache, 2 * MIB, STREAM(100));
        assert_ok(vmm_record_stream(cache, blocks[i], STREAM(101 + i)));
    }
    vmm__sim_lag_set(driver, UINT64_C(1) << 40);
    for (unsigned i = 0; i < WAITING; i++)
        assert_ok(
            vmm__driver_fill(driver, (uint64_t)(uintptr_t)blocks[i], 2 * MIB, i, STREAM(101 + i)));
    for (unsigned i = 0; i < CAPTURED; i++) {
        assert_ok(vmm_capture_announce(cache, STREAM(1 + i)));
        assert_ok(vmm__driver_capture_begin(driver, STREAM(1 + i)));
        assert_ok(vmm_free(cache, stuck[i]));
    }
    for (unsigned i = 0; i < WAITING; i++)
        assert_ok(vmm_free(cache, blocks[i]));
    void *whole;
    vmm_status status = vmm_alloc(cache, 2 * MIB * WAITING, STREAM(100), &whole);
    vmm__sim_lag_set(driver, 0);
    for (unsigned i = 0; i < CAPTURED; i++) {
        assert_ok(vmm__driver_capture_end(driver, STREAM(1 + i)));
        vmm_capture_retract(cache, STREAM(1 + i));
    }
    assert_ok(status); /* not before: announcements are the process's */
    assert_ok(vmm_free(cache, whole));
    assert_ok(vmm_destroy(cache));
}

/* The step that waits for idle memory releases what has finished. */
POLICY_TEST(finished_chunks_need_no_wait)
{
    (void)extent(scene, &scene->other->large, 20, 8, 1);
    limit_to_reserved(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(run_from(scene, &request, WAIT_IDLE), PASSED);
    assert_int_equal(scene_reserved_bytes(scene), 5 * GRANULE);
    assert_int_equal(scene->driver->counts.stalls, 0);
}

/* All pinned memory together is too little, so compaction must not wait for the device. */
POLICY_TEST(compaction_does_not_run_if_it_cannot_suffice)
{
    void *blocks[2];
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_alloc(scene->cache, 3 * GRANULE, STREAM(1), &blocks[i]));
    limit_to_reserved(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(run_from(scene, &request, COMPACT), RECLAIM_END);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_device_wait), 0);
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_free(scene->cache, blocks[i]));
}

/* The free block that the request would extend is released last. */
POLICY_TEST(the_block_to_extend_is_kept)
{
    struct block *own = extent(scene, &scene->lane->large, 20, 6, 1);
    (void)extent(scene, &scene->other->large, 40, 4, 1);
    limit_to_reserved(scene);
    struct request request = request_of(scene, 9 * GRANULE);
    assert_int_equal(run_from(scene, &request, IDLE_FINISHED), IDLE_FINISHED);
    assert_int_equal(own->node.size, 6 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, GRANULE);
}

/* Idle memory stays with its stream until its work has finished; then reclaim starts again. */
POLICY_TEST(reclaim_waits_for_unfinished_chunks)
{
    struct request request = request_of(scene, 2 * GRANULE);
    other_free_busy(scene);
    limit_to_reserved(scene);
    assert_int_equal(run_from(scene, &request, IDLE_FINISHED), 0); /* after WAIT_IDLE */
    assert_int_equal(scene->driver->counts.stalls, 1);
    assert_int_equal(scene->other->large.free_bytes, 4 * GRANULE);
    assert_int_equal(run_from(scene, &request, IDLE_FINISHED), IDLE_FINISHED);
    assert_int_equal(scene->driver->counts.stalls, 1);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

static void chunk_map(struct scene *scene, uint64_t granule, uint32_t granules)
{
    struct vm *memory = &scene->cache->vm;
    vmm__arena_take(&memory->arena, granule, granules);
    assert_ok(vmm__vm_map(memory, &scene->cache->pool.account, granule, granules, granules));
    assert_ok(vmm__vm_access(memory, granule, granules));
}

/* The oldest entry of limbo is an old mapping, which frees no memory; the chunk after it does. */
POLICY_TEST(the_wait_goes_past_old_mappings)
{
    struct vm *memory = &scene->cache->vm;
    struct clock *clock = scene->other->clock;
    chunk_map(scene, 20, 2);
    chunk_map(scene, 40, 1);
    const struct memory_part part = { vmm__vm_chunk(memory, 40), 20 };
    assert_ok(vmm__vm_swap(memory, vmm__vm_chunk(memory, 20), &part, 1, 0));
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false); /* the old mapping stays */
    assert_status(vmm__limbo_drain(memory, NULL), VMM_ERR_DRIVER);
    assert_int_equal(scene_reserved_bytes(scene), GRANULE);
    struct chunk *old = vmm__vm_chunk(memory, 40);
    old->clock = clock; /* as if the chunk had been moved */
    old->epoch = vmm__clock_now(clock);
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, vmm__arena_address(&memory->arena, 20), GRANULE, 1, STREAM(2));
    vmm__clock_tick(clock);
    memory_fill(scene->driver, vmm__arena_address(&memory->arena, 20), GRANULE, 1, STREAM(2));
    vmm__limbo_put(memory, part.chunk, clock, vmm__clock_now(clock));
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(run_from(scene, &request, WAIT_LIMBO), WAIT_LIMBO);
    assert_int_equal(request.waits, 2);
    assert_int_equal(scene_reserved_bytes(scene), 0);
}

POLICY_TEST(reclaim_waits_for_blocks_that_others_use)
{
    void *block = block_in(scene->cache, 4 * GRANULE, STREAM(1));
    assert_ok(vmm_record_stream(scene->cache, block, STREAM(2)));
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, (uintptr_t)block, 4 * GRANULE, 1, STREAM(2));
    assert_ok(vmm_free(scene->cache, block));
    limit_to_reserved(scene);
    struct request request = request_of(scene, 2 * GRANULE);
    request.from = GROW_FOLLOW;
    request.step = PASSED;
    assert_ok(reclaim_run(scene, &request));
    assert_int_equal(request.step, 0); /* reclaim starts again */
    assert_int_equal(scene->driver->counts.stalls, 1);
    vmm__lanes_counters_flush(&scene->cache->lanes, NULL);
    assert_int_equal(vmm__stat_now(&scene->cache->totals.active_bytes), 0);
}

/* The driver does not say how much it is short of: in the end all idle memory is released. */
POLICY_TEST(all_idle_chunks_are_released_in_the_end)
{
    (void)extent(scene, &scene->other->large, 20, 4, 1);
    (void)extent(scene, &scene->other->small, 30, 4, 1);
    (void)extent(scene, &scene->lane->large, 40, 4, 1);
    struct request request = request_of(scene, 2 * GRANULE);
    request.from = GROW_FOLLOW;
    unsigned tries = 0;
    while (run_from(scene, &request, PASSED) == IDLE_FINISHED)
        assert_int_equal(scene_reserved_bytes(scene), (12 - 2 * ++tries) * GRANULE);
    assert_int_equal(tries, 6);
}

/* ---- The pressure function -------------------------------------------------------------------- */

struct program {
    struct scene *scene;
    void *block;   /* freed by the call; NULL: nothing is */
    size_t wanted; /* allocated by the call; 0: nothing is */
    vmm_status got;
    int answer;
    unsigned calls;
    size_t bytes; /* argument of the last call */
};

static int pressure_called(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    struct program *program = context;
    program->calls++;
    program->bytes = bytes;
    if (program->block != NULL)
        assert_ok(vmm_free(program->scene->cache, program->block));
    program->block = NULL;
    void *extra;
    if (program->wanted != 0)
        program->got = vmm_alloc(program->scene->cache, program->wanted, STREAM(1), &extra);
    return program->answer;
}

static void pressure_set(struct scene *scene, struct program *program)
{
    program->scene = scene;
    scene->cache->pressure = pressure_called;
    scene->cache->pressure_context = program;
}

POLICY_TEST(pressure_comes_last_and_restarts_reclaim)
{
    struct program program = { .answer = 1 };
    pressure_set(scene, &program);
    assert_ok(vmm_alloc(scene->cache, 5 * GRANULE, STREAM(2), &program.block));
    limit_to_reserved(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    request.from = GROW_FOLLOW;
    assert_int_equal(run_from(scene, &request, PASSED), 0);
    assert_int_equal(program.calls, 1);
    assert_int_equal(program.bytes, 3 * GRANULE);
    assert_int_equal(request.from, GROW_TARGET);
    assert_int_equal(scene->other->large.free_bytes, 5 * GRANULE);
    assert_int_equal(scene->cache->counts.pressure_calls, 1);
}

POLICY_TEST(idle_memory_is_released_before_pressure)
{
    struct program program = { .answer = 1 };
    pressure_set(scene, &program);
    (void)extent(scene, &scene->other->large, 20, 4, 1);
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(run_from(scene, &request, WAIT_IDLE), PASSED);
    assert_int_equal(program.calls, 0);
}

POLICY_TEST(pressure_that_frees_nothing_ends_reclaim)
{
    struct program program = { .answer = 0 };
    pressure_set(scene, &program);
    struct request request = request_of(scene, GRANULE);
    request.from = GROW_FOLLOW;
    assert_int_equal(run_from(scene, &request, PASSED), RECLAIM_END);
    assert_int_equal(program.calls, 1);
}

POLICY_TEST(pressure_calls_are_bounded)
{
    struct program program = { .answer = 1 };
    pressure_set(scene, &program);
    void *out = NULL;
    for (unsigned round = 1; round <= 2; round++) {
        assert_status(vmm_alloc(scene->cache, 60 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
        assert_int_equal(program.calls, round * 64);
    }
    assert_null(out);
}

/* A request inside the function fails without a second call; the outer request succeeds. */
POLICY_TEST(pressure_does_not_recurse)
{
    struct program program = { .answer = 1, .wanted = 60 * GRANULE };
    pressure_set(scene, &program);
    assert_ok(vmm_alloc(scene->cache, 20 * GRANULE, STREAM(2), &program.block));
    (void)block_in(scene->cache, 30 * GRANULE, STREAM(1));
    assert_int_equal(program.calls, 1);
    assert_int_equal(program.got, VMM_ERR_DEVICE_OOM);
}

POLICY_TEST(an_error_ends_reclaim)
{
    struct heap *other = &scene->other->large;
    struct block *block = block_make_live(other, extent(scene, other, 20, 4, 4), 4 * GRANULE);
    (void)block_free_busy(scene, other, block);
    limit_to_reserved(scene);
    struct request request = request_of(scene, 2 * GRANULE);
    request.step = IDLE_FINISHED;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(reclaim_run(scene, &request), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__cache_check(scene->cache));
}

/* Captures stream 2, for which a freed block of four granules waits. */
static void capture_hold(struct scene *scene)
{
    void *block = block_in(scene->cache, 4 * GRANULE, STREAM(1));
    assert_ok(vmm_record_stream(scene->cache, block, STREAM(2)));
    assert_ok(vmm_capture_announce(scene->cache, STREAM(2)));
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(2)));
    assert_ok(vmm_free(scene->cache, block));
}

static void capture_drop(struct scene *scene)
{
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(2)));
    assert_ok(vmm_capture_retract(scene->cache, STREAM(2)));
}

/*
 * Stream 2 is being captured and a freed block waits for it. If the driver fails to say so once, the step asks again
 * and learns of the capture: it must report that it has nothing, not the internal outcome PENDING.
 */
POLICY_TEST(internal_outcomes_stay_inside_reclaim)
{
    capture_hold(scene);
    bool has_failed = true;
    for (uint64_t call = 1; has_failed; call++) {
        struct request request = request_of(scene, 2 * GRANULE);
        request.step = WAIT_USES;
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = reclaim_run(scene, &request);
        has_failed = vmm__sim_faults_fired(scene->driver) > 0;
        assert_true(status == VMM_OK || status == VMM__NOTHING || status == VMM_ERR_DRIVER);
        assert_true(call < 100);
    }
    capture_drop(scene);
}

/* The same through vmm_alloc(), with a fault at each driver call of the request in turn: a single one, then a lasting
 * one. */
POLICY_TEST(requests_return_public_statuses_only)
{
    capture_hold(scene);
    limit_to_reserved(scene);
    for (unsigned is_lasting = 0; is_lasting < 2; is_lasting++) {
        bool has_failed = true;
        for (uint64_t call = 1; has_failed; call++) {
            void *out;
            vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, is_lasting != 0);
            vmm_status status = vmm_alloc(scene->cache, 2 * GRANULE, STREAM(1), &out);
            has_failed = vmm__sim_faults_fired(scene->driver) > 0;
            assert_true(status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_DRIVER);
            assert_true(call < 200);
        }
    }
    capture_drop(scene);
}

POLICY_TEST(the_report_names_everything)
{
    (void)block_in(scene->cache, 5 * MIB, STREAM(1));
    (void)extent(scene, &scene->other->large, 0, 3, 1);
    (void)extent(scene, &scene->other->small, 10, 2, 1);
    scene->cache->vm.limit_bytes = 20 * MIB;
    struct request request = request_of(scene, 9 * MIB);
    assert_status(vmm__reclaim_report(scene->cache, &request, VMM_ERR_DEVICE_OOM),
                  VMM_ERR_DEVICE_OOM);
    assert_string_equal(
        vmm_last_error(),
        "needed 9.0 MiB on stream 0x101: 5.0 MiB live, 16.0 MiB reserved of 20.0 MiB "
        "(limit), 10.0 MiB idle (0 KiB in flight), 1.0 MiB pinned beside live "
        "blocks (most by stream 0x101: 1.0 MiB), largest hole 6.0 MiB, "
        "0 KiB in limbo; the limit is 4.0 MiB too small");
}

/* ---- The limit of a pool ---------------------------------------------------------------------- */

/* A pool with a limit, and its lanes of streams 1 and 2. */
struct tenant {
    vmm_pool *handle;
    struct pool *pool;
    struct lane *lane;
    struct lane *other;
};

static struct tenant tenant_make(struct scene *scene, uint64_t limit_bytes)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    struct tenant tenant;
    options.limit_bytes = limit_bytes;
    assert_ok(vmm_pool_create(scene->cache, &options, &tenant.handle));
    tenant.pool = scene->cache->pools.first;
    assert_ok(vmm__pool_lane(tenant.pool, STREAM(1), &tenant.lane));
    assert_ok(vmm__pool_lane(tenant.pool, STREAM(2), &tenant.other));
    return tenant;
}

/* Idle memory of the tenant's small blocks, with unfinished work of stream 2. */
static void tenant_idle_busy(struct scene *scene, const struct tenant *tenant, uint64_t granules)
{
    struct heap *small = &tenant->other->small;
    struct block *free_block = extent(scene, small, 20, granules, 1);
    struct block *block = block_make_live(small, free_block, granules * GRANULE);
    (void)block_free_busy(scene, small, block);
}

/* Memory of the default pool in limbo: it waits for work of stream 3, which finishes after all other work. */
static void limbo_fill(struct scene *scene, uint32_t granules)
{
    struct lane *lane;
    struct vm *memory = &scene->cache->vm;
    assert_ok(vmm__stream_lane(scene->cache, STREAM(3), &lane));
    chunk_map(scene, 40, granules);
    vmm__limbo_put(memory, vmm__vm_chunk(memory, 40), lane->clock, vmm__clock_now(lane->clock));
}

static void limbo_work(struct scene *scene)
{
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 41);
    memory_fill(scene->driver, scene_address(scene, 40), GRANULE, 1, STREAM(3));
}

/* Memory that was unmapped behind the library's back: the driver refuses to unmap it. */
POLICY_TEST(a_chunk_that_the_driver_refuses_does_not_hinder_a_wait)
{
    struct vm *memory = &scene->cache->vm;
    uint64_t address = scene_address(scene, 30);
    chunk_map(scene, 30, 1);
    struct chunk *refused = vmm__vm_chunk(memory, 30);
    assert_ok(vmm__driver_unmap(scene->driver, address, GRANULE));
    vmm__limbo_put(memory, refused, NULL, 0);
    limbo_fill(scene, 4);
    limbo_work(scene);
    limit_to_reserved(scene);
    void *block = block_in(scene->cache, 4 * GRANULE, STREAM(1));
    assert_ok(vmm_free(scene->cache, block));
    assert_ok(vmm__driver_map(scene->driver, address, GRANULE, refused->handle));
}

/* What other pools have in limbo does not help, so the host does not wait for it. */
POLICY_TEST(a_pool_at_its_limit_releases_just_enough_of_its_own)
{
    scene_renew_as(scene, CONFIG(.reuse = VMM_REUSE_DECLARED)); /* else one wait covers both */
    struct tenant tenant = tenant_make(scene, 8 * GRANULE);
    limbo_fill(scene, 4);
    tenant_idle_busy(scene, &tenant, 8);
    limbo_work(scene);
    void *out = block_in_pool(tenant.handle, 3 * GRANULE, STREAM(1));
    assert_int_equal(vmm__stat_now(&tenant.pool->account.reserved_bytes), 8 * GRANULE);
    assert_int_equal(scene->cache->pool.account.counts.limbo_bytes, 4 * GRANULE);
    assert_int_equal(scene->driver->counts.stalls, 1);
    assert_ok(vmm_free(scene->cache, out));
}

/* A chunk of four granules with one live in its middle. */
static void chunk_pin(struct scene *scene, struct heap *heap, uint64_t granule)
{
    (void)extent(scene, heap, granule, 4, 4);
    assert_ok(vmm__heap_records_keep(heap, 2));
    (void)vmm__heap_take_at(heap, scene_address(scene, granule + 1), GRANULE);
}

POLICY_TEST(a_pool_at_its_limit_moves_no_block_of_another)
{
    struct tenant tenant = tenant_make(scene, 2 * GRANULE);
    void *out;
    scene->cache->compaction = VMM_ON;
    chunk_pin(scene, &scene->lane->large, 20);
    void *block = block_in_pool(tenant.handle, 2 * GRANULE, STREAM(1));
    assert_status(vmm_alloc_from(tenant.handle, GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_device_wait), 0);
    assert_int_equal(scene_reserved_bytes(scene), 6 * GRANULE);
    assert_ok(vmm_free(scene->cache, block));
}

POLICY_TEST(a_pool_at_its_limit_moves_its_own_blocks)
{
    struct tenant tenant = tenant_make(scene, 5 * GRANULE);
    scene->cache->compaction = VMM_ON;
    chunk_pin(scene, &scene->lane->large, 20);
    chunk_pin(scene, &tenant.lane->large, 30);
    void *out = block_in_pool(tenant.handle, 4 * GRANULE, STREAM(1));
    assert_int_equal(scene->cache->counts.compactions, 1);
    assert_int_equal(vmm__stat_now(&tenant.pool->account.reserved_bytes), 5 * GRANULE);
    assert_int_equal(scene_reserved_bytes(scene), 9 * GRANULE);
    assert_ok(vmm_free(scene->cache, out));
}

/* A request that fails in a loop does not wait for all work each time. */
POLICY_TEST(a_pool_without_gain_is_not_compacted_again)
{
    struct tenant tenant = tenant_make(scene, 5 * GRANULE);
    void *out;
    scene->cache->compaction = VMM_ON;
    chunk_pin(scene, &scene->lane->large, 20);
    chunk_pin(scene, &tenant.lane->large, 30);
    assert_ok(lane_pin(&tenant.lane->large, scene_address(scene, 31), true));
    assert_status(vmm_alloc_from(tenant.handle, 4 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, scene_address(scene, 30), GRANULE, 1, STREAM(2));
    for (int i = 0; i < 3; i++)
        assert_status(vmm_alloc_from(tenant.handle, 4 * GRANULE, STREAM(1), &out),
                      VMM_ERR_DEVICE_OOM);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_event_wait), 0);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_device_wait), 0);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
}

/* Stream 2 is busy, and a graph pool is leaving. No wait would help the tenant. */
POLICY_TEST(a_pool_at_its_limit_does_not_wait_for_others)
{
    struct tenant tenant = tenant_make(scene, 2 * GRANULE);
    struct heap *other = &scene->other->large;
    struct block *busy = block_make_live(other, extent(scene, other, 20, 4, 4), 4 * GRANULE);
    void *out;
    vmm_pool *graph = pool_in(scene->cache, .kind = VMM_POOL_GRAPH);
    void *block = block_in_pool(graph, GRANULE, STREAM(2));
    (void)block_free_busy(scene, other, busy);
    assert_ok(vmm_pool_destroy(graph, 1));
    assert_ok(vmm_free(scene->cache, block));
    assert_ok(vmm_alloc_from(tenant.handle, 2 * GRANULE, STREAM(1), &block));
    assert_status(vmm_alloc_from(tenant.handle, GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_int_equal(scene->driver->counts.stalls, 0);
    assert_ok(vmm_free(scene->cache, block));
}

/* With events of known streams only, the clock does not know the end of a destroyed stream's work. */
POLICY_TEST(a_pool_at_its_limit_does_not_wait_for_a_blind_clock)
{
    scene_renew_as(scene, CONFIG(.clock_kind = VMM_CLOCK_STREAMS));
    struct tenant tenant = tenant_make(scene, 2 * GRANULE);
    struct heap *other = &scene->other->large;
    struct clock *clock = &scene->cache->clock;
    struct block *busy = block_make_live(other, extent(scene, other, 20, 4, 4), 4 * GRANULE);
    void *out;
    void *block = block_in_pool(tenant.handle, 2 * GRANULE, STREAM(1));
    (void)block_free_busy(scene, other, busy);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(2)));
    assert_status(vmm__clock_query(clock, vmm__clock_now(clock)), VMM__PENDING);
    assert_true(clock->is_blind);
    assert_status(vmm_alloc_from(tenant.handle, GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_int_equal(scene->driver->counts.stalls, 0);
    assert_ok(vmm_free(scene->cache, block));
}
