/* Compaction on every driver: requests and trims that it helps, and what it must leave alone. */
#include "support/cache_support.h"

#include "cache/cache.h"

#include <string.h>

/* Blocks of 3 MiB fill large chunks; of every two one goes: no chunk is idle, no hole is larger. */
#define PIECE     (3 * MIB)
#define HOLED     (96 * MIB) /* the rest of the limit is room for copies */
#define NEEDED    (48 * MIB) /* fits only once live bytes have moved */
#define LARGEST   (9 * MIB)
#define ODD_PIECE ((size_t)(PIECE + 512 * 7))
enum { PIECES = (int)(HOLED / PIECE), ROUNDS = 200 };

struct piece {
    void *block; /* NULL: given back */
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

static struct piece pieces[PIECES];

static void piece_alloc(struct cache_test *test, struct piece *piece, size_t bytes, unsigned stream)
{
    static uint32_t words;
    *piece = (struct piece){ .bytes = bytes, .word = ++words, .stream = stream };
    piece->block = block_alloc(test, bytes, stream);
    block_fill(test, piece->block, bytes, piece->word, stream);
}

static void piece_free(struct cache_test *test, struct piece *piece)
{
    block_check(test, piece->block, piece->bytes, piece->word, piece->stream);
    block_free(test, piece->block);
    piece->block = NULL;
}

static void pieces_check(struct cache_test *test)
{
    for (int i = 0; i < PIECES; i++) {
        const struct piece *piece = &pieces[i];
        if (piece->block != NULL)
            block_check(test, piece->block, piece->bytes, piece->word, piece->stream);
    }
    work_verify(test);
    cache_verify(test);
}

static void pieces_free(struct cache_test *test)
{
    for (int i = 0; i < PIECES; i++) {
        if (pieces[i].block != NULL)
            piece_free(test, &pieces[i]);
    }
    work_verify(test);
}

/* A fresh cache, full of holes. */
static void cache_holed(struct cache_test *test, vmm_switch compaction)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.footprint_permille = VMM_FOOTPRINT_ANY;
    config.compaction = compaction;
    cache_restart(test, &config);
    large_chunks_make(test, HOLED, 1);
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    for (int i = 0; i < PIECES; i++)
        piece_alloc(test, &pieces[i], PIECE, 1);
    for (int i = 0; i < PIECES; i += 2)
        piece_free(test, &pieces[i]);
    work_verify(test);
    assert_true(cache_stats(test).idle_bytes < PIECE);
}

static uint64_t reserved(struct cache_test *test)
{
    return cache_stats(test).reserved_bytes.current;
}

static bool has_compacted(const struct cache_test *test)
{
    return test->cache->counts.compactions > 0;
}

/* ---- Requests --------------------------------------------------------------------------------- */

CACHE_TEST(a_request_succeeds_after_compaction)
{
    cache_holed(test, VMM_ON);
    void *needed = block_alloc(test, NEEDED, 2);
    assert_true(has_compacted(test));
    block_fill(test, needed, NEEDED, 4711, 2);
    pieces_check(test);
    block_check(test, needed, NEEDED, 4711, 2);
    assert_int_equal(cache_stats(test).ooms, 0);
    block_free(test, needed);
    pieces_free(test);
    (void)cache_trim(test, 0);
    assert_int_equal(reserved(test), 0);
}

struct live_sums {
    uint64_t hash;
};

static int live_sum(void *context, const vmm_item *item)
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
    assert_ok(vmm_walk(test->cache, live_sum, &before));
    uint64_t copies = vmm__driver_calls(test->driver, DRIVER_CALL_copy);
    void *out = test;
    assert_status(vmm_alloc(test->cache, NEEDED, test->streams[2], &out), VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(out, test);
    assert_ok(vmm_walk(test->cache, live_sum, &after));
    assert_int_equal(before.hash, after.hash);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_copy), copies);
    assert_false(has_compacted(test));
    pieces_check(test);
    pieces_free(test);
}

CACHE_TEST(without_compaction_the_call_is_refused)
{
    cache_holed(test, VMM_OFF);
    needed_is_refused(test);
}

/* ---- Afterwards ------------------------------------------------------------------------------- */

/* The chunks that are made under the limit have one granule, so that only the first ones are compacted. */
static void go_on(struct cache_test *test, uint64_t seed)
{
    cache_holed(test, VMM_ON);
    for (int round = 0; round < ROUNDS; round++) {
        struct piece *piece = &pieces[random_next(&seed) % PIECES];
        if (piece->block != NULL) {
            piece_free(test, piece);
        } else {
            size_t bytes = random_next(&seed) % 4 == 0 ? random_bytes(&seed, LARGEST) : ODD_PIECE;
            unsigned stream = (unsigned)(random_next(&seed) % CACHE_STREAMS);
            void *probe;
            if (vmm_alloc(test->cache, bytes, test->streams[stream], &probe) != VMM_OK)
                continue;
            block_free(test, probe);
            piece_alloc(test, piece, bytes, stream);
        }
        if (round % 40 == 0)
            (void)cache_trim(test, random_next(&seed) % 2 * CACHE_LIMIT / 2);
        if (round % 25 == 0)
            pieces_check(test);
    }
    assert_true(has_compacted(test));
    pieces_check(test);
    pieces_free(test);
    (void)cache_trim(test, 0);
    assert_int_equal(reserved(test), 0);
}

CACHE_TEST(the_cache_goes_on_after_compactions)
{
    for (uint64_t seed = 5; seed < 9; seed++)
        go_on(test, seed);
}

/* ---- Trims ------------------------------------------------------------------------------------ */

CACHE_TEST(a_trim_compacts_live_bytes)
{
    uint64_t live_bytes = PIECES / 2 * PIECE;
    cache_holed(test, VMM_OFF);
    (void)cache_trim(test, 0);
    assert_true(reserved(test) > live_bytes * 3 / 2);
    pieces_free(test);
    cache_holed(test, VMM_ON);
    uint64_t before = reserved(test);
    size_t released = cache_trim(test, 0);
    assert_int_equal(reserved(test), before - released);
    assert_true(reserved(test) < live_bytes * 3 / 2);
    pieces_check(test);
    (void)cache_trim(test, 0);
    pieces_check(test);
    pieces_free(test);
}

/* No more moves than the order asks for. */
CACHE_TEST(a_trim_that_may_keep_enough_moves_nothing)
{
    cache_holed(test, VMM_ON);
    (void)cache_trim(test, CACHE_LIMIT);
    assert_false(has_compacted(test));
    uint64_t keep = reserved(test) - 4 * test->driver->granule_bytes;
    (void)cache_trim(test, keep);
    assert_true(has_compacted(test));
    assert_true(reserved(test) <= keep);
    assert_true(reserved(test) + 4 * test->driver->granule_bytes > keep);
    pieces_check(test);
    pieces_free(test);
}

CACHE_TEST(a_trim_that_compacts_waits_for_the_device)
{
    cache_holed(test, VMM_ON);
    uint64_t stalls = cache_stalls(test);
    assert_ok(vmm__driver_delay(test->driver, 20000000, test->streams[1]));
    for (uint32_t i = 1; i < PIECES; i += 2) {
        pieces[i].word += 1000;
        block_fill(test, pieces[i].block, PIECE, pieces[i].word, 1);
    }
    (void)cache_trim(test, 0);
    assert_true(cache_stalls(test) > stalls);
    assert_true(has_compacted(test));
    pieces_check(test);
    pieces_free(test);
}

/* ---- Pins -------------------------------------------------------------------------------------- */

static uint64_t handle_at(struct cache_test *test, const void *address)
{
    const struct vm *memory = &test->cache->vm;
    uint64_t granule = vmm__arena_granule(&memory->arena, (uintptr_t)address);
    return vmm__vm_chunk(memory, granule)->handle;
}

CACHE_TEST(pinned_blocks_stay_in_their_memory)
{
    cache_holed(test, VMM_ON);
    uint64_t handles[PIECES][2];
    for (int i = 1; i < PIECES; i += 24) {
        assert_ok(vmm_pin(test->cache, pieces[i].block));
        handles[i][0] = handle_at(test, pieces[i].block);
        handles[i][1] = handle_at(test, (const char *)pieces[i].block + PIECE - 1);
    }
    (void)cache_trim(test, 0);
    assert_true(has_compacted(test));
    for (int i = 1; i < PIECES; i += 24) {
        assert_true(handle_at(test, pieces[i].block) == handles[i][0]);
        assert_true(handle_at(test, (const char *)pieces[i].block + PIECE - 1) == handles[i][1]);
    }
    uint64_t pinned = reserved(test);
    pieces_check(test);
    for (int i = 1; i < PIECES; i += 24)
        assert_ok(vmm_unpin(test->cache, pieces[i].block));
    (void)cache_trim(test, 0);
    assert_true(reserved(test) < pinned);
    pieces_check(test);
    pieces_free(test);
}

CACHE_TEST(compaction_moves_no_pinned_block)
{
    cache_holed(test, VMM_ON);
    for (int i = 1; i < PIECES; i += 2)
        assert_ok(vmm_pin(test->cache, pieces[i].block));
    uint64_t copies = vmm__driver_calls(test->driver, DRIVER_CALL_copy);
    void *out;
    assert_status(vmm_alloc(test->cache, NEEDED, test->streams[1], &out), VMM_ERR_DEVICE_OOM);
    assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_copy), copies);
    pieces_free(test); /* which ends the pins */
    block_free(test, block_alloc(test, HOLED, 1));
    for (int i = 0; i < PIECES; i++)
        piece_alloc(test, &pieces[i], PIECE, 1);
    for (int i = 0; i < PIECES; i += 2)
        piece_free(test, &pieces[i]);
    block_free(test, block_alloc(test, NEEDED, 1));
    pieces_check(test);
    pieces_free(test);
}

CACHE_TEST(pins_are_for_live_blocks)
{
    vmm_status (*const calls[])(vmm_cache *, void *) = { vmm_pin, vmm_unpin };
    static const size_t sizes[] = { 100, 300000, 5 * MIB };
    for (int i = 0; i < 6; i++) {
        vmm_status (*call)(vmm_cache *, void *) = calls[i % 2];
        char *block = block_alloc(test, sizes[i / 2], 1);
        assert_status(call(NULL, block), VMM_ERR_INVALID_ARGUMENT);
        assert_status(call(test->cache, NULL), VMM_ERR_UNKNOWN_POINTER);
        assert_status(call(test->cache, test), VMM_ERR_UNKNOWN_POINTER);
        assert_status(call(test->cache, block + 1), VMM_ERR_UNKNOWN_POINTER);
        assert_status(call(test->cache, block + 8192), VMM_ERR_UNKNOWN_POINTER);
        assert_non_null(strstr(vmm_last_error(), i % 2 == 0 ? "pin" : "unpin"));
        for (int twice = 0; twice < 2; twice++)
            assert_ok(call(test->cache, block));
        block_use(test, block, 2);
        block_free(test, block);
        assert_status(call(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    }
    work_verify(test);
}

CACHE_MAIN()
