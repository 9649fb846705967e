/* The ladder: each step is reached, gives what it can, and the last word tells it all. */
#include "support/policy_support.h"

#include "policy/ladder.h"

/* Steps as ladder.h numbers them, from 0. */
enum {
    PASSED,
    STEAL,
    FOLLOW,
    IDLE_FINISHED,
    IDLE,
    QUARANTINE,
    WAIT_LIMBO,
    WAIT_USES,
    WAIT_PRIVATES,
    WAIT_GONE,
    ALL_IDLE,
    WAIT_ALL,
    PRESSURE,
    COMPACT
};

static struct request request_of(struct scene *scene, uint64_t bytes)
{
    return (struct request){
        .pool = scene->pool, .heap = &scene->pool->large, .bytes = bytes, .block_bytes = bytes
    };
}

/* Climbs once from a step and returns the step that gave, or LADDER_TOP. */
enum { LADDER_TOP = 99 };

static unsigned gave_from(struct scene *scene, struct request *request, unsigned step)
{
    struct ladder ladder = { .step = step };
    vmm__fair_take(&scene->cache->grow_lock);
    vmm__pool_lock(request->pool);
    vmm_status status = vmm__ladder_climb(scene->cache, request, &ladder);
    vmm__pool_unlock(request->pool);
    vmm__fair_drop(&scene->cache->grow_lock);
    assert_ok(vmm__cache_check(scene->cache));
    if (status == VMM_NOT_READY)
        return LADDER_TOP;
    assert_ok(status);
    return ladder.step;
}

static void limit_reached(struct scene *scene)
{
    scene->cache->memory.limit_bytes = scene_reserved(scene);
}

static void nothing_to_give_is_told(void **state)
{
    struct scene *scene = *state;
    struct request request = request_of(scene, GRANULE);
    request.from = GROW_FOLLOW;
    assert_int_equal(gave_from(scene, &request, PASSED), LADDER_TOP);
}

static void what_has_passed_comes_first(void **state)
{
    struct scene *scene = *state;
    struct request request = request_of(scene, GRANULE);
    void *object;
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(2), &object));
    assert_ok(vmm_free(scene->cache, object));
    assert_int_equal(gave_from(scene, &request, PASSED), PASSED); /* an empty slab */
    assert_null(scene->other->slabs.all);
    assert_int_not_equal(gave_from(scene, &request, PASSED), PASSED);
}

static void used_blocks_that_are_done_come_first(void **state)
{
    struct scene *scene = *state;
    struct request request = request_of(scene, GRANULE);
    void *block;
    assert_ok(vmm_alloc(scene->cache, 3 * GRANULE, STREAM(2), &block));
    assert_ok(vmm_use(scene->cache, block, STREAM(1)));
    assert_ok(vmm_free(scene->cache, block));
    assert_int_equal(gave_from(scene, &request, PASSED), PASSED);
    vmm__cache_post(scene->cache, NULL);
    assert_int_equal(vmm__figure_now(&scene->cache->ledger.active_bytes), 0);
}

static void stealing_and_following_go_further(void **state)
{
    struct scene *scene = *state;
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(gave_from(scene, &request, PASSED), STEAL);
    assert_int_equal(request.from, GROW_STEAL);
    assert_int_equal(gave_from(scene, &request, STEAL), FOLLOW);
    assert_int_equal(request.from, GROW_FOLLOW);
    assert_int_equal(gave_from(scene, &request, STEAL), LADDER_TOP);
}

static void memory_in_one_piece_is_followed_into(void **state)
{
    struct scene *scene = *state;
    struct heap *other = &scene->other->large;
    struct request request = request_of(scene, 3 * GRANULE);
    struct block *block = block_lived(other, territory(scene, other, 20, 4, 4), 4 * GRANULE);
    (void)block_given_busy(scene, other, block);
    assert_int_equal(gave_from(scene, &request, FOLLOW), FOLLOW);
    assert_int_equal(scene->pool->large.free_bytes, 4 * GRANULE);
    assert_int_equal(scene->driver->stalls, 0);
}

static void finished_idle_chunks_go_just_enough(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 20, 8, 1);
    limit_reached(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(gave_from(scene, &request, IDLE_FINISHED), IDLE_FINISHED);
    assert_int_equal(scene_reserved(scene), 5 * GRANULE);
}

/* Without a limit it is the driver that refuses: what the request needs goes, and no more. */
static void idle_chunks_go_just_enough_for_a_driver_that_refuses(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 20, 8, 1);
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(gave_from(scene, &request, IDLE_FINISHED), IDLE_FINISHED);
    assert_int_equal(scene_reserved(scene), 5 * GRANULE);
}

/* What turned out to have finished goes back at once, though work in flight was what was looked for. */
static void idle_chunks_whose_work_has_ended_go_at_once(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 20, 8, 1);
    limit_reached(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(gave_from(scene, &request, IDLE), IDLE);
    assert_int_equal(scene_reserved(scene), 5 * GRANULE);
    assert_int_equal(scene->driver->stalls, 0);
}

/* Even if all that is pinned came free: nobody is made to wait for that. */
static void nothing_is_compacted_that_would_not_do(void **state)
{
    struct scene *scene = *state;
    void *blocks[2];
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_alloc(scene->cache, 3 * GRANULE, STREAM(1), &blocks[i]));
    limit_reached(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    assert_int_equal(gave_from(scene, &request, COMPACT), LADDER_TOP);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_device_wait), 0);
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_free(scene->cache, blocks[i]));
}

/* What the request would grow goes last. */
static void the_block_that_would_grow_stays(void **state)
{
    struct scene *scene = *state;
    struct block *own = territory(scene, &scene->pool->large, 20, 6, 1);
    (void)territory(scene, &scene->other->large, 40, 4, 1);
    limit_reached(scene);
    struct request request = request_of(scene, 9 * GRANULE);
    assert_int_equal(gave_from(scene, &request, IDLE_FINISHED), IDLE_FINISHED);
    assert_int_equal(own->node.size, 6 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, GRANULE);
}

static void idle_chunks_in_flight_are_waited_for(void **state)
{
    struct scene *scene = *state;
    struct heap *other = &scene->other->large;
    struct block *block = block_lived(other, territory(scene, other, 20, 4, 4), 4 * GRANULE);
    (void)block_given_busy(scene, other, block);
    limit_reached(scene);
    struct request request = request_of(scene, 2 * GRANULE);
    assert_int_equal(gave_from(scene, &request, IDLE_FINISHED), WAIT_LIMBO);
    assert_int_equal(scene->driver->stalls, 1);
    assert_int_equal(scene_reserved(scene), 0);
}

/* A stale mapping gives no memory when its time has come; the chunk behind it does. */
static void stale_mappings_do_not_end_the_waiting(void **state)
{
    struct scene *scene = *state;
    struct memory *memory = &scene->cache->memory;
    struct block *block = territory(scene, &scene->pool->large, 20, 1, 1);
    (void)territory(scene, &scene->other->large, 40, 1, 1);
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    sim_filled(scene->driver, block->address, GRANULE, 1, STREAM(1));
    sim_filled(scene->driver, vmm__arena_address(&memory->arena, 40), GRANULE, 2, STREAM(2));
    assert_ok(vmm__heap_detach(&scene->pool->large, block, block->address, GRANULE));
    struct chunk *chunk = vmm__memory_chunk(memory, 20);
    vmm__arena_take(&memory->arena, 60, 1);
    assert_ok(vmm__memory_move(memory, chunk, 60, &scene->pool->timeline,
                               vmm__timeline_now(&scene->pool->timeline)));
    vmm__limbo_put(memory, chunk, &scene->other->timeline,
                   vmm__timeline_now(&scene->other->timeline));
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(gave_from(scene, &request, WAIT_LIMBO), WAIT_LIMBO);
    assert_int_equal(scene_reserved(scene), GRANULE);
}

static void used_blocks_are_waited_for(void **state)
{
    struct scene *scene = *state;
    void *block;
    assert_ok(vmm_alloc(scene->cache, 4 * GRANULE, STREAM(1), &block));
    assert_ok(vmm_use(scene->cache, block, STREAM(2)));
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    sim_filled(scene->driver, (uintptr_t)block, 4 * GRANULE, 1, STREAM(2));
    assert_ok(vmm_free(scene->cache, block));
    limit_reached(scene);
    struct request request = request_of(scene, 2 * GRANULE);
    request.from = GROW_FOLLOW;
    struct ladder ladder = { .step = PASSED };
    vmm__pool_lock(request.pool);
    assert_ok(vmm__ladder_climb(scene->cache, &request, &ladder));
    vmm__pool_unlock(request.pool);
    assert_int_equal(ladder.step, 0); /* all over again */
    assert_int_equal(scene->driver->stalls, 1);
    vmm__cache_post(scene->cache, NULL);
    assert_int_equal(vmm__figure_now(&scene->cache->ledger.active_bytes), 0);
}

/* The driver refuses without saying what it lacks: everything idle goes in the end. */
static void all_idle_chunks_go_in_the_end(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 20, 4, 1);
    (void)territory(scene, &scene->other->small, 30, 4, 1);
    (void)territory(scene, &scene->pool->large, 40, 4, 1);
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(gave_from(scene, &request, ALL_IDLE), ALL_IDLE);
    assert_int_equal(scene_reserved(scene), 0);
}

/* ---- The program is asked -------------------------------------------------------------------- */

struct program {
    struct scene *scene;
    void *block;   /* freed when it is asked; NULL: nothing is */
    size_t wanted; /* allocated when it is asked; 0: nothing is */
    vmm_status got;
    int answer;
    unsigned asked;
    size_t bytes; /* as told last */
};

static int program_asked(void *context, size_t bytes)
{
    struct program *program = context;
    program->asked++;
    program->bytes = bytes;
    if (program->block != NULL)
        assert_ok(vmm_free(program->scene->cache, program->block));
    program->block = NULL;
    void *extra;
    if (program->wanted != 0)
        program->got = vmm_alloc(program->scene->cache, program->wanted, STREAM(1), &extra);
    return program->answer;
}

static void program_listens(struct scene *scene, struct program *program)
{
    program->scene = scene;
    scene->cache->pressure = program_asked;
    scene->cache->pressure_context = program;
}

static void the_program_is_asked_last_and_the_climb_begins_anew(void **state)
{
    struct scene *scene = *state;
    struct program program = { .answer = 1 };
    program_listens(scene, &program);
    assert_ok(vmm_alloc(scene->cache, 5 * GRANULE, STREAM(2), &program.block));
    limit_reached(scene);
    struct request request = request_of(scene, 3 * GRANULE);
    request.from = GROW_FOLLOW;
    assert_int_equal(gave_from(scene, &request, PASSED), 0);
    assert_int_equal(program.asked, 1);
    assert_int_equal(program.bytes, 3 * GRANULE);
    assert_int_equal(request.from, GROW_TARGET);
    assert_int_equal(scene->other->large.free_bytes, 5 * GRANULE);
    assert_int_equal(scene->cache->pressure_calls, 1);
}

static void idle_memory_goes_before_the_program_is_asked(void **state)
{
    struct scene *scene = *state;
    struct program program = { .answer = 1 };
    program_listens(scene, &program);
    (void)territory(scene, &scene->other->large, 20, 4, 1);
    struct request request = request_of(scene, GRANULE);
    assert_int_equal(gave_from(scene, &request, ALL_IDLE), ALL_IDLE);
    assert_int_equal(program.asked, 0);
}

static void a_program_that_has_nothing_ends_the_climb(void **state)
{
    struct scene *scene = *state;
    struct program program = { .answer = 0 };
    program_listens(scene, &program);
    struct request request = request_of(scene, GRANULE);
    request.from = GROW_FOLLOW;
    assert_int_equal(gave_from(scene, &request, PASSED), LADDER_TOP);
    assert_int_equal(program.asked, 1);
}

static void the_program_is_asked_a_bounded_number_of_times(void **state)
{
    struct scene *scene = *state;
    struct program program = { .answer = 1 };
    program_listens(scene, &program);
    void *out = NULL;
    for (unsigned round = 1; round <= 2; round++) {
        assert_status(vmm_alloc(scene->cache, 60 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
        assert_int_equal(program.asked, round * 64);
    }
    assert_null(out);
}

/* Its own request fails without it being asked once more; the one outside goes on. */
static void what_the_program_asks_for_itself_does_not_ask_it(void **state)
{
    struct scene *scene = *state;
    struct program program = { .answer = 1, .wanted = 60 * GRANULE };
    program_listens(scene, &program);
    assert_ok(vmm_alloc(scene->cache, 20 * GRANULE, STREAM(2), &program.block));
    void *out;
    assert_ok(vmm_alloc(scene->cache, 30 * GRANULE, STREAM(1), &out));
    assert_int_equal(program.asked, 1);
    assert_int_equal(program.got, VMM_ERR_DEVICE_OOM);
}

static void every_error_ends_the_climb(void **state)
{
    struct scene *scene = *state;
    struct heap *other = &scene->other->large;
    struct block *block = block_lived(other, territory(scene, other, 20, 4, 4), 4 * GRANULE);
    (void)block_given_busy(scene, other, block);
    limit_reached(scene);
    struct request request = request_of(scene, 2 * GRANULE);
    struct ladder ladder = { .step = IDLE };
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    vmm__pool_lock(request.pool);
    assert_status(vmm__ladder_climb(scene->cache, &request, &ladder), VMM_ERR_DRIVER);
    vmm__pool_unlock(request.pool);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__cache_check(scene->cache));
}

static void the_report_names_everything(void **state)
{
    struct scene *scene = *state;
    void *live;
    assert_ok(vmm_alloc(scene->cache, 5 * MIB, STREAM(1), &live));
    (void)territory(scene, &scene->other->large, 0, 3, 1);
    (void)territory(scene, &scene->other->small, 10, 2, 1);
    scene->cache->memory.limit_bytes = 20 * MIB;
    struct request request = request_of(scene, 9 * MIB);
    assert_status(vmm__ladder_report(scene->cache, &request, VMM_ERR_DEVICE_OOM),
                  VMM_ERR_DEVICE_OOM);
    assert_string_equal(vmm_last_error(),
                        "needed 9.0 MiB on stream 0x1: 5.0 MiB live, 16.0 MiB reserved of 20.0 MiB "
                        "(limit), 10.0 MiB idle (0.0 MiB in flight), 1.0 MiB pinned beside live "
                        "blocks in 1 chunks (most by stream 0x1: 1.0 MiB), largest hole 6.0 MiB, "
                        "0.0 MiB in limbo; the limit is 4.0 MiB too small");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(nothing_to_give_is_told),
        POLICY_TEST(what_has_passed_comes_first),
        POLICY_TEST(used_blocks_that_are_done_come_first),
        POLICY_TEST(stealing_and_following_go_further),
        POLICY_TEST(memory_in_one_piece_is_followed_into),
        POLICY_TEST(finished_idle_chunks_go_just_enough),
        POLICY_TEST(idle_chunks_go_just_enough_for_a_driver_that_refuses),
        POLICY_TEST(idle_chunks_whose_work_has_ended_go_at_once),
        POLICY_TEST(nothing_is_compacted_that_would_not_do),
        POLICY_TEST(the_block_that_would_grow_stays),
        POLICY_TEST(idle_chunks_in_flight_are_waited_for),
        POLICY_TEST(stale_mappings_do_not_end_the_waiting),
        POLICY_TEST(used_blocks_are_waited_for),
        POLICY_TEST(all_idle_chunks_go_in_the_end),
        POLICY_TEST(the_program_is_asked_last_and_the_climb_begins_anew),
        POLICY_TEST(idle_memory_goes_before_the_program_is_asked),
        POLICY_TEST(a_program_that_has_nothing_ends_the_climb),
        POLICY_TEST(the_program_is_asked_a_bounded_number_of_times),
        POLICY_TEST(what_the_program_asks_for_itself_does_not_ask_it),
        POLICY_TEST(every_error_ends_the_climb),
        POLICY_TEST(the_report_names_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
