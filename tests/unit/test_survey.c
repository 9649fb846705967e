/* Surveys: which chunks are live in part, what is live in a granule, and what is pinned. */
#include "support/live_support.h"

static struct survey surveyed(struct scene *scene)
{
    struct survey survey;
    assert_ok(vmm__survey_take(scene->cache, &survey));
    return survey;
}

static const struct partly *partly_find(const struct survey *survey, const struct chunk *chunk)
{
    for (uint64_t i = 0; i < survey->count; i++) {
        if (survey->chunks[i].chunk == chunk)
            return &survey->chunks[i];
    }
    return NULL;
}

static void parts_that_hold_live_bytes_are_occupied(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 2, 2);
    uint64_t start = scene_address(scene, 10);
    struct occupancy live;
    vmm__occupancy_read(heap, 10, &live);
    assert_int_equal(vmm__occupancy_count(&live), 0);
    (void)lived_at(scene, heap, start, 512);                   /* part 0 */
    (void)lived_at(scene, heap, start + 3 * 4096 - 512, 1024); /* parts 2 and 3 */
    (void)lived_at(scene, heap, start + GRANULE - 512, MIB);   /* the last, and the next granule */
    assert_ok(vmm__heap_lend(heap, start + 100 * 4096, 8192));
    vmm__occupancy_read(heap, 10, &live);
    assert_int_equal(live.words[0], 0x0D);
    assert_true(live.words[7] == UINT64_C(1) << 63);
    assert_int_equal(vmm__occupancy_count(&live), 4);
    struct occupancy taken;
    vmm__occupancy_taken(heap, 10, &taken);
    assert_int_equal(vmm__occupancy_count(&taken), 6);
    vmm__occupancy_read(heap, 11, &live);
    assert_int_equal(vmm__occupancy_count(&live), 256);
    vmm__heap_unlend(heap, 10, 0);
}

static void runs_are_found_to_the_end(void **state)
{
    (void)state;
    struct occupancy some = { .words = { 0xF0, 0, 0, UINT64_C(1) << 63, 1, 0, 0, 0 } };
    static const unsigned set[][2] = { { 4, 4 }, { 255, 2 } };
    static const unsigned clear[][2] = { { 0, 4 }, { 8, 247 }, { 257, 255 } };
    unsigned first = 0;
    unsigned count;
    for (int i = 0; i < 2; i++, first += count) {
        assert_true(vmm__occupancy_run(&some, true, &first, &count));
        assert_true(first == set[i][0] && count == set[i][1]);
    }
    assert_false(vmm__occupancy_run(&some, true, &first, &count));
    first = 0;
    for (int i = 0; i < 3; i++, first += count) {
        assert_true(vmm__occupancy_run(&some, false, &first, &count));
        assert_true(first == clear[i][0] && count == clear[i][1]);
    }
    assert_false(vmm__occupancy_run(&some, false, &first, &count));
    struct occupancy other = { .words = { 0x0F, 0, 0, 0, 2, 0, 0, 0 } };
    assert_false(vmm__occupancy_meets(&some, &other));
    vmm__occupancy_add(&other, &some);
    assert_true(vmm__occupancy_meets(&some, &other));
    assert_int_equal(vmm__occupancy_count(&other), 4 + 1 + 6);
}

static void granules_are_free_full_or_between(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 5, 5);
    (void)lived_at(scene, heap, scene_address(scene, 11) - 512, GRANULE + 1024);
    static const enum granule_use uses[] = { GRANULE_PARTLY, GRANULE_FULL, GRANULE_PARTLY,
                                             GRANULE_FREE, GRANULE_FREE };
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(vmm__granule_use(heap, 10 + i), uses[i]);
    assert_ok(vmm__heap_lend(heap, scene_address(scene, 13), GRANULE));
    assert_int_equal(vmm__granule_use(heap, 13), GRANULE_FULL); /* it is in use, elsewhere */
    vmm__heap_unlend(heap, 13, 0);
}

static void chunks_live_in_part_are_listed_once(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 4, 4, 4); /* idle */
    (void)territory(scene, heap, 10, 4, 4);
    (void)lived_at(scene, heap, scene_address(scene, 10), 4 * GRANULE); /* full */
    (void)territory(scene, heap, 20, 8, 8); /* a hole at each end and one inside */
    (void)lived_at(scene, heap, scene_address(scene, 21), GRANULE);
    (void)lived_at(scene, heap, scene_address(scene, 24), GRANULE);
    (void)territory(scene, &scene->other->large, 30, 6, 2); /* live, idle, live chunks */
    (void)lived_at(scene, &scene->other->large, scene_address(scene, 30), 512);
    (void)lived_at(scene, &scene->other->large, scene_address(scene, 36) - 512, 512);
    struct survey survey = surveyed(scene);
    assert_int_equal(survey.count, 3);
    assert_null(partly_find(&survey, scene_chunk(scene, 4)));
    assert_null(partly_find(&survey, scene_chunk(scene, 10)));
    assert_null(partly_find(&survey, scene_chunk(scene, 32)));
    assert_int_equal(partly_find(&survey, scene_chunk(scene, 20))->live_granules, 2);
    assert_ptr_equal(partly_find(&survey, scene_chunk(scene, 20))->heap, heap);
    assert_int_equal(partly_find(&survey, scene_chunk(scene, 30))->live_granules, 1);
    assert_int_equal(partly_find(&survey, scene_chunk(scene, 34))->live_granules, 1);
    vmm__survey_end(&survey);
}

static void small_heaps_and_slabs_are_seen(void **state)
{
    struct scene *scene = *state;
    void *objects[2];
    void *block;
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &objects[0]));
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &objects[1]));
    assert_ok(vmm_alloc(scene->cache, 300000, STREAM(1), &block));
    const struct heap *heap = &scene->pool->small;
    uint64_t granule = vmm__arena_granule(&scene->cache->memory.arena, (uintptr_t)block);
    struct occupancy live;
    vmm__occupancy_read(heap, granule, &live);
    assert_int_equal(vmm__occupancy_count(&live), 74 + 8); /* a slab of 32 KiB is live as a whole */
    struct survey survey = surveyed(scene);
    assert_int_equal(survey.count, 1);
    assert_false(survey.chunks[0].is_pinned);
    vmm__survey_end(&survey);
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_pin(scene->cache, objects[i]));
    assert_true(vmm__place_is_pinned(scene->cache, heap, scene_chunk(scene, granule)));
    assert_ok(vmm_unpin(scene->cache, objects[0]));
    assert_ok(vmm_free(scene->cache, objects[1])); /* which ends its pin */
    assert_false(vmm__place_is_pinned(scene->cache, heap, scene_chunk(scene, granule)));
    assert_ok(vmm_pin(scene->cache, block));
    survey = surveyed(scene);
    assert_true(survey.chunks[0].is_pinned);
    vmm__survey_end(&survey);
    assert_ok(vmm_free(scene->cache, block));
    assert_ok(vmm_free(scene->cache, objects[0]));
    assert_false(vmm__place_is_pinned(scene->cache, heap, scene_chunk(scene, granule)));
}

/* A block over two chunks pins both. */
static void pins_reach_as_far_as_the_block(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 6, 2);
    live_pinned(heap, lived_at(scene, heap, scene_address(scene, 12) - 512, 1024));
    struct survey survey = surveyed(scene);
    assert_int_equal(survey.count, 2);
    assert_true(survey.chunks[0].is_pinned && survey.chunks[1].is_pinned);
    vmm__survey_end(&survey);
    assert_false(vmm__place_is_pinned(scene->cache, heap, scene_chunk(scene, 14)));
}

static void host_memory_that_lacks_is_told(void **state)
{
    struct scene *scene = *state;
    struct survey survey = surveyed(scene);
    assert_int_equal(survey.count, 0);
    vmm__survey_end(&survey);
    (void)place_lived(scene, &scene->pool->large, 10, 0, 1);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__survey_take(scene->cache, &survey), VMM_ERR_HOST_OOM);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LIVE_TEST(parts_that_hold_live_bytes_are_occupied),
        cmocka_unit_test(runs_are_found_to_the_end),
        LIVE_TEST(granules_are_free_full_or_between),
        LIVE_TEST(chunks_live_in_part_are_listed_once),
        LIVE_TEST(small_heaps_and_slabs_are_seen),
        LIVE_TEST(pins_reach_as_far_as_the_block),
        LIVE_TEST(host_memory_that_lacks_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
