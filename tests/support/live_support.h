/*
 * Live blocks with known contents at chosen places of a scene, for tests of what moves them.
 *
 * Use LIVE_TEST(name): a POLICY_TEST whose list of live blocks starts empty; the end checks all.
 */
#ifndef VMM_LIVE_SUPPORT_H
#define VMM_LIVE_SUPPORT_H

#include "support/policy_support.h"

#include "cache/compact/compact.h"

#define LIVE_TEST(name) TEST_WITH(name, live_setup, live_teardown, struct scene *scene)

enum { LIVES_MOST = 96, PART_BYTES = 4096 };

struct live {
    struct heap *heap;
    uint64_t address; /* 0: freed */
    uint64_t bytes;
};

static struct live lives[LIVES_MOST];
static unsigned live_count;

/* The contents of a live block at an address. */
static inline uint32_t live_word(uint64_t address)
{
    return (uint32_t)(address >> 9) | 1;
}

static inline void live_blocks_check(struct scene *scene)
{
    for (unsigned i = 0; i < live_count; i++) {
        const struct live *live = &lives[i];
        if (live->address != 0)
            memory_check(scene->driver, live->address, live->bytes, live_word(live->address),
                         live->heap->lane->owner.stream);
    }
    if (mismatches(scene->driver) != 0)
        fail_msg("%s", vmm__sim_mismatch(scene->driver));
    assert_ok(vmm__cache_check(scene->cache));
}

static inline int live_setup(void **state)
{
    live_count = 0;
    int status = scene_setup(state);
    ((struct scene *)*state)->cache->compaction = VMM_ON;
    return status;
}

static inline int live_teardown(void **state)
{
    struct scene *scene = *state;
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    vmm__vm_remap_pending(&scene->cache->vm);
    live_blocks_check(scene);
    return scene_teardown(state);
}

/* Ends the scene as the end of a test does, and starts anew at the same place. */
static inline void live_renew(struct scene *scene)
{
    void *state = scene;
    assert_int_equal(live_teardown(&state), 0);
    assert_int_equal(live_setup(&state), 0);
}

/* Makes free bytes of a heap a live block and fills it. */
static inline struct block *live_block_at(struct scene *scene, struct heap *heap, uint64_t address,
                                          uint64_t bytes)
{
    assert_ok(vmm__heap_records_keep(heap, 2));
    vmm__heap_settle(heap);
    struct block *block = vmm__heap_take_at(heap, address, bytes);
    block->requested_bytes = bytes;
    memory_fill(scene->driver, address, bytes, live_word(address), heap->lane->owner.stream);
    assert_true(live_count < LIVES_MOST);
    lives[live_count++] = (struct live){ .heap = heap, .address = address, .bytes = bytes };
    return block;
}

/* Takes a block of a view and fills it. */
static inline struct block *live_view_take(struct scene *scene, struct heap *heap, uint64_t bytes)
{
    struct block *block = view_take(heap, bytes);
    block->requested_bytes = bytes;
    memory_fill(scene->driver, block->address, bytes, live_word(block->address),
                heap->lane->owner.stream);
    assert_true(live_count < LIVES_MOST);
    lives[live_count++] = (struct live){ .heap = heap, .address = block->address, .bytes = bytes };
    return block;
}

/* Pins a live block, so that compaction does not move it. */
static inline void live_block_pin(struct heap *heap, const struct block *block)
{
    assert_ok(lane_pin(heap, block->address, true));
}

static inline void live_block_free(struct scene *scene, uint64_t address)
{
    for (unsigned i = 0; i < live_count; i++) {
        struct live *live = &lives[i];
        if (live->address != address)
            continue;
        struct block *block = vmm__heap_find(live->heap, address);
        assert_non_null(block);
        assert_ok(lane_pin(live->heap, address, false));
        (void)vmm__heap_give(live->heap, block);
        live->address = 0;
    }
    assert_ok(vmm__cache_check(scene->cache));
}

/* A granule of a heap in a chunk of its own, live in some of its parts. */
static inline struct block *live_block_place(struct scene *scene, struct heap *heap,
                                             uint64_t granule, unsigned part, unsigned parts)
{
    (void)extent(scene, heap, granule, 1, 1);
    return live_block_at(scene, heap, scene_address(scene, granule) + (uint64_t)part * PART_BYTES,
                         (uint64_t)parts * PART_BYTES);
}

/* The handle that is mapped at a granule. */
static inline uint64_t place_handle(struct scene *scene, uint64_t granule)
{
    return scene_chunk(scene, granule)->handle;
}

static inline vmm_status scene_compact(struct scene *scene, uint64_t bytes)
{
    vmm__fair_lock(&scene->cache->grow_lock);
    vmm_status status = vmm__compact(scene->cache, NULL, NULL, bytes);
    vmm__fair_unlock(&scene->cache->grow_lock);
    assert_ok(vmm__cache_check(scene->cache));
    return status;
}

#endif
