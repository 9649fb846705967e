/* Compaction on every driver: requests and trims that it helps, and what it must leave alone. */
#include "support/cache_support.h"

#include "policy/cache.h"

#include <pthread.h>
#include <string.h>

/* Blocks of 1.5 MiB fill the limit; of every two one goes: no chunk is idle, no hole is larger. */
#define PIECE     (3 * MIB / 2)
#define NEEDED    (16 * MIB) /* fits only once live bytes have moved */
#define LARGEST   (6 * MIB)
#define ODD_PIECE ((size_t)(PIECE + 512 * 7))
enum { PIECES = (int)(CACHE_LIMIT / PIECE), ROUNDS = 400 };

struct piece {
    void *block; /* NULL: given back */
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

static struct piece pieces[PIECES];

static void piece_taken(struct cache_test *test, struct piece *piece, size_t bytes, unsigned stream)
{
    static uint32_t words;
    *piece = (struct piece){ .bytes = bytes, .word = ++words, .stream = stream };
    piece->block = block_taken(test, bytes, stream);
    block_filled(test, piece->block, bytes, piece->word, stream);
}

static void piece_given(struct cache_test *test, struct piece *piece)
{
    block_checked(test, piece->block, piece->bytes, piece->word, piece->stream);
    block_given(test, piece->block);
    piece->block = NULL;
}

static void pieces_checked(struct cache_test *test)
{
    for (int i = 0; i < PIECES; i++) {
        const struct piece *piece = &pieces[i];
        if (piece->block != NULL)
            block_checked(test, piece->block, piece->bytes, piece->word, piece->stream);
    }
    work_verified(test);
    cache_verified(test);
}

static void pieces_given(struct cache_test *test)
{
    for (int i = 0; i < PIECES; i++) {
        if (pieces[i].block != NULL)
            piece_given(test, &pieces[i]);
    }
    work_verified(test);
}

/* A fresh cache, full of holes. */
static void cache_holed(struct cache_test *test, vmm_compaction compaction)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = CACHE_LIMIT;
    config.compaction = compaction;
    cache_restart(test, &config);
    for (int i = 0; i < PIECES; i++)
        piece_taken(test, &pieces[i], PIECE, 1);
    for (int i = 0; i < PIECES; i += 2)
        piece_given(test, &pieces[i]);
    work_verified(test);
    assert_true(cache_stats(test).idle_bytes < NEEDED);
}

static uint64_t reserved(struct cache_test *test)
{
    return cache_stats(test).reserved_bytes.current;
}

static bool has_compacted(const struct cache_test *test)
{
    return test->cache->compactions > 0;
}

/* ---- Requests --------------------------------------------------------------------------------- */

static void needed_is_had(struct cache_test *test, vmm_compaction compaction)
{
    cache_holed(test, compaction);
    void *needed = block_taken(test, NEEDED, 2);
    assert_true(has_compacted(test));
    block_filled(test, needed, NEEDED, 4711, 2);
    pieces_checked(test);
    block_checked(test, needed, NEEDED, 4711, 2);
    assert_true(cache_survey(test).twins > 0);
    assert_true(cache_survey(test).lent_bytes > 0);
    assert_int_equal(cache_stats(test).ooms, 0);
    block_given(test, needed);
    pieces_given(test);
    (void)cache_trimmed(test, 0);
    assert_int_equal(reserved(test), 0);
    assert_int_equal(cache_survey(test).twins, 0);
}

static void a_request_is_met_by_moving_live_bytes(void **state)
{
    needed_is_had(*state, VMM_COMPACTION_AUTO);
    needed_is_had(*state, VMM_COMPACTION_ON);
}

struct live_sums {
    uint64_t hash;
};

static int live_summed(void *context, const vmm_item *item)
{
    struct live_sums *sums = context;
    if (item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE)
        sums->hash = sums->hash * 31 + (item->address ^ item->bytes ^ item->requested_bytes);
    return 0;
}

static void needed_is_refused(struct cache_test *test)
{
    struct live_sums before = { 0 };
    struct live_sums after = { 0 };
    assert_ok(vmm_walk(test->cache, live_summed, &before));
    uint64_t copies = vmm__driver_calls(test->driver, DRIVER_CALL_copy);
    void *out = test;
    assert_status(vmm_alloc(test->cache, NEEDED, test->streams[2], &out), VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(out, test);
    assert_ok(vmm_walk(test->cache, live_summed, &after));
    assert_int_equal(before.hash, after.hash);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_copy), copies);
    assert_false(has_compacted(test));
    pieces_checked(test);
    pieces_given(test);
}

static void without_compaction_it_is_refused(void **state)
{
    cache_holed(*state, VMM_COMPACTION_OFF);
    needed_is_refused(*state);
}

static void *other_thread_allocates(void *context)
{
    struct cache_test *test = context;
    void *block = NULL;
    if (vmm_alloc(test->cache, 512, test->streams[3], &block) != VMM_OK)
        return "the allocation failed";
    return vmm_free(test->cache, block) == VMM_OK ? NULL : "the free failed";
}

static void *other_thread_pins(void *context)
{
    struct cache_test *test = context;
    return vmm_pin(test->cache, pieces[1].block) == VMM_OK ? NULL : "the pin failed";
}

static void joined(void *(*steps)(void *), struct cache_test *test)
{
    pthread_t thread;
    void *trouble = NULL;
    assert_int_equal(pthread_create(&thread, NULL, steps, test), 0);
    assert_int_equal(pthread_join(thread, &trouble), 0);
    if (trouble != NULL)
        fail_msg("%s", (const char *)trouble);
}

static void with_several_threads_it_has_to_be_asked_for(void **state)
{
    struct cache_test *test = *state;
    void *(*const steps[])(void *) = { other_thread_allocates, other_thread_pins };
    for (int i = 0; i < 2; i++) {
        cache_holed(test, VMM_COMPACTION_AUTO);
        joined(steps[i], test);
        (void)cache_trimmed(test, 0);
        needed_is_refused(test);
    }
    cache_holed(test, VMM_COMPACTION_ON);
    joined(other_thread_allocates, test);
    block_given(test, block_taken(test, NEEDED, 2));
    assert_true(has_compacted(test));
    pieces_checked(test);
    pieces_given(test);
}

/* ---- Afterwards ------------------------------------------------------------------------------- */

static void the_cache_goes_on_after_compactions(void **state)
{
    struct cache_test *test = *state;
    uint64_t seed = 5;
    cache_holed(test, VMM_COMPACTION_AUTO);
    for (int round = 0; round < ROUNDS; round++) {
        struct piece *piece = &pieces[random_next(&seed) % PIECES];
        if (piece->block != NULL) {
            piece_given(test, piece);
        } else {
            size_t bytes = random_next(&seed) % 4 == 0 ? random_bytes(&seed, LARGEST) : ODD_PIECE;
            unsigned stream = (unsigned)(random_next(&seed) % CACHE_STREAMS);
            void *probe;
            if (vmm_alloc(test->cache, bytes, test->streams[stream], &probe) != VMM_OK)
                continue;
            block_given(test, probe);
            piece_taken(test, piece, bytes, stream);
        }
        if (round % 80 == 0)
            assert_ok(vmm_wait(test->cache)); /* busy streams are left alone */
        if (round % 40 == 0)
            (void)cache_trimmed(test, random_next(&seed) % 2 * CACHE_LIMIT / 2);
        if (round % 25 == 0)
            pieces_checked(test);
    }
    assert_true(test->cache->compactions > 2);
    pieces_checked(test);
    pieces_given(test);
    (void)cache_trimmed(test, 0);
    assert_int_equal(reserved(test), 0);
}

/* ---- Trims ------------------------------------------------------------------------------------ */

static void a_trim_moves_live_bytes_together(void **state)
{
    struct cache_test *test = *state;
    uint64_t live_bytes = PIECES / 2 * PIECE;
    cache_holed(test, VMM_COMPACTION_OFF);
    (void)cache_trimmed(test, 0);
    assert_true(reserved(test) > live_bytes * 3 / 2);
    pieces_given(test);
    cache_holed(test, VMM_COMPACTION_AUTO);
    uint64_t before = reserved(test);
    size_t released = cache_trimmed(test, 0);
    assert_int_equal(reserved(test), before - released);
    assert_true(reserved(test) < live_bytes * 3 / 2);
    pieces_checked(test);
    (void)cache_trimmed(test, 0);
    pieces_checked(test);
    pieces_given(test);
}

/* No more moves than the order asks for. */
static void a_trim_that_may_keep_enough_moves_nothing(void **state)
{
    struct cache_test *test = *state;
    cache_holed(test, VMM_COMPACTION_AUTO);
    (void)cache_trimmed(test, CACHE_LIMIT);
    assert_false(has_compacted(test));
    uint64_t keep = reserved(test) - 4 * test->driver->granule_bytes;
    (void)cache_trimmed(test, keep);
    assert_true(has_compacted(test));
    assert_true(reserved(test) <= keep);
    assert_true(reserved(test) + 4 * test->driver->granule_bytes > keep);
    pieces_checked(test);
    pieces_given(test);
}

static void a_trim_leaves_busy_streams_alone(void **state)
{
    struct cache_test *test = *state;
    cache_holed(test, VMM_COMPACTION_AUTO);
    uint64_t stalls = cache_stalls(test);
    bool is_sure = flight_begin(test, pieces[1].block, PIECE, 1);
    (void)cache_trimmed(test, 0);
    if (is_sure) {
        assert_int_equal(cache_stalls(test), stalls);
        assert_false(has_compacted(test));
    }
    pieces[1].word = 77; /* the flight's */
    flight_end(test);
    pieces_checked(test);
    pieces_given(test);
}

static void a_trim_waits_when_it_is_told_to(void **state)
{
    struct cache_test *test = *state;
    cache_holed(test, VMM_COMPACTION_ON);
    uint64_t stalls = cache_stalls(test);
    for (uint32_t i = 1; i < PIECES; i += 2) {
        pieces[i].word += 1000;
        block_filled(test, pieces[i].block, PIECE, pieces[i].word, 1);
    }
    (void)cache_trimmed(test, 0);
    assert_true(cache_stalls(test) > stalls);
    assert_true(has_compacted(test));
    pieces_checked(test);
    pieces_given(test);
}

/* ---- Pins -------------------------------------------------------------------------------------- */

static uint64_t handle_at(struct cache_test *test, const void *address)
{
    const struct memory *memory = &test->cache->memory;
    uint64_t granule = vmm__arena_granule(&memory->arena, (uintptr_t)address);
    const struct chunk *chunk = vmm__memory_chunk(memory, granule);
    while (chunk->is_alias)
        chunk = &memory->records[chunk->twin];
    return chunk->handle;
}

static void pinned_blocks_stay_in_their_memory(void **state)
{
    struct cache_test *test = *state;
    cache_holed(test, VMM_COMPACTION_AUTO);
    uint64_t handles[PIECES][2];
    for (int i = 1; i < PIECES; i += 6) {
        assert_ok(vmm_pin(test->cache, pieces[i].block));
        handles[i][0] = handle_at(test, pieces[i].block);
        handles[i][1] = handle_at(test, (const char *)pieces[i].block + PIECE - 1);
    }
    (void)cache_trimmed(test, 0);
    assert_true(has_compacted(test));
    for (int i = 1; i < PIECES; i += 6) {
        assert_true(handle_at(test, pieces[i].block) == handles[i][0]);
        assert_true(handle_at(test, (const char *)pieces[i].block + PIECE - 1) == handles[i][1]);
    }
    uint64_t pinned = reserved(test);
    pieces_checked(test);
    for (int i = 1; i < PIECES; i += 6)
        assert_ok(vmm_unpin(test->cache, pieces[i].block));
    (void)cache_trimmed(test, 0);
    assert_true(reserved(test) <= pinned);
    pieces_checked(test);
    pieces_given(test);
}

static void all_pinned_is_all_left_alone(void **state)
{
    struct cache_test *test = *state;
    cache_holed(test, VMM_COMPACTION_AUTO);
    for (int i = 1; i < PIECES; i += 2)
        assert_ok(vmm_pin(test->cache, pieces[i].block));
    uint64_t copies = vmm__driver_calls(test->driver, DRIVER_CALL_copy);
    void *out;
    assert_status(vmm_alloc(test->cache, NEEDED, test->streams[1], &out), VMM_ERR_DEVICE_OOM);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_copy), copies);
    pieces_given(test); /* which ends the pins */
    for (int i = 0; i < PIECES; i++)
        piece_taken(test, &pieces[i], PIECE, 1);
    for (int i = 0; i < PIECES; i += 2)
        piece_given(test, &pieces[i]);
    block_given(test, block_taken(test, NEEDED, 1));
    pieces_checked(test);
    pieces_given(test);
}

static void pins_are_for_live_blocks(void **state)
{
    struct cache_test *test = *state;
    vmm_status (*const calls[])(vmm_cache *, void *) = { vmm_pin, vmm_unpin };
    static const size_t sizes[] = { 100, 300000, 5 * MIB };
    for (int i = 0; i < 6; i++) {
        vmm_status (*call)(vmm_cache *, void *) = calls[i % 2];
        char *block = block_taken(test, sizes[i / 2], 1);
        assert_status(call(NULL, block), VMM_ERR_INVALID_ARGUMENT);
        assert_status(call(test->cache, NULL), VMM_ERR_UNKNOWN_POINTER);
        assert_status(call(test->cache, test), VMM_ERR_UNKNOWN_POINTER);
        assert_status(call(test->cache, block + 1), VMM_ERR_UNKNOWN_POINTER);
        assert_status(call(test->cache, block + 8192), VMM_ERR_UNKNOWN_POINTER);
        assert_non_null(strstr(vmm_last_error(), i % 2 == 0 ? "pin" : "unpin"));
        for (int twice = 0; twice < 2; twice++)
            assert_ok(call(test->cache, block));
        block_used(test, block, 2);
        block_given(test, block);
        assert_status(call(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    }
    work_verified(test);
    cache_verified(test);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(a_request_is_met_by_moving_live_bytes),
        CACHE_TEST(without_compaction_it_is_refused),
        CACHE_TEST(with_several_threads_it_has_to_be_asked_for),
        CACHE_TEST(the_cache_goes_on_after_compactions),
        CACHE_TEST(a_trim_moves_live_bytes_together),
        CACHE_TEST(a_trim_that_may_keep_enough_moves_nothing),
        CACHE_TEST(a_trim_leaves_busy_streams_alone),
        CACHE_TEST(a_trim_waits_when_it_is_told_to),
        CACHE_TEST(pinned_blocks_stay_in_their_memory),
        CACHE_TEST(all_pinned_is_all_left_alone),
        CACHE_TEST(pins_are_for_live_blocks),
    };
    CACHE_MAIN(tests);
}
