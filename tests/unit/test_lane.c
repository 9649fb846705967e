/* Lanes: the heap of each size, the counters, and frees that succeed only once. */
#include "support/engine_support.h"

static const uint64_t sizes[] = { 0, 1, 512, 8192, 8193, MIB, MIB + 1, 5 * MIB };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void lane_feed(struct engine *engine)
{
    (void)engine_attach(engine, &engine->lane->small, 0, 4, 1);
    (void)engine_attach(engine, &engine->lane->large, 20, 8, 4);
}

static uint64_t take(struct engine *engine, uint64_t bytes)
{
    void *block;
    assert_ok(lane_take(engine->lane, bytes, &block));
    return (uint64_t)(uintptr_t)block;
}

static struct heap *heap_of(struct engine *engine, uint64_t address)
{
    return vmm__directory_heap(&engine->directory, address);
}

static vmm_status give(struct engine *engine, uint64_t address)
{
    return lane_give(engine->lane, heap_of(engine, address), address);
}

static vmm_status use(struct engine *engine, uint64_t address, struct lane *other)
{
    return lane_use(engine->lane, heap_of(engine, address), address, other);
}

static void assert_counters(struct engine *engine, uint64_t requested, uint64_t count)
{
    assert_int_equal(engine->lane->counters.requested_bytes.current, requested);
    assert_int_equal(engine->lane->counters.allocations.current, count);
}

ENGINE_TEST(size_decides_the_heap)
{
    struct heap *heap;
    uint64_t bytes;
    for (int i = 0; i < SIZES; i++) {
        assert_true(vmm__lane_need(engine->lane, sizes[i], &heap, &bytes));
        assert_ptr_equal(heap, sizes[i] <= MIB ? &engine->lane->small : &engine->lane->large);
        assert_true(bytes >= sizes[i] && bytes % heap->unit_bytes == 0);
    }
    assert_false(vmm__lane_need(engine->lane, UINT64_MAX, &heap, &bytes));
    uint64_t largest = UINT64_MAX - 16 * KIB + 1;
    assert_false(vmm__lane_need(engine->lane, largest + 1, &heap, &bytes));
    assert_true(vmm__lane_need(engine->lane, largest, &heap, &bytes));
}

/* So that a block which replaces a slightly smaller one has mostly the same size. */
ENGINE_TEST(sizes_have_steps)
{
    static const struct {
        uint64_t bytes;
        uint64_t block_bytes;
    } rounded[] = {
        { 8193, 12 * KIB },
        { MIB, MIB },
        { MIB + 1, MIB + 4 * KIB },
        { 2 * MIB - 4 * KIB - 1, 2 * MIB - 4 * KIB },
        { 2 * MIB + 1, 2 * MIB + 8 * KIB },
        { 4 * MIB - 8 * KIB - 1, 4 * MIB - 8 * KIB },
        { 4 * MIB - 1, 4 * MIB },
        { 4 * MIB, 4 * MIB },
        { 4 * MIB + 1, 4 * MIB + 16 * KIB },
        { 100 * MIB + 16 * KIB, 100 * MIB + 16 * KIB },
    };
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        struct heap *heap;
        uint64_t bytes;
        assert_true(vmm__lane_need(engine->lane, rounded[i].bytes, &heap, &bytes));
        assert_int_equal(bytes, rounded[i].block_bytes);
        assert_int_equal(vmm__lane_block_bytes(rounded[i].bytes), rounded[i].block_bytes);
    }
}

ENGINE_TEST(take_and_give_update_the_counters)
{
    lane_feed(engine);
    uint64_t addresses[SIZES];
    uint64_t sum = 0;
    for (unsigned i = 0; i < SIZES; i++) {
        addresses[i] = take(engine, sizes[i]);
        sum += sizes[i];
        assert_counters(engine, sum, i + 1);
        assert_true(engine->lane->counters.allocated_bytes.current >= sum);
        engine_check(engine);
    }
    for (unsigned i = 0; i < SIZES; i++) {
        assert_ok(give(engine, addresses[i]));
        sum -= sizes[i];
        assert_counters(engine, sum, SIZES - 1 - i);
        assert_status(give(engine, addresses[i]), VMM_ERR_UNKNOWN_POINTER);
        assert_status(use(engine, addresses[i], engine->other), VMM_ERR_UNKNOWN_POINTER);
        engine_check(engine);
    }
    assert_int_equal(vmm__counters_active_bytes(&engine->lane->counters), 0);
    assert_int_equal(engine->lane->counters.allocated_bytes.current, 0);
}

ENGINE_TEST(take_without_a_fit_returns_no_fit)
{
    void *const before = &engine;
    void *found = before;
    for (int i = 0; i < SIZES; i++)
        assert_status(lane_take(engine->lane, sizes[i], &found), VMM__NO_FIT);
    lane_feed(engine);
    assert_status(lane_take(engine->lane, 17 * MIB, &found), VMM__NO_FIT);
    assert_status(lane_take(engine->lane, UINT64_MAX, &found), VMM__NO_FIT);
    assert_ptr_equal(found, before);
    assert_counters(engine, 0, 0);
}

ENGINE_TEST(used_blocks_wait_until_the_other_stream_is_done)
{
    lane_feed(engine);
    for (int i = 1; i < SIZES; i++) {
        uint64_t address = take(engine, sizes[i]);
        memory_fill(engine->driver, address, sizes[i], 1, STREAM(2));
        uint64_t active = vmm__counters_active_bytes(&engine->lane->counters);
        assert_ok(use(engine, address, engine->lane)); /* its own stream */
        assert_ok(use(engine, address, engine->other));
        engine_make_busy(engine, address, sizes[i], 2);
        assert_ok(give(engine, address));
        assert_counters(engine, 0, 0);
        assert_int_equal(vmm__counters_active_bytes(&engine->lane->counters), active);
        assert_status(give(engine, address), VMM_ERR_UNKNOWN_POINTER);
        assert_status(use(engine, address, engine->other), VMM_ERR_UNKNOWN_POINTER);
        assert_status(lane_poll(engine->lane, UINT32_MAX), VMM__NOTHING);
        engine_check(engine);
        assert_int_equal(mismatches(engine->driver), 0);
        assert_ok(lane_poll(engine->lane, UINT32_MAX));
        assert_int_equal(vmm__counters_active_bytes(&engine->lane->counters), 0);
        engine_check(engine);
    }
}

ENGINE_TEST(take_polls_the_oldest_waits)
{
    lane_feed(engine);
    uint64_t address = take(engine, 5 * MIB);
    assert_ok(use(engine, address, engine->other));
    assert_ok(give(engine, address));
    assert_int_equal(take(engine, 5 * MIB), address);
    assert_int_equal(vmm__counters_active_bytes(&engine->lane->counters), 5 * MIB);
}

ENGINE_TEST(take_block_takes_a_whole_block)
{
    struct block *block = engine_attach(engine, &engine->lane->large, 20, 2, 2);
    void *found;
    assert_ok(lane_take_block(engine->lane, block, 100, &found));
    uint64_t address = (uint64_t)(uintptr_t)found;
    assert_int_equal(address, engine_address(engine, 20));
    assert_int_equal(engine->lane->counters.allocated_bytes.current, 2 * GRANULE);
    assert_counters(engine, 100, 1);
    assert_ok(give(engine, address));
    assert_counters(engine, 0, 0);
}

ENGINE_TEST(take_block_without_records_changes_nothing)
{
    struct heap *heap = &engine->lane->large;
    struct block *block = engine_attach(engine, heap, 20, 2, 2);
    struct block_store store = heap->store;
    void *found = engine;
    heap->store.spares = NULL; /* as if other blocks had taken all */
    heap->store.spare_count = 0;
    (void)vmm__host_fail_at(1);
    vmm_status status = lane_take_block(engine->lane, block, 100, &found);
    (void)vmm__host_fail_at(0);
    heap->store = store;
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_ptr_equal(found, engine);
    assert_int_equal(block->state, BLOCK_FREE);
    assert_counters(engine, 0, 0);
    engine_check(engine);
}

ENGINE_TEST(a_free_needs_no_host_memory)
{
    lane_feed(engine);
    uint64_t address = take(engine, 5 * MIB);
    assert_ok(use(engine, address, engine->other));
    (void)vmm__host_fail_at(1);
    assert_ok(give(engine, address));
    (void)vmm__host_fail_at(0);
    assert_counters(engine, 0, 0);
    engine_check(engine);
}

/* A settle goes on without the work whose event cannot be queried. */
ENGINE_TEST(a_settle_leaves_no_line_of_a_failed_query)
{
    lane_feed(engine);
    uint64_t address = take(engine, 5 * MIB);
    assert_ok(use(engine, address, engine->other));
    assert_ok(give(engine, address));
    (void)vmm__error(VMM_ERR_DRIVER, "an earlier failure");
    vmm__sim_fail_at(engine->driver, 1, VMM_ERR_DRIVER, false);
    vmm__lane_lock(engine->lane);
    (void)vmm__lane_settle_locked(engine->lane);
    vmm__lane_unlock(engine->lane);
    assert_int_equal(vmm__sim_faults_fired(engine->driver), 1);
    assert_string_equal(vmm_last_error(), "an earlier failure");
}
