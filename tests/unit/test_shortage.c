/* What a request that failed for want of memory says: who is in the way, and what would help. */
#include "support/policy_support.h"

#include "policy/shortage.h"

#include <string.h>

/* The line of a failure, as if `granules` had to be had from the driver. */
static const char *told(struct scene *scene, uint64_t granules)
{
    struct shortage shortage = { .status = VMM_ERR_DEVICE_OOM,
                                 .pool = scene->pool,
                                 .bytes = granules * GRANULE,
                                 .grow_bytes = granules * GRANULE };
    vmm__pool_lock(scene->pool);
    assert_status(vmm__shortage_tell(scene->cache, &shortage), VMM_ERR_DEVICE_OOM);
    vmm__pool_unlock(scene->pool);
    return vmm_last_error();
}

static void assert_says(const char *line, const char *part)
{
    if (strstr(line, part) == NULL)
        fail_msg("'%s' is not in: %s", part, line);
}

static void assert_silent(const char *line, const char *part)
{
    if (strstr(line, part) != NULL)
        fail_msg("'%s' is in: %s", part, line);
}

/* ---- What there is --------------------------------------------------------------------------- */

/* Chunks 0 to 5 of 4 granules: free ones, a hole inside one, two holes in one, holes over borders. */
static void chunks_that_live_blocks_pin_are_counted_once(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->other->large;
    static const struct {
        uint64_t granules;
        bool is_live;
    } parts[] = {
        { 4, false },                             /* chunk 0 */
        { 1, true },  { 2, false }, { 1, true },  /* 1 */
        { 1, false }, { 1, true },  { 1, false }, /* 2 */
        { 1, true },  { 3, true },                /* 2, 3 */
        { 7, false }, { 1, true },                /* 3, 4 and 5 */
    };
    enum { PARTS = sizeof parts / sizeof parts[0] };
    struct block *blocks[PARTS];
    struct block *rest = territory(scene, heap, 0, 24, 4);
    for (int i = 0; i < PARTS; i++) {
        blocks[i] = block_lived(heap, rest, parts[i].granules * GRANULE);
        rest = blocks[i]->next;
    }
    for (int i = 0; i < PARTS; i++) {
        if (!parts[i].is_live)
            (void)vmm__heap_give(heap, blocks[i], 0);
    }
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(scene->cache, &stats));
    assert_int_equal(stats.idle_bytes, 8 * GRANULE);
    assert_int_equal(stats.pinned_bytes, 8 * GRANULE); /* 2, 2, 1 and 3 in chunks 1, 2, 3 and 5 */
    assert_says(told(scene, 40), "16.0 MiB idle (0.0 MiB in flight), 16.0 MiB pinned beside live "
                                 "blocks in 4 chunks (most by stream 0x2: 16.0 MiB)");
}

static void the_stream_that_pins_most_is_named(void **state)
{
    struct scene *scene = *state;
    struct heap *heaps[] = { &scene->pool->large, &scene->other->large, &scene->other->small };
    for (uint64_t i = 0; i < 3; i++)
        (void)block_lived(heaps[i], territory(scene, heaps[i], 10 * i, 1, 1), GRANULE / 2);
    assert_says(told(scene, 40), "3.0 MiB pinned beside live blocks in 3 chunks (most by stream "
                                 "0x2: 2.0 MiB)");
}

static void nobody_is_named_when_nothing_is_pinned(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 0, 4, 2);
    const char *line = told(scene, 40);
    assert_says(line, "8.0 MiB idle (0.0 MiB in flight), 0.0 MiB pinned beside live blocks in 0 "
                      "chunks, largest hole 8.0 MiB");
    assert_silent(line, "most by");
}

static void idle_memory_in_flight_is_told(void **state)
{
    struct scene *scene = *state;
    struct heap *other = &scene->other->large;
    struct block *block = block_lived(other, territory(scene, other, 20, 4, 1), 3 * GRANULE);
    (void)block_given_busy(scene, other, block);
    assert_says(told(scene, 40), "8.0 MiB idle (6.0 MiB in flight)");
}

/* ---- What would help ------------------------------------------------------------------------- */

static void a_limit_that_is_raised_so_far_will_do(void **state)
{
    struct scene *scene = *state;
    struct memory *memory = &scene->cache->memory;
    void *block;
    void *more;
    memory->limit_bytes = 9 * GRANULE + 12345;
    assert_ok(vmm_alloc(scene->cache, 5 * GRANULE, STREAM(2), &block));
    assert_status(vmm_alloc(scene->cache, 7 * GRANULE - 1, STREAM(1), &more), VMM_ERR_DEVICE_OOM);
    assert_says(vmm_last_error(), "18.0 MiB (limit)");
    assert_says(vmm_last_error(), "; the limit is 6.0 MiB too small"); /* 3 granules less a bit */
    memory->limit_bytes = 12 * GRANULE - 1;
    assert_status(vmm_alloc(scene->cache, 7 * GRANULE - 1, STREAM(1), &more), VMM_ERR_DEVICE_OOM);
    memory->limit_bytes = 12 * GRANULE;
    assert_ok(vmm_alloc(scene->cache, 7 * GRANULE - 1, STREAM(1), &more));
}

static void a_device_that_is_too_small_is_told(void **state)
{
    struct scene *scene = *state;
    const char *line = told(scene, SCENE_GRANULES / 2 + 3);
    assert_says(line, "0.0 MiB reserved of 64.0 MiB (device)");
    assert_says(line, "; the device is 6.0 MiB too small");
}

/* As another process would hold it. */
static void memory_that_others_hold_is_told(void **state)
{
    struct scene *scene = *state;
    uint64_t handle = sim_created(scene->driver, 20 * GRANULE);
    void *out;
    assert_status(vmm_alloc(scene->cache, 15 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_says(vmm_last_error(), "; others than this cache hold 40.0 MiB of the device's memory, "
                                  "6.0 MiB of it too much");
    scene->cache->memory.limit_bytes = 16 * GRANULE;
    assert_status(vmm_alloc(scene->cache, 15 * GRANULE, STREAM(1), &out), VMM_ERR_DEVICE_OOM);
    assert_says(vmm_last_error(), "; others than this cache hold 8.0 MiB of the device's memory, "
                                  "6.0 MiB of it too much");
    assert_ok(vmm__driver_release(scene->driver, handle, 20 * GRANULE));
}

static void a_driver_that_refuses_for_no_reason_is_told(void **state)
{
    struct scene *scene = *state;
    assert_says(told(scene, 3), "; the driver refuses though 64.0 MiB are free");
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    const char *line = told(scene, 3);
    assert_silent(line, "free");
    assert_says(line, "in limbo");
}

static void compaction_is_spoken_of_where_it_would_do(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    for (uint64_t i = 0; i < 4; i++)
        (void)block_lived(heap, territory(scene, heap, 10 * i, 1, 1), GRANULE / 2);
    scene->cache->memory.limit_bytes = 4 * GRANULE;
    scene->cache->compaction = VMM_COMPACTION_OFF;
    assert_says(told(scene, 2), "; compaction, which is off, might free pinned memory");
    assert_silent(told(scene, 3), "compaction");
    scene->cache->compaction = VMM_COMPACTION_AUTO;
    assert_silent(told(scene, 2), "compaction");
    scene->cache->has_callers = true;
    assert_says(told(scene, 2), "; compaction, which stopped when a second thread called, might");
}

static void addresses_that_run_out_are_told(void **state)
{
    struct scene *scene = *state;
    struct shortage shortage = { .status = VMM_ERR_ADDRESS_SPACE,
                                 .pool = scene->pool,
                                 .bytes = GRANULE,
                                 .grow_bytes = GRANULE };
    assert_status(vmm__shortage_tell(scene->cache, &shortage), VMM_ERR_ADDRESS_SPACE);
    assert_says(vmm_last_error(), "; the arena of 128.0 MiB has too few addresses left in a row");
}

/* ---- The line -------------------------------------------------------------------------------- */

/* Every part at once, with long numbers: nothing is cut off. */
static void the_longest_line_fits(void **state)
{
    struct scene *scene = *state;
    struct memory *memory = &scene->cache->memory;
    struct heap *heap = &scene->pool->large;
    (void)block_lived(heap, territory(scene, heap, 10, 1, 1), GRANULE / 2);
    vmm__figure_add(&scene->cache->ledger.requested_bytes, TIB);
    vmm__figure_add(&memory->reserved_bytes, TIB);
    uint64_t total_bytes = scene->driver->total_bytes;
    scene->driver->total_bytes = 4 * TIB;
    memory->limit_bytes = 2 * TIB;
    memory->limbo_bytes = TIB;
    scene->cache->compaction = VMM_COMPACTION_OFF;
    scene->pool->stream = (vmm_stream)UINTPTR_MAX;
    uint64_t handle = sim_created(scene->driver, 4 * TIB - GRANULE);
    const char *line = told(scene, 1);
    scene->pool->stream = STREAM(1);
    vmm__figure_subtract(&scene->cache->ledger.requested_bytes, TIB);
    vmm__figure_subtract(&memory->reserved_bytes, TIB);
    memory->limbo_bytes = 0;
    assert_says(line, "others than this cache hold 1048574.0 MiB");
    assert_silent(line, "might free pinned memory"); /* half a granule of two MiB is too little */
    assert_true(strlen(line) < 440);
    line = told(scene, 0);
    assert_says(line, "might free pinned memory");
    assert_null(strchr(line, '\n'));
    assert_ok(vmm__driver_release(scene->driver, handle, 4 * TIB - GRANULE));
    scene->driver->total_bytes = total_bytes;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(chunks_that_live_blocks_pin_are_counted_once),
        POLICY_TEST(the_stream_that_pins_most_is_named),
        POLICY_TEST(nobody_is_named_when_nothing_is_pinned),
        POLICY_TEST(idle_memory_in_flight_is_told),
        POLICY_TEST(a_limit_that_is_raised_so_far_will_do),
        POLICY_TEST(a_device_that_is_too_small_is_told),
        POLICY_TEST(memory_that_others_hold_is_told),
        POLICY_TEST(a_driver_that_refuses_for_no_reason_is_told),
        POLICY_TEST(compaction_is_spoken_of_where_it_would_do),
        POLICY_TEST(addresses_that_run_out_are_told),
        POLICY_TEST(the_longest_line_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
