/* Accounts: who has reserved what, who may reserve more, and what happens to an account's chunks when it ends. */
#include "support/engine_support.h"

#include <string.h>

static void account_open(struct engine *engine, struct account *account, const char *name)
{
    *account = (struct account){ .name = name };
    vmm__account_add(&engine->memory, account);
}

static void account_map(struct engine *engine, struct account *account, uint64_t granule,
                        uint64_t count)
{
    vmm__arena_take(&engine->memory.arena, granule, count);
    assert_ok(vmm__vm_map(&engine->memory, account, granule, count, 2));
    assert_ok(vmm__vm_access(&engine->memory, granule, count));
    engine_check(engine);
}

static uint64_t granules_of(const struct account *account)
{
    return vmm__stat_now(&account->reserved_bytes) / GRANULE;
}

ENGINE_TEST(chunks_count_in_their_account)
{
    struct account accounts[2];
    account_open(engine, &accounts[0], "a");
    account_open(engine, &accounts[1], "b");
    account_map(engine, &accounts[0], 0, 5);
    account_map(engine, &accounts[1], 8, 2);
    assert_int_equal(granules_of(&accounts[0]), 5);
    assert_int_equal(vmm__stat_now(&accounts[0].chunks), 3);
    assert_int_equal(granules_of(&accounts[1]), 2);
    assert_int_equal(granules_of(&engine->pool.account), 0);
    assert_int_equal(engine_reserved_bytes(engine), 7 * GRANULE);
    vmm__vm_discard(&engine->memory, 0, 5, NULL, 0);
    assert_int_equal(accounts[0].counts.limbo_bytes, 5 * GRANULE);
    assert_int_equal(accounts[1].counts.limbo_bytes, 0);
    assert_int_equal(engine_drain(engine), 5 * GRANULE);
    assert_int_equal(accounts[0].counts.limbo_bytes + granules_of(&accounts[0]), 0);
    vmm__account_remove(&engine->memory, &accounts[0], NULL);
    vmm__account_remove(&engine->memory, &accounts[1], &engine->pool.account);
    assert_int_equal(granules_of(&engine->pool.account), 2);
}

ENGINE_TEST(an_heir_gets_chunks_in_every_state)
{
    struct account account;
    account_open(engine, &account, "ends");
    account_map(engine, &account, 0, 4);
    account_map(engine, &account, 8, 4);
    engine_make_busy(engine, engine_address(engine, 8), GRANULE, 1);
    vmm__vm_discard(&engine->memory, 8, 4, engine->lane->clock,
                    vmm__clock_now(engine->lane->clock));
    (void)engine_drain(engine);
    assert_int_equal(account.counts.limbo_bytes, 4 * GRANULE);
    vmm__account_remove(&engine->memory, &account, &engine->pool.account);
    engine_check(engine);
    assert_int_equal(granules_of(&engine->pool.account), 8);
    assert_int_equal(engine->pool.account.counts.limbo_bytes, 4 * GRANULE);
    assert_int_equal(mismatches(engine->driver), 0);
    assert_int_equal(engine_drain(engine), 4 * GRANULE);
    assert_int_equal(granules_of(&engine->pool.account), 4);
}

/* As a relocation leaves behind: the part has the account of its chunk, the old home has none. */
ENGINE_TEST(a_relocation_stays_in_its_account)
{
    struct account account;
    account_open(engine, &account, "moved");
    account_map(engine, &account, 0, 2);
    account_map(engine, &account, 20, 1);
    struct memory_part part = { .chunk = engine_chunk(engine, 20), .granule = 1 };
    assert_ok(vmm__vm_swap(&engine->memory, engine_chunk(engine, 0), &part, 1, 0));
    assert_ptr_equal(engine_chunk(engine, 1)->account, &account);
    vmm__account_remove(&engine->memory, &account, &engine->pool.account);
    assert_ok(vmm__vm_check(&engine->memory));
    (void)engine_drain(engine);
    assert_int_equal(granules_of(&engine->pool.account), 1);
}

ENGINE_TEST(moved_chunks_change_their_account)
{
    struct account accounts[2];
    account_open(engine, &accounts[0], "from");
    account_open(engine, &accounts[1], "to");
    account_map(engine, &accounts[0], 0, 6);
    vmm__account_move(&engine->memory, 2, 4, &accounts[1]);
    vmm__account_move(&engine->memory, 2, 2, &accounts[1]);
    engine_check(engine);
    assert_int_equal(granules_of(&accounts[0]), 2);
    assert_int_equal(granules_of(&accounts[1]), 4);
    assert_int_equal(vmm__stat_now(&accounts[1].chunks), 2);
    assert_int_equal(vmm__stat_now(&engine->memory.chunks), 3);
    vmm__account_remove(&engine->memory, &accounts[0], &engine->pool.account);
    vmm__account_remove(&engine->memory, &accounts[1], &engine->pool.account);
}

ENGINE_TEST(an_account_has_a_limit)
{
    struct account *account = &engine->pool.account;
    assert_int_equal(vmm__account_short_bytes(account, UINT64_MAX), 0);
    account->limit_bytes = 4 * GRANULE;
    engine_map(engine, 0, 3, 4);
    assert_int_equal(vmm__account_short_bytes(account, GRANULE), 0);
    assert_int_equal(vmm__account_short_bytes(account, 3 * GRANULE), 2 * GRANULE);
    vmm__arena_take(&engine->memory.arena, 8, 2);
    assert_status(vmm__vm_map(&engine->memory, account, 8, 2, 2), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "limit of 8388608 bytes of pool engine"));
    account->limit_bytes = GRANULE; /* below what is reserved */
    assert_int_equal(vmm__account_short_bytes(account, 0), 0);
    assert_int_equal(vmm__account_short_bytes(account, GRANULE), 3 * GRANULE);
    assert_int_equal(vmm__account_short_bytes(account, UINT64_MAX), UINT64_MAX);
}

ENGINE_TEST(promises_count_until_they_are_reserved)
{
    struct vm *vm = &engine->memory;
    struct account promised;
    account_open(engine, &promised, "promised");
    vmm__account_promise(&engine->memory, &promised, 4 * GRANULE);
    vm->limit_bytes = 10 * GRANULE;
    assert_int_equal(vmm__vm_short_bytes(vm, &engine->pool.account, 6 * GRANULE), 0);
    assert_int_equal(vmm__vm_short_bytes(vm, &engine->pool.account, 7 * GRANULE), GRANULE);
    assert_int_equal(vmm__vm_short_bytes(vm, &promised, 10 * GRANULE), 0);
    account_map(engine, &promised, 0, 3);
    assert_int_equal(vmm__vm_short_bytes(vm, &engine->pool.account, 6 * GRANULE), 0);
    account_map(engine, &promised, 8, 3); /* more than was promised */
    assert_int_equal(vmm__vm_short_bytes(vm, &engine->pool.account, 6 * GRANULE), 2 * GRANULE);
    vmm__account_remove(vm, &promised, &engine->pool.account);
    assert_int_equal(vmm__vm_short_bytes(vm, &engine->pool.account, 4 * GRANULE), 0);
}

ENGINE_TEST(without_a_limit_the_device_bounds_promises)
{
    struct vm *vm = &engine->memory;
    struct account promised;
    uint64_t device = engine->driver->total_bytes;
    account_open(engine, &promised, "promised");
    vmm__account_promise(&engine->memory, &promised, 4 * GRANULE);
    assert_int_equal(vmm__vm_limit_bytes(vm), device);
    assert_int_equal(vmm__vm_short_bytes(vm, &engine->pool.account, device), 4 * GRANULE);
    vm->limit_bytes = 2 * device;
    assert_int_equal(vmm__vm_limit_bytes(vm), device);
    vmm__account_remove(vm, &promised, NULL);
}
