/*
 * Histories and snapshots agree, and figures agree with statistics, whatever the program does: random
 * operations of several streams, of one thread and of several, on the sim driver, whose work lags behind.
 *
 * usage: test_torch_history plain|decay|wait|compact|no_caching
 */
#define _GNU_SOURCE
#include "policy/cache.h"
#include "support/cache_support.h"
#include "torch/abi.h"
#include "torch/playback.h"

#include "driver/sim.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { STREAMS = 4, BLOCKS = 64, THREADS = 4, OPERATIONS = 4000 };

struct piece {
    void *address;
    size_t bytes;
    unsigned stream;
};

/* One program on one device. */
struct scene {
    int device;
    uint64_t seed;
    struct piece blocks[BLOCKS];
    unsigned pool; /* that is begun; 0: none */
    unsigned pools;
    bool is_alone; /* no other thread uses the device */
};

static bool is_compact;
static int devices; /* that were used */

static vmm_stream stream_name(unsigned stream)
{
    return (vmm_stream)(uintptr_t)(stream == 0 ? 0 : 0x100 + stream);
}

static uint64_t stack_now(void)
{
    static _Atomic uint64_t number;
    return ++number;
}

static uint64_t draw(struct scene *scene, uint64_t end)
{
    return random_next(&scene->seed) % end;
}

static struct driver *scene_driver(const struct scene *scene)
{
    return vmm_torch_cache(scene->device)->driver;
}

static struct scene scene_begin(uint64_t seed, uint64_t lag)
{
    struct scene scene = { .device = devices++, .seed = seed, .is_alone = true };
    void *first = vmm_torch_try_alloc(MIB, scene.device, NULL);
    assert_non_null(first);
    vmm__sim_lag_set(scene_driver(&scene), lag);
    vmm_torch_free(first, MIB, scene.device, NULL);
    return scene;
}

/* ---- Random operations ---------------------------------------------------------------------- */

static void block_touch(struct scene *scene, const struct piece *block, unsigned stream)
{
    assert_ok(vmm__driver_fill(scene_driver(scene), (uint64_t)(uintptr_t)block->address,
                               block->bytes, 7, stream_name(stream)));
}

static void block_drop(struct scene *scene, struct piece *block)
{
    vmm_torch_free(block->address, block->bytes, scene->device, stream_name(block->stream));
    *block = (struct piece){ 0 };
}

static void block_take(struct scene *scene, struct piece *block)
{
    block->bytes = random_bytes(&scene->seed, 24 * MIB);
    block->stream = (unsigned)draw(scene, STREAMS);
    block->address = vmm_torch_try_alloc(block->bytes, scene->device, stream_name(block->stream));
    if (block->address != NULL && !is_compact)
        block_touch(scene, block, block->stream);
}

static void block_lend(struct scene *scene, const struct piece *block)
{
    unsigned other = (unsigned)draw(scene, STREAMS);
    vmm_torch_record_stream(block->address, stream_name(other));
    if (!is_compact)
        block_touch(scene, block, other);
}

static int filter_one(void *context, vmm_stream stream)
{
    return stream == context;
}

/* A private pool is begun, ended, or released, as comes next. */
static void pool_step(struct scene *scene)
{
    vmm_pool_id id = { (uint64_t)scene->device + 1, scene->pools };
    if (scene->pool == 0) {
        id.second = ++scene->pools;
        assert_ok(vmm__torch_pool_begin(scene->device, id, filter_one,
                                        stream_name(1 + scene->pools % (STREAMS - 1))));
        scene->pool = scene->pools;
        return;
    }
    assert_ok(vmm__torch_pool_end(scene->device, id));
    assert_ok(vmm__torch_pool_release(scene->device, id));
    scene->pool = 0;
}

static void scene_step(struct scene *scene)
{
    struct piece *block = &scene->blocks[draw(scene, BLOCKS)];
    uint64_t dice = draw(scene, 1000);
    if (dice < 3)
        vmm_torch_reset();
    else if (dice < 6 && scene->is_alone)
        pool_step(scene);
    else if (block->address == NULL)
        block_take(scene, block);
    else if (dice < 200)
        block_lend(scene, block);
    else
        block_drop(scene, block);
}

static void scene_clear(struct scene *scene)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (scene->blocks[i].address != NULL)
            block_drop(scene, &scene->blocks[i]);
    }
    if (scene->pool != 0)
        pool_step(scene);
}

/* ---- Checks --------------------------------------------------------------------------------- */

static uint64_t both(vmm_figure small, vmm_figure large)
{
    return small.current + large.current;
}

/* Figures, statistics and the picture say the same, if no other thread is at work. */
static void figures_check(const struct scene *scene, const vmm_torch_snapshot *snapshot)
{
    vmm_torch_figures told = { .struct_size = sizeof told };
    vmm_stats stats = VMM_STATS_INIT;
    struct picture_sums sums = snapshot_sums(snapshot);
    assert_ok(vmm_torch_figures_get(scene->device, &told));
    assert_ok(vmm_stats_get(vmm_torch_cache(scene->device), &stats));
    assert_int_equal(both(told.small.allocations, told.large.allocations),
                     stats.allocations.current);
    assert_int_equal(both(told.small.requested_bytes, told.large.requested_bytes),
                     stats.requested_bytes.current);
    assert_int_equal(both(told.small.allocated_bytes, told.large.allocated_bytes),
                     stats.allocated_bytes.current);
    assert_int_equal(told.small.allocations.allocated + told.large.allocations.allocated,
                     stats.allocations.allocated);
    assert_int_equal(sums.live, stats.allocations.current);
    assert_int_equal(sums.requested_bytes, stats.requested_bytes.current);
    /* Decay goes on meanwhile. */
    if (vmm_torch_cache(scene->device)->decay.period_ns != 0)
        return;
    assert_int_equal(both(told.small.active_bytes, told.large.active_bytes),
                     stats.active_bytes.current);
    assert_int_equal(sums.active_bytes, stats.active_bytes.current);
    assert_int_equal(both(told.small.active, told.large.active), sums.live + sums.waiting);
    assert_int_equal(both(told.small.reserved_bytes, told.large.reserved_bytes), sums.mapped_bytes);
    if (!is_compact)
        assert_int_equal(sums.mapped_bytes, stats.reserved_bytes.current - stats.limbo_bytes);
}

static struct playback scene_check(const struct scene *scene)
{
    const vmm_torch_snapshot *snapshot;
    assert_ok(vmm_torch_snapshot_take(scene->device, &snapshot));
    struct playback first = snapshot_play_back(snapshot);
    if (scene->is_alone)
        figures_check(scene, snapshot);
    vmm_torch_snapshot_drop(snapshot);
    return first;
}

static void sequence_check(uint64_t seed, uint64_t entries, uint64_t lag, double fraction)
{
    struct scene scene = scene_begin(seed, lag);
    vmm_torch_memory_fraction(fraction, scene.device);
    for (unsigned i = 0; i < OPERATIONS / 8; i++)
        scene_step(&scene);
    const vmm_torch_snapshot *before;
    assert_ok(vmm_torch_history_start(entries, stack_now, 1));
    assert_ok(vmm_torch_snapshot_take(scene.device, &before));
    struct picture_sums sums = snapshot_sums(before);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        scene_step(&scene);
        if (i % 512 == 511)
            (void)scene_check(&scene);
    }
    struct playback first = scene_check(&scene);
    if (entries > 100 * OPERATIONS && vmm_torch_cache(scene.device)->decay.period_ns == 0) {
        assert_int_equal(first.granules * 2 * MIB, sums.mapped_bytes);
        assert_int_equal(first.live, sums.live);
        assert_int_equal(first.waiting, sums.waiting);
    }
    vmm_torch_snapshot_drop(before);
    assert_ok(vmm_torch_history_stop());
    scene_clear(&scene);
    const vmm_torch_snapshot *after;
    assert_ok(vmm_torch_snapshot_take(scene.device, &after));
    assert_int_equal(after->event_count, 0);
    figures_check(&scene, after);
    vmm_torch_snapshot_drop(after);
}

static void random_operations_are_told_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        sequence_check(seed, UINT64_MAX, seed % 3 == 0 ? 0 : seed * 7, 1.0);
}

static void so_they_are_where_memory_is_scarce(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 14; seed++)
        sequence_check(seed, UINT64_MAX, seed % 2 * 20, 0.3);
}

static void so_they_are_in_short_histories(void **state)
{
    (void)state;
    sequence_check(21, 1, 9, 0.5);
    sequence_check(22, 100, 9, 0.5);
    sequence_check(23, 3000, 9, 0.5);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct worker {
    struct scene scene;
    pthread_t thread;
};

static void *worker_run(void *context)
{
    struct worker *worker = context;
    for (unsigned i = 0; i < OPERATIONS; i++)
        scene_step(&worker->scene);
    return NULL;
}

static void crew_run(const struct scene *scene, struct worker *crew)
{
    for (unsigned i = 0; i < THREADS; i++) {
        crew[i].scene = *scene;
        crew[i].scene.is_alone = false;
        crew[i].scene.seed = scene->seed + 1000 * (i + 1);
        assert_int_equal(pthread_create(&crew[i].thread, NULL, worker_run, &crew[i]), 0);
    }
}

static void threads_are_told_in_one_order(void **state)
{
    (void)state;
    static struct worker crew[THREADS];
    struct scene scene = scene_begin(31, 11);
    scene.is_alone = false;
    assert_ok(vmm_torch_history_start(UINT64_MAX, stack_now, 0));
    crew_run(&scene, crew);
    for (unsigned i = 0; i < 8; i++)
        (void)scene_check(&scene);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(crew[i].thread, NULL), 0);
    scene.is_alone = true;
    (void)scene_check(&scene);
    for (unsigned i = 0; i < THREADS; i++)
        scene_clear(&crew[i].scene);
    (void)scene_check(&scene);
    assert_ok(vmm_torch_history_stop());
}

/* Recording begins and ends while threads are at work. */
static void recording_comes_and_goes(void **state)
{
    (void)state;
    static struct worker crew[THREADS];
    struct scene scene = scene_begin(41, 3);
    scene.is_alone = false;
    crew_run(&scene, crew);
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (unsigned i = 0; i < 8; i++) {
        assert_ok(vmm_torch_history_start(50 * (i + 1), stack_now, 0));
        (void)nanosleep(&pause, NULL); /* calls that were under way end */
        (void)scene_check(&scene);
        if (i % 2 == 0)
            assert_ok(vmm_torch_history_stop());
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(crew[i].thread, NULL), 0);
    assert_ok(vmm_torch_history_stop());
    for (unsigned i = 0; i < THREADS; i++)
        scene_clear(&crew[i].scene);
    scene.is_alone = true;
    (void)scene_check(&scene);
}

static void settings_choose(const char *kind)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    config.device_bytes = CACHE_DEVICE;
    is_compact = strcmp(kind, "compact") == 0;
    if (is_compact)
        config.compaction = VMM_COMPACTION_ON;
    else if (strcmp(kind, "wait") == 0)
        config.sharing = VMM_SHARING_WAIT;
    else if (strcmp(kind, "no_caching") == 0)
        config.no_caching = 1;
    else if (strcmp(kind, "decay") == 0) {
        config.decay_ms = 1;
        config.decay_thread = 1;
    }
    if (vmm_torch_configure(&config) != VMM_OK)
        abort();
}

int main(int argc, char **argv)
{
    settings_choose(argc > 1 ? argv[1] : "plain");
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_are_told_in_order),
        cmocka_unit_test(so_they_are_where_memory_is_scarce),
        cmocka_unit_test(so_they_are_in_short_histories),
        cmocka_unit_test(threads_are_told_in_one_order),
        cmocka_unit_test(recording_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
