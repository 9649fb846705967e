/*
 * The layers below the cache, assembled by hand on a small sim device: 64 MiB of memory, an arena
 * of 64 granules, two lanes of streams 1 and 2 with clocks of their own.
 *
 * Use ENGINE_TEST(name), in which `engine` is that. The teardown checks the
 * layers, releases all memory and checks that nothing is left.
 */
#ifndef VMM_ENGINE_SUPPORT_H
#define VMM_ENGINE_SUPPORT_H

#include "support/lane_support.h"
#include "support/sim_support.h"

#include "lane/lane.h"
#include "lane/views.h"
#include "vm/vm.h"

#include <stdlib.h>

#define ENGINE_TEST(name) TEST_WITH(name, engine_setup, engine_teardown, struct engine *engine)

enum { ENGINE_GRANULES = 64 };

#define ENGINE_LIMITS                                                                              \
    (struct memory_limits)                                                                         \
    {                                                                                              \
        .first_arena_bytes = ENGINE_GRANULES * GRANULE, .arena_bytes = ENGINE_GRANULES * GRANULE   \
    }

struct engine {
    struct driver *driver;
    struct events events;
    struct clock clock;
    struct vm memory;
    struct directory directory;
    struct views views;
    struct pool pool;
    struct lane *lane;
    struct lane *other;
};

static inline int engine_setup(void **state)
{
    struct driver_options options = { .device_bytes = ENGINE_GRANULES / 2 * GRANULE };
    struct engine *engine = calloc(1, sizeof *engine);
    *state = engine;
    assert_ok(vmm__driver_sim_open(&options, &engine->driver));
    assert_ok(vmm__vm_init(&engine->memory, engine->driver, ENGINE_LIMITS));
    assert_int_equal(engine->memory.arena.granules, ENGINE_GRANULES);
    vmm__events_init(&engine->events, engine->driver);
    vmm__clock_init(&engine->clock, engine->driver, &engine->events, NULL, VMM_CLOCK_CONTEXT);
    assert_ok(vmm__directory_init(&engine->directory, &engine->memory.arena, &engine->clock));
    engine->directory.has_own_clocks = true;
    assert_ok(vmm__views_init(&engine->views, &engine->memory, &engine->directory));
    engine->pool.account.name = "engine";
    vmm__account_add(&engine->memory, &engine->pool.account);
    assert_ok(vmm__lane_open(STREAM(1), &engine->directory, &engine->pool, &engine->lane));
    assert_ok(vmm__lane_open(STREAM(2), &engine->directory, &engine->pool, &engine->other));
    return 0;
}

/* Files the runs of changed chunks anew first, as vmm__lane_lock() does. */
static inline void engine_check(struct engine *engine)
{
    vmm__views_update(&engine->lane->large);
    vmm__views_update(&engine->other->large);
    assert_ok(vmm__vm_check(&engine->memory));
    assert_ok(lane_check(engine->lane));
    assert_ok(lane_check(engine->other));
}

static inline int engine_teardown(void **state)
{
    struct engine *engine = *state;
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    engine_check(engine);
    assert_int_equal(mismatches(engine->driver), 0);
    vmm__directory_fini(&engine->directory);
    vmm__lane_close(engine->lane);
    vmm__lane_close(engine->other);
    vmm__views_fini(&engine->views);
    assert_ok(vmm__vm_fini(&engine->memory));
    assert_ok(vmm__clock_fini(&engine->clock));
    assert_ok(vmm__events_fini(&engine->events));
    sim_assert_clean(engine->driver);
    assert_true(sim_census_is_zero(engine->driver));
    vmm__driver_close(engine->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    free(engine);
    return 0;
}

static inline uint64_t engine_address(const struct engine *engine, uint64_t granule)
{
    return vmm__arena_address(&engine->memory.arena, granule);
}

/* New memory, ready for use. */
static inline void engine_map(struct engine *engine, uint64_t granule, uint64_t count,
                              uint32_t chunk_granules)
{
    vmm__arena_take(&engine->memory.arena, granule, count);
    assert_ok(vmm__vm_map(&engine->memory, &engine->pool.account, granule, count, chunk_granules));
    assert_ok(vmm__vm_access(&engine->memory, granule, count));
}

/* The same for a heap; returns the free block that it is part of. */
static inline struct block *engine_attach(struct engine *engine, struct heap *heap,
                                          uint64_t granule, uint64_t count, uint32_t chunk_granules)
{
    uint64_t address = engine_address(engine, granule);
    engine_map(engine, granule, count, chunk_granules);
    assert_ok(vmm__heap_attach(heap, address, count * GRANULE, 0));
    return vmm__heap_cover(heap, address);
}

static inline struct block *heap_take(struct heap *heap, uint64_t bytes)
{
    struct block *block;
    assert_ok(vmm__heap_take(heap, bytes, SEARCH_QUICK, &block));
    assert_int_equal(block->node.size, bytes);
    assert_int_equal(block->state, BLOCK_LIVE);
    return block;
}

static inline uint64_t engine_reserved_bytes(const struct engine *engine)
{
    return vmm__stat_now(&engine->memory.reserved_bytes);
}

static inline struct chunk *engine_chunk(const struct engine *engine, uint64_t granule)
{
    return vmm__vm_chunk(&engine->memory, granule);
}

/* Maps a chunk of a heap, which has its home at `home`, also at `granule`, as part of a view. */
static inline void engine_place(struct engine *engine, struct heap *heap, uint64_t home,
                                uint64_t granule, uint64_t view)
{
    struct chunk *chunk = engine_chunk(engine, home);
    engine->views.last_view = vmm__max(engine->views.last_view, view);
    assert_ok(vmm__views_open(heap));
    vmm__arena_take(&engine->memory.arena, granule, chunk->granules);
    assert_ok(vmm__place_map(&engine->memory, chunk, granule));
    assert_ok(vmm__vm_access(&engine->memory, granule, chunk->granules));
    vmm__views_place_add(heap, chunk, granule, view);
    engine_check(engine);
}

static inline void engine_unplace(struct engine *engine, struct heap *heap, uint64_t granule)
{
    assert_ok(vmm__views_place_unmap(heap, engine_chunk(engine, granule), granule));
    engine_check(engine);
}

/* Counts the places that are the first or last of their row. */
static inline unsigned engine_ends(const struct engine *engine)
{
    return (unsigned)engine->views.end_count;
}

/* Drains limbo; returns the released bytes. */
static inline uint64_t engine_drain(struct engine *engine)
{
    uint64_t released = 0;
    assert_ok(vmm__limbo_drain(&engine->memory, &released));
    engine_check(engine);
    return released;
}

/* Requires that each chunk in use is mapped at its address. */
static inline void engine_assert_nothing_remap_pending(struct engine *engine)
{
    assert_int_equal(engine->memory.remap_pending, 0);
    engine_check(engine);
}

/* Work that goes on until mismatches() or a wait of the host. */
static inline void engine_make_busy(struct engine *engine, uint64_t address, uint64_t bytes,
                                    unsigned stream)
{
    vmm__sim_lag_set(engine->driver, UINT64_C(1) << 40);
    memory_fill(engine->driver, address, bytes, 1, STREAM(stream));
}

#endif
