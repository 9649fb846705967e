/* Trimming: whole chunks, how much, which, and what still works goes through limbo. */
#include "support/policy_support.h"

#include "policy/idle.h"
#include "policy/trim.h"

static void only_whole_chunks_are_runs(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    const struct memory *memory = &scene->cache->memory;
    struct block *whole = territory(scene, heap, 20, 12, 4);
    uint64_t address;
    uint64_t bytes;
    assert_true(vmm__whole_chunks(memory, whole, UINT64_MAX, &address, &bytes));
    assert_int_equal(bytes, 12 * GRANULE);
    assert_true(vmm__whole_chunks(memory, whole, 1, &address, &bytes));
    assert_int_equal(bytes, 4 * GRANULE);
    assert_true(vmm__whole_chunks(memory, whole, 4 * GRANULE + 1, &address, &bytes));
    assert_int_equal(bytes, 8 * GRANULE);
    struct block *live = block_lived(heap, whole, 512);
    assert_true(vmm__whole_chunks(memory, live->next, UINT64_MAX, &address, &bytes));
    assert_int_equal(address, scene_address(scene, 24));
    assert_int_equal(bytes, 8 * GRANULE);
    struct block *high = block_lived(heap, live->next, 8 * GRANULE);
    assert_false(vmm__whole_chunks(memory, high->next, UINT64_MAX, &address, &bytes));
    high = vmm__heap_give(heap, high, 0);
    struct block *middle = block_lived(heap, high, 4 * GRANULE);
    assert_true(vmm__whole_chunks(memory, middle->next, UINT64_MAX, &address, &bytes));
    assert_int_equal(bytes, 4 * GRANULE);
    assert_int_equal(address, scene_address(scene, 28));
}

static void runs_are_cut_to_whole_chunks(void **state)
{
    struct scene *scene = *state;
    const struct memory *memory = &scene->cache->memory;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 20, 4, 1);
    (void)territory(scene, heap, 24, 4, 2);
    struct idle_run run = { .heap = heap, .address = block->address, .bytes = 8 * GRANULE };
    static const struct {
        uint64_t most_granules;
        uint64_t granules;
    } cuts[] = { { 9, 8 }, { 8, 8 }, { 7, 6 }, { 6, 6 }, { 5, 4 }, { 4, 4 }, { 3, 3 }, { 1, 1 } };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_true(vmm__idle_cut(memory, cuts[i].most_granules * GRANULE, &run));
        assert_int_equal(run.bytes, cuts[i].granules * GRANULE);
    }
    assert_false(vmm__idle_cut(memory, GRANULE - 1, &run));
    assert_int_equal(run.bytes, 0);
}

static uint64_t trimmed(struct scene *scene, struct trim_order *order)
{
    uint64_t put_bytes = vmm__trim_idle(scene->cache, order);
    assert_ok(vmm__cache_check(scene->cache));
    return put_bytes;
}

static void enough_is_enough(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 10, 8, 2);
    (void)territory(scene, &scene->other->large, 30, 8, 2);
    (void)territory(scene, &scene->other->small, 50, 4, 1);
    assert_int_equal(trimmed(scene, &(struct trim_order){ .bytes = 0, .when = IDLE_ANY }), 0);
    assert_int_equal(trimmed(scene, &(struct trim_order){ .bytes = 3 * GRANULE, .when = IDLE_ANY }),
                     4 * GRANULE);
    assert_int_equal(scene->cache->memory.limbo_bytes, 4 * GRANULE);
    assert_int_equal(trimmed(scene, &(struct trim_order){ .bytes = UINT64_MAX, .when = IDLE_ANY }),
                     16 * GRANULE);
    assert_int_equal(trimmed(scene, &(struct trim_order){ .bytes = UINT64_MAX, .when = IDLE_ANY }),
                     0);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
    assert_int_equal(scene_reserved(scene), 0);
}

static void a_kept_block_stays(void **state)
{
    struct scene *scene = *state;
    struct block *keep = territory(scene, &scene->pool->large, 10, 8, 2);
    (void)territory(scene, &scene->pool->large, 30, 2, 2);
    struct trim_order order = { .bytes = UINT64_MAX, .when = IDLE_ANY, .keep = keep };
    assert_int_equal(trimmed(scene, &order), 2 * GRANULE);
    assert_int_equal(keep->node.size, 8 * GRANULE);
}

static void finished_only_leaves_what_works(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = block_lived(heap, territory(scene, heap, 10, 4, 4), 4 * GRANULE);
    (void)block_given_busy(scene, heap, block);
    (void)territory(scene, &scene->other->large, 30, 2, 2);
    struct trim_order order = { .bytes = UINT64_MAX, .when = IDLE_FINISHED };
    assert_int_equal(trimmed(scene, &order), 2 * GRANULE);
    order.when = IDLE_ANY;
    assert_int_equal(trimmed(scene, &order), 4 * GRANULE);
    uint64_t released = 0;
    assert_ok(vmm__limbo_drain(&scene->cache->memory, &released));
    assert_int_equal(released, 2 * GRANULE);
    assert_int_equal(scene->driver->stalls, 0);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, &released));
    assert_int_equal(released, 6 * GRANULE);
}

static void empty_slabs_do_not_hold_chunks(void **state)
{
    struct scene *scene = *state;
    void *block;
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &block));
    assert_ok(vmm_free(scene->cache, block));
    size_t released;
    assert_ok(vmm_trim(scene->cache, 0, &released));
    assert_int_equal(released, GRANULE);
}

/* Without host memory for the cut nothing is trimmed, and nothing breaks. */
static void host_memory_that_lacks_is_no_loss(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 10, 8, 2);
    while (heap->store.spare_count > 0)
        block = block_lived(heap, block, 512)->next;
    (void)vmm__host_fail_at(1);
    assert_int_equal(trimmed(scene, &(struct trim_order){ .bytes = UINT64_MAX, .when = IDLE_ANY }),
                     0);
    (void)vmm__host_fail_at(0);
    assert_int_equal(trimmed(scene, &(struct trim_order){ .bytes = UINT64_MAX, .when = IDLE_ANY }),
                     6 * GRANULE);
}

static void an_event_that_fails_keeps_the_memory(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = block_lived(heap, territory(scene, heap, 10, 4, 4), 4 * GRANULE);
    (void)block_given_busy(scene, heap, block);
    size_t released = 5;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm_trim(scene->cache, 0, &released), VMM_ERR_DRIVER);
    assert_int_equal(released, 5);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm_trim(scene->cache, 0, &released));
    assert_int_equal(released, 4 * GRANULE);
}

/* An operation of a program: every other time a block of the slot is taken, and in between given. */
static void slot_turned(struct scene *scene, vmm_cache *cache, void **slot, unsigned number)
{
    uint64_t bytes = (1 + number % 3) * GRANULE;
    vmm_stream stream = STREAM(1 + number % 3);
    if (*slot != NULL) {
        assert_ok(vmm_free(cache, *slot));
        *slot = NULL;
        return;
    }
    assert_ok(vmm_alloc(cache, bytes, stream, slot));
    sim_filled(scene->driver, (uintptr_t)*slot, bytes, number, stream);
}

/* The most that a program whose work lags 40 operations behind reserves if it trims every so often. */
static uint64_t lagging_peak(struct scene *scene, unsigned trim_every)
{
    enum { SLOTS = 9, OPERATIONS = 600 };
    vmm_cache *cache;
    void *slots[SLOTS] = { NULL };
    uint64_t stalls = scene->driver->stalls;
    assert_ok(vmm__cache_create_on(NULL, scene->driver, &cache));
    vmm__sim_lag_set(scene->driver, 40);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        slot_turned(scene, cache, &slots[i % SLOTS], i % SLOTS);
        if (trim_every != 0 && i % trim_every == 0)
            assert_ok(vmm_trim(cache, 0, NULL));
        assert_ok(vmm__cache_check(cache));
    }
    uint64_t peak_bytes = vmm__figure_read(&cache->memory.reserved_bytes).peak;
    assert_int_equal(scene->driver->stalls, stalls);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    vmm__sim_lag_set(scene->driver, 0);
    assert_ok(vmm_destroy(cache));
    return peak_bytes;
}

/* What a trim leaves because it is at work stays its stream's: nobody needs more memory for it. */
static void trims_cost_no_memory_while_work_lags(void **state)
{
    struct scene *scene = *state;
    uint64_t peak_bytes = lagging_peak(scene, 0);
    for (unsigned trim_every = 1; trim_every <= 30; trim_every++)
        assert_in_range(lagging_peak(scene, trim_every), 1, peak_bytes);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(only_whole_chunks_are_runs),
        POLICY_TEST(runs_are_cut_to_whole_chunks),
        POLICY_TEST(enough_is_enough),
        POLICY_TEST(a_kept_block_stays),
        POLICY_TEST(finished_only_leaves_what_works),
        POLICY_TEST(empty_slabs_do_not_hold_chunks),
        POLICY_TEST(host_memory_that_lacks_is_no_loss),
        POLICY_TEST(an_event_that_fails_keeps_the_memory),
        POLICY_TEST(trims_cost_no_memory_while_work_lags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
