/*
 * What a stream costs, on the sim driver, whose streams are names: its first block, and the host memory that stays for
 * it. Each stream takes a block and gives it back, and none is ended. The first block of a stream may cost at most twice as
 * much after 100 000 streams as after 100, and at most 2 KiB may stay for each; a trim after 100 000 streams takes at
 * most a tenth of a second. The best batch of each side counts: a busy machine only ever makes batches longer.
 *
 * Ends with 1 if a bar is not met.
 */
#define _POSIX_C_SOURCE 200809L
#include "cost.h"

#include "base/hostmem.h"

#include <stdbool.h>
#include <time.h>

#define STREAMS       100000
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
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * NS_PER_S + (double)now.tv_nsec;
}

static uint64_t stream_count;

/* The time that a stream's block takes, over a batch of new streams. */
static double batch_ns(vmm_cache *cache, size_t bytes)
{
    double start = now_ns();
    for (int i = 0; i < BATCH; i++) {
        void *block = NULL;
        vmm_stream stream = (vmm_stream)(uintptr_t)(FIRST_STREAM + ++stream_count);
        cost_require(vmm_alloc(cache, bytes, stream, &block) == VMM_OK, "an allocation");
        cost_free(cache, block);
    }
    return (now_ns() - start) / BATCH;
}

static double best_ns(vmm_cache *cache, size_t bytes, int batches)
{
    double best = batch_ns(cache, bytes);
    for (int i = 1; i < batches; i++) {
        double ns = batch_ns(cache, bytes);
        best = ns < best ? ns : best;
    }
    return best;
}

static bool bar_tell(const char *what, size_t bytes, double value, double most, const char *unit)
{
    bool met = value <= most;
    printf("%8zu B  %-44s %10.2f %s, at most %.1f: %s\n", bytes, what, value, unit, most,
           met ? "met" : "NOT MET");
    return met;
}

static bool streams_cost(size_t bytes)
{
    vmm_cache *cache = cost_cache_create();
    stream_count = 0;
    double first = best_ns(cache, bytes, FIRST_BATCHES);
    uint64_t before = vmm__host_outstanding();
    while (stream_count < STREAMS)
        (void)batch_ns(cache, bytes);
    double record = (double)(vmm__host_outstanding() - before) / STREAMS;
    double last = best_ns(cache, bytes, BATCHES);
    double start = now_ns();
    cost_require(vmm_trim(cache, 0, NULL) == VMM_OK, "a trim");
    double trim_ms = (now_ns() - start) / NS_PER_MS;
    cost_cache_end(cache);
    printf("%8zu B  a first block: %.0f ns, after %d streams %.0f ns\n", bytes, first, STREAMS,
           last);
    bool met = bar_tell("times as much after all streams", bytes, last / first, RATIO_MOST, "x");
    met = bar_tell("bytes of host memory a stream", bytes, record, RECORD_MOST, "B") && met;
    return bar_tell("a trim after all streams", bytes, trim_ms, TRIM_MOST_MS, "ms") && met;
}

int main(void)
{
    bool met = streams_cost(1000);
    met = streams_cost(COST_MIB) && met;
    met = streams_cost(8 * COST_MIB) && met;
    return met ? 0 : 1;
}
