/*
 * A million wrong pointers, 200 000 in slow builds, against 10 000 live blocks: every call refuses each pointer, unless
 * it is the start of a live block. Such a block is freed and replaced.
 *
 * usage: test_negative_random sim|host|cuda [SEED [POINTERS]]
 */
#define _GNU_SOURCE
#include "support/cache_support.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIVE = 10000, SECONDS_MOST = IS_SLOW_BUILD ? 240 : 60 };

static struct {
    uint64_t seed;
    uint64_t pointers;
    uint64_t refused; /* vmm_find() refuses only pointers outside of live blocks */
    uint64_t starts;  /* pointers that were the start of a live block */
    uint64_t inside;
} run = { .seed = 1, .pointers = IS_SLOW_BUILD ? 200000 : 1000000 };

struct live {
    uint64_t address;
    uint64_t bytes; /* requested */
    uint64_t end;   /* of the block */
    uint32_t word;
    unsigned stream;
};

static struct live lives[LIVE]; /* by ascending address */

static int addresses_compare(const void *a, const void *b)
{
    uint64_t one = ((const struct live *)a)->address;
    uint64_t two = ((const struct live *)b)->address;
    return (one > two) - (one < two);
}

static uint64_t bytes_choose(void)
{
    uint64_t dice = random_next(&run.seed) % 100;
    uint64_t most = dice < 80 ? 2000 : dice < 99 ? 20000 : 2 * MIB;
    return random_next(&run.seed) % most + 1;
}

static struct live live_create(struct cache_test *test, uint64_t bytes, uint32_t word)
{
    struct live live = { .bytes = bytes, .word = word };
    live.stream = (unsigned)(random_next(&run.seed) % CACHE_STREAMS);
    live.address = (uintptr_t)block_alloc(test, live.bytes, live.stream);
    live.end = live.address + vmm_block_bytes(test->cache, live.bytes);
    block_fill(test, (void *)(uintptr_t)live.address, live.bytes, word, live.stream);
    return live;
}

/* The last live block that starts at or before an address; NULL if there is none. */
static struct live *live_before(uint64_t address)
{
    size_t low = 0;
    size_t high = LIVE;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (lives[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? NULL : &lives[low - 1];
}

/* Any number, or one near a live block, near the arena, or with a bit flipped. */
static uint64_t pointer_choose(void)
{
    const struct live *near = &lives[random_next(&run.seed) % LIVE];
    uint64_t noise = random_next(&run.seed);
    switch (random_next(&run.seed) % 8) {
    case 0:
        return noise;
    case 1:
        return noise >> noise % 64;
    case 2:
        return near->address ^ UINT64_C(1) << noise % 64;
    case 3:
        return near->address + noise % (2 * (near->end - near->address));
    case 4:
        return near->address + (noise % 64 - 32) * 512;
    case 5:
        return near->end - noise % 2;
    case 6:
        return near->address / (2 * MIB) * (2 * MIB) + (noise % 9 - 4) * 2 * MIB;
    default:
        return near->address + noise % (8 * GIB) - 4 * GIB;
    }
}

/* Moves a changed block to its place in the sorted array. */
static void live_sort(struct live *live)
{
    struct live changed = *live;
    size_t at = (size_t)(live - lives);
    memmove(live, live + 1, (LIVE - at - 1) * sizeof *live);
    lives[LIVE - 1].address = UINT64_MAX;
    struct live *before = live_before(changed.address);
    at = before == NULL ? 0 : (size_t)(before - lives) + 1;
    memmove(&lives[at + 1], &lives[at], (LIVE - at - 1) * sizeof *live);
    lives[at] = changed;
}

static void live_replace(struct cache_test *test, struct live *live, uint32_t word)
{
    void *pointer = (void *)(uintptr_t)live->address;
    block_check(test, pointer, live->bytes, live->word, live->stream);
    block_free(test, pointer);
    assert_int_equal(vmm_free(test->cache, pointer), VMM_ERR_UNKNOWN_POINTER);
    *live = live_create(test, live->bytes, word);
    live_sort(live);
    run.starts++;
}

static void pointer_find(struct cache_test *test, void *pointer, const struct live *live)
{
    vmm_item item = VMM_ITEM_INIT;
    bool is_inside = live != NULL && (uintptr_t)pointer < live->end;
    vmm_status status = vmm_find(test->cache, pointer, &item);
    assert_int_equal(status, is_inside ? VMM_OK : VMM_ERR_UNKNOWN_POINTER);
    assert_true(!is_inside || item.address == live->address);
    run.inside += is_inside;
}

static void pointer_try(struct cache_test *test, uint32_t word)
{
    uint64_t address = pointer_choose();
    void *pointer = (void *)(uintptr_t)address;
    struct live *live = live_before(address);
    bool is_start = live != NULL && live->address == address;
    uint64_t dice = random_next(&run.seed) % 64;
    if (pointer == NULL)
        return;
    run.refused += !is_start;
    if (dice == 0)
        pointer_find(test, pointer, live);
    else if (is_start)
        live_replace(test, live, word);
    else if (dice < 40)
        assert_int_equal(vmm_free(test->cache, pointer), VMM_ERR_UNKNOWN_POINTER);
    else if (dice < 48)
        assert_int_equal(
            vmm_record_stream(test->cache, pointer, test->streams[dice % CACHE_STREAMS]),
            VMM_ERR_UNKNOWN_POINTER);
    else if (dice < 56)
        assert_int_equal(vmm_pin(test->cache, pointer), VMM_ERR_UNKNOWN_POINTER);
    else
        assert_int_equal(vmm_unpin(test->cache, pointer), VMM_ERR_UNKNOWN_POINTER);
}

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

CACHE_TEST(wrong_pointers_are_refused)
{
    uint64_t seed = run.seed;
    cache_restart_with(test, .limit_bytes = 400 * MIB, .arena_bytes = UINT64_C(1) << 36);
    for (uint32_t i = 0; i < LIVE; i++)
        lives[i] = live_create(test, bytes_choose(), i);
    qsort(lives, LIVE, sizeof lives[0], addresses_compare);
    double begin = seconds_now();
    for (uint32_t i = LIVE; run.refused < run.pointers; i++)
        pointer_try(test, i);
    double seconds = seconds_now() - begin;
    assert_int_equal(cache_stats(test).allocations.current, LIVE);
    cache_verify(test);
    for (int i = 0; i < LIVE; i++) {
        block_check(test, (void *)(uintptr_t)lives[i].address, lives[i].bytes, lives[i].word,
                    lives[i].stream);
        block_free(test, (void *)(uintptr_t)lives[i].address);
    }
    work_verify(test);
    print_message("seed %llu: %llu pointers refused, %llu starts of live blocks freed, %.1f s\n",
                  (unsigned long long)seed, (unsigned long long)run.refused,
                  (unsigned long long)run.starts, seconds);
    assert_true(run.starts > 0 && run.inside > 0);
    assert_true(seconds < SECONDS_MOST);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        run.seed = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        run.pointers = strtoull(argv[3], NULL, 10);
    driver_choice_read(argc, argv);
    return tests_run(cache_group_setup, cache_group_teardown);
}
