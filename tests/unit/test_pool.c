/* Pools: which heap a size belongs to, the ledger, blocks and objects given back once only. */
#include "support/engine_support.h"

static const uint64_t sizes[] = { 0, 1, 512, 8192, 8193, MIB, MIB + 1, 5 * MIB };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void pool_fed(struct engine *engine)
{
    (void)engine_attached(engine, &engine->pool->small, 0, 4, 1);
    (void)engine_attached(engine, &engine->pool->large, 20, 8, 4);
}

static uint64_t taken(struct engine *engine, uint64_t bytes)
{
    void *block;
    assert_ok(vmm__pool_take_locked(engine->pool, bytes, &block));
    return (uint64_t)(uintptr_t)block;
}

static struct heap *heap_of(struct engine *engine, uint64_t address)
{
    return vmm__directory_heap(&engine->directory, address);
}

static vmm_status given(struct engine *engine, uint64_t address)
{
    return vmm__pool_give_locked(engine->pool, heap_of(engine, address), address);
}

static vmm_status used(struct engine *engine, uint64_t address, struct pool *other)
{
    return vmm__pool_use_locked(engine->pool, heap_of(engine, address), address, &other->timeline);
}

static void assert_ledger(struct engine *engine, uint64_t requested, uint64_t count)
{
    assert_int_equal(engine->pool->account.requested_bytes.current, requested);
    assert_int_equal(engine->pool->account.allocations.current, count);
}

static void sizes_belong_to_heaps(void **state)
{
    struct engine *engine = *state;
    struct heap *heap;
    uint64_t bytes;
    for (int i = 0; i < SIZES; i++) {
        assert_true(vmm__pool_need(engine->pool, sizes[i], &heap, &bytes));
        assert_ptr_equal(heap, sizes[i] <= MIB ? &engine->pool->small : &engine->pool->large);
        assert_true(bytes >= sizes[i] && bytes % heap->unit_bytes == 0);
    }
    assert_false(vmm__pool_need(engine->pool, UINT64_MAX, &heap, &bytes));
    assert_false(vmm__pool_need(engine->pool, UINT64_MAX - 510, &heap, &bytes));
    assert_true(vmm__pool_need(engine->pool, UINT64_MAX - 511, &heap, &bytes));
}

static void taking_and_giving_keep_the_ledger(void **state)
{
    struct engine *engine = *state;
    pool_fed(engine);
    uint64_t addresses[SIZES];
    uint64_t sum = 0;
    for (unsigned i = 0; i < SIZES; i++) {
        addresses[i] = taken(engine, sizes[i]);
        sum += sizes[i];
        assert_ledger(engine, sum, i + 1);
        assert_true(engine->pool->account.allocated_bytes.current >= sum);
        engine_checked(engine);
    }
    for (unsigned i = 0; i < SIZES; i++) {
        assert_ok(given(engine, addresses[i]));
        sum -= sizes[i];
        assert_ledger(engine, sum, SIZES - 1 - i);
        assert_status(given(engine, addresses[i]), VMM_ERR_UNKNOWN_POINTER);
        assert_status(used(engine, addresses[i], engine->other), VMM_ERR_UNKNOWN_POINTER);
        engine_checked(engine);
    }
    assert_int_equal(vmm__account_active_bytes(&engine->pool->account), 0);
    assert_int_equal(engine->pool->account.allocated_bytes.current, 0);
}

static void what_does_not_fit_is_not_ready(void **state)
{
    struct engine *engine = *state;
    void *const before = &engine;
    void *found = before;
    for (int i = 0; i < SIZES; i++)
        assert_status(vmm__pool_take_locked(engine->pool, sizes[i], &found), VMM_NOT_READY);
    pool_fed(engine);
    assert_status(vmm__pool_take_locked(engine->pool, 17 * MIB, &found), VMM_NOT_READY);
    assert_status(vmm__pool_take_locked(engine->pool, UINT64_MAX, &found), VMM_NOT_READY);
    assert_ptr_equal(found, before);
    assert_ledger(engine, 0, 0);
}

static void used_places_wait_and_come_back(void **state)
{
    struct engine *engine = *state;
    pool_fed(engine);
    for (int i = 1; i < SIZES; i++) {
        uint64_t address = taken(engine, sizes[i]);
        sim_filled(engine->driver, address, sizes[i], 1, STREAM(2));
        uint64_t active = vmm__account_active_bytes(&engine->pool->account);
        assert_ok(used(engine, address, engine->pool)); /* its own stream */
        assert_ok(used(engine, address, engine->other));
        engine_busy(engine, address, sizes[i], 2);
        assert_ok(given(engine, address));
        assert_ledger(engine, 0, 0);
        assert_int_equal(vmm__account_active_bytes(&engine->pool->account), active);
        assert_status(given(engine, address), VMM_ERR_UNKNOWN_POINTER);
        assert_status(used(engine, address, engine->other), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm__pool_poll_locked(engine->pool, UINT32_MAX), VMM_NOT_READY);
        engine_checked(engine);
        assert_int_equal(sim_mismatches(engine->driver), 0);
        assert_ok(vmm__pool_poll_locked(engine->pool, UINT32_MAX));
        assert_int_equal(vmm__account_active_bytes(&engine->pool->account), 0);
        engine_checked(engine);
    }
}

static void taking_polls_a_little(void **state)
{
    struct engine *engine = *state;
    pool_fed(engine);
    uint64_t address = taken(engine, 5 * MIB);
    assert_ok(used(engine, address, engine->other));
    assert_ok(given(engine, address));
    assert_int_equal(taken(engine, 5 * MIB), address);
    assert_int_equal(vmm__account_active_bytes(&engine->pool->account), 5 * MIB);
}

static void a_whole_block_can_be_taken(void **state)
{
    struct engine *engine = *state;
    struct block *block = engine_attached(engine, &engine->pool->large, 20, 2, 2);
    void *found;
    assert_ok(vmm__pool_take_block_locked(engine->pool, block, 100, &found));
    uint64_t address = (uint64_t)(uintptr_t)found;
    assert_int_equal(address, engine_address(engine, 20));
    assert_int_equal(engine->pool->account.allocated_bytes.current, 2 * GRANULE);
    assert_ledger(engine, 100, 1);
    assert_ok(given(engine, address));
    assert_ledger(engine, 0, 0);
}

static void a_free_that_fails_changes_nothing(void **state)
{
    struct engine *engine = *state;
    pool_fed(engine);
    uint64_t address = taken(engine, 5 * MIB);
    assert_ok(used(engine, address, engine->other));
    vmm__sim_fail_at(engine->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(given(engine, address), VMM_ERR_DRIVER);
    assert_ledger(engine, 5 * MIB, 1);
    engine_checked(engine);
    assert_ok(given(engine, address));
    assert_ledger(engine, 0, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(sizes_belong_to_heaps),
        ENGINE_TEST(taking_and_giving_keep_the_ledger),
        ENGINE_TEST(what_does_not_fit_is_not_ready),
        ENGINE_TEST(used_places_wait_and_come_back),
        ENGINE_TEST(taking_polls_a_little),
        ENGINE_TEST(a_whole_block_can_be_taken),
        ENGINE_TEST(a_free_that_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
