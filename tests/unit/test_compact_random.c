/*
 * A cache whose limit is close to what is live, over random allocations, frees, pins and trims on
 * three streams with work that lags behind: compaction happens often, and against a record of what
 * each block must hold, nothing may ever differ.
 */
#include "support/sim_support.h"

#include "cache_on.h"
#include "policy/cache.h"

enum { SLOTS = 160, OPERATIONS = 3000, STREAMS = 3 };

#define LIMIT_BYTES (48 * MIB)

struct slot {
    char *block; /* NULL: given back */
    size_t bytes;
    uint32_t word;
    unsigned stream;
    bool is_pinned;
    uint64_t handles[2]; /* of a pinned block's ends */
};

struct play {
    struct driver *driver;
    vmm_cache *cache;
    uint64_t seed;
    struct slot slots[SLOTS];
    uint64_t live_bytes;
    uint32_t words;
    uint64_t twins; /* sum over all operations */
};

static uint64_t number_next(struct play *play)
{
    play->seed = play->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return play->seed >> 33;
}

static size_t size_next(struct play *play)
{
    static const size_t limits[] = { 9000, 300000, 3 * MIB, 3 * MIB, 3 * MIB, 9 * MIB };
    return 1 + number_next(play) % limits[number_next(play) % 6];
}

static uint64_t handle_at(const struct play *play, const char *address)
{
    const struct memory *memory = &play->cache->memory;
    uint64_t granule = vmm__arena_granule(&memory->arena, (uintptr_t)address);
    const struct chunk *chunk = vmm__memory_chunk(memory, granule);
    while (chunk->is_alias)
        chunk = &memory->records[chunk->twin];
    return chunk->handle;
}

static void slot_checked(struct play *play, const struct slot *slot)
{
    sim_checked(play->driver, (uintptr_t)slot->block, slot->bytes, slot->word,
                STREAM(slot->stream));
    if (!slot->is_pinned)
        return;
    assert_true(handle_at(play, slot->block) == slot->handles[0]);
    assert_true(handle_at(play, slot->block + slot->bytes - 1) == slot->handles[1]);
}

static void slot_given(struct play *play, struct slot *slot)
{
    slot_checked(play, slot);
    assert_ok(vmm_free(play->cache, slot->block));
    play->live_bytes -= slot->bytes;
    *slot = (struct slot){ .block = NULL };
}

static void slot_taken(struct play *play, struct slot *slot)
{
    void *block;
    slot->bytes = size_next(play);
    slot->stream = (unsigned)(number_next(play) % STREAMS);
    slot->word = ++play->words;
    vmm_status status = vmm_alloc(play->cache, slot->bytes, STREAM(slot->stream), &block);
    if (status != VMM_OK) {
        assert_status(status, VMM_ERR_DEVICE_OOM);
        return;
    }
    slot->block = block;
    play->live_bytes += slot->bytes;
    sim_filled(play->driver, (uintptr_t)block, slot->bytes, slot->word, STREAM(slot->stream));
}

static void slot_pinned(struct play *play, struct slot *slot)
{
    slot->is_pinned = !slot->is_pinned;
    if (slot->is_pinned)
        assert_ok(vmm_pin(play->cache, slot->block));
    else
        assert_ok(vmm_unpin(play->cache, slot->block));
    slot->handles[0] = handle_at(play, slot->block);
    slot->handles[1] = handle_at(play, slot->block + slot->bytes - 1);
}

/* The other stream reads, ordered after the block's own. */
static void slot_used(struct play *play, struct slot *slot)
{
    vmm_stream other = STREAM((slot->stream + 1) % STREAMS);
    void *event = sim_recorded(play->driver, STREAM(slot->stream));
    assert_ok(vmm__driver_stream_wait(play->driver, other, event));
    assert_ok(vmm__driver_event_destroy(play->driver, event));
    assert_ok(vmm_use(play->cache, slot->block, other));
    sim_checked(play->driver, (uintptr_t)slot->block, slot->bytes, slot->word, other);
}

static void operation(struct play *play)
{
    struct slot *slot = &play->slots[number_next(play) % SLOTS];
    uint64_t dice = number_next(play) % 100;
    if (dice == 0)
        assert_ok(vmm_trim(play->cache, number_next(play) % 2 * LIMIT_BYTES / 2, NULL));
    else if (slot->block == NULL)
        slot_taken(play, slot);
    else if (dice < 6)
        slot_pinned(play, slot);
    else if (dice < 12)
        slot_used(play, slot);
    else if (dice < 30 || play->live_bytes > LIMIT_BYTES / 10 * 7)
        slot_given(play, slot);
    play->twins += play->cache->memory.twins;
}

static void play_begin(struct play *play, uint64_t seed, uint64_t lag, vmm_compaction compaction)
{
    const struct driver_options options = { .device_bytes = 256 * MIB };
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = LIMIT_BYTES;
    config.compaction = compaction;
    *play = (struct play){ .seed = seed };
    assert_ok(vmm__driver_sim_open(&options, &play->driver));
    assert_ok(vmm__cache_create_on(&config, play->driver, &play->cache));
    vmm__sim_lag_set(play->driver, lag);
}

static void all_checked(struct play *play)
{
    for (int i = 0; i < SLOTS; i++) {
        if (play->slots[i].block != NULL)
            slot_checked(play, &play->slots[i]);
    }
    assert_ok(vmm__cache_check(play->cache));
    if (sim_mismatches(play->driver) != 0)
        fail_msg("%s", vmm__sim_mismatch(play->driver));
    sim_assert_clean(play->driver);
}

static void play_end(struct play *play)
{
    for (int i = 0; i < SLOTS; i++) {
        if (play->slots[i].block != NULL)
            slot_given(play, &play->slots[i]);
    }
    all_checked(play);
    assert_ok(vmm_trim(play->cache, 0, NULL));
    assert_int_equal(vmm__figure_now(&play->cache->memory.reserved_bytes), 0);
    assert_int_equal(play->cache->memory.twins, 0);
    assert_ok(vmm_destroy(play->cache));
    sim_assert_clean(play->driver);
    assert_true(sim_census_is_zero(play->driver));
    vmm__driver_close(play->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

static void played(uint64_t seed, uint64_t lag, vmm_compaction compaction)
{
    static struct play play;
    play_begin(&play, seed, lag, compaction);
    for (int i = 0; i < OPERATIONS; i++) {
        operation(&play);
        if (i % 100 == 99)
            all_checked(&play);
    }
    assert_true(play.cache->compactions > 20);
    assert_true(play.twins > OPERATIONS / 10);
    play_end(&play);
}

static void work_is_done_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        played(seed, 0, VMM_COMPACTION_AUTO);
}

static void work_lags_behind(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        played(seed, 10 * seed * seed, VMM_COMPACTION_AUTO);
}

static void work_ends_only_when_waited_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        played(seed, UINT64_C(1) << 40, VMM_COMPACTION_ON);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_done_at_once),
        cmocka_unit_test(work_lags_behind),
        cmocka_unit_test(work_ends_only_when_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
