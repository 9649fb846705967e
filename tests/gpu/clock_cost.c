/*
 * Times ticks of the clock beside busy streams.
 *
 *   clock_cost DRIVER [STREAMS [ROUNDS]]      DRIVER: host or cuda
 *
 * Each of the streams (64) has a live block and work under way. In each round (20) the clock ticks a hundred times.
 * Prints the medians over the rounds of the time of a tick and of the driver's calls in it. Exits with 1 if one did not
 * tick or the streams were not busy, 77 without a GPU.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/time.h"
#include "driver/driver.h"
#include "vmmcache/vmmcache.h"

#include "api/create_on.h"
#include "cache/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MOST = 4096, ROUNDS_MOST = 1000, TICKS = 100, SKIPPED = 77 };
enum { WORK_NS = 300000000, BLOCK_BYTES = 65536 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "clock_cost:%d: %s; last error: %s\n", __LINE__, #condition,     \
                          vmm_last_error());                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (false)

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    unsigned count;
    vmm_stream streams[STREAMS_MOST];
    void *blocks[STREAMS_MOST];
};

static uint64_t statistic(const struct scene *scene, bool is_time)
{
    vmm_stats stats = VMM_STATS_INIT;
    REQUIRE(vmm_stats_get(scene->cache, &stats) == VMM_OK);
    return is_time ? stats.driver_ns : stats.clock_ticks;
}

static void work_submit(const struct scene *scene)
{
    for (unsigned i = 0; i < scene->count; i++)
        REQUIRE(vmm__driver_delay(scene->driver, WORK_NS, scene->streams[i]) == VMM_OK);
}

/* Whether the stream that got its work last still runs it. */
static bool is_busy(const struct scene *scene)
{
    void *event;
    REQUIRE(vmm__driver_event_create(scene->driver, &event) == VMM_OK);
    REQUIRE(vmm__driver_event_record(scene->driver, event, scene->streams[scene->count - 1]) ==
            VMM_OK);
    vmm_status status = vmm__driver_event_query(scene->driver, event);
    REQUIRE(status == VMM_OK || status == VMM__PENDING);
    REQUIRE(vmm__driver_event_destroy(scene->driver, event) == VMM_OK);
    return status == VMM__PENDING;
}

/* Nanoseconds of a tick, and of the driver's calls in it. */
static void round_run(const struct scene *scene, double *tick_ns, double *driver_ns)
{
    work_submit(scene);
    uint64_t ticks = statistic(scene, false);
    uint64_t driver_begin_ns = statistic(scene, true);
    uint64_t begin_ns = vmm__time_ns();
    for (int i = 0; i < TICKS; i++)
        vmm__clock_tick(&scene->cache->clock);
    *tick_ns = (double)(vmm__time_ns() - begin_ns) / TICKS;
    *driver_ns = (double)(statistic(scene, true) - driver_begin_ns) / TICKS;
    REQUIRE(statistic(scene, false) - ticks == TICKS);
    REQUIRE(is_busy(scene));
    REQUIRE(vmm_wait(scene->cache) == VMM_OK);
}

static bool number_read(const char *text, unsigned most, unsigned *number)
{
    char *end = NULL;
    unsigned long read = strtoul(text, &end, 10);
    *number = (unsigned)read;
    return *text >= '1' && *text <= '9' && *end == '\0' && read <= most;
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

static void scene_open(struct scene *scene, vmm_driver_kind kind)
{
    struct driver_options options = { .device = 0 };
    vmm_config config = { .struct_size = sizeof config,
                          .arena_bytes = UINT64_C(1) << 32,
                          .reuse = VMM_REUSE_ANY_USE,
                          .clock_kind = VMM_CLOCK_CONTEXT };
    vmm_status status = kind == VMM_DRIVER_CUDA ? vmm__driver_cuda_open(&options, &scene->driver)
                                                : vmm__driver_host_open(&options, &scene->driver);
    if (status == VMM_ERR_NO_DEVICE) {
        const char *required = getenv("VMM_REQUIRE_GPU");
        (void)fprintf(stderr, "clock_cost: no GPU: %s\n", vmm_last_error());
        exit(required != NULL && strcmp(required, "1") == 0 ? 1 : SKIPPED);
    }
    REQUIRE(status == VMM_OK);
    REQUIRE(vmm__cache_create_on(&config, scene->driver, &scene->cache) == VMM_OK);
    for (unsigned i = 0; i < scene->count; i++) {
        REQUIRE(vmm__driver_stream_create(scene->driver, &scene->streams[i]) == VMM_OK);
        REQUIRE(vmm_alloc(scene->cache, BLOCK_BYTES, scene->streams[i], &scene->blocks[i]) ==
                VMM_OK);
    }
}

static void scene_close(struct scene *scene)
{
    for (unsigned i = 0; i < scene->count; i++) {
        REQUIRE(vmm_free(scene->cache, scene->blocks[i]) == VMM_OK);
        REQUIRE(vmm_stream_end(scene->cache, scene->streams[i]) == VMM_OK);
        REQUIRE(vmm__driver_stream_destroy(scene->driver, scene->streams[i]) == VMM_OK);
    }
    REQUIRE(vmm_destroy(scene->cache) == VMM_OK);
}

int main(int argc, char **argv)
{
    static struct scene scene;
    static double tick_ns[ROUNDS_MOST];
    static double driver_ns[ROUNDS_MOST];
    bool is_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    unsigned rounds = 20;
    scene.count = 64;
    if (argc < 2 || argc > 4 || (!is_cuda && strcmp(argv[1], "host") != 0) ||
        (argc > 2 && !number_read(argv[2], STREAMS_MOST, &scene.count)) ||
        (argc > 3 && !number_read(argv[3], ROUNDS_MOST, &rounds))) {
        (void)fprintf(stderr, "usage: clock_cost host|cuda [STREAMS [ROUNDS]]\n");
        return 2;
    }
    scene_open(&scene, is_cuda ? VMM_DRIVER_CUDA : VMM_DRIVER_HOST);
    for (unsigned i = 0; i < rounds; i++)
        round_run(&scene, &tick_ns[i], &driver_ns[i]);
    scene_close(&scene);
    (void)printf(
        "%u busy streams, %u rounds of %d ticks: a tick %.2f us, of it in the driver %.2f us\n",
        scene.count, rounds, TICKS, median(tick_ns, rounds) / 1e3, median(driver_ns, rounds) / 1e3);
    return fflush(stdout) == 0 ? 0 : 1;
}
