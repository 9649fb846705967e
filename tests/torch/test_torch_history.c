/*
 * Histories and snapshots agree, and the two kinds of statistics agree, after random operations of several streams,
 * on one thread and on several, on the sim driver, whose work lags behind.
 *
 * usage: test_torch_history plain|decay|wait|compact|no_caching|guard
 */
#define _GNU_SOURCE
#include "torch/scene.h"

#include "base/hostmem.h"
#include "cache/cache.h"
#include "driver/sim/sim.h"
#include "torch/device.h"

#include <pthread.h>
#include <time.h>

enum { THREADS = 4 };

static uint64_t stack_now(void)
{
    static _Atomic uint64_t number;
    return ++number;
}

static void sequence_check(uint64_t seed, uint64_t entries, uint64_t lag, double fraction)
{
    struct scene scene = scene_begin(seed, lag);
    vmm_torch_memory_fraction(fraction, scene.device);
    for (unsigned i = 0; i < scene_operations() / 8; i++)
        scene_step(&scene);
    const vmm_torch_snapshot *before;
    assert_ok(vmm_torch_history_start(entries, stack_now, 1));
    assert_ok(vmm_torch_snapshot_take(scene.device, &before));
    struct picture_sums sums = snapshot_sums(before);
    for (unsigned i = 0; i < scene_operations(); i++) {
        scene_step(&scene);
        if (i % (scene_operations() / 8) == 0)
            (void)scene_check(&scene);
    }
    struct playback first = scene_check(&scene);
    if (entries == UINT64_MAX && !scene_decays()) {
        assert_int_equal(first.mapped_bytes, sums.mapped_bytes);
        assert_int_equal(first.live, sums.live);
        assert_int_equal(first.waiting, sums.waiting);
    }
    vmm_torch_snapshot_drop(before);
    assert_ok(vmm_torch_history_stop());
    scene_clear(&scene);
    const vmm_torch_snapshot *after;
    assert_ok(vmm_torch_snapshot_take(scene.device, &after));
    assert_int_equal(after->event_count, 0);
    scene_stats_check(&scene, after);
    vmm_torch_snapshot_drop(after);
}

TEST(random_operations_are_recorded_in_order)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        sequence_check(seed, UINT64_MAX, seed % 3 == 0 ? 0 : seed * 7, 1.0);
}

TEST(order_holds_when_memory_is_scarce)
{
    for (uint64_t seed = 11; seed <= 14; seed++)
        sequence_check(seed, UINT64_MAX, seed % 2 * 20, 0.3);
}

TEST(order_holds_in_short_histories)
{
    sequence_check(21, 1, 9, 0.5);
    sequence_check(22, 100, 9, 0.5);
    sequence_check(23, 3000, 9, 0.5);
}

/* ---- Stacks after the end of a recording ----------------------------------------------------- */

static _Atomic int64_t copies; /* of stacks that are counted */

static uint64_t stack_counted(void)
{
    copies++;
    return stack_now();
}

static void stack_count(uint64_t stack, int change)
{
    (void)stack;
    copies += change;
}

static void counted_start(void)
{
    const vmm_torch_recording wanted = { .struct_size = sizeof wanted,
                                         .entries = 100,
                                         .stack = stack_counted,
                                         .free_stack = stack_counted,
                                         .use = stack_count };
    assert_ok(vmm_torch_provider()->history_start(&wanted));
}

/* Ends all waits, then frees one block as calls do. */
static void waits_end(const struct scene *scene)
{
    vmm_cache *cache = vmm_torch_cache(scene->device);
    vmm__sim_lag_set(cache->driver, 0);
    void *last = vmm_torch_try_alloc(MIB, scene->device, NULL);
    assert_ok(vmm__driver_fill(cache->driver, (uint64_t)(uintptr_t)last, 8, 7, NULL));
    assert_ok(vmm_trim(cache, 0, NULL));
    vmm_torch_free(last, MIB, scene->device, NULL);
}

/* Blocks that were live or waited when it ended keep theirs until they are free, and no longer. */
TEST(counted_stacks_end_with_their_blocks)
{
    for (uint64_t seed = 71; seed < 75; seed++) {
        struct scene scene = scene_begin(seed, seed % 2 * 40);
        counted_start();
        for (unsigned i = 0; i < 400; i++)
            scene_step(&scene);
        assert_ok(vmm_torch_history_stop());
        assert_int_equal(vmm__history_knows(), copies > 0);
        for (unsigned i = 0; i < 100; i++)
            scene_step(&scene);
        scene_clear(&scene);
        waits_end(&scene);
        assert_int_equal(copies, 0);
        assert_false(vmm__history_knows());
        assert_int_equal(vmm__torch_mode_now(), 0);
    }
}

TEST(a_recording_that_counts_nothing_ends_what_one_before_has_counted)
{
    struct scene scene = scene_begin(81, 0);
    counted_start();
    for (unsigned i = 0; i < 400; i++)
        scene_step(&scene);
    assert_ok(vmm_torch_history_stop());
    assert_true(copies > 0);
    assert_ok(vmm_torch_history_start(100, NULL, 0));
    assert_int_equal(copies, 0);
    assert_ok(vmm_torch_history_stop());
    assert_int_equal(vmm__torch_mode_now(), 0);
    scene_clear(&scene);
}

/* ---- Views ---------------------------------------------------------------------------------- */

/* Counts the segments of a snapshot that lie in views: each is one block of the same size. */
static unsigned views_count(const struct scene *scene, const vmm_torch_snapshot *snapshot)
{
    const struct vmm_cache *cache = vmm_torch_cache(scene->device);
    unsigned count = 0;
    for (uint64_t i = 0; i < snapshot->segment_count; i++) {
        const vmm_torch_segment *segment = &snapshot->segments[i];
        const vmm_torch_block *block = &snapshot->blocks[segment->first_block];
        if (!vmm__views_contain(&cache->views, segment->address))
            continue;
        assert_int_equal(segment->block_count, 1);
        assert_int_equal(block->address, segment->address);
        assert_int_equal(block->bytes, segment->bytes);
        assert_true(block->state == VMM_ITEM_LIVE || block->state == VMM_ITEM_WAITING);
        count++;
    }
    return count;
}

TEST(blocks_in_views_are_segments)
{
    struct scene scene = scene_begin(41, 5);
    unsigned count = 0;
    const struct vmm_cache *cache = vmm_torch_cache(scene.device);
    if (!cache->has_views || cache->no_caching || scene_decays())
        return; /* no view is made, or decay unmaps some meanwhile */
    for (unsigned i = 0; i < scene_operations(); i++) {
        const vmm_torch_snapshot *snapshot;
        scene_step(&scene);
        if (i % 16 != 0)
            continue;
        assert_ok(vmm_torch_snapshot_take(scene.device, &snapshot));
        count += views_count(&scene, snapshot);
        vmm_torch_snapshot_drop(snapshot);
    }
    assert_true(count > 0);
    scene_clear(&scene);
}

/* Simulates a clock that was set back: a push only knows the time of the event before it. */
TEST(event_times_never_decrease)
{
    static struct history history;
    vmm__history_init(&history);
    assert_ok(vmm__history_prepare(&history, 4));
    vmm__history_open(&history);
    const vmm_torch_event event = { .action = 0 };
    (void)vmm__history_push(&history, &event);
    uint64_t later_us = history.latest_us + 1000000000U;
    history.latest_us = later_us;
    (void)vmm__history_push(&history, &event);
    assert_int_equal(history.events[1].time_us, later_us);
    vmm__history_close(&history);
    assert_int_equal(history.latest_us, 0);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct worker {
    struct scene scene;
    pthread_t thread;
};

static void *worker_run(void *context)
{
    struct worker *worker = context;
    for (unsigned i = 0; i < scene_operations(); i++)
        scene_step(&worker->scene);
    return NULL;
}

static void workers_start(const struct scene *scene, struct worker *workers)
{
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].scene = *scene;
        workers[i].scene.is_alone = false;
        workers[i].scene.seed = scene->seed + 1000 * (i + 1);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
    }
}

TEST(threads_are_recorded_in_one_order)
{
    static struct worker workers[THREADS];
    struct scene scene = scene_begin(31, 11);
    scene.is_alone = false;
    assert_ok(vmm_torch_history_start(UINT64_MAX, stack_now, 0));
    workers_start(&scene, workers);
    for (unsigned i = 0; i < 8; i++)
        (void)scene_check(&scene);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    scene.is_alone = true;
    (void)scene_check(&scene);
    for (unsigned i = 0; i < THREADS; i++)
        scene_clear(&workers[i].scene);
    (void)scene_check(&scene);
    assert_ok(vmm_torch_history_stop());
}

/* Recording starts and stops while threads are at work. */
TEST(recording_starts_and_stops_under_load)
{
    static struct worker workers[THREADS];
    struct scene scene = scene_begin(41, 3);
    scene.is_alone = false;
    workers_start(&scene, workers);
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (unsigned i = 0; i < 8; i++) {
        assert_ok(vmm_torch_history_start(50 * (i + 1), stack_now, 0));
        (void)nanosleep(&pause, NULL); /* lets calls under way finish */
        (void)scene_check(&scene);
        if (i % 2 == 0)
            assert_ok(vmm_torch_history_stop());
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    assert_ok(vmm_torch_history_stop());
    for (unsigned i = 0; i < THREADS; i++)
        scene_clear(&workers[i].scene);
    scene.is_alone = true;
    (void)scene_check(&scene);
}

/* ---- Misuse --------------------------------------------------------------------------------- */

static struct {
    int device;
    size_t bytes;
    void *block;
    unsigned reports;
} misused;

/* A program's misuse function may take a snapshot and allocate, as other threads may meanwhile. */
static void misuse_inspect(void)
{
    const vmm_torch_snapshot *snapshot;
    misused.reports++;
    assert_ok(vmm_torch_snapshot_take(misused.device, &snapshot));
    (void)snapshot_play_back(snapshot);
    vmm_torch_snapshot_drop(snapshot);
    misused.block = vmm_torch_try_alloc(misused.bytes, misused.device, NULL);
    assert_non_null(misused.block);
}

static void misuse_check_while_recording(size_t bytes)
{
    struct scene scene = scene_begin(71, 0);
    struct piece piece = { .bytes = bytes };
    misused.device = scene.device;
    misused.bytes = bytes;
    misused.reports = 0;
    assert_ok(vmm_torch_history_start(1000, stack_now, 1));
    piece.address = vmm_torch_try_alloc(bytes, scene.device, NULL);
    assert_non_null(piece.address);
    scene_overrun(&scene, &piece);
    scene_misuse_expect(misuse_inspect);
    scene_drop(&scene, &piece);
    scene_misuse_expect(NULL);
    assert_int_equal(misused.reports, 1);
    struct live_block block;
    assert_true(vmm__history_recall(&vmm__torch_devices[scene.device].history,
                                    (uint64_t)(uintptr_t)misused.block, &block));
    (void)scene_check(&scene);
    vmm_torch_free(misused.block, bytes, scene.device, NULL);
    (void)scene_check(&scene);
    assert_ok(vmm_torch_history_stop());
}

TEST(misuse_function_may_snapshot_and_allocate)
{
    if (!scene_is_guarded())
        return; /* only debug mode detects the overrun */
    misuse_check_while_recording(1000);
    misuse_check_while_recording(3 * MIB - 8);
}

/* ---- Host memory ---------------------------------------------------------------------------- */

/* A walk gives records of empty slabs back, so the first one may change how much host memory is in use. */
static uint64_t host_bytes_after_a_walk(int device)
{
    const vmm_torch_snapshot *snapshot = NULL;
    assert_ok(vmm_torch_snapshot_take(device, &snapshot));
    vmm_torch_snapshot_drop(snapshot);
    return vmm__host_outstanding();
}

/* Ends vmm__host_fail_at(number) after a call. True if the call succeeded because the thread of decay made the
 * allocation that failed. */
static bool fault_is_lost(uint64_t number, vmm_status status)
{
    uint64_t allocations = vmm__host_fail_at(0);
    return status == VMM_OK && allocations >= number;
}

/* Fails each allocation of host memory in turn, until the snapshot succeeds. */
TEST(snapshot_without_host_memory_leaves_nothing)
{
    struct scene scene = scene_begin(51, 0);
    const vmm_torch_snapshot *snapshot = NULL;
    assert_ok(vmm_torch_history_start(5000, stack_now, 1));
    for (unsigned i = 0; i < 500; i++)
        scene_step(&scene);
    uint64_t before = host_bytes_after_a_walk(scene.device);
    uint64_t number = 1;
    bool is_lost = false;
    vmm_status status;
    do {
        vmm_torch_snapshot_drop(snapshot);
        snapshot = NULL;
        (void)vmm__host_fail_at(number);
        status = vmm_torch_snapshot_take(scene.device, &snapshot);
        is_lost = fault_is_lost(number, status);
        number += status == VMM_ERR_HOST_OOM ? 1 : 0;
        if (status == VMM_ERR_HOST_OOM)
            assert_null(snapshot);
        if (!scene_decays() && status == VMM_ERR_HOST_OOM)
            assert_int_equal(vmm__host_outstanding(), before);
    } while (status == VMM_ERR_HOST_OOM || (is_lost && scene_decays()));
    assert_ok(status);
    assert_true(number > 3); /* one each for the snapshot, events, segments and blocks */
    (void)snapshot_play_back(snapshot);
    vmm_torch_snapshot_drop(snapshot);
    scene_clear(&scene);
    assert_ok(vmm_torch_history_stop());
}

/* A history needs host memory when it starts; later it continues with what it has. */
TEST(history_needs_host_memory_only_to_start)
{
    struct scene scene = scene_begin(61, 0);
    assert_status(vmm_torch_history_start(0, NULL, 0), VMM_ERR_INVALID_ARGUMENT);
    uint64_t before = host_bytes_after_a_walk(scene.device);
    vmm_status status;
    do {
        (void)vmm__host_fail_at(1);
        status = vmm_torch_history_start(5000, NULL, 0);
    } while (fault_is_lost(1, status) && scene_decays());
    assert_int_equal(status, VMM_ERR_HOST_OOM);
    if (!scene_decays())
        assert_int_equal(vmm__host_outstanding(), before);
    assert_ok(vmm_torch_history_start(UINT64_MAX, NULL, 0));
    for (uint64_t i = 0; i < 2000; i++) {
        struct piece *piece = &scene.pieces[scene_draw(&scene, SCENE_PIECES)];
        (void)vmm__host_fail_at(1 + i % 3);
        if (piece->address != NULL)
            scene_drop(&scene, piece);
        else
            piece->address = vmm_torch_try_alloc(piece->bytes = 3000 * (i % 900 + 1), scene.device,
                                                 scene_stream((unsigned)(i % SCENE_STREAMS)));
    }
    (void)vmm__host_fail_at(0);
    (void)scene_check(&scene);
    scene_clear(&scene);
    assert_ok(vmm_torch_history_stop());
}

TEST(snapshot_is_empty_before_first_use)
{
    const vmm_torch_snapshot *snapshot;
    assert_status(vmm_torch_snapshot_take(0, NULL), VMM_ERR_INVALID_ARGUMENT);
    for (int device = -1; device < 70; device += 35) {
        assert_ok(vmm_torch_snapshot_take(device + 28, &snapshot));
        assert_int_equal(snapshot->segment_count + snapshot->event_count, 0);
        vmm_torch_snapshot_drop(snapshot);
    }
    vmm_torch_snapshot_drop(NULL);
    assert_string_equal(vmm_torch_action_word(VMM_TORCH_FREE_COMPLETED), "free_completed");
    assert_null(vmm_torch_action_word(7));
    assert_null(vmm_torch_action_word(-1));
}

int main(int argc, char **argv)
{
    scene_settings(argc > 1 ? argv[1] : "plain");
    return tests_run(NULL, NULL);
}
