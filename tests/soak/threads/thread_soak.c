/*
 * thread_soak: many threads on many streams of one cache until something is wrong. See thread_soak.h.
 *
 * usage: thread_soak sim|host|cuda [--threads N] [--streams N] [--seconds S | --operations N] [--seed N]
 *                    [--sharing finished|wait] [--limit SIZE] [--stall S] [--rounds N]
 *
 * Defaults: 16 threads and 16 streams (cuda: 8 threads), 60 seconds, seed 1, finished, a limit of 2 GiB (host: 768
 * MiB), no stall, rounds of about 5 seconds and 12 at least.
 * Exit status: 0 all was well, 1 trouble (told on stderr), 2 wrong arguments, 77 there is no such device here.
 */
#include "thread_soak.h"

#include "base/arith.h"
#include "base/clock.h"
#include "base/size.h"
#include "progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_TROUBLE = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77 };
enum { ROUNDS_LEAST = 12, ROUND_SECONDS = 5, SECONDS_DEFAULT = 60 };

/* One run: what was asked for, and how far it is. */
struct run {
    struct crew *crew;
    struct progress *progress;
    unsigned rounds;
    unsigned round;
    uint64_t start_ns;
    uint64_t most_operations; /* of the round under way */
    uint64_t end_ns;          /* the same; 0: no end in time */
};

/* ---- Arguments ------------------------------------------------------------------------------- */

static bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out = value;
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && value >= least &&
           value <= most;
}

static bool seconds_read(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text >= '0' && *text <= '9' && *end == '\0' && *out > 0 && *out < 1e9;
}

static bool unsigned_read(const char *text, unsigned least, unsigned most, unsigned *out)
{
    uint64_t number;
    bool is_sound = number_read(text, least, most, &number);
    *out = (unsigned)number;
    return is_sound;
}

static bool sharing_read(const char *text, vmm_sharing *out)
{
    *out = strcmp(text, "wait") == 0 ? VMM_SHARING_WAIT : VMM_SHARING_FINISHED;
    return *out == VMM_SHARING_WAIT || strcmp(text, "finished") == 0;
}

static bool option_read(const char *option, const char *value, struct crew_settings *settings,
                        unsigned *rounds)
{
    if (strcmp(option, "--threads") == 0)
        return unsigned_read(value, 2, CREW_HANDS, &settings->threads);
    if (strcmp(option, "--streams") == 0)
        return unsigned_read(value, 4, CREW_STREAMS, &settings->streams);
    if (strcmp(option, "--seconds") == 0)
        return seconds_read(value, &settings->seconds);
    if (strcmp(option, "--operations") == 0)
        return number_read(value, 1, UINT64_MAX / 2, &settings->operations);
    if (strcmp(option, "--seed") == 0)
        return number_read(value, 0, UINT64_MAX, &settings->seed);
    if (strcmp(option, "--sharing") == 0)
        return sharing_read(value, &settings->sharing);
    if (strcmp(option, "--limit") == 0)
        return vmm__size_parse(value, &settings->limit_bytes) && settings->limit_bytes >= 64 * MIB;
    if (strcmp(option, "--stall") == 0)
        return seconds_read(value, &settings->stall_seconds);
    if (strcmp(option, "--rounds") == 0)
        return unsigned_read(value, 1, DRIFT_ROUNDS, rounds);
    return false;
}

static void defaults_fill(struct crew_settings *settings, unsigned *rounds)
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

static bool arguments_read(int argc, char **argv, struct crew_settings *settings, unsigned *rounds)
{
    if (argc < 2 || argc % 2 != 0 || !vmm__driver_kind_parse(argv[1], &settings->kind) ||
        settings->kind == VMM_DRIVER_AUTO)
        return false;
    for (int i = 2; i < argc; i += 2) {
        if (!option_read(argv[i], argv[i + 1], settings, rounds))
            return false;
    }
    defaults_fill(settings, rounds);
    return true;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* In thousandths of the whole run. */
static uint64_t part_done(const struct run *run, uint64_t operations)
{
    const struct crew_settings *settings = &run->crew->settings;
    if (settings->operations != 0)
        return operations * 1000 / settings->operations;
    double seconds = (double)(vmm__clock_ns() - run->start_ns) / 1e9;
    return (uint64_t)(seconds * 1000 / settings->seconds);
}

static bool round_enough(void *context, uint64_t operations)
{
    struct run *run = context;
    progress_step(run->progress, vmm__min(part_done(run, operations), 1000));
    if (run->crew->settings.operations != 0)
        return operations >= run->most_operations;
    return vmm__clock_ns() >= run->end_ns;
}

static void round_bounded(struct run *run)
{
    const struct crew_settings *settings = &run->crew->settings;
    run->round++;
    run->most_operations = settings->operations / run->rounds * run->round;
    run->end_ns = run->start_ns + (uint64_t)(settings->seconds * 1e9 * run->round / run->rounds);
}

static void round_report(const struct run *run, const struct drift *drift, const vmm_stats *stats)
{
    const struct drift_sample *sample = &drift->samples[drift->count - 1];
    struct hand_sums sums = crew_sums(run->crew);
    double seconds = (double)(vmm__clock_ns() - run->start_ns) / 1e9;
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
    struct crew *crew = run->crew;
    crew_expect(crew, "vmm_stats_reset_peak", vmm_stats_reset_peak(crew->cache));
    round_bounded(run);
    crew_round(crew, hand_main, round_enough, run);
    vmm_stats stats = crew_stats(crew);
    crew_rest(crew);
    if (crew_is_troubled(crew))
        return;
    drift_sample(drift, &stats);
    progress_end(run->progress);
    round_report(run, drift, &stats);
    (void)fflush(stdout);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void sums_write(struct crew *crew, double seconds)
{
    struct hand_sums sums = crew_sums(crew);
    vmm_stats stats = crew_stats(crew);
    (void)printf("thread_soak: %u threads, %u streams, seed %llu: %llu operations in %.1f s, %llu "
                 "allocations (%llu refused), %llu uses, %llu passed on, %llu captures, %llu "
                 "threads died; %llu chunks moved, %llu created, %llu stream waits, %llu stalls, "
                 "%llu retries\n",
                 crew->settings.threads, crew->settings.streams,
                 (unsigned long long)crew->settings.seed, (unsigned long long)sums.operations,
                 seconds, (unsigned long long)sums.allocations, (unsigned long long)sums.refusals,
                 (unsigned long long)sums.uses, (unsigned long long)sums.passes,
                 (unsigned long long)sums.captures, (unsigned long long)sums.deaths,
                 (unsigned long long)(stats.map_calls - stats.create_calls),
                 (unsigned long long)stats.create_calls, (unsigned long long)stats.stream_waits,
                 (unsigned long long)stats.stalls, (unsigned long long)stats.retries);
}

static void soak_run(struct run *run)
{
    static struct drift drift;
    struct crew *crew = run->crew;
    progress_begin(run->progress, 1000, "thread_soak: %s (%s), %u threads, %u streams",
                   crew->driver->ops->name, crew->driver->device_name, crew->settings.threads,
                   crew->settings.streams);
    run->start_ns = vmm__clock_ns();
    while (run->round < run->rounds && !crew_is_troubled(crew))
        round_run(run, &drift);
    progress_end(run->progress);
    sums_write(crew, (double)(vmm__clock_ns() - run->start_ns) / 1e9);
    const char *grown = crew_is_troubled(crew) ? NULL : drift_report(&drift);
    if (grown != NULL)
        crew_trouble(crew, "this grew: %s", grown);
    if (crew->settings.stall_seconds > 0 && !crew_is_troubled(crew))
        stall_run(crew);
}

static int no_driver(const char *program, const struct crew_settings *settings, vmm_status status)
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
    static struct crew crew;
    static struct progress progress;
    struct crew_settings settings = { .seed = 1 };
    struct run run = { .crew = &crew, .progress = &progress };
    if (!arguments_read(argc, argv, &settings, &run.rounds)) {
        (void)fprintf(stderr,
                      "usage: %s sim|host|cuda [--threads 2..%d] [--streams 4..%d] [--seconds S | "
                      "--operations N] [--seed N] [--sharing finished|wait] [--limit SIZE] "
                      "[--stall SECONDS] [--rounds N]\n",
                      argv[0], CREW_HANDS, CREW_STREAMS);
        return EXIT_USAGE;
    }
    vmm_status status = crew_open(&crew, &settings);
    if (status != VMM_OK)
        return no_driver(argv[0], &settings, status);
    progress_init(&progress, stderr, false);
    soak_run(&run);
    crew_close(&crew);
    if (!crew_is_troubled(&crew))
        return 0;
    (void)fprintf(stderr, "thread_soak: round %u: %s\n", run.round, crew.trouble);
    return EXIT_TROUBLE;
}
