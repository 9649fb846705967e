/* Random programs on one device: see scene.h. */
#define _GNU_SOURCE
#include "torch/scene.h"
#include "cache/cache.h"
#include "driver/sim/sim.h"
#include "support/cache_support.h"
#include "torch/pools.h"

#include <string.h>

enum { OPERATIONS = 4000 };

static bool is_compact;
static bool has_decay;
static bool has_debug;
static void (*misuse_expected)(void); /* NULL: no misuse is expected */
static unsigned operations = OPERATIONS;
static int devices; /* number of devices used so far */

/* Fails the test, unless it expects a misuse. */
static void misuse_fail(void *context, const char *line)
{
    (void)context;
    if (misuse_expected == NULL)
        fail_msg("%s", line);
    else
        misuse_expected();
}

void scene_misuse_expect(void (*expected)(void))
{
    misuse_expected = expected;
}

bool scene_is_guarded(void)
{
    return has_debug;
}

void scene_settings(const char *kind)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM, .device_bytes = CACHE_DEVICE);
    is_compact = strcmp(kind, "compact") == 0;
    if (is_compact)
        config.compaction = VMM_ON;
    else if (strcmp(kind, "wait") == 0)
        config.reuse = VMM_REUSE_STREAM_WAIT;
    else if (strcmp(kind, "no_caching") == 0) {
        config.no_caching = 1;
        operations = OPERATIONS / 8;
    } else if (strcmp(kind, "guard") == 0) {
        has_debug = true;
        config.debug = VMM_DEBUG_ON;
        config.misuse = misuse_fail;
        config.zero = 1;
        operations = OPERATIONS / 8;
    } else if (strcmp(kind, "decay") == 0) {
        has_decay = true;
        config.decay_ms = 1;
        config.decay_thread = 1;
    }
    bool is_known = is_compact || config.reuse == VMM_REUSE_STREAM_WAIT || config.no_caching ||
                    has_decay || has_debug || strcmp(kind, "plain") == 0;
    if (!is_known || vmm_torch_configure(&config) != VMM_OK)
        abort();
}

unsigned scene_operations(void)
{
    return operations;
}

bool scene_decays(void)
{
    return has_decay;
}

vmm_stream scene_stream(unsigned stream)
{
    return (vmm_stream)(uintptr_t)(stream == 0 ? 0 : 0x100 + stream);
}

uint64_t scene_draw(struct scene *scene, uint64_t end)
{
    return random_next(&scene->seed) % end;
}

static struct driver *scene_driver(const struct scene *scene)
{
    return vmm_torch_cache(scene->device)->driver;
}

struct scene scene_begin(uint64_t seed, uint64_t lag)
{
    struct scene scene = { .device = devices++, .seed = seed, .is_alone = true };
    void *first = vmm_torch_try_alloc(MIB, scene.device, NULL);
    assert_non_null(first);
    vmm__sim_lag_set(scene_driver(&scene), lag);
    vmm_torch_free(first, MIB, scene.device, NULL);
    return scene;
}

/* ---- Random operations ---------------------------------------------------------------------- */

static void piece_touch(struct scene *scene, const struct piece *piece, unsigned stream)
{
    assert_ok(vmm__driver_fill(scene_driver(scene), (uint64_t)(uintptr_t)piece->address,
                               piece->bytes, 7, scene_stream(stream)));
}

void scene_drop(struct scene *scene, struct piece *piece)
{
    vmm_torch_free(piece->address, piece->bytes, scene->device, scene_stream(piece->stream));
    *piece = (struct piece){ 0 };
}

void scene_overrun(struct scene *scene, const struct piece *piece)
{
    uint64_t end = (uint64_t)(uintptr_t)piece->address + piece->bytes;
    assert_ok(vmm__driver_fill(scene_driver(scene), end, 8, 7, scene_stream(piece->stream)));
}

static void piece_allocate(struct scene *scene, struct piece *piece)
{
    piece->bytes = random_bytes(&scene->seed, 24 * MIB);
    piece->stream = (unsigned)scene_draw(scene, SCENE_STREAMS);
    piece->address = vmm_torch_try_alloc(piece->bytes, scene->device, scene_stream(piece->stream));
    if (piece->address != NULL && !is_compact)
        piece_touch(scene, piece, piece->stream);
}

static void piece_record_stream(struct scene *scene, const struct piece *piece)
{
    unsigned other = (unsigned)scene_draw(scene, SCENE_STREAMS);
    vmm_torch_record_stream(piece->address, scene_stream(other));
    if (!is_compact)
        piece_touch(scene, piece, other);
}

static int filter_one(void *context, vmm_stream stream)
{
    return stream == context;
}

/* Begins a graph pool, or ends and releases the one that is open. */
static void pool_step(struct scene *scene)
{
    vmm_pool_id id = { (uint64_t)scene->device + 1, scene->pools };
    if (scene->pool == 0) {
        id.second = ++scene->pools;
        assert_ok(vmm__torch_pool_begin(scene->device, id, filter_one,
                                        scene_stream(1 + scene->pools % (SCENE_STREAMS - 1))));
        scene->pool = scene->pools;
        return;
    }
    assert_ok(vmm__torch_pool_unroute(scene->device, id));
    assert_ok(vmm__torch_pool_leave(scene->device, id));
    scene->pool = 0;
}

void scene_step(struct scene *scene)
{
    struct piece *piece = &scene->pieces[scene_draw(scene, SCENE_PIECES)];
    uint64_t dice = scene_draw(scene, 1000);
    if (dice < 3)
        vmm_torch_reset();
    else if (dice < 6 && scene->is_alone)
        pool_step(scene);
    else if (piece->address == NULL)
        piece_allocate(scene, piece);
    else if (dice < 200)
        piece_record_stream(scene, piece);
    else
        scene_drop(scene, piece);
}

void scene_clear(struct scene *scene)
{
    for (unsigned i = 0; i < SCENE_PIECES; i++) {
        if (scene->pieces[i].address != NULL)
            scene_drop(scene, &scene->pieces[i]);
    }
    if (scene->pool != 0)
        pool_step(scene);
}

/* ---- Checks --------------------------------------------------------------------------------- */

static uint64_t sum_current(vmm_stat small, vmm_stat large)
{
    return small.current + large.current;
}

/* A block is of one kind, live or waiting. */
static void kind_check(const vmm_torch_kind_stats *kind, uint64_t waiting)
{
    assert_in_range(kind->active.current, kind->allocations.current,
                    kind->allocations.current + waiting);
}

void scene_stats_check(const struct scene *scene, const vmm_torch_snapshot *snapshot)
{
    vmm_torch_stats read = { .struct_size = sizeof read };
    vmm_stats stats = VMM_STATS_INIT;
    struct picture_sums sums = snapshot_sums(snapshot);
    assert_ok(vmm_torch_stats_get(scene->device, &read));
    assert_ok(vmm_stats_get(vmm_torch_cache(scene->device), &stats));
    if (has_debug) { /* the cache counts canaries and the quarantine too */
        assert_int_equal(sum_current(read.small.allocations, read.large.allocations), sums.live);
        assert_int_equal(sum_current(read.small.requested_bytes, read.large.requested_bytes),
                         sums.requested_bytes);
        return;
    }
    assert_int_equal(sum_current(read.small.allocations, read.large.allocations),
                     stats.allocations.current);
    assert_int_equal(sum_current(read.small.requested_bytes, read.large.requested_bytes),
                     stats.requested_bytes.current);
    assert_int_equal(sum_current(read.small.allocated_bytes, read.large.allocated_bytes),
                     stats.allocated_bytes.current);
    assert_int_equal(read.small.allocations.allocated + read.large.allocations.allocated,
                     stats.allocations.allocated);
    assert_int_equal(sums.live, stats.allocations.current);
    assert_int_equal(sums.requested_bytes, stats.requested_bytes.current);
    if (scene_decays())
        return;
    assert_int_equal(sum_current(read.small.active_bytes, read.large.active_bytes),
                     stats.active_bytes.current);
    assert_int_equal(sums.active_bytes, stats.active_bytes.current);
    assert_int_equal(sum_current(read.small.active, read.large.active), sums.live + sums.waiting);
    kind_check(&read.small, sums.waiting);
    kind_check(&read.large, sums.waiting);
    assert_int_equal(sum_current(read.small.reserved_bytes, read.large.reserved_bytes),
                     sums.mapped_bytes);
    if (!is_compact)
        assert_int_equal(sums.mapped_bytes, stats.reserved_bytes.current - stats.limbo_bytes);
}

struct playback scene_check(const struct scene *scene)
{
    const vmm_torch_snapshot *snapshot;
    assert_ok(vmm_torch_snapshot_take(scene->device, &snapshot));
    struct playback first = snapshot_play_back(snapshot);
    if (scene->is_alone)
        scene_stats_check(scene, snapshot);
    vmm_torch_snapshot_drop(snapshot);
    return first;
}
