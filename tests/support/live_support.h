/*
 * Live blocks with known contents at chosen places of a scene, for tests of what moves them.
 *
 * Use LIVE_TEST(test): a POLICY_TEST whose list of live blocks starts empty; the end checks all.
 */
#ifndef VMM_LIVE_SUPPORT_H
#define VMM_LIVE_SUPPORT_H

#include "support/policy_support.h"

#include "policy/compact.h"
#include "policy/mesh.h"
#include "policy/ring.h"

#define LIVE_TEST(name) cmocka_unit_test_setup_teardown(name, live_setup, live_teardown)

enum { LIVES_MOST = 96, PART_BYTES = 4096 };

struct live {
    struct heap *heap;
    uint64_t address; /* 0: given back */
    uint64_t bytes;
};

static struct live lives[LIVES_MOST];
static unsigned live_count;

/* What a block at an address holds. */
static inline uint32_t live_word(uint64_t address)
{
    return (uint32_t)(address >> 9) | 1;
}

static inline void lives_checked(struct scene *scene)
{
    for (unsigned i = 0; i < live_count; i++) {
        const struct live *live = &lives[i];
        if (live->address != 0)
            sim_checked(scene->driver, live->address, live->bytes, live_word(live->address),
                        live->heap->pool->stream);
    }
    if (sim_mismatches(scene->driver) != 0)
        fail_msg("%s", vmm__sim_mismatch(scene->driver));
    assert_ok(vmm__cache_check(scene->cache));
}

static inline int live_setup(void **state)
{
    live_count = 0;
    return scene_setup(state);
}

static inline int live_teardown(void **state)
{
    struct scene *scene = *state;
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    vmm__memory_mend(&scene->cache->memory);
    lives_checked(scene);
    return scene_teardown(state);
}

/* Makes free bytes of a heap a live block that is filled. */
static inline struct block *lived_at(struct scene *scene, struct heap *heap, uint64_t address,
                                     uint64_t bytes)
{
    assert_ok(vmm__heap_lend(heap, address, bytes)); /* which cuts them out of the free block */
    struct block *block = vmm__heap_cover(heap, address);
    block->state = BLOCK_LIVE;
    block->requested_bytes = bytes;
    sim_filled(scene->driver, address, bytes, live_word(address), heap->pool->stream);
    assert_true(live_count < LIVES_MOST);
    lives[live_count++] = (struct live){ .heap = heap, .address = address, .bytes = bytes };
    return block;
}

/* Keeps a live block's bytes where they are. */
static inline void live_pinned(struct heap *heap, const struct block *block)
{
    assert_ok(vmm__pool_pin_locked(heap, block->address, true));
}

static inline void live_given(struct scene *scene, uint64_t address)
{
    for (unsigned i = 0; i < live_count; i++) {
        struct live *live = &lives[i];
        if (live->address != address)
            continue;
        struct block *block = vmm__heap_cover(live->heap, address);
        assert_int_equal(block->address, address);
        assert_ok(vmm__pool_pin_locked(live->heap, address, false));
        (void)vmm__heap_give(live->heap, block, vmm__timeline_now(&live->heap->pool->timeline));
        live->address = 0;
    }
    assert_ok(vmm__cache_check(scene->cache));
}

/* A granule of a heap in a chunk of its own, live in some of its parts. */
static inline struct block *place_lived(struct scene *scene, struct heap *heap, uint64_t granule,
                                        unsigned part, unsigned parts)
{
    (void)territory(scene, heap, granule, 1, 1);
    return lived_at(scene, heap, scene_address(scene, granule) + (uint64_t)part * PART_BYTES,
                    (uint64_t)parts * PART_BYTES);
}

static inline struct chunk *scene_chunk(struct scene *scene, uint64_t granule)
{
    return vmm__memory_chunk(&scene->cache->memory, granule);
}

/* The handle that a place is mapped to. */
static inline uint64_t place_handle(struct scene *scene, uint64_t granule)
{
    const struct memory *memory = &scene->cache->memory;
    const struct chunk *chunk = scene_chunk(scene, granule);
    while (chunk->is_alias)
        chunk = &memory->records[chunk->twin];
    return chunk->handle;
}

static inline vmm_status compacted(struct scene *scene, uint64_t bytes)
{
    vmm_status status = vmm__compact(scene->cache, NULL, bytes);
    assert_ok(vmm__cache_check(scene->cache));
    return status;
}

/* Meshes by hand what a survey finds. */
static inline void scene_meshed(struct scene *scene)
{
    struct survey survey;
    assert_ok(vmm__driver_device_wait(scene->driver));
    assert_ok(vmm__survey_take(scene->cache, &survey));
    assert_ok(vmm__mesh(scene->cache, &survey, UINT64_MAX));
    vmm__survey_end(&survey);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
    assert_ok(vmm__cache_check(scene->cache));
}

#endif
