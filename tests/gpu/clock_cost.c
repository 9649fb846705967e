/*
 * Times ticks of the clock beside busy streams.
 *
 *   clock_cost sim|host|cuda
 *
 * Each of 64 streams has a live block and work under way. In each of 20 rounds the clock ticks a hundred times. Prints
 * the medians over the rounds of the time of a tick and of the driver's calls in it. Fails if one did not tick or the
 * streams were not busy. On sim and host, where times say nothing, it makes 2 rounds with 8 streams.
 */
#define _POSIX_C_SOURCE 200809L
#include "api/create_on.h"
#include "base/time.h"
#include "cache/cache.h"
#include "support/driver_choice.h"
#include "support/test_support.h"

#include <stdlib.h>

enum { STREAMS_MOST = 64, ROUNDS_MOST = 20, TICKS = 100, WORK_NS = 50000000, BLOCK_BYTES = 65536 };

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    unsigned count;
    vmm_stream streams[STREAMS_MOST];
    void *blocks[STREAMS_MOST];
};

static vmm_stats stats_of(const struct scene *scene)
{
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(scene->cache, &stats));
    return stats;
}

/* Whether the stream that got its work last still runs it. */
static bool is_busy(const struct scene *scene)
{
    void *event;
    assert_ok(vmm__driver_event_create(scene->driver, &event));
    assert_ok(vmm__driver_event_record(scene->driver, event, scene->streams[scene->count - 1]));
    bool is_pending = vmm__driver_event_query(scene->driver, event) == VMM__PENDING;
    assert_ok(vmm__driver_event_destroy(scene->driver, event));
    return is_pending;
}

/* Nanoseconds of a tick, and of the driver's calls in it. */
static void round_run(const struct scene *scene, double *tick_ns, double *driver_ns)
{
    for (unsigned i = 0; i < scene->count; i++)
        assert_ok(vmm__driver_delay(scene->driver, WORK_NS, scene->streams[i]));
    vmm_stats before = stats_of(scene);
    uint64_t begin_ns = vmm__time_ns();
    for (int i = 0; i < TICKS; i++)
        vmm__clock_tick(&scene->cache->clock);
    *tick_ns = (double)(vmm__time_ns() - begin_ns) / TICKS;
    vmm_stats after = stats_of(scene);
    *driver_ns = (double)(after.driver_ns - before.driver_ns) / TICKS;
    assert_int_equal(after.clock_ticks - before.clock_ticks, TICKS);
    assert_true(is_busy(scene));
    assert_ok(vmm_wait(scene->cache));
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double median_us(double *ns, unsigned count)
{
    qsort(ns, count, sizeof *ns, compare);
    return ns[count / 2] / 1e3;
}

static void scene_open(struct scene *scene)
{
    vmm_config config =
        CONFIG(.arena_bytes = 4 * GIB, .reuse = VMM_REUSE_ANY_USE, .clock_kind = VMM_CLOCK_CONTEXT);
    scene->driver = driver_choice_open(0);
    assert_ok(vmm__cache_create_on(&config, scene->driver, &scene->cache));
    for (unsigned i = 0; i < scene->count; i++) {
        assert_ok(vmm__driver_stream_create(scene->driver, &scene->streams[i]));
        assert_ok(vmm_alloc(scene->cache, BLOCK_BYTES, scene->streams[i], &scene->blocks[i]));
    }
}

static void scene_close(struct scene *scene)
{
    for (unsigned i = 0; i < scene->count; i++) {
        assert_ok(vmm_free(scene->cache, scene->blocks[i]));
        assert_ok(vmm_stream_end(scene->cache, scene->streams[i]));
        assert_ok(vmm__driver_stream_destroy(scene->driver, scene->streams[i]));
    }
    assert_ok(vmm_destroy(scene->cache));
    vmm__driver_close(scene->driver);
}

int main(int argc, char **argv)
{
    static struct scene scene;
    double tick_ns[ROUNDS_MOST];
    double driver_ns[ROUNDS_MOST];
    driver_choice_read(argc, argv);
    bool is_cuda = driver_choice_kind() == VMM_DRIVER_CUDA;
    unsigned rounds = is_cuda ? ROUNDS_MOST : 2;
    scene.count = is_cuda ? STREAMS_MOST : 8;
    scene_open(&scene);
    for (unsigned i = 0; i < rounds; i++)
        round_run(&scene, &tick_ns[i], &driver_ns[i]);
    scene_close(&scene);
    (void)printf(
        "%u busy streams, %u rounds of %d ticks: a tick %.2f us, of it in the driver %.2f us\n",
        scene.count, rounds, TICKS, median_us(tick_ns, rounds), median_us(driver_ns, rounds));
    return fflush(stdout) == 0 ? 0 : 1;
}
