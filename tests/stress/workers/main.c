/*
 * stress_workers: many threads on many streams of one cache until something is wrong. See workers.h.
 *
 * usage: stress_workers sim|host|cuda [--threads N] [--streams N] [--seconds S | --operations N] [--seed N]
 *                       [--reuse any_use|declared|stream_wait] [--clock context|streams] [--limit SIZE] [--stall S]
 *                       [--rounds N]
 *
 * Defaults: 16 threads and 16 streams (cuda: 8 threads), 60 seconds, seed 1, any_use, context, a limit of 2 GiB (host:
 * 768 MiB), no stall, rounds of about 5 seconds and 12 at least.
 * Exit status: 0 all was well, 1 trouble (on stderr), 2 wrong arguments, 77 there is no such device here.
 */
#include "options.h"
#include "workers.h"

#include "base/arith.h"
#include "base/size.h"
#include "base/time.h"
#include "fragtest/cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_TROUBLE = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77 };
enum { ROUNDS_LEAST = 12, ROUND_SECONDS = 5, SECONDS_DEFAULT = 60 };

/* One run: what was asked for, and how far it is. */
struct run {
    struct workers *workers;
    struct progress *progress;
    unsigned rounds;
    unsigned round;
    uint64_t start_ns;
    uint64_t most_operations; /* of the round under way */
    uint64_t end_ns;          /* the same; 0: no end in time */
};

/* ---- Arguments ------------------------------------------------------------------------------- */

/* The index of a word; `count`: there is no such word. */
static unsigned word_find(const char *text, const char *const *words, unsigned count)
{
    unsigned i = 0;
    while (i < count && strcmp(text, words[i]) != 0)
        i++;
    return i;
}

static bool reuse_read(const char *text, void *out)
{
    static const char *const words[] = { "any_use", "declared", "stream_wait" };
    unsigned found = word_find(text, words, 3);
    *(vmm_reuse *)out = (vmm_reuse)(VMM_REUSE_ANY_USE + found);
    return found < 3;
}

static bool clock_read(const char *text, void *out)
{
    static const char *const words[] = { "context", "streams" };
    unsigned found = word_find(text, words, 2);
    *(vmm_clock_kind *)out = (vmm_clock_kind)(VMM_CLOCK_CONTEXT + found);
    return found < 2;
}

static bool limit_read(const char *text, void *out)
{
    uint64_t *bytes = out;
    return vmm__size_parse(text, bytes) && *bytes >= 64 * MIB;
}

static void defaults_fill(struct settings *settings, unsigned *rounds)
{
    if (settings->threads == 0)
        settings->threads = settings->kind == VMM_DRIVER_CUDA ? 8 : 16;
    if (settings->streams == 0)
        settings->streams = 16;
    if (settings->limit_bytes == 0)
        settings->limit_bytes = settings->kind == VMM_DRIVER_HOST ? 768 * MIB : 2048 * MIB;
    if (settings->seconds <= 0 && settings->operations == 0)
        settings->seconds = SECONDS_DEFAULT;
    uint64_t wanted = (uint64_t)settings->seconds / ROUND_SECONDS;
    if (*rounds == 0)
        *rounds = (unsigned)vmm__min(vmm__max(wanted, ROUNDS_LEAST), DRIFT_ROUNDS);
}

static bool arguments_read(int argc, char **argv, struct settings *settings, unsigned *rounds)
{
    uint64_t threads = 0;
    uint64_t streams = 0;
    uint64_t rounds_most = 0;
    const struct option_row rows[] = {
        { .name = "--threads", .number = &threads, .least = 2, .most = WORKERS_MOST },
        { .name = "--streams", .number = &streams, .least = 4, .most = WORKER_STREAMS },
        { .name = "--seconds", .read = seconds_read, .out = &settings->seconds },
        { .name = "--operations", .number = &settings->operations, .least = 1, .most = INT64_MAX },
        { .name = "--seed", .number = &settings->seed, .most = UINT64_MAX },
        { .name = "--reuse", .read = reuse_read, .out = &settings->reuse },
        { .name = "--clock", .read = clock_read, .out = &settings->clock_kind },
        { .name = "--limit", .read = limit_read, .out = &settings->limit_bytes },
        { .name = "--stall", .read = seconds_read, .out = &settings->stall_seconds },
        { .name = "--rounds", .number = &rounds_most, .least = 1, .most = DRIFT_ROUNDS },
    };
    int others;
    if (!options_read(argc, argv, rows, sizeof rows / sizeof rows[0], &others) || others != 1 ||
        !vmm__driver_kind_parse(argv[1], &settings->kind) || settings->kind == VMM_DRIVER_DEFAULT)
        return false;
    settings->threads = (unsigned)threads;
    settings->streams = (unsigned)streams;
    *rounds = (unsigned)rounds_most;
    defaults_fill(settings, rounds);
    return true;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* In thousandths of the whole run. */
static uint64_t part_done(const struct run *run, uint64_t operations)
{
    const struct settings *settings = &run->workers->settings;
    if (settings->operations != 0)
        return operations * 1000 / settings->operations;
    double seconds = (double)(vmm__time_ns() - run->start_ns) / 1e9;
    return (uint64_t)(seconds * 1000 / settings->seconds);
}

static bool round_enough(void *context, uint64_t operations)
{
    struct run *run = context;
    progress_step(run->progress, vmm__min(part_done(run, operations), 1000));
    if (run->workers->settings.operations != 0)
        return operations >= run->most_operations;
    return vmm__time_ns() >= run->end_ns;
}

static void round_bounded(struct run *run)
{
    const struct settings *settings = &run->workers->settings;
    run->round++;
    run->most_operations = settings->operations / run->rounds * run->round;
    run->end_ns = run->start_ns + (uint64_t)(settings->seconds * 1e9 * run->round / run->rounds);
}

static void round_report(const struct run *run, const struct drift *drift, const vmm_stats *stats)
{
    const struct drift_sample *sample = &drift->samples[drift->count - 1];
    uint64_t deaths;
    struct stress_sums sums = workers_sums(run->workers, &deaths);
    double seconds = (double)(vmm__time_ns() - run->start_ns) / 1e9;
    (void)printf(
        "round %u: %.1f s, %llu operations (%.0f a second), %llu chunks moved, %llu "
        "stream waits, %llu stalls; host %llu KiB, %llu mappings, %llu files, reserved at "
        "most %llu MiB for %llu MiB live\n",
        run->round, seconds, (unsigned long long)sums.operations, (double)sums.operations / seconds,
        (unsigned long long)(stats->map_calls - stats->create_calls),
        (unsigned long long)stats->stream_waits, (unsigned long long)stats->stalls,
        (unsigned long long)sample->host_bytes >> 10, (unsigned long long)sample->mappings,
        (unsigned long long)sample->files, (unsigned long long)(stats->reserved_bytes.peak / MIB),
        (unsigned long long)(stats->active_bytes.peak / MIB));
}

static void round_run(struct run *run, struct drift *drift)
{
    struct workers *workers = run->workers;
    workers_expect(workers, "vmm_stats_reset_peak", vmm_stats_reset_peak(workers->shared.cache));
    round_bounded(run);
    workers_round(workers, worker_main, round_enough, run);
    vmm_stats stats = workers_stats(workers);
    workers_rest(workers);
    if (workers_are_troubled(workers))
        return;
    drift_sample(drift, &stats);
    progress_end(run->progress);
    round_report(run, drift, &stats);
    (void)fflush(stdout);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void sums_write(struct workers *workers, double seconds)
{
    uint64_t deaths;
    struct stress_sums sums = workers_sums(workers, &deaths);
    vmm_stats stats = workers_stats(workers);
    (void)printf(
        "stress_workers: %u threads, %u streams, seed %llu: %llu operations in %.1f s, %llu "
        "allocations (%llu refused), %llu uses, %llu undeclared, %llu passed on, %llu launches, "
        "%llu "
        "threads died; %llu chunks moved, %llu created, %llu stream waits, %llu stalls, "
        "%llu retries\n",
        workers->settings.threads, workers->settings.streams,
        (unsigned long long)workers->settings.seed, (unsigned long long)sums.operations, seconds,
        (unsigned long long)sums.allocations, (unsigned long long)sums.refused,
        (unsigned long long)sums.shares, (unsigned long long)sums.undeclared,
        (unsigned long long)sums.passes, (unsigned long long)sums.launches,
        (unsigned long long)deaths, (unsigned long long)(stats.map_calls - stats.create_calls),
        (unsigned long long)stats.create_calls, (unsigned long long)stats.stream_waits,
        (unsigned long long)stats.stalls, (unsigned long long)stats.retries);
}

static void rounds_run(struct run *run)
{
    static struct drift drift;
    struct workers *workers = run->workers;
    progress_begin(run->progress, 1000, "stress_workers: %s (%s), %u threads, %u streams",
                   workers->shared.driver->ops->name, workers->shared.driver->device_name,
                   workers->settings.threads, workers->settings.streams);
    run->start_ns = vmm__time_ns();
    while (run->round < run->rounds && !workers_are_troubled(workers))
        round_run(run, &drift);
    progress_end(run->progress);
    sums_write(workers, (double)(vmm__time_ns() - run->start_ns) / 1e9);
    const char *grown = workers_are_troubled(workers) ? NULL : drift_report(&drift);
    if (grown != NULL)
        workers_trouble(workers, "this grew: %s", grown);
    if (workers->settings.stall_seconds > 0 && !workers_are_troubled(workers))
        stall_run(workers);
}

static int no_driver(const char *program, const struct settings *settings, vmm_status status)
{
    const char *required = getenv("VMM_REQUIRE_GPU");
    bool is_missing = status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED;
    bool is_skipped = settings->kind == VMM_DRIVER_CUDA && is_missing &&
                      (required == NULL || strcmp(required, "1") != 0);
    (void)fprintf(stderr, "%s: %s: %s\n", program, is_skipped ? "SKIPPED" : "FAILED",
                  vmm_last_error());
    return is_skipped ? EXIT_SKIPPED : EXIT_TROUBLE;
}

int main(int argc, char **argv)
{
    static struct workers workers;
    static struct progress progress;
    struct settings settings = { .seed = 1,
                                 .reuse = VMM_REUSE_ANY_USE,
                                 .clock_kind = VMM_CLOCK_CONTEXT };
    struct run run = { .workers = &workers, .progress = &progress };
    if (!arguments_read(argc, argv, &settings, &run.rounds)) {
        (void)fprintf(stderr,
                      "usage: %s sim|host|cuda [--threads 2..%d] [--streams 4..%d] [--seconds S | "
                      "--operations N] [--seed N] [--reuse any_use|declared|stream_wait] [--clock "
                      "context|streams] [--limit SIZE] [--stall SECONDS] [--rounds N]\n",
                      argv[0], WORKERS_MOST, WORKER_STREAMS);
        return EXIT_USAGE;
    }
    vmm_status status = workers_open(&workers, &settings);
    if (status != VMM_OK)
        return no_driver(argv[0], &settings, status);
    progress_init(&progress, stderr, false);
    rounds_run(&run);
    workers_close(&workers);
    if (!workers_are_troubled(&workers))
        return 0;
    (void)fprintf(stderr, "stress_workers: round %u: %s\n", run.round, workers.shared.trouble);
    return EXIT_TROUBLE;
}
