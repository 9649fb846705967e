/*
 * How fast others allocate and free while one stream stands still: with work on it that lasts for seconds, blocks of
 * its own that are live, idle and waiting, and a hand that needs memory all the time. See thread_soak.h.
 *
 * Each hand but the first takes and gives back what it has cached, on a stream of its own, and times each call; the
 * first one grows and trims, so that it holds the grow lock and looks for idle memory.
 */
#include "thread_soak.h"

#include "base/arith.h"
#include "base/clock.h"

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

/* Checks of invariants lock all pools, and sanitizers take their time: the bar is for what is shipped. */
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
    struct crew *crew;
    uint64_t end_ns;
    struct histogram histograms[CREW_HANDS];
};

/* Hands know their crew only; there is one stall at a time. */
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

/* ---- Hands ----------------------------------------------------------------------------------- */

static vmm_stream stream_of(const struct hand *hand)
{
    unsigned others = hand->crew->settings.streams - 1;
    return hand->crew->streams[1 + hand->number % others];
}

/* One pair of calls; both are timed together with the clock's own cost, about 40 ns. */
static void pair_timed(struct hand *hand, uint64_t bytes, struct histogram *histogram)
{
    void *block;
    uint64_t start = vmm__clock_ns();
    vmm_status status = vmm_alloc(hand->crew->cache, bytes, stream_of(hand), &block);
    uint64_t between = vmm__clock_ns();
    crew_expect(hand->crew, "vmm_alloc", status);
    if (status != VMM_OK)
        return;
    status = vmm_free(hand->crew->cache, block);
    uint64_t end = vmm__clock_ns();
    crew_expect(hand->crew, "vmm_free", status);
    if (histogram == NULL)
        return;
    histogram_add(histogram, between - start);
    histogram_add(histogram, end - between);
}

static void cached_turned(struct hand *hand)
{
    static const uint64_t sizes[] = { 512, 4096, 65536, 1 << 20, (2 << 20) + 512 };
    struct histogram *histogram = &stall.histograms[hand->number];
    uint64_t number = atomic_load_explicit(&hand->done, memory_order_relaxed);
    uint64_t bytes = sizes[number % (sizeof sizes / sizeof *sizes)];
    pair_timed(hand, bytes, hand->sums.operations < WARM_UP ? NULL : histogram);
}

/* Larger than what is idle, so that memory is taken from others, and asked for. */
static void memory_wanted(struct hand *hand)
{
    void *block;
    uint64_t bytes = hand_bytes_drawn(hand, MIB, hand->crew->settings.limit_bytes / 8);
    vmm_status status = vmm_alloc(hand->crew->cache, bytes, stream_of(hand), &block);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    crew_expect(hand->crew, "vmm_alloc", status);
    if (status == VMM_OK)
        crew_expect(hand->crew, "vmm_free", vmm_free(hand->crew->cache, block));
    if (hand_dice(hand, 8))
        crew_expect(hand->crew, "vmm_trim", vmm_trim(hand->crew->cache, 0, NULL));
}

static void *stall_hand_main(void *context)
{
    struct hand *hand = context;
    hand->sums.operations = 0;
    while (atomic_load_explicit(&hand->crew->goes_on, memory_order_relaxed)) {
        if (hand->number == 0)
            memory_wanted(hand);
        else
            cached_turned(hand);
        hand->sums.operations++;
        atomic_fetch_add_explicit(&hand->done, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&hand->has_ended, true, memory_order_release);
    return NULL;
}

/* ---- The stream that stands still ------------------------------------------------------------ */

/* Blocks of the stream that are idle behind its work, and of others that wait for it. */
static void stream_stalled(struct crew *crew, void *event)
{
    void *blocks[STALL_BLOCKS] = { NULL };
    vmm_stream stalled = crew->streams[STALLED];
    for (unsigned i = 0; i < STALL_BLOCKS; i++) {
        vmm_stream owner = i % 2 == 0 ? stalled : crew->streams[1 + i % 3];
        crew_expect(crew, "vmm_alloc", vmm_alloc(crew->cache, 3 * MIB, owner, &blocks[i]));
        crew_expect(crew, "vmm_use", vmm_use(crew->cache, blocks[i], stalled));
    }
    crew_expect(crew, "delay",
                vmm__driver_delay(crew->driver,
                                  (uint64_t)(crew->settings.stall_seconds * NANOSECONDS), stalled));
    crew_expect(crew, "event record", vmm__driver_event_record(crew->driver, event, stalled));
    for (unsigned i = 0; i < STALL_BLOCKS; i++)
        crew_expect(crew, "vmm_free", vmm_free(crew->cache, blocks[i]));
}

static bool stall_enough(void *context, uint64_t operations)
{
    const struct stall *until = context;
    (void)operations;
    return vmm__clock_ns() >= until->end_ns;
}

static void stall_report(struct crew *crew, bool stands)
{
    struct histogram all = { .count = 0 };
    for (unsigned i = 1; i < crew->settings.threads; i++)
        histogram_merge(&all, &stall.histograms[i]);
    (void)printf(
        "stall: one stream stood still for %.1f s%s; %llu cached calls of %u threads on "
        "others took 50 %%: %llu ns, 99 %%: %llu ns, 99.9 %%: %llu ns, longest: %llu us\n",
        crew->settings.stall_seconds, stands ? "" : " at most", (unsigned long long)all.count,
        crew->settings.threads - 1, (unsigned long long)quantile_ns(&all, 5000),
        (unsigned long long)quantile_ns(&all, 9900), (unsigned long long)quantile_ns(&all, 9990),
        (unsigned long long)all.most_ns / 1000);
}

void stall_run(struct crew *crew)
{
    void *event = crew->hands[0].event;
    memset(&stall, 0, sizeof stall);
    stall.crew = crew;
    stream_stalled(crew, event);
    stall.end_ns = vmm__clock_ns() + (uint64_t)(crew->settings.stall_seconds * 0.9 * NANOSECONDS);
    crew_round(crew, stall_hand_main, stall_enough, &stall);
    vmm_status status = vmm__driver_event_query(crew->driver, event);
    if (status != VMM_OK && status != VMM_NOT_READY)
        crew_expect(crew, "event query", status);
    stall_report(crew, status == VMM_NOT_READY);
    crew_rest(crew);
}
