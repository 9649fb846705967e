/*
 * What a stream costs, on the sim driver, whose streams are names: its first block, and the host memory that stays for
 * it. Each stream takes a block and gives it back, and none is ended. The first block of a stream may cost at most
 * twice as much after 100 000 streams as after 100, and at most 2 KiB may stay for each; a trim after 100 000 streams
 * takes at most a tenth of a second. Where each of 10 000 streams keeps its block, too, the last tenth costs at most
 * twice as much as the second. Each scene begins with host memory that no other has used. The best batch of each side
 * counts, and of up to three runs the first that meets its bars: a busy machine only ever makes batches longer.
 *
 * Ends with 1 if a bar is not met.
 */
#define _POSIX_C_SOURCE 200809L
#include "cost.h"

#include "base/hostmem.h"

#include <malloc.h>
#include <time.h>

#define STREAMS       100000
#define KEPT_STREAMS  10000
#define BATCH         100
#define BATCHES       100 /* of each side */
#define RATIO_MOST    2.0
#define RECORD_MOST   2048.0
#define TRIM_MOST_MS  100.0
#define FIRST_STREAM  UINT64_C(0x1000)
#define NS_PER_MS     1e6
#define NS_PER_S      1e9
#define FIRST_BATCHES (BATCHES + 1) /* the first pays for what every cache makes once */

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * NS_PER_S + (double)now.tv_nsec;
}

static uint64_t stream_count;

/* Where streams take their blocks. */
struct scene {
    const char *name;
    vmm_cache *cache;
    vmm_pool *pool; /* NULL: vmm_alloc() */
    size_t bytes;
    bool keeps; /* blocks stay live */
};

static vmm_status block_take(const struct scene *scene, vmm_stream stream, void **block)
{
    return scene->pool == NULL ? vmm_alloc(scene->cache, scene->bytes, stream, block)
                               : vmm_alloc_from(scene->pool, scene->bytes, stream, block);
}

/* The time that a stream's block takes, over a batch of new streams. */
static double batch_ns(const struct scene *scene)
{
    double start = now_ns();
    for (int i = 0; i < BATCH; i++) {
        void *block = NULL;
        vmm_stream stream = (vmm_stream)(uintptr_t)(FIRST_STREAM + ++stream_count);
        cost_require(block_take(scene, stream, &block) == VMM_OK, "an allocation");
        if (!scene->keeps)
            cost_free(scene->cache, block);
    }
    return (now_ns() - start) / BATCH;
}

static double best_ns(const struct scene *scene, int batches)
{
    double best = batch_ns(scene);
    for (int i = 1; i < batches; i++) {
        double ns = batch_ns(scene);
        best = ns < best ? ns : best;
    }
    return best;
}

static bool bar_tell(const struct scene *scene, const char *what, double value, double most,
                     const char *unit)
{
    bool met = value <= most;
    printf("%s, %zu B: %s %.2f %s, at most %.1f: %s\n", scene->name, scene->bytes, what, value,
           unit, most, met ? "met" : "NOT MET");
    return met;
}

static bool ratio_tell(const struct scene *scene, double ratio)
{
    return bar_tell(scene, "times as much after all streams", ratio, RATIO_MOST, "x");
}

static bool streams_cost(const struct scene *scene)
{
    stream_count = 0;
    double first = best_ns(scene, FIRST_BATCHES);
    uint64_t before = vmm__host_outstanding();
    while (stream_count < STREAMS)
        (void)batch_ns(scene);
    double record = (double)(vmm__host_outstanding() - before) / STREAMS;
    double last = best_ns(scene, BATCHES);
    double start = now_ns();
    cost_require(vmm_trim(scene->cache, 0, NULL) == VMM_OK, "a trim");
    double trim_ms = (now_ns() - start) / NS_PER_MS;
    printf("%s, %zu B: a first block %.0f ns, after %d streams %.0f ns\n", scene->name,
           scene->bytes, first, STREAMS, last);
    bool met = ratio_tell(scene, last / first);
    met = bar_tell(scene, "host memory of a stream", record, RECORD_MOST, "B") && met;
    return bar_tell(scene, "a trim after all streams", trim_ms, TRIM_MOST_MS, "ms") && met;
}

/* The first of these streams find fewer others with memory than a request searches. */
static bool kept_cost(const struct scene *scene)
{
    stream_count = 0;
    while (stream_count < KEPT_STREAMS / 10)
        (void)batch_ns(scene);
    double first = best_ns(scene, KEPT_STREAMS / BATCH / 10);
    while (stream_count < KEPT_STREAMS * 9 / 10)
        (void)batch_ns(scene);
    double last = best_ns(scene, KEPT_STREAMS / BATCH / 10);
    return ratio_tell(scene, last / first);
}

static bool scene_run_once(const char *name, bool is_default, size_t bytes, bool keeps)
{
    (void)malloc_trim(0); /* or the first streams get pages that an earlier scene has left */
    struct scene scene = {
        .name = name, .cache = cost_cache_create(), .bytes = bytes, .keeps = keeps
    };
    if (!is_default)
        cost_require(vmm_pool_create(scene.cache, NULL, &scene.pool) == VMM_OK, "a pool");
    bool met = keeps ? kept_cost(&scene) : streams_cost(&scene);
    cost_require(vmm_destroy(scene.cache) == VMM_OK, "vmm_destroy");
    return met;
}

static bool scene_run(const char *name, bool is_default, size_t bytes, bool keeps)
{
    bool met = false;
    for (int run = 0; run < COST_RUNS_MOST && !met; run++)
        met = scene_run_once(name, is_default, bytes, keeps);
    return met;
}

int main(void)
{
    bool met = true;
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "default pool" : "another pool";
        met = scene_run(name, i == 0, 1000, false) && met;
        met = scene_run(name, i == 0, COST_MIB, false) && met;
        met = scene_run(name, i == 0, 8 * COST_MIB, false) && met;
    }
    met = scene_run("default pool, blocks kept", true, 1000, true) && met;
    return scene_run("another pool, blocks kept", false, 1000, true) && met ? 0 : 1;
}
