/* Occupancy scans: which chunks are live in part, which granules are free, and which chunks are pinned. */
#include "support/live_support.h"

#include "cache/compact/occupancy_scan.h"

static struct occupancy_scan scan(struct scene *scene)
{
    struct occupancy_scan occupancy_scan;
    assert_ok(vmm__occupancy_scan_begin(scene->cache, &occupancy_scan));
    return occupancy_scan;
}

static const struct partly *partly_find(const struct occupancy_scan *occupancy_scan,
                                        const struct chunk *chunk)
{
    for (uint64_t i = 0; i < occupancy_scan->count; i++) {
        if (occupancy_scan->chunks[i].chunk == chunk)
            return &occupancy_scan->chunks[i];
    }
    return NULL;
}

LIVE_TEST(granules_without_live_bytes_are_free)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 5, 5);
    (void)live_block_at(scene, heap, scene_address(scene, 11) - 512, GRANULE + 1024);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(vmm__occupancy_granule_is_free(heap, 10 + i), i >= 3);
}

LIVE_TEST(chunks_live_in_part_are_listed_once)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 4, 4, 4); /* idle */
    (void)extent(scene, heap, 10, 4, 4);
    (void)live_block_at(scene, heap, scene_address(scene, 10), 4 * GRANULE); /* full */
    (void)extent(scene, heap, 20, 8, 8); /* a hole at each end and one inside */
    (void)live_block_at(scene, heap, scene_address(scene, 21), GRANULE);
    (void)live_block_at(scene, heap, scene_address(scene, 24), GRANULE);
    (void)extent(scene, &scene->other->large, 30, 6, 2); /* live, idle, live chunks */
    (void)live_block_at(scene, &scene->other->large, scene_address(scene, 30), 512);
    (void)live_block_at(scene, &scene->other->large, scene_address(scene, 36) - 512, 512);
    struct occupancy_scan occupancy_scan = scan(scene);
    assert_int_equal(occupancy_scan.count, 3);
    assert_null(partly_find(&occupancy_scan, scene_chunk(scene, 4)));
    assert_null(partly_find(&occupancy_scan, scene_chunk(scene, 10)));
    assert_null(partly_find(&occupancy_scan, scene_chunk(scene, 32)));
    assert_int_equal(partly_find(&occupancy_scan, scene_chunk(scene, 20))->live_granules, 2);
    assert_ptr_equal(partly_find(&occupancy_scan, scene_chunk(scene, 20))->heap, heap);
    assert_int_equal(partly_find(&occupancy_scan, scene_chunk(scene, 30))->live_granules, 1);
    assert_int_equal(partly_find(&occupancy_scan, scene_chunk(scene, 34))->live_granules, 1);
    vmm__occupancy_scan_end(&occupancy_scan);
}

LIVE_TEST(small_heaps_and_slabs_are_scanned)
{
    void *objects[2];
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &objects[0]));
    assert_ok(vmm_alloc(scene->cache, 100, STREAM(1), &objects[1]));
    void *block = block_in(scene->cache, 300000, STREAM(1));
    const struct heap *heap = &scene->lane->small;
    uint64_t granule = vmm__arena_granule(&scene->cache->vm.arena, (uintptr_t)block);
    assert_false(vmm__occupancy_granule_is_free(heap, granule));
    struct occupancy_scan occupancy_scan = scan(scene);
    assert_int_equal(occupancy_scan.count, 1);
    assert_false(occupancy_scan.chunks[0].is_pinned);
    vmm__occupancy_scan_end(&occupancy_scan);
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_pin(scene->cache, objects[i]));
    assert_true(vmm__chunk_has_pinned(scene->cache, heap, scene_chunk(scene, granule)));
    assert_ok(vmm_unpin(scene->cache, objects[0]));
    assert_ok(vmm_free(scene->cache, objects[1])); /* vmm_free() ends the pin */
    assert_false(vmm__chunk_has_pinned(scene->cache, heap, scene_chunk(scene, granule)));
    assert_ok(vmm_pin(scene->cache, block));
    occupancy_scan = scan(scene);
    assert_true(occupancy_scan.chunks[0].is_pinned);
    vmm__occupancy_scan_end(&occupancy_scan);
    assert_ok(vmm_free(scene->cache, block));
    assert_ok(vmm_free(scene->cache, objects[0]));
    assert_false(vmm__chunk_has_pinned(scene->cache, heap, scene_chunk(scene, granule)));
}

/* A block across two chunks pins both. */
LIVE_TEST(a_pin_covers_every_chunk_of_the_block)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 6, 2);
    live_block_pin(heap, live_block_at(scene, heap, scene_address(scene, 12) - 512, 1024));
    struct occupancy_scan occupancy_scan = scan(scene);
    assert_int_equal(occupancy_scan.count, 2);
    assert_true(occupancy_scan.chunks[0].is_pinned && occupancy_scan.chunks[1].is_pinned);
    vmm__occupancy_scan_end(&occupancy_scan);
    assert_false(vmm__chunk_has_pinned(scene->cache, heap, scene_chunk(scene, 14)));
}

LIVE_TEST(missing_host_memory_is_reported)
{
    struct occupancy_scan occupancy_scan = scan(scene);
    assert_int_equal(occupancy_scan.count, 0);
    vmm__occupancy_scan_end(&occupancy_scan);
    (void)live_block_place(scene, &scene->lane->large, 10, 0, 1);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__occupancy_scan_begin(scene->cache, &occupancy_scan), VMM_ERR_HOST_OOM);
}
