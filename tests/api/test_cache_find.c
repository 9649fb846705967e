/* From an address to its block: vmm_find() against a model, and vmm_block_bytes(). */
#define _GNU_SOURCE
#include "support/find_support.h"
#include "support/graph_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { SLOTS = 400, ROUNDS = 3000 };

struct known {
    char *block; /* NULL: there is none */
    size_t bytes;
    unsigned stream;
    bool is_live;
};

static void nothing_found(struct cache_test *test, const void *address)
{
    vmm_item item;
    vmm_item before;
    memset(&item, 0x5a, sizeof item);
    item.struct_size = sizeof item;
    before = item;
    assert_status(both_find(test->cache, address, &item), VMM_ERR_UNKNOWN_POINTER);
    assert_memory_equal(&item, &before, sizeof item);
}

/* Whatever byte of the block is asked for. */
static void known_found(struct cache_test *test, const struct known *known)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(test->cache, known->block, &item));
    assert_int_equal(item.bytes, vmm_block_bytes(test->cache, known->bytes));
    uint64_t offsets[] = { 0, 1, known->bytes / 2, known->bytes - 1, item.bytes - 1 };
    for (int i = 0; i < 5; i++) {
        item = (vmm_item)VMM_ITEM_INIT;
        assert_ok(both_find(test->cache, known->block + offsets[i], &item));
        assert_int_equal(item.kind, VMM_ITEM_BLOCK);
        assert_int_equal(item.state, VMM_ITEM_LIVE);
        assert_int_equal(item.address, (uintptr_t)known->block);
        assert_int_equal(item.requested_bytes, known->bytes);
        assert_ptr_equal(item.stream, test->streams[known->stream]);
        assert_int_equal(item.is_small, known->bytes <= MIB);
        assert_true(pool_id_is(item.pool_id, 0, 0));
    }
    vmm_item beyond = VMM_ITEM_INIT;
    if (both_find(test->cache, known->block + item.bytes, &beyond) == VMM_OK)
        assert_int_equal(beyond.address, (uintptr_t)known->block + item.bytes);
}

/* Every live block is found; of the others only those whose bytes are another block's now. */
static void all_compared(struct cache_test *test, const struct known *knowns)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        vmm_item item = VMM_ITEM_INIT;
        if (knowns[i].block == NULL)
            continue;
        if (knowns[i].is_live)
            known_found(test, &knowns[i]);
        else if (both_find(test->cache, knowns[i].block, &item) == VMM_OK)
            assert_true(item.address <= (uintptr_t)knowns[i].block);
    }
}

static void slot_turned(struct cache_test *test, struct known *known, uint64_t *seed)
{
    if (known->is_live) {
        known->is_live = false;
        if (random_next(seed) % 3 == 0)
            block_use(test, known->block, (unsigned)(random_next(seed) % CACHE_STREAMS));
        block_free(test, known->block);
        return;
    }
    known->bytes = random_bytes(seed, 5 * MIB);
    known->stream = (unsigned)(random_next(seed) % CACHE_STREAMS);
    void *block = NULL;
    vmm_status status = vmm_alloc(test->cache, known->bytes, test->streams[known->stream], &block);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    assert_ok(status);
    known->block = block;
    known->is_live = true;
}

CACHE_TEST(live_blocks_are_found_at_each_byte)
{
    struct known *knowns = calloc(SLOTS, sizeof *knowns);
    uint64_t seed = 3;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct known *known = &knowns[random_next(&seed) % SLOTS];
        char *block = known->block;
        bool was_live = known->is_live;
        slot_turned(test, known, &seed);
        if (was_live)
            nothing_found(test, block);
        if (round % 250 == 0)
            all_compared(test, knowns);
        if (round % 700 == 0)
            (void)cache_trim(test, random_next(&seed) % CACHE_LIMIT);
    }
    all_compared(test, knowns);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (knowns[i].is_live)
            block_free(test, knowns[i].block);
    }
    free(knowns);
}

struct visit {
    struct known *knowns;
    unsigned count;
};

static int live_listed(void *context, const vmm_item *item)
{
    struct visit *visit = context;
    if (item->kind != VMM_ITEM_BLOCK || visit->count == SLOTS)
        return 0;
    visit->knowns[visit->count++] = (struct known){ .block = (char *)(uintptr_t)item->address,
                                                    .bytes = item->bytes,
                                                    .is_live = item->state == VMM_ITEM_LIVE };
    return 0;
}

/* Waiting blocks, free ones, objects of slabs. */
CACHE_TEST(a_walk_and_a_search_agree)
{
    struct visit visit = { .knowns = calloc(SLOTS, sizeof *visit.knowns) };
    void *blocks[48];
    for (unsigned i = 0; i < 48; i++) {
        blocks[i] = block_alloc(test, mixed_sizes[i % MIXED] / 2 + 1, i % CACHE_STREAMS);
        if (i % 4 == 1)
            block_use(test, blocks[i], 2);
    }
    (void)flight_begin(test, blocks[2], 512, 2);
    for (unsigned i = 0; i < 48; i += 2)
        block_free(test, blocks[i + (i % 4) / 2]);
    assert_ok(vmm_walk(test->cache, live_listed, &visit));
    assert_true(visit.count < SLOTS);
    for (unsigned i = 0; i < visit.count; i++) {
        const struct known *known = &visit.knowns[i];
        if (!known->is_live) {
            nothing_found(test, known->block);
            nothing_found(test, known->block + known->bytes - 1);
            continue;
        }
        assert_int_equal(block_find(test, known->block).bytes, known->bytes);
    }
    flight_end(test);
    free(visit.knowns);
}

/* ---- Other caches and sizes -------------------------------------------------------------------- */

CACHE_TEST(foreign_addresses_are_not_found)
{
    char *block = block_alloc(test, 8 * MIB, 1);
    int here = 0;
    nothing_found(test, NULL);
    nothing_found(test, &here);
    nothing_found(test, (void *)UINTPTR_MAX);
    nothing_found(test, (void *)(uintptr_t)1);
    nothing_found(test, block + 8 * MIB);
    nothing_found(test, block + GIB);
    nothing_found(test, block - 1);
    block_free(test, block);
    nothing_found(test, block);
    (void)cache_trim(test, 0);
    nothing_found(test, block);
}

CACHE_TEST(items_of_an_older_caller_fit_its_struct)
{
    void *block = block_alloc(test, 777, 1);
    vmm_item item = { .struct_size = offsetof(vmm_item, stream) };
    vmm_stream untouched = (vmm_stream)&item;
    item.stream = untouched;
    assert_ok(vmm_find(test->cache, block, &item));
    assert_int_equal(item.struct_size, offsetof(vmm_item, stream));
    assert_int_equal(item.requested_bytes, 777);
    assert_ptr_equal(item.stream, untouched);
    struct {
        vmm_item item;
        uint64_t later;
    } longer = { .item = { .struct_size = sizeof longer }, .later = 9 };
    assert_ok(vmm_find(test->cache, block, &longer.item));
    assert_int_equal(longer.item.struct_size, sizeof longer);
    assert_int_equal(longer.later, 9);
}

CACHE_TEST(wrong_arguments_are_reported)
{
    vmm_item item = VMM_ITEM_INIT;
    void *block = block_alloc(test, 777, 1);
    assert_status(vmm_find(NULL, block, &item), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_find: cache is NULL"));
    assert_status(vmm_find(test->cache, block, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_find: item is NULL"));
    item.struct_size = offsetof(vmm_item, stream) - 1;
    assert_status(vmm_find(test->cache, block, &item), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "struct_size"));
    item.struct_size = 0;
    assert_status(vmm_find(test->cache, block, &item), VMM_ERR_INVALID_ARGUMENT);
    item.struct_size = sizeof item;
    assert_status(vmm_find(test->cache, &item, &item), VMM_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(vmm_last_error(), "is in no live block"));
}

/* The arena's bytes: a driver may reserve more than it was asked for. */
static uint64_t most_bytes(vmm_cache *cache)
{
    uint64_t most = 1;
    uint64_t too_many = UINT64_C(1) << 60;
    while (too_many - most > 1) {
        uint64_t middle = most + (too_many - most) / 2;
        if (vmm_block_bytes(cache, middle) != 0)
            most = middle;
        else
            too_many = middle;
    }
    return most;
}

CACHE_TEST(sizes_are_known_before)
{
    static const size_t sizes[] = { 0,    1,      512,     513, 4096,    4097,    8192,
                                    8193, 100000, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 7 };
    for (int caching = 1; caching >= 0; caching--) {
        cache_restart_with(test, .no_caching = !caching, .arena_bytes = GIB);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *block = block_alloc(test, sizes[i], 1);
            vmm_item item = block_find(test, block);
            assert_int_equal(item.bytes, vmm_block_bytes(test->cache, sizes[i]));
            assert_true(item.bytes >= sizes[i]);
            block_free(test, block);
        }
        uint64_t most = most_bytes(test->cache);
        assert_true(most >= GIB);
        assert_true(vmm_block_bytes(test->cache, most) == most);
        assert_true(vmm_block_bytes(test->cache, most + 1) == 0);
        assert_true(vmm_block_bytes(test->cache, UINT64_MAX) == 0);
    }
    assert_true(vmm_block_bytes(NULL, 1) == 0);
}

/* So that a block which replaces a slightly smaller one has mostly the same size. */
CACHE_TEST(sizes_of_blocks_have_steps)
{
    static const size_t rounded[][2] = {
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
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        assert_int_equal(vmm_block_bytes(test->cache, rounded[i][0]), rounded[i][1]);
}

/* ---- Magazines --------------------------------------------------------------------------------- */

enum { THREADS = 6, HELD = 8 };

struct hand {
    struct cache_test *test;
    pthread_t thread;
    pthread_barrier_t *barrier;
    unsigned number;
    void *held[HELD];  /* live in the end */
    void *given[HELD]; /* not any more, and perhaps kept by a magazine */
    bool is_troubled;
};

static void *hand_main(void *context)
{
    struct hand *hand = context;
    vmm_cache *cache = hand->test->cache;
    vmm_stream stream = hand->test->streams[1];
    (void)pthread_barrier_wait(hand->barrier);
    for (int round = 0; round < 3000; round++) {
        void **block = &hand->given[round % HELD];
        if (vmm_alloc(cache, 20000, stream, block) != VMM_OK || vmm_free(cache, *block) != VMM_OK)
            hand->is_troubled = true;
    }
    for (int i = 0; i < HELD; i++) {
        if (vmm_alloc(cache, 20000, stream, &hand->held[i]) != VMM_OK)
            hand->is_troubled = true;
    }
    (void)pthread_barrier_wait(hand->barrier); /* what is live stays so from now on */
    for (int i = 0; i < HELD; i++) {
        if (vmm_alloc(cache, 30000, stream, &hand->given[i]) != VMM_OK)
            hand->is_troubled = true;
    }
    for (int i = 0; i < HELD; i++) {
        if (vmm_free(cache, hand->given[i]) != VMM_OK)
            hand->is_troubled = true;
    }
    (void)pthread_barrier_wait(hand->barrier); /* the magazine lives as long as the thread */
    (void)pthread_barrier_wait(hand->barrier);
    return NULL;
}

CACHE_TEST(cached_blocks_of_threads_are_not_live)
{
    static pthread_barrier_t barrier;
    static struct hand hands[THREADS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (int i = 0; i < THREADS; i++) {
        hands[i] = (struct hand){ .test = test, .barrier = &barrier };
        assert_int_equal(pthread_create(&hands[i].thread, NULL, hand_main, &hands[i]), 0);
    }
    for (int phase = 0; phase < 3; phase++)
        (void)pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        assert_false(hands[i].is_troubled);
        for (int j = 0; j < HELD; j++) {
            assert_int_equal(block_find(test, hands[i].held[j]).requested_bytes, 20000);
            nothing_found(test, hands[i].given[j]);
        }
    }
    (void)pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(hands[i].thread, NULL);
        for (int j = 0; j < HELD; j++)
            block_free(test, hands[i].held[j]);
    }
    (void)pthread_barrier_destroy(&barrier);
}

/* ---- Questions beside frees -------------------------------------------------------------------- */

enum { SIZE_LEAST = 20000, SIZE_STEP = 4096 };

static _Atomic(char *) latest[THREADS]; /* the block that each thread has, or had */

/* What a thread learns of a block that another one frees meanwhile belongs to some block there. */
static bool other_is_sane(const struct hand *hand, const char *block)
{
    struct owned_block owned;
    vmm_status status = vmm__find_owned(hand->test->cache, block, &owned);
    if (status == VMM__NOT_FOUND)
        return true;
    return status == VMM_OK && owned.address <= (uintptr_t)block && !owned.is_imported &&
           owned.requested_bytes >= SIZE_LEAST &&
           owned.requested_bytes < SIZE_LEAST + SIZE_STEP * THREADS &&
           (owned.requested_bytes - SIZE_LEAST) % SIZE_STEP == 0;
}

static bool own_is_found(const struct hand *hand, const char *block, size_t bytes)
{
    struct owned_block owned;
    vmm_item item = VMM_ITEM_INIT;
    return vmm__find_owned(hand->test->cache, block, &owned) == VMM_OK &&
           owned.address == (uintptr_t)block && owned.requested_bytes == bytes &&
           vmm_find(hand->test->cache, block + bytes - 1, &item) == VMM_OK &&
           item.address == (uintptr_t)block && item.requested_bytes == bytes;
}

static void *asking_main(void *context)
{
    struct hand *hand = context;
    uint64_t seed = hand->number + 1;
    (void)pthread_barrier_wait(hand->barrier);
    for (int round = 0; round < 2000 && !hand->is_troubled; round++) {
        void *block = NULL;
        size_t bytes = SIZE_LEAST + SIZE_STEP * (random_next(&seed) % THREADS);
        if (vmm_alloc(hand->test->cache, bytes, hand->test->streams[1], &block) != VMM_OK) {
            hand->is_troubled = true;
            break;
        }
        atomic_store(&latest[hand->number], block);
        const char *other = atomic_load(&latest[random_next(&seed) % THREADS]);
        hand->is_troubled = !own_is_found(hand, block, bytes) || !other_is_sane(hand, other) ||
                            vmm_free(hand->test->cache, block) != VMM_OK;
    }
    return NULL;
}

CACHE_TEST(blocks_are_found_while_others_are_freed)
{
    static pthread_barrier_t barrier;
    static struct hand hands[THREADS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        atomic_store(&latest[i], NULL);
        hands[i] = (struct hand){ .test = test, .barrier = &barrier, .number = i };
        assert_int_equal(pthread_create(&hands[i].thread, NULL, asking_main, &hands[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(hands[i].thread, NULL);
        assert_false(hands[i].is_troubled);
    }
    (void)pthread_barrier_destroy(&barrier);
}

CACHE_MAIN()
