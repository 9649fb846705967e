/*
 * How fast others allocate and free while one stream stands still: with work on it that lasts for seconds, blocks of
 * its own that are live, idle and waiting, and a worker that needs memory all the time. See workers.h.
 *
 * Each worker but the first takes and gives back what it has cached, on a stream of its own, and times each call; the
 * first one grows and trims, so that it holds the grow lock and looks for idle memory.
 */
#include "workers.h"

#include "base/arith.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>

enum {
    STALLED = 0,    /* the stream that stands still */
    WARM_UP = 2000, /* calls that are not timed */
    STEPS = 8,      /* of the histogram, for each doubling */
    OCTAVES = 40,
    STALL_BLOCKS = 8
};

#define NANOSECONDS 1e9
#define BAR_NS      50000U

/* Checks of invariants lock all lanes, and sanitizers take their time: the bar is for what is shipped. */
#if VMM_CHECK == 0 && !defined(__SANITIZE_ADDRESS__) && !defined(VMM_THREAD_SANITIZER)
enum { HAS_BAR = 1 };
#else
enum { HAS_BAR = 0 };
#endif

struct histogram {
    uint64_t counts[OCTAVES * STEPS];
    uint64_t count;
    uint64_t most_ns;
};

struct stall {
    struct workers *workers;
    uint64_t end_ns;
    struct histogram histograms[WORKERS_MOST];
};

/* Workers know their row only; there is one stall at a time. */
static struct stall stall;

/* ---- Histograms ------------------------------------------------------------------------------ */

static unsigned step_of(uint64_t ns)
{
    unsigned octave = 0;
    while (octave + 1 < OCTAVES && ns >> (octave + 1) != 0)
        octave++;
    uint64_t within = ((ns << 3) >> octave) & (STEPS - 1);
    return octave * STEPS + (unsigned)within;
}

/* The most that is counted in a step. */
static uint64_t step_ns(unsigned step)
{
    uint64_t octave = step / STEPS;
    return ((UINT64_C(8) + step % STEPS + 1) << octave) >> 3;
}

static void histogram_add(struct histogram *histogram, uint64_t ns)
{
    histogram->counts[step_of(ns)]++;
    histogram->count++;
    histogram->most_ns = vmm__max(histogram->most_ns, ns);
}

static void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (unsigned step = 0; step < OCTAVES * STEPS; step++)
        into->counts[step] += from->counts[step];
    into->count += from->count;
    into->most_ns = vmm__max(into->most_ns, from->most_ns);
}

static uint64_t quantile_ns(const struct histogram *histogram, uint64_t permyriad)
{
    uint64_t wanted = histogram->count - histogram->count * (10000 - permyriad) / 10000;
    uint64_t seen = 0;
    unsigned step = 0;
    while (step + 1 < OCTAVES * STEPS && seen + histogram->counts[step] < wanted)
        seen += histogram->counts[step++];
    return step_ns(step);
}

/* ---- Workers --------------------------------------------------------------------------------- */

static vmm_stream stream_of(const struct worker *worker)
{
    unsigned others = worker->workers->settings.streams - 1;
    return worker->workers->shared.streams[1 + worker->stress.worker % others];
}

/* One pair of calls; both are timed together with the clock's own cost, about 40 ns. */
static void pair_timed(struct worker *worker, uint64_t bytes, struct histogram *histogram)
{
    void *block;
    uint64_t start = vmm__time_ns();
    vmm_status status = vmm_alloc(worker->workers->shared.cache, bytes, stream_of(worker), &block);
    uint64_t between = vmm__time_ns();
    workers_expect(worker->workers, "vmm_alloc", status);
    if (status != VMM_OK)
        return;
    status = vmm_free(worker->workers->shared.cache, block);
    uint64_t end = vmm__time_ns();
    workers_expect(worker->workers, "vmm_free", status);
    if (histogram == NULL)
        return;
    histogram_add(histogram, between - start);
    histogram_add(histogram, end - between);
}

static void cached_turned(struct worker *worker)
{
    static const uint64_t sizes[] = { 512, 4096, 65536, 1 << 20, (2 << 20) + 512 };
    struct histogram *histogram = &stall.histograms[worker->stress.worker];
    uint64_t number = atomic_load_explicit(&worker->done, memory_order_relaxed);
    uint64_t bytes = sizes[number % (sizeof sizes / sizeof *sizes)];
    pair_timed(worker, bytes, number < WARM_UP ? NULL : histogram);
}

/* Larger than what is idle, so that memory is taken from others, and asked for. */
static void memory_wanted(struct worker *worker)
{
    void *block;
    uint64_t bytes =
        random_between(&worker->mixture.random, MIB, worker->workers->settings.limit_bytes / 8);
    vmm_status status = vmm_alloc(worker->workers->shared.cache, bytes, stream_of(worker), &block);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    workers_expect(worker->workers, "vmm_alloc", status);
    if (status == VMM_OK)
        workers_expect(worker->workers, "vmm_free", vmm_free(worker->workers->shared.cache, block));
    if (random_next(&worker->mixture.random) % 8 == 0)
        workers_expect(worker->workers, "vmm_trim",
                       vmm_trim(worker->workers->shared.cache, 0, NULL));
}

static void *stall_main(void *context)
{
    struct worker *worker = context;
    atomic_store(&worker->done, 0);
    while (workers_go_on(worker)) {
        if (worker->stress.worker == 0)
            memory_wanted(worker);
        else
            cached_turned(worker);
        atomic_fetch_add_explicit(&worker->done, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&worker->has_ended, true, memory_order_release);
    return NULL;
}

/* ---- The stream that stands still ------------------------------------------------------------ */

/* Blocks of the stream that are idle behind its work, and of others that wait for it. */
static void stream_stalled(struct workers *workers, void *event)
{
    void *blocks[STALL_BLOCKS] = { NULL };
    vmm_stream stalled = workers->shared.streams[STALLED];
    for (unsigned i = 0; i < STALL_BLOCKS; i++) {
        vmm_stream owner = i % 2 == 0 ? stalled : workers->shared.streams[1 + i % 3];
        workers_expect(workers, "vmm_alloc",
                       vmm_alloc(workers->shared.cache, 3 * MIB, owner, &blocks[i]));
        workers_expect(workers, "vmm_record_stream",
                       vmm_record_stream(workers->shared.cache, blocks[i], stalled));
    }
    workers_expect(workers, "delay",
                   vmm__driver_delay(workers->shared.driver,
                                     (uint64_t)(workers->settings.stall_seconds * NANOSECONDS),
                                     stalled));
    workers_expect(workers, "event record",
                   vmm__driver_event_record(workers->shared.driver, event, stalled));
    for (unsigned i = 0; i < STALL_BLOCKS; i++)
        workers_expect(workers, "vmm_free", vmm_free(workers->shared.cache, blocks[i]));
}

static bool stall_enough(void *context, uint64_t operations)
{
    const struct stall *until = context;
    (void)operations;
    return vmm__time_ns() >= until->end_ns;
}

static void stall_report(struct workers *workers, bool stands)
{
    struct histogram all = { .count = 0 };
    for (unsigned i = 1; i < workers->settings.threads; i++)
        histogram_merge(&all, &stall.histograms[i]);
    (void)printf(
        "stall: one stream stood still for %.1f s%s; %llu cached calls of %u threads on "
        "others took 50 %%: %llu ns, 99 %%: %llu ns, 99.9 %%: %llu ns, longest: %llu us\n",
        workers->settings.stall_seconds, stands ? "" : " at most", (unsigned long long)all.count,
        workers->settings.threads - 1, (unsigned long long)quantile_ns(&all, 5000),
        (unsigned long long)quantile_ns(&all, 9900), (unsigned long long)quantile_ns(&all, 9990),
        (unsigned long long)all.most_ns / 1000);
}

void stall_run(struct workers *workers)
{
    void *event = workers->each[0].stress.event;
    memset(&stall, 0, sizeof stall);
    stall.workers = workers;
    stream_stalled(workers, event);
    stall.end_ns = vmm__time_ns() + (uint64_t)(workers->settings.stall_seconds * 0.9 * NANOSECONDS);
    workers_round(workers, stall_main, stall_enough, &stall);
    vmm_status status = vmm__driver_event_query(workers->shared.driver, event);
    if (status != VMM_OK && status != VMM__PENDING)
        workers_expect(workers, "event query", status);
    stall_report(workers, status == VMM__PENDING);
    workers_rest(workers);
}
