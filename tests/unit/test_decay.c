/* Decay: what is overdue when, how much of it goes, what it asks of the driver, who looks. */
#include "support/policy_support.h"

#include "policy/idle.h"
#include "policy/trim.h"

static uint64_t now_ms;

static uint64_t clock_read(void *context)
{
    assert_ptr_equal(context, &now_ms);
    return now_ms * 1000000;
}

/* A period of ten milliseconds begins. */
static void decay_begins(struct scene *scene, uint64_t keep_bytes)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.decay_ms = 10;
    config.decay_keep_bytes = keep_bytes;
    config.clock = clock_read;
    config.clock_context = &now_ms;
    now_ms = 1000;
    vmm__decay_init(&scene->cache->decay, &config, scene->cache);
}

static void ticked_at(struct scene *scene, uint64_t ms)
{
    now_ms = ms;
    assert_ok(vmm_tick(scene->cache));
    assert_ok(vmm__cache_check(scene->cache));
}

/* A chunk that was used and given back now. */
static struct block *used_chunk(struct scene *scene, struct heap *heap, uint64_t granule,
                                uint32_t granules)
{
    struct block *block =
        block_lived(heap, territory(scene, heap, granule, granules, granules), granules * GRANULE);
    sim_filled(scene->driver, block->address, block->node.size, 1, heap->pool->stream);
    return vmm__heap_give(heap, block, vmm__timeline_now(&heap->pool->timeline));
}

static void it_goes_after_one_to_two_periods(void **state)
{
    struct scene *scene = *state;
    decay_begins(scene, 0);
    (void)used_chunk(scene, &scene->pool->large, 10, 4);
    ticked_at(scene, 1009);
    (void)used_chunk(scene, &scene->other->large, 30, 2);
    ticked_at(scene, 1010);
    assert_int_equal(scene_reserved(scene), 6 * GRANULE);
    (void)used_chunk(scene, &scene->other->small, 50, 1);
    ticked_at(scene, 1019);
    assert_int_equal(scene_reserved(scene), 7 * GRANULE);
    ticked_at(scene, 1020);
    assert_int_equal(scene_reserved(scene), GRANULE);
    ticked_at(scene, 1030);
    assert_int_equal(scene_reserved(scene), 0);
    assert_int_equal(scene->driver->stalls, 0);
}

/* A look that comes late ends one period, not several: nobody knows what happened in between. */
static void periods_without_a_look_are_one(void **state)
{
    struct scene *scene = *state;
    decay_begins(scene, 0);
    (void)used_chunk(scene, &scene->pool->large, 10, 4);
    ticked_at(scene, 5000);
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    ticked_at(scene, 5009);
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    ticked_at(scene, 5010);
    assert_int_equal(scene_reserved(scene), 0);
}

/* Epochs end for other reasons, too: only a period's end makes anything older. */
static void trims_do_not_make_it_older(void **state)
{
    struct scene *scene = *state;
    decay_begins(scene, 0);
    (void)used_chunk(scene, &scene->pool->large, 10, 4);
    for (int i = 0; i < 3; i++)
        assert_ok(vmm_trim(scene->cache, SIZE_MAX, NULL));
    ticked_at(scene, 1010);
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    ticked_at(scene, 1020);
    assert_int_equal(scene_reserved(scene), 0);
}

static void what_is_used_again_stays(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    decay_begins(scene, 0);
    struct block *block = used_chunk(scene, heap, 10, 4);
    for (uint64_t ms = 1010; ms < 1200; ms += 10) {
        block = block_lived(heap, block, 3 * GRANULE);
        block = vmm__heap_give(heap, block, vmm__timeline_now(&heap->pool->timeline));
        ticked_at(scene, ms);
        assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    }
    ticked_at(scene, 1200);
    assert_int_equal(scene_reserved(scene), 0);
}

/* The floor is of idle memory, live memory is not part of it; and it is never undercut by a chunk. */
static void the_floor_stays(void **state)
{
    struct scene *scene = *state;
    decay_begins(scene, 5 * GRANULE);
    for (uint64_t granule = 10; granule < 30; granule += 5)
        (void)used_chunk(scene, &scene->pool->large, granule, 4);
    struct block *live = territory(scene, &scene->other->large, 40, 8, 8);
    live = block_lived(&scene->other->large, live, 8 * GRANULE);
    ticked_at(scene, 1010);
    ticked_at(scene, 1020);
    assert_int_equal(scene_reserved(scene), 8 * GRANULE + 8 * GRANULE);
    ticked_at(scene, 1030);
    assert_int_equal(scene_reserved(scene), 16 * GRANULE);
    (void)vmm__heap_give(&scene->other->large, live, vmm__timeline_now(&scene->other->timeline));
    ticked_at(scene, 1040);
    assert_int_equal(scene_reserved(scene), 8 * GRANULE);
    ticked_at(scene, 1050);
    assert_int_equal(scene_reserved(scene), 8 * GRANULE);
}

/* Until the work that it waits for has ended, each look costs one question. */
static void what_works_stays_and_is_asked_for_once(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    decay_begins(scene, 0);
    struct block *block = block_lived(heap, territory(scene, heap, 10, 8, 2), 8 * GRANULE);
    (void)block_given_busy(scene, heap, block);
    ticked_at(scene, 1010);
    ticked_at(scene, 1020);
    assert_int_equal(scene_reserved(scene), 8 * GRANULE);
    assert_true(scene->cache->decay.is_stuck);
    assert_int_equal(heap->free_bytes, 8 * GRANULE);
    uint64_t calls = vmm__sim_calls(scene->driver);
    ticked_at(scene, 1021);
    assert_int_equal(vmm__sim_calls(scene->driver), calls + 1);
    assert_true(vmm__decay_is_due(&scene->cache->decay));
    assert_int_equal(sim_mismatches(scene->driver), 0);
    ticked_at(scene, 1022);
    assert_int_equal(scene_reserved(scene), 0);
    assert_false(vmm__decay_is_due(&scene->cache->decay));
    assert_int_equal(scene->driver->stalls, 0);
}

/* What an order found at work goes back later, and no more than the order said. */
static void an_order_stands_until_its_work_has_ended(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = block_lived(heap, territory(scene, heap, 10, 8, 2), 8 * GRANULE);
    (void)block_given_busy(scene, heap, block);
    size_t released;
    assert_ok(vmm_trim(scene->cache, 3 * GRANULE, &released));
    assert_int_equal(released, 0);
    assert_true(scene->cache->order_stands);
    uint64_t calls = vmm__sim_calls(scene->driver);
    assert_ok(vmm_tick(scene->cache));
    assert_int_equal(vmm__sim_calls(scene->driver), calls + 1);
    (void)used_chunk(scene, &scene->other->large, 30, 2);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm_tick(scene->cache));
    assert_int_equal(scene_reserved(scene), 2 * GRANULE);
    assert_false(scene->cache->order_stands);
    assert_false(vmm__trim_may_be_due(scene->cache));
}

static void an_order_that_is_met_stands_no_more(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)used_chunk(scene, &scene->other->large, 30, 2);
    struct block *block = block_lived(heap, territory(scene, heap, 10, 2, 2), 2 * GRANULE);
    assert_ok(vmm__timeline_wait(&scene->other->timeline, 1));
    (void)block_given_busy(scene, heap, block);
    assert_ok(vmm_trim(scene->cache, 4 * GRANULE, NULL));
    assert_false(scene->cache->order_stands);
    assert_ok(vmm_trim(scene->cache, 2 * GRANULE, NULL)); /* the other one's is enough */
    assert_int_equal(scene_reserved(scene), 2 * GRANULE);
    assert_false(scene->cache->order_stands);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_true(scene->cache->order_stands);
    assert_ok(vmm_trim(scene->cache, SIZE_MAX, NULL));
    assert_false(scene->cache->order_stands);
}

/* Empty slabs, and blocks that other streams have done with, grow old like everything else. */
static void nothing_hides_from_it(void **state)
{
    struct scene *scene = *state;
    void *object;
    void *block;
    decay_begins(scene, 0);
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &object));
    assert_ok(vmm_alloc(scene->cache, 3 * GRANULE, STREAM(1), &block));
    assert_ok(vmm_use(scene->cache, block, STREAM(2)));
    assert_ok(vmm_free(scene->cache, object));
    assert_ok(vmm_free(scene->cache, block));
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    ticked_at(scene, 1010);
    ticked_at(scene, 1020);
    assert_int_equal(scene_reserved(scene), 0);
}

static void frees_look_once_in_a_while(void **state)
{
    struct scene *scene = *state;
    void *objects[2 * DECAY_LOOK_FREES];
    decay_begins(scene, 0);
    (void)used_chunk(scene, &scene->other->large, 30, 2);
    for (int i = 0; i < 2 * DECAY_LOOK_FREES; i++)
        assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &objects[i]));
    now_ms = 1010;
    uint64_t epoch = vmm__timeline_now(&scene->pool->timeline);
    for (int i = 0; i < DECAY_LOOK_FREES; i++) {
        assert_int_equal(vmm__timeline_now(&scene->pool->timeline), epoch);
        assert_ok(vmm_free(scene->cache, objects[i]));
    }
    assert_int_equal(vmm__timeline_now(&scene->pool->timeline), epoch + 1);
    now_ms = 1020;
    for (int i = DECAY_LOOK_FREES; i < 2 * DECAY_LOOK_FREES; i++) {
        assert_int_equal(scene_reserved(scene), 3 * GRANULE);
        assert_ok(vmm_free(scene->cache, objects[i]));
    }
    assert_int_equal(scene_reserved(scene), GRANULE);
}

/* A look in passing never waits for the lock, whose owner may be waiting for the device. */
static void a_look_waits_for_nobody(void **state)
{
    struct scene *scene = *state;
    decay_begins(scene, 0);
    (void)used_chunk(scene, &scene->pool->large, 10, 4);
    ticked_at(scene, 1010);
    now_ms = 1020;
    vmm__fair_take(&scene->cache->grow_lock);
    assert_ok(vmm_tick(scene->cache));
    vmm__fair_drop(&scene->cache->grow_lock);
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
    assert_ok(vmm_tick(scene->cache));
    assert_int_equal(scene_reserved(scene), 0);
}

/* A driver that fails keeps the memory; a later look tries again. */
static void a_driver_that_fails_is_told(void **state)
{
    struct scene *scene = *state;
    decay_begins(scene, 0);
    (void)used_chunk(scene, &scene->pool->large, 10, 8);
    ticked_at(scene, 1010);
    now_ms = 1020;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm_tick(scene->cache), VMM_ERR_DRIVER);
    assert_status(vmm_tick(scene->cache), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(scene_reserved(scene), 8 * GRANULE);
    ticked_at(scene, 1021);
    assert_int_equal(scene_reserved(scene), 0);
}

/* The same without host memory for the cut. */
static void host_memory_that_lacks_is_told(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    decay_begins(scene, 0);
    struct block *block = used_chunk(scene, heap, 10, 8);
    uint64_t epoch = vmm__timeline_now(&scene->pool->timeline);
    (void)used_chunk(scene, heap, 30, 2);
    while (heap->store.spare_count > 0)
        block = block_lived(heap, block, 512)->next;
    ticked_at(scene, 1010);
    assert_ok(vmm__timeline_query(&scene->pool->timeline, epoch));
    now_ms = 1020;
    (void)vmm__host_fail_at(1);
    assert_status(vmm_tick(scene->cache), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_int_equal(scene_reserved(scene), 10 * GRANULE);
    ticked_at(scene, 1021);
    assert_int_equal(scene_reserved(scene), 8 * GRANULE);
}

static void a_cache_without_it_never_looks(void **state)
{
    struct scene *scene = *state;
    (void)used_chunk(scene, &scene->pool->large, 10, 4);
    assert_false(vmm__trim_may_be_due(scene->cache));
    for (int i = 0; i < 3 * DECAY_LOOK_FREES; i++)
        assert_false(vmm__decay_looks(&scene->cache->decay, &scene->pool->frees));
    uint64_t epoch = vmm__timeline_now(&scene->pool->timeline);
    assert_ok(vmm_tick(scene->cache));
    assert_int_equal(vmm__timeline_now(&scene->pool->timeline), epoch);
    assert_int_equal(scene_reserved(scene), 4 * GRANULE);
}

static void disorder_is_found(void **state)
{
    struct scene *scene = *state;
    scene->pool->decayed.latest_epoch = 1;
    assert_status(vmm__cache_check(scene->cache), VMM_ERR_INTERNAL);
    scene->pool->decayed.latest_epoch = 0;
    scene->pool->trimmed.latest_epoch = vmm__timeline_now(&scene->pool->timeline);
    assert_status(vmm__cache_check(scene->cache), VMM_ERR_INTERNAL);
    scene->pool->trimmed.latest_epoch = 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(it_goes_after_one_to_two_periods),
        POLICY_TEST(periods_without_a_look_are_one),
        POLICY_TEST(trims_do_not_make_it_older),
        POLICY_TEST(what_is_used_again_stays),
        POLICY_TEST(the_floor_stays),
        POLICY_TEST(what_works_stays_and_is_asked_for_once),
        POLICY_TEST(an_order_stands_until_its_work_has_ended),
        POLICY_TEST(an_order_that_is_met_stands_no_more),
        POLICY_TEST(nothing_hides_from_it),
        POLICY_TEST(frees_look_once_in_a_while),
        POLICY_TEST(a_look_waits_for_nobody),
        POLICY_TEST(a_driver_that_fails_is_told),
        POLICY_TEST(host_memory_that_lacks_is_told),
        POLICY_TEST(a_cache_without_it_never_looks),
        POLICY_TEST(disorder_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
