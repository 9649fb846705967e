/* Where a heap grows: beside, between, at home, fresh. */
#include "support/policy_support.h"

#include "policy/site.h"

static struct site found(struct scene *scene, const struct heap *heap, uint64_t bytes)
{
    struct site site;
    assert_ok(vmm__site_find(scene->cache, heap, bytes, &site));
    assert_true(site.count > 0 && site.room >= site.count);
    for (uint64_t granule = site.granule; granule < site.granule + site.room; granule++) {
        uint64_t first;
        uint64_t count;
        assert_true(vmm__arena_void(&scene->cache->memory.arena, granule, &first, &count));
    }
    return site;
}

static void the_first_growth_is_fresh(void **state)
{
    struct scene *scene = *state;
    struct site site = found(scene, &scene->pool->large, 4 * GRANULE - 5);
    assert_int_equal(site.granule, 30); /* in the middle of all */
    assert_int_equal(site.count, 4);
    assert_null(site.beside);
}

static void a_free_block_grows_to_the_right(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 20, 4, 4);
    struct block *live = block_lived(heap, block, 5 * MIB);
    struct site site = found(scene, heap, 6 * MIB);
    assert_int_equal(site.granule, 24);
    assert_int_equal(site.count, 2);
    assert_ptr_equal(site.beside, live->next);
}

static void a_free_block_grows_to_the_left(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 20, 4, 4);
    struct block *low = block_lived(heap, block, 5 * MIB);
    (void)block_lived(heap, low->next, 3 * MIB);
    low = vmm__heap_give(heap, low, 0);
    (void)territory(scene, &scene->other->large, 24, 4, 4);
    struct site site = found(scene, heap, 8 * MIB);
    assert_int_equal(site.granule, 18);
    assert_int_equal(site.count, 2);
    assert_ptr_equal(site.beside, low);
}

/* The index may not have found it in time; growing it would give nothing. */
static void a_block_that_is_large_enough_is_no_site(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 4);
    struct site site = found(scene, heap, 4 * GRANULE);
    assert_int_equal(site.count, 4);
    assert_null(site.beside);
    site = found(scene, heap, 3 * GRANULE);
    assert_int_equal(site.count, 3);
}

/* Free blocks on both sides of a void that is too small alone. */
static void two_free_blocks_are_bridged(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *left = territory(scene, heap, 20, 4, 4);
    struct block *right = territory(scene, heap, 26, 4, 4);
    struct site site = found(scene, heap, 10 * GRANULE);
    assert_int_equal(site.granule, 24);
    assert_int_equal(site.count, 2);
    assert_ptr_equal(site.beside, left);
    assert_ptr_equal(site.beyond, right);
    site = found(scene, heap, 10 * GRANULE + 1);
    assert_int_not_equal(site.granule, 24);
}

static void what_belongs_to_others_is_not_bridged(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 20, 4, 4);
    (void)territory(scene, &scene->other->large, 26, 4, 4);
    struct block *far = territory(scene, heap, 40, 4, 4);
    (void)block_lived(heap, far, GRANULE);
    struct site site = found(scene, heap, 9 * GRANULE);
    assert_true(site.granule + site.count <= 26 || site.granule >= 30);
}

static void the_fewest_new_granules_win(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 4, 2, 2);
    struct block *block = territory(scene, heap, 40, 6, 2);
    struct site site = found(scene, heap, 8 * GRANULE);
    assert_int_equal(site.count, 2);
    assert_ptr_equal(site.beside, block);
    (void)block_lived(heap, block, 6 * GRANULE);
    assert_int_equal(found(scene, heap, 8 * GRANULE).count, 6);
}

static void a_full_heap_goes_on_at_home(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)block_lived(heap, territory(scene, heap, 20, 4, 4), 4 * GRANULE);
    heap->home_end = scene_address(scene, 24);
    struct site site = found(scene, heap, GRANULE);
    assert_int_equal(site.granule, 24);
    assert_null(site.beside);
}

static void trimmed(struct scene *scene, struct heap *heap, struct block *block, uint64_t granule,
                    uint64_t count)
{
    struct memory *memory = &scene->cache->memory;
    assert_ok(vmm__heap_detach(heap, block, scene_address(scene, granule), count * GRANULE));
    vmm__memory_discard(memory, granule, count, NULL, 0);
    assert_ok(vmm__limbo_drain(memory, NULL));
}

static void home_ends_where_trimming_left_it(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 20, 8, 1);
    heap->home_end = scene_address(scene, 28);
    struct block *live = block_lived(heap, block, 3 * GRANULE);
    trimmed(scene, heap, live->next, 23, 5);
    assert_int_equal(found(scene, heap, 2 * GRANULE).granule, 23);
    live = vmm__heap_give(heap, live, 0);
    trimmed(scene, heap, live, 20, 3);
    struct site site = found(scene, heap, 2 * GRANULE); /* nothing is left: it stays */
    assert_int_equal(site.granule, 28);
}

/* One granule of addresses is left behind home, and trimming has opened the ones before it: this
 * is room for as many as there are, not more. */
static void a_home_with_one_granule_behind_it_is_no_trap(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    struct block *block = territory(scene, heap, 20, 8, 1);
    heap->home_end = scene_address(scene, 28);
    (void)block_lived(&scene->other->large, territory(scene, &scene->other->large, 29, 4, 4),
                      4 * GRANULE);
    struct block *live = block_lived(heap, block, 3 * GRANULE);
    trimmed(scene, heap, live->next, 23, 5);
    assert_int_equal(found(scene, heap, 6 * GRANULE).granule, 23);
    struct site site = found(scene, heap, 7 * GRANULE);
    assert_true(site.granule + site.count <= 20 || site.granule >= 33);
}

static void a_home_at_the_arena_s_end_is_no_trap(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)block_lived(heap, territory(scene, heap, 60, 4, 1), 4 * GRANULE);
    heap->home_end = scene_address(scene, SCENE_GRANULES);
    struct site site = found(scene, heap, GRANULE);
    assert_true(site.granule + site.count <= 60);
    (void)block_lived(heap, territory(scene, heap, 0, 4, 1), 4 * GRANULE);
    assert_true(found(scene, heap, 50 * GRANULE).granule >= 4);
}

static void without_addresses_it_is_told(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)block_lived(heap, territory(scene, heap, 30, 4, 4), 4 * GRANULE);
    struct site site = { .count = 77 };
    assert_status(vmm__site_find(scene->cache, heap, 31 * GRANULE, &site), VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm__site_alone(scene->cache, 29 * GRANULE, &site), VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(site.count, 77);
    assert_int_equal(found(scene, heap, 30 * GRANULE).count, 30);
}

static void alone_touches_nothing(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    for (int i = 0; i < 6; i++) {
        struct site site;
        assert_ok(vmm__site_alone(scene->cache, 3 * MIB, &site));
        assert_int_equal(site.count, 2);
        assert_null(vmm__memory_chunk(&scene->cache->memory, site.granule - 1));
        assert_null(vmm__memory_chunk(&scene->cache->memory, site.granule + site.count));
        (void)block_lived(heap, territory(scene, heap, site.granule, 2, 2), 2 * GRANULE);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(the_first_growth_is_fresh),
        POLICY_TEST(a_free_block_grows_to_the_right),
        POLICY_TEST(a_free_block_grows_to_the_left),
        POLICY_TEST(a_block_that_is_large_enough_is_no_site),
        POLICY_TEST(two_free_blocks_are_bridged),
        POLICY_TEST(what_belongs_to_others_is_not_bridged),
        POLICY_TEST(the_fewest_new_granules_win),
        POLICY_TEST(a_full_heap_goes_on_at_home),
        POLICY_TEST(home_ends_where_trimming_left_it),
        POLICY_TEST(a_home_with_one_granule_behind_it_is_no_trap),
        POLICY_TEST(a_home_at_the_arena_s_end_is_no_trap),
        POLICY_TEST(without_addresses_it_is_told),
        POLICY_TEST(alone_touches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
