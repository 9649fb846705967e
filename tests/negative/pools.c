/* Handles that are no pool, for every call that names one; wrong options. */
#include "calls.h"
#include "negative.h"

#include "base/error.h"
#include "base/handle.h"

#define NO_POOL    "is not a pool, or was destroyed"
#define NOT_PUSHED "is not the pool that this thread pushed last"

static vmm_status pool_offer(vmm_pool *pool)
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_claim = 1;
    return vmm_pool_sleep(&pool, 1, &options, NULL);
}

static bool phase_is(vmm_pool *pool, vmm_pool_phase wanted)
{
    vmm_pool_phase phase;
    must_ok(vmm_pool_state(pool, &phase));
    return phase == wanted;
}

/* Every call refuses the handle. */
static vmm_status all_refuse(vmm_pool *pool)
{
    struct call_target target = { .pool = pool, .block = &target };
    for (enum call call = 0; call < CALLS; call++) {
        if (!call_abouts[call].takes_pool)
            continue;
        must_be(VMM_ERR_INVALID_ARGUMENT, call_make(call, &target));
        must(stage_error_says(call == CALL_vmm_pool_pop ? NOT_PUSHED : NO_POOL));
    }
    must(vmm_pool_uses(pool) == 0);
    must_be(VMM_ERR_INVALID_ARGUMENT, pool_offer(pool));
    must(stage_error_says(NO_POOL));
    return call_make(CALL_vmm_alloc_from, &target);
}

/* ---- Handles ------------------------------------------------------------------------------- */

/* The slot of the handle has served other records since, or none. */
static vmm_status stale(struct stage *stage, uint64_t others)
{
    vmm_pool *pool;
    must_ok(vmm_pool_create(stage->cache, NULL, &pool));
    must_ok(vmm_pool_destroy(pool, 0));
    for (uint64_t i = 0; i < others; i++) {
        void *other = vmm__handle_open(HANDLE_POOL, stage);
        must(other != NULL && other != pool);
        must(vmm__handle_close(other));
    }
    return all_refuse(pool);
}

static vmm_status of_another_kind(struct stage *stage, uint64_t kind)
{
    void *handle = vmm__handle_open((enum handle_kind)kind, stage);
    vmm_status status = all_refuse(handle);
    vmm__handle_close(handle);
    return status;
}

static vmm_status garbage(struct stage *stage, uint64_t value)
{
    (void)stage;
    return all_refuse((vmm_pool *)(uintptr_t)value);
}

static vmm_status flipped_bit(struct stage *stage, uint64_t bit)
{
    uintptr_t handle = (uintptr_t)vmm_cache_pool(stage->cache);
    return all_refuse((vmm_pool *)(handle ^ (uintptr_t)1 << bit));
}

static vmm_status a_cache(struct stage *stage, uint64_t value)
{
    (void)value;
    return all_refuse((vmm_pool *)(void *)stage->cache);
}

static vmm_status a_block(struct stage *stage, uint64_t value)
{
    return all_refuse(stage->blocks[value].address);
}

static vmm_status of_a_destroyed_cache(struct stage *stage, uint64_t is_default)
{
    (void)stage;
    vmm_config config = stage_config();
    vmm_cache *cache;
    vmm_pool *pool;
    must_ok(vmm_create(&config, &cache));
    must_ok(vmm_pool_create(cache, NULL, &pool));
    pool = is_default ? vmm_cache_pool(cache) : pool;
    must_ok(vmm_destroy(cache));
    must(vmm_cache_pool(cache) == NULL);
    must(vmm_pool_find(cache, (vmm_pool_id){ 1, 1 }) == NULL);
    return all_refuse(pool);
}

/* ---- Pools in the wrong state --------------------------------------------------------------- */

static vmm_status destroy_default(struct stage *stage, uint64_t adopt)
{
    return vmm_pool_destroy(vmm_cache_pool(stage->cache), adopt != 0);
}

static vmm_status pop_unpushed(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_pop(vmm_cache_pool(stage->cache));
}

static vmm_status drop_unretained(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_drop(vmm_cache_pool(stage->cache));
}

static vmm_status place_nowhere(struct stage *stage, uint64_t address)
{
    return vmm_pool_place(vmm_cache_pool(stage->cache), (void *)(uintptr_t)address, 1, NULL);
}

static vmm_status place_on_block(struct stage *stage, uint64_t bytes)
{
    return vmm_pool_place(vmm_cache_pool(stage->cache), stage->blocks[3].address, bytes, NULL);
}

/* From the offer on, whether a claim comes or not. The wake puts all right again, but for the
 * count of driver calls. */
static vmm_status of_an_offered_pool(struct stage *stage, uint64_t number)
{
    vmm_pool *pool = vmm_cache_pool(stage->cache);
    struct error_line line;
    struct call_target target = { .pool = pool, .block = &target };
    must_ok(pool_offer(pool));
    vmm_status status = call_make((enum call)number, &target);
    vmm__error_save(&line);
    must_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    vmm__error_restore(&line);
    return status;
}

static vmm_status wrong_offer(struct stage *stage, uint64_t on_sleep)
{
    vmm_pool *pool = vmm_cache_pool(stage->cache);
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    options.on_claim = 1;
    options.on_sleep = (vmm_on_sleep)on_sleep;
    vmm_status status = vmm_pool_sleep(&pool, 1, &options, NULL);
    must(phase_is(pool, VMM_POOL_AWAKE));
    return status;
}

/* ---- Options ------------------------------------------------------------------------------- */

static vmm_status options_refuse(const struct stage *stage, const vmm_pool_options *options)
{
    vmm_pool *out = (vmm_pool *)(void *)&out;
    vmm_status status = vmm_pool_create(stage->cache, options, &out);
    must(out == (vmm_pool *)(void *)&out);
    return status;
}

static vmm_status wrong_kind(struct stage *stage, uint64_t kind)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.kind = (vmm_pool_kind)kind;
    return options_refuse(stage, &options);
}

/* Only a sleep may say "as the pool". */
static vmm_status wrong_on_sleep(struct stage *stage, uint64_t on_sleep)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.on_sleep = (vmm_on_sleep)on_sleep;
    return options_refuse(stage, &options);
}

static vmm_status wrong_shareable(struct stage *stage, uint64_t shareable)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.shareable = (int)shareable;
    return options_refuse(stage, &options);
}

static vmm_status wrong_size(struct stage *stage, uint64_t size)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.struct_size = (size_t)size;
    return options_refuse(stage, &options);
}

/* Options of a later version, with a field at their end. */
static vmm_status later_field(struct stage *stage, uint64_t value)
{
    struct {
        vmm_pool_options known;
        uint64_t unknown;
    } options = { .known = VMM_POOL_OPTIONS_INIT };
    vmm_pool *pool = NULL;
    options.known.struct_size = sizeof options;
    must_ok(vmm_pool_create(stage->cache, &options.known, &pool));
    must_ok(vmm_pool_destroy(pool, 0));
    options.unknown = value;
    return options_refuse(stage, &options.known);
}

static vmm_status promise_above_limit(struct stage *stage, uint64_t limit)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.limit_bytes = limit;
    options.reserve_bytes = limit + 1;
    return options_refuse(stage, &options);
}

static vmm_status promise_above_device(struct stage *stage, uint64_t bytes)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.reserve_bytes = bytes;
    return options_refuse(stage, &options);
}

static vmm_status null_out(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_pool_create(stage->cache, NULL, NULL);
}

static const struct negative_case cases[] = {
    WRONG("a stale handle", stale, 0, NO_POOL),
    WRONG("a stale handle among many", stale, 70000, NO_POOL),
    WRONG("a ticket", of_another_kind, HANDLE_TICKET, NO_POOL),
    WRONG("a share", of_another_kind, HANDLE_SHARE, NO_POOL),
    WRONG("NULL", garbage, 0, NO_POOL),
    WRONG("a small number", garbage, 8, NO_POOL),
    WRONG("ones", garbage, UINT64_MAX, NO_POOL),
    WRONG("a handle with another kind", flipped_bit, 4, NO_POOL),
    WRONG("a handle with another slot", flipped_bit, 7, NO_POOL),
    WRONG("a handle with another use", flipped_bit, 40, NO_POOL),
    WRONG("an unaligned handle", flipped_bit, 0, NO_POOL),
    WRONG("a cache", a_cache, 0, NO_POOL),
    WRONG("a block", a_block, 3, NO_POOL),
    WRONG("a pool of a destroyed cache", of_a_destroyed_cache, 0, NO_POOL),
    WRONG("the default pool of a destroyed cache", of_a_destroyed_cache, 1, NO_POOL),
    WRONG("destroying the default pool", destroy_default, 1, "lives as long as its cache"),
    WRONG("a pop without a push", pop_unpushed, 0, "pushed last"),
    WRONG("a drop without a retain", drop_unretained, 0, "pool default is not retained"),
    { "a request from an offered pool", NULL, of_an_offered_pool, CALL_vmm_alloc_from,
      VMM_ERR_ASLEEP, "pool default sleeps: wake it first", true },
    { "dropping the backup of an offered pool", NULL, of_an_offered_pool, CALL_vmm_backup_drop,
      VMM_ERR_ASLEEP, "pool default needs its backup to wake", true },
    { "looking for the backup of an offered pool", NULL, of_an_offered_pool, CALL_vmm_backup_find,
      VMM_ERR_INVALID_ARGUMENT, "pool default is not asleep", true },
    WRONG("an offer with an unknown sleep", wrong_offer, 3,
          "on_sleep is 3, which is no value of it"),
    WRONG("placing at NULL", place_nowhere, 0, "address is NULL"),
    WRONG("placing at a small number", place_nowhere, 4096, "has no free memory there"),
    WRONG("placing at the end of memory", place_nowhere, UINT64_MAX, "has no free memory there"),
    WRONG("placing on a live block", place_on_block, 1, "0x"),
    WRONG("placing too much", place_on_block, UINT64_MAX, "0x"),
    WRONG("a sleep as the pool says", wrong_on_sleep, VMM_ON_SLEEP_AS_POOL,
          "on_sleep is 2, which is no value of it"),
    WRONG("an unknown reach", wrong_shareable, 3, "shareable is 3, which is no value of it"),
    WRONG("a negative reach", wrong_shareable, UINT32_MAX,
          "shareable is -1, which is no value of it"),
    WRONG("an unknown sleep", wrong_on_sleep, 3, "on_sleep is 3, which is no value of it"),
    WRONG("an unknown kind", wrong_kind, 2, "kind is 2, which is no kind"),
    WRONG("options without a size", wrong_size, 0, "use VMM_POOL_OPTIONS_INIT"),
    WRONG("options that are too large", wrong_size, 4097, "use VMM_POOL_OPTIONS_INIT"),
    { "options with an unknown field", NULL, later_field, 1, VMM_ERR_UNSUPPORTED,
      "a field after byte", false },
    WRONG("a promise above the limit", promise_above_limit, 4 * MIB, "above limit_bytes, 4194304"),
    { "a promise above the device", NULL, promise_above_device, UINT64_MAX, VMM_ERR_DEVICE_OOM,
      "reserve_bytes of 18446744073709551615", false },
    WRONG("no out", null_out, 0, "out is NULL"),
};

NEGATIVE_GROUP(negative_pools, "pools");
