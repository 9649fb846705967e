/*
 * A whole cache on a small sim device, with its insides open: 64 MiB of memory, an arena of 64
 * granules, two lanes of streams 1 and 2. The test lays out extents by hand.
 *
 * Use POLICY_TEST(name), in which `scene` is that. The teardown destroys the cache and checks that
 * nothing is left. One thread: a test takes locks only where the library asserts them.
 */
#ifndef VMM_POLICY_SUPPORT_H
#define VMM_POLICY_SUPPORT_H

#include "support/lane_support.h"
#include "support/made_support.h"
#include "support/sim_support.h"

#include "cache/cache.h"
#include "cache/grow/grow.h"
#include "cache/streams.h"
#include "lane/views.h"

#define POLICY_TEST(name) TEST_WITH(name, scene_setup, scene_teardown, struct scene *scene)

enum { SCENE_GRANULES = 64 };

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    struct lane *lane;
    struct lane *other;
};

static inline void scene_open(struct scene *scene, vmm_config config)
{
    struct driver_options options = { .device_bytes = SCENE_GRANULES / 2 * GRANULE };
    config.arena_bytes = SCENE_GRANULES * GRANULE; /* twice the device */
    *scene = (struct scene){ .cache = NULL };
    assert_ok(vmm__driver_sim_open(&options, &scene->driver));
    assert_ok(vmm__cache_create_on(&config, scene->driver, &scene->cache));
    assert_int_equal(scene->cache->vm.arena.granules, SCENE_GRANULES);
    assert_ok(vmm__stream_lane(scene->cache, STREAM(1), &scene->lane));
    assert_ok(vmm__stream_lane(scene->cache, STREAM(2), &scene->other));
}

static inline int scene_setup(void **state)
{
    static struct scene scene;
    scene_open(&scene, CONFIG(.limit_bytes = 0));
    *state = &scene;
    return 0;
}

static inline int scene_teardown(void **state)
{
    struct scene *scene = *state;
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    vmm__sim_lag_set(scene->driver, 0);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__cache_check(scene->cache));
    assert_ok(vmm_destroy(scene->cache));
    sim_assert_clean(scene->driver);
    assert_true(sim_census_is_zero(scene->driver));
    vmm__driver_close(scene->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    return 0;
}

/* Ends the scene as the end of a test does, and starts anew at the same place. */
static inline void scene_renew(struct scene *scene)
{
    void *state = scene;
    assert_int_equal(scene_teardown(&state), 0);
    assert_int_equal(scene_setup(&state), 0);
}

/* The same with a cache of another configuration. */
static inline void scene_renew_as(struct scene *scene, vmm_config config)
{
    void *state = scene;
    assert_int_equal(scene_teardown(&state), 0);
    scene_open(scene, config);
}

static inline uint64_t scene_address(const struct scene *scene, uint64_t granule)
{
    return vmm__arena_address(&scene->cache->vm.arena, granule);
}

static inline struct chunk *scene_chunk(const struct scene *scene, uint64_t granule)
{
    return vmm__vm_chunk(&scene->cache->vm, granule);
}

/* New memory for a heap; returns the free block that it is part of. */
static inline struct block *extent(struct scene *scene, struct heap *heap, uint64_t granule,
                                   uint64_t count, uint32_t chunk_granules)
{
    struct vm *memory = &scene->cache->vm;
    uint64_t address = scene_address(scene, granule);
    vmm__lanes_touch(&scene->cache->lanes, heap->lane);
    vmm__arena_take(&memory->arena, granule, count);
    assert_ok(
        vmm__vm_map(memory, &heap->lane->owner.pool->account, granule, count, chunk_granules));
    assert_ok(vmm__vm_access(memory, granule, count));
    assert_ok(vmm__heap_attach(heap, address, count * GRANULE, 0));
    return vmm__heap_cover(heap, address);
}

/* Makes the low end of a free block a live block. */
static inline struct block *block_make_live(struct heap *heap, struct block *block, uint64_t bytes)
{
    struct block *out;
    assert_ok(vmm__heap_take_edge(heap, block, block->address, bytes, &out));
    return out;
}

/* Submits work on the block that lasts until the host waits, then frees the block. */
static inline struct block *block_free_busy(struct scene *scene, struct heap *heap,
                                            struct block *block)
{
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, block->address, block->node.size, 1, heap->lane->owner.stream);
    return vmm__heap_give(heap, block);
}

static inline uint64_t scene_reserved_bytes(const struct scene *scene)
{
    return vmm__stat_now(&scene->cache->vm.reserved_bytes);
}

/* The size of the largest free block of a heap, and of its largest run in a view. */
static inline uint64_t largest_free_bytes(const struct heap *heap)
{
    const struct size_node *node = vmm__size_index_largest(&heap->index);
    return node == NULL ? 0 : node->size;
}

static inline uint64_t largest_run_bytes(const struct heap *heap)
{
    const struct size_node *node =
        heap->view_chunks > 0 ? vmm__size_index_largest(heap->runs) : NULL;
    return node == NULL ? 0 : node->size;
}

/* As a refill of the heap does. The lane counts as stocked. */
static inline void scene_lock(struct scene *scene, const struct heap *heap)
{
    vmm__lanes_touch(&scene->cache->lanes, heap->lane);
    vmm__fair_lock(&scene->cache->grow_lock);
    vmm__lane_lock(heap->lane);
}

static inline void scene_unlock(struct scene *scene, const struct heap *heap)
{
    vmm__lane_unlock(heap->lane);
    vmm__fair_unlock(&scene->cache->grow_lock);
}

/* Grows a heap and checks all invariants afterwards, on success and on failure. */
static inline vmm_status scene_grow(struct scene *scene, struct heap *heap, uint64_t bytes,
                                    enum grow_from from)
{
    scene_lock(scene, heap);
    const struct request request = { .heap = heap, .block_bytes = bytes, .from = from };
    vmm_status status = vmm__grow(scene->cache, &request);
    scene_unlock(scene, heap);
    if (status == VMM_OK)
        assert_true(largest_free_bytes(heap) >= bytes || largest_run_bytes(heap) >= bytes);
    assert_ok(vmm__cache_check(scene->cache));
    return status;
}

/* Takes a block of a view. */
static inline struct block *view_take(struct heap *heap, uint64_t bytes)
{
    struct block *block;
    assert_ok(vmm__views_take(heap, bytes, SEARCH_QUICK, &block));
    assert_int_equal(block->node.size, bytes);
    assert_true(block->is_in_view);
    return block;
}

static inline uint64_t creates(const struct scene *scene)
{
    return vmm__driver_calls(scene->driver, DRIVER_CALL_create);
}

#endif
