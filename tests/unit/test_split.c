/* Splits: which chunks are split, what stays of their places, and what a failure costs. */
#include "support/policy_support.h"

#include "cache/grow/split.h"
#include "cache/pool/pools.h"

#include "support/lane_support.h"

static uint32_t granules_at(const struct scene *scene, uint64_t granule)
{
    const struct chunk *chunk = scene_chunk(scene, granule);
    return chunk == NULL || chunk->first != granule ? 0 : chunk->granules;
}

static bool scene_split(struct scene *scene, uint64_t bytes)
{
    struct heap *heap = &scene->lane->large;
    scene_lock(scene, heap);
    bool is_split = vmm__split(scene->cache, heap, bytes);
    scene_unlock(scene, heap);
    assert_ok(vmm__cache_check(scene->cache));
    return is_split;
}

/* The large heap of a scene, whose blocks may strand less than so many granules. */
static struct heap *heap_sparing(struct scene *scene, uint64_t granules)
{
    scene->lane->large.strand_bytes = granules * GRANULE;
    return &scene->lane->large;
}

static void *take(struct scene *scene, uint64_t bytes)
{
    void *block;
    assert_ok(lane_take(scene->lane, bytes, &block));
    return block;
}

static void refuse(struct scene *scene, uint64_t bytes)
{
    void *block;
    assert_status(lane_take(scene->lane, bytes, &block), VMM__NO_FIT);
}

/* ---- At home ----------------------------------------------------------------------------------- */

POLICY_TEST(the_first_part_ends_with_the_block)
{
    (void)extent(scene, heap_sparing(scene, 4), 10, 8, 8);
    refuse(scene, 5 * MIB);
    assert_true(scene_split(scene, 5 * MIB));
    assert_int_equal(granules_at(scene, 10), 3);
    assert_int_equal(granules_at(scene, 13), 5);
    assert_int_equal(scene_reserved_bytes(scene), 8 * GRANULE);
    assert_int_equal((uintptr_t)take(scene, 5 * MIB), scene_address(scene, 10));
}

POLICY_TEST(a_block_may_strand_less)
{
    struct heap *heap = heap_sparing(scene, 4);
    (void)extent(scene, heap, 10, 6, 6);
    (void)extent(scene, heap, 20, 8, 4);
    (void)take(scene, 5 * MIB);                     /* strands three granules */
    (void)take(scene, 7 * GRANULE);                 /* ends in the second chunk, and strands one */
    assert_false(scene_split(scene, 20 * GRANULE)); /* nothing fits */
}

POLICY_TEST(partly_live_chunks_stay)
{
    struct heap *heap = &scene->lane->large;
    (void)block_make_live(heap, extent(scene, heap, 10, 8, 8), MIB);
    struct block *before = block_make_live(heap, extent(scene, heap, 20, 4, 4), 3 * GRANULE);
    (void)block_make_live(heap, vmm__heap_cover(heap, scene_address(scene, 23)), GRANULE);
    (void)vmm__heap_give(heap, before);
    (void)heap_sparing(scene, 1);
    assert_int_equal((uintptr_t)take(scene, 2 * MIB), scene_address(scene, 20));
    assert_int_equal((uintptr_t)take(scene, 6 * MIB), scene_address(scene, 10) + MIB);
    assert_int_equal(granules_at(scene, 10), 8);
    assert_int_equal(granules_at(scene, 20), 4);
}

/* ---- Places ------------------------------------------------------------------------------------ */

/* Two idle chunks of eight granules and one, in a row. */
static void row_create(struct scene *scene)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 8, 8);
    (void)extent(scene, heap, 20, 1, 1);
    assert_ok(scene_grow(scene, heap, 9 * GRANULE, GROW_VIEW));
    assert_int_equal(largest_run_bytes(heap), 9 * GRANULE);
    (void)heap_sparing(scene, 4);
}

POLICY_TEST(the_parts_get_the_places_of_their_chunk)
{
    row_create(scene);
    uint64_t place = scene_chunk(scene, 10)->place;
    uint64_t mapped_bytes = scene->driver->mapped_bytes;
    assert_true(scene_split(scene, 5 * MIB));
    assert_int_equal(granules_at(scene, 10), 3);
    assert_int_equal(scene_chunk(scene, 10)->place, place);
    assert_int_equal(scene_chunk(scene, 13)->place, place + 3);
    assert_int_equal(largest_run_bytes(&scene->lane->large), 9 * GRANULE);
    assert_int_equal(scene->driver->mapped_bytes, mapped_bytes);
}

POLICY_TEST(a_block_in_a_view_splits_the_chunk_where_it_ends)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 8, 8);
    (void)extent(scene, heap, 20, 4, 4);
    assert_ok(scene_grow(scene, heap, 12 * GRANULE, GROW_VIEW));
    uint64_t first = scene_chunk(scene, 10)->place < scene_chunk(scene, 20)->place ? 10 : 20;
    (void)heap_sparing(scene, 3);
    refuse(scene, 9 * GRANULE);
    assert_true(scene_split(scene, 9 * GRANULE));
    assert_int_equal(granules_at(scene, first == 10 ? 20 : 10), first == 10 ? 1 : 5);
    assert_int_equal(largest_run_bytes(heap), 12 * GRANULE);
    (void)view_take(heap, 9 * GRANULE);
}

/* The row ends with the free head of a chunk, so the block lies at that side. */
POLICY_TEST(a_block_in_a_view_splits_the_chunk_where_it_begins)
{
    struct heap *heap = &scene->lane->large;
    struct block *before = extent(scene, heap, 30, 2, 2);
    before = block_make_live(heap, before, GRANULE);
    (void)block_make_live(heap, vmm__heap_cover(heap, scene_address(scene, 31)), GRANULE);
    (void)vmm__heap_give(heap, before);
    (void)extent(scene, heap, 10, 4, 4);
    (void)extent(scene, heap, 20, 4, 4);
    assert_ok(scene_grow(scene, heap, 9 * GRANULE, GROW_VIEW));
    assert_int_equal(largest_run_bytes(heap), 9 * GRANULE);
    uint64_t first = scene_chunk(scene, 10)->place < scene_chunk(scene, 20)->place ? 10 : 20;
    (void)heap_sparing(scene, 3);
    refuse(scene, 6 * GRANULE);
    assert_true(scene_split(scene, 6 * GRANULE));
    assert_int_equal(granules_at(scene, first), 3);
    assert_int_equal(granules_at(scene, first + 3), 1);
    (void)view_take(heap, 6 * GRANULE);
    assert_int_equal(largest_free_bytes(heap), 3 * GRANULE);
}

/* ---- Chunks that must stay --------------------------------------------------------------------- */

POLICY_TEST(chunks_with_unfinished_work_stay)
{
    struct heap *heap = heap_sparing(scene, 4);
    struct block *block = block_make_live(heap, extent(scene, heap, 10, 8, 8), 8 * GRANULE);
    (void)block_free_busy(scene, heap, block);
    refuse(scene, 5 * MIB);
    assert_true(scene_split(scene, 5 * MIB));
    assert_int_equal(granules_at(scene, 10), 8);
    refuse(scene, 5 * MIB);
    void *out;
    scene_lock(scene, heap);
    assert_ok(vmm__lane_take_whole_locked(scene->lane, 5 * MIB, &out));
    scene_unlock(scene, heap);
}

POLICY_TEST(chunks_of_retained_pools_stay)
{
    (void)extent(scene, heap_sparing(scene, 4), 10, 8, 8);
    vmm__pool_retain(scene->lane->owner.pool);
    assert_true(scene_split(scene, 5 * MIB));
    assert_ok(vmm__pool_drop(scene->lane->owner.pool));
    assert_int_equal(granules_at(scene, 10), 8);
}

/* ---- Failures ---------------------------------------------------------------------------------- */

/* Whatever failed, the cache is consistent, and memory and addresses can be had again. */
static void scene_use_again(struct scene *scene)
{
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    (void)vmm__host_fail_at(0);
    void *block = block_in(scene->cache, 40 * MIB, STREAM(1));
    assert_ok(vmm_free(scene->cache, block));
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_int_equal(scene_reserved_bytes(scene), 0);
    assert_int_equal(scene->cache->vm.arena.free_granules, SCENE_GRANULES);
    scene_renew(scene);
}

POLICY_TEST(every_driver_call_may_fail)
{
    for (int i = 0; i < 4; i++) {
        bool has_failed = true;
        for (uint64_t call = 1; has_failed; call++) {
            row_create(scene);
            vmm__sim_fail_at(scene->driver, call, i / 2 == 0 ? VMM_ERR_DRIVER : VMM_ERR_DEVICE_OOM,
                             i % 2 != 0);
            assert_true(scene_split(scene, 5 * MIB));
            has_failed = vmm__sim_faults_fired(scene->driver) > 0;
            if (i % 2 == 0) /* what one failure left is tried again at once */
                assert_int_equal(scene->cache->vm.counts.limbo_bytes, 0);
            scene_use_again(scene);
            assert_true(call < 100);
        }
    }
}

POLICY_TEST(every_allocation_may_fail)
{
    bool has_failed = true;
    for (uint64_t number = 1; has_failed; number++) {
        row_create(scene);
        (void)vmm__host_fail_at(number);
        assert_true(scene_split(scene, 5 * MIB));
        has_failed = vmm__host_fail_at(0) >= number;
        scene_use_again(scene);
        assert_true(number < 100);
    }
}
