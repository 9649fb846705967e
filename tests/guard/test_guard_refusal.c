/*
 * A guard whose driver refuses calls: each call once, and all from each one on. A read that is refused may be under way
 * (D1 of driver.h), so whoever has the memory next shows whether it is: the sim driver tells of unordered work, and of
 * memory that goes under work. Nothing may be found, as nothing is wrong.
 */
#include "guard_support.h"

#include "driver/sim.h"

enum { BLOCKS = 6, LAG = 100000, CALLS_MOST = 400 };

static const size_t sizes[BLOCKS] = { 1, 700, 9000, 300000, 3 * MIB + 512, 4 * MIB };

struct scene {
    struct cache_test *test;
    void *blocks[BLOCKS]; /* NULL: freed */
    unsigned found;       /* misuses */
};

static void misuse_counted(void *context, const char *line)
{
    struct scene *scene = context;
    (void)line;
    scene->found++;
}

/* Blocks of the first stream with work on them, which goes on until somebody waits for it. */
static void blocks_fill(struct scene *scene, unsigned stream)
{
    for (int i = 0; i < BLOCKS; i++) {
        scene->blocks[i] = block_taken(scene->test, sizes[i], stream);
        block_filled(scene->test, scene->blocks[i], sizes[i], 7, stream);
    }
}

static void scene_begin(struct scene *scene, struct cache_test *test)
{
    assert_int_equal(driver_choice_kind(), VMM_DRIVER_SIM); /* no other refuses numbered calls */
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = CACHE_LIMIT;
    config.guard = VMM_GUARD_ON;
    config.misuse = misuse_counted;
    config.misuse_context = scene;
    *scene = (struct scene){ .test = test };
    cache_restart(test, &config);
    vmm__sim_lag_set(test->driver, LAG);
    blocks_fill(scene, 1);
}

/* A guard makes no free fail. */
static void blocks_free(struct scene *scene)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (scene->blocks[i] != NULL)
            block_given(scene->test, scene->blocks[i]);
        scene->blocks[i] = NULL;
    }
}

static void scene_verified(const struct scene *scene)
{
    const char *story;
    assert_int_equal(scene->found, 0);
    if (vmm__sim_violations(scene->test->driver, &story) != 0)
        fail_msg("%s", story);
    assert_ok(vmm__cache_check(scene->test->cache));
}

/* The memory has other owners, on the same stream and on others, and goes. */
static void scene_end(struct scene *scene)
{
    struct cache_test *test = scene->test;
    blocks_free(scene);
    for (unsigned stream = 1; stream < 3; stream++) {
        assert_ok(vmm_trim(test->cache, SIZE_MAX, NULL)); /* only the quarantine is emptied */
        blocks_fill(scene, stream);
        scene_verified(scene);
        blocks_free(scene);
    }
    assert_ok(vmm_guard_check(test->cache));
    assert_ok(vmm_wait(test->cache));
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).allocations.current, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    scene_verified(scene);
    vmm__sim_lag_set(test->driver, 0);
}

/* What is done while calls are refused. */
typedef void (*scene_act)(struct scene *scene);

static void call_refused(struct cache_test *test, scene_act prepare, scene_act act, bool for_ever)
{
    struct scene scene;
    bool was_refused = true;
    for (uint64_t call = 1; was_refused; call++) {
        assert_true(call < CALLS_MOST);
        scene_begin(&scene, test);
        prepare(&scene);
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, for_ever);
        act(&scene);
        was_refused = vmm__sim_faults_fired(test->driver) != 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        scene_verified(&scene);
        scene_end(&scene);
    }
}

static void each_call_refused(struct cache_test *test, scene_act prepare, scene_act act)
{
    call_refused(test, prepare, act, false);
    call_refused(test, prepare, act, true);
}

static void assert_may_refuse(vmm_status status)
{
    assert_true(status == VMM_OK || status == VMM_ERR_DRIVER);
}

static void nothing(struct scene *scene)
{
    (void)scene;
}

static void quarantine_emptied(struct scene *scene)
{
    assert_may_refuse(vmm_trim(scene->test->cache, 0, NULL));
}

static void what_is_in_quarantine_stays_until_it_was_seen(void **state)
{
    each_call_refused(*state, blocks_free, quarantine_emptied);
}

static void blocks_looked_at(struct scene *scene)
{
    assert_may_refuse(vmm_guard_check(scene->test->cache));
}

/* And again once they are free. */
static void blocks_looked_at_and_freed(struct scene *scene)
{
    blocks_looked_at(scene);
    blocks_free(scene);
    blocks_looked_at(scene);
}

static void what_was_looked_at_in_vain_is_freed(void **state)
{
    each_call_refused(*state, nothing, blocks_looked_at);
    each_call_refused(*state, nothing, blocks_looked_at_and_freed);
    each_call_refused(*state, blocks_free, blocks_looked_at);
}

static void what_is_freed_meanwhile_is_free(void **state)
{
    each_call_refused(*state, nothing, blocks_free);
}

static void stream_left(struct scene *scene)
{
    assert_may_refuse(vmm_stream_end(scene->test->cache, scene->test->streams[1]));
}

static void stream_left_and_blocks_freed(struct scene *scene)
{
    stream_left(scene);
    blocks_free(scene);
}

/* The stream's last mark has been made. Its handle, which stays as nothing was destroyed, is a new stream's then. */
static void what_a_stream_left_is_freed(void **state)
{
    each_call_refused(*state, nothing, stream_left);
    each_call_refused(*state, stream_left, blocks_free);
    each_call_refused(*state, nothing, stream_left_and_blocks_freed);
}

/* Nobody waits for the device at the end, as a capture is under way: that of the guard's work must be told. */
static void the_end_waits_for_the_guard(void **state)
{
    struct cache_test *test = *state;
    struct scene scene;
    bool was_refused = true;
    for (uint64_t call = 1; was_refused; call++) {
        vmm_pool_id id = { 5, 6 };
        assert_true(call < CALLS_MOST);
        scene_begin(&scene, test);
        block_given(test, scene.blocks[1]);
        assert_ok(vmm_pool_begin(test->cache, id, NULL, NULL));
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        assert_ok(vmm_destroy(test->cache));
        was_refused = vmm__sim_faults_fired(test->driver) != 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        assert_int_equal(scene.found, 0);
        driver_choice_census_is_zero(test->driver);
        assert_ok(vmm__cache_create_on(NULL, test->driver, &test->cache));
    }
}

/* The call that was to look tells of it, and the blocks stay the guard's until it has looked. */
static void the_guard_says_that_it_could_not_look(void **state)
{
    struct cache_test *test = *state;
    struct scene scene;
    scene_begin(&scene, test);
    assert_ok(vmm_wait(test->cache));
    uint64_t before = cache_stats(test).allocations.current;
    assert_ok(vmm_guard_check(test->cache));
    uint64_t reads = vmm__driver_calls(test->driver, DRIVER_CALL_read);
    assert_ok(vmm_guard_check(test->cache));
    reads = vmm__driver_calls(test->driver, DRIVER_CALL_read) - reads;
    vmm__sim_fail_at(test->driver, 1, VMM_OK, false);
    assert_ok(vmm_guard_check(test->cache));
    uint64_t calls = vmm__sim_calls(test->driver);
    vmm__sim_fail_at(test->driver, calls - reads + 1, VMM_ERR_DRIVER, true);
    assert_status(vmm_guard_check(test->cache), VMM_ERR_DRIVER);
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    blocks_free(&scene);
    assert_int_equal(cache_stats(test).allocations.current,
                     before - 1); /* but for 4 MiB: no canaries */
    assert_ok(vmm_guard_check(test->cache));
    scene_end(&scene);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(what_is_in_quarantine_stays_until_it_was_seen),
        CACHE_TEST(what_was_looked_at_in_vain_is_freed),
        CACHE_TEST(what_is_freed_meanwhile_is_free),
        CACHE_TEST(what_a_stream_left_is_freed),
        CACHE_TEST(the_end_waits_for_the_guard),
        CACHE_TEST(the_guard_says_that_it_could_not_look),
    };
    CACHE_MAIN(tests);
}
