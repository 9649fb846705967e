/*
 * Growth while work runs: memory under 50 ms of work moves to where it is needed, and the host does
 * not wait for that work. How long the host took is measured by the driver's clock, which for sim
 * is the sum of modelled costs and else the host's.
 */
#include "support/cache_support.h"

#include <stdio.h>

#define MS        UINT64_C(1000000)
#define WORK_NS   (50 * MS)
#define GROWTH_NS (10 * MS)
#define FENCE     (4 * MIB)
enum { ROUNDS = 20, FENCES = 2 };

/* Giving access takes the host driver a quarter of a millisecond a granule, because it prefaults:
 * there the blocks are smaller. */
static uint64_t old_bytes(void)
{
    return driver_choice_kind() == VMM_DRIVER_HOST ? 16 * MIB : 64 * MIB;
}

static uint64_t new_bytes(void)
{
    return old_bytes() + old_bytes() / 4;
}

/* A block between two live ones, so that it can grow in neither direction where it lies. */
struct scene {
    unsigned from; /* stream of the old block */
    unsigned to;   /* stream of the new one */
    vmm_sharing sharing;
    void *old;
    void *fences[FENCES];
};

/* What one growth took. */
struct growth {
    uint64_t ns;
    uint64_t moved; /* chunks that were mapped without being created */
    bool work_ran;  /* when it was over */
};

static void fences_touched(struct cache_test *test, struct scene *scene, bool are_checked)
{
    for (uint32_t i = 0; i < FENCES; i++) {
        if (are_checked)
            block_checked(test, scene->fences[i], FENCE, 70 + i, scene->from);
        else
            block_filled(test, scene->fences[i], FENCE, 70 + i, scene->from);
    }
}

/* Leaves room under the limit for no more than what the new block has beyond the old one. */
static void scene_begin(struct cache_test *test, struct scene *scene)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.sharing = scene->sharing;
    config.limit_bytes = FENCES * FENCE + new_bytes();
    cache_restart(test, &config);
    scene->fences[0] = block_taken(test, FENCE, scene->from);
    scene->old = block_taken(test, old_bytes(), scene->from);
    scene->fences[1] = block_taken(test, FENCE, scene->from);
    fences_touched(test, scene, false);
}

static void work_submitted(struct cache_test *test, struct scene *scene, unsigned stream)
{
    assert_ok(vmm__driver_delay(test->driver, WORK_NS, test->streams[stream]));
    if (stream == scene->from) {
        block_filled(test, scene->old, old_bytes(), 1, stream);
        block_checked(test, scene->old, old_bytes(), 1, stream);
    }
}

/* The growth itself; `busy` is the stream whose work runs meanwhile. */
static struct growth block_grown(struct cache_test *test, struct scene *scene, unsigned busy,
                                 void **block)
{
    void *event;
    assert_ok(vmm__driver_event_create(test->driver, &event));
    assert_ok(vmm__driver_event_record(test->driver, event, test->streams[busy]));
    vmm_stats before = cache_stats(test);
    uint64_t start = vmm__driver_clock(test->driver);
    *block = block_taken(test, new_bytes(), scene->to);
    struct growth growth = { .ns = vmm__driver_clock(test->driver) - start };
    vmm_status status = vmm__driver_event_query(test->driver, event);
    vmm_stats after = cache_stats(test);
    assert_true(status == VMM_OK || status == VMM_NOT_READY);
    growth.work_ran = status == VMM_NOT_READY;
    growth.moved = after.map_calls - before.map_calls;
    growth.moved -= after.create_calls - before.create_calls;
    assert_int_equal(after.stalls, before.stalls);
    assert_ok(vmm__driver_event_destroy(test->driver, event));
    return growth;
}

/* The new block is whole, and nobody else's memory is in it. */
static void block_proven(struct cache_test *test, struct scene *scene, void *block)
{
    block_filled(test, block, new_bytes(), 2, scene->to);
    fences_touched(test, scene, true);
    block_checked(test, block, new_bytes(), 2, scene->to);
    cache_verified(test);
    work_verified(test);
    block_given(test, block);
    assert_int_equal(cache_stats(test).reserved_bytes.peak, FENCES * FENCE + new_bytes());
}

static int ns_compared(const void *one, const void *other)
{
    const struct growth *left = one;
    const struct growth *right = other;
    return left->ns < right->ns ? -1 : left->ns > right->ns;
}

/*
 * The median must be far below the length of the work, and the work must still have run after each
 * growth. The host driver shares its processors with its own workers and with everybody else: five
 * growths of the twenty may come late there.
 */
static void growths_judged(struct growth *growths, const char *what)
{
    uint64_t late = 0;
    uint64_t slow = 0;
    uint64_t allowed = driver_choice_kind() == VMM_DRIVER_HOST ? 5 : 0;
    for (int i = 0; i < ROUNDS; i++) {
        late += !growths[i].work_ran;
        slow += growths[i].ns >= GROWTH_NS;
    }
    qsort(growths, ROUNDS, sizeof *growths, ns_compared);
    const struct growth *median = &growths[ROUNDS / 2];
    assert_true(median->moved > 0);
    double us = (double)median->ns / 1e3;
    print_message("%s: median %.0f us (%.0f to %.0f) under %.0f ms of work; %llu chunks moved, "
                  "%.1f us each\n",
                  what, us, (double)growths[0].ns / 1e3, (double)growths[ROUNDS - 1].ns / 1e3,
                  (double)WORK_NS / 1e6, (unsigned long long)median->moved,
                  us / (double)median->moved);
    assert_true(slow <= allowed);
    assert_true(late <= allowed);
}

static void own_memory_is_handed_over_under_work(void **state)
{
    struct cache_test *test = *state;
    struct growth growths[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct scene scene = { .from = 1, .to = 1 };
        void *block;
        scene_begin(test, &scene);
        work_verified(test);
        work_submitted(test, &scene, 1);
        block_given(test, scene.old);
        growths[round] = block_grown(test, &scene, 1, &block);
        block_proven(test, &scene, block);
    }
    growths_judged(growths, "own memory, in use");
}

/* The stream that asks is at work; the one that the memory comes from is not. */
static void finished_memory_of_others_moves_under_work(void **state)
{
    struct cache_test *test = *state;
    struct growth growths[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct scene scene = { .from = 2, .to = 1 };
        void *block;
        scene_begin(test, &scene);
        block_filled(test, scene.old, old_bytes(), 1, 2);
        work_verified(test);
        block_given(test, scene.old);
        work_submitted(test, &scene, 1);
        uint64_t waits = cache_stats(test).stream_waits;
        growths[round] = block_grown(test, &scene, 1, &block);
        assert_int_equal(cache_stats(test).stream_waits, waits);
        block_proven(test, &scene, block);
    }
    growths_judged(growths, "memory of a stream that has finished");
}

/* The other stream's work runs on the very memory: the stream waits for it, the host does not. */
static void memory_of_others_in_use_is_waited_for_by_the_stream(void **state)
{
    struct cache_test *test = *state;
    struct growth growths[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct scene scene = { .from = 2, .to = 1, .sharing = VMM_SHARING_WAIT };
        void *block;
        scene_begin(test, &scene);
        work_verified(test);
        work_submitted(test, &scene, 2);
        block_given(test, scene.old);
        uint64_t waits = cache_stats(test).stream_waits;
        growths[round] = block_grown(test, &scene, 2, &block);
        assert_true(cache_stats(test).stream_waits > waits || !growths[round].work_ran);
        block_proven(test, &scene, block);
    }
    growths_judged(growths, "memory of a stream that has not finished");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(own_memory_is_handed_over_under_work),
        CACHE_TEST(finished_memory_of_others_moves_under_work),
        CACHE_TEST(memory_of_others_in_use_is_waited_for_by_the_stream),
    };
    CACHE_MAIN(tests);
}
