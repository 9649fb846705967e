/*
 * stress: random operations on a cache against a model, replayed, shortened. See stress.h, tests/README.md.
 *
 * Exit status: 0 all was well, 1 trouble (with what replays it), 2 wrong arguments, 77 there is no such device here.
 */
#define _GNU_SOURCE
#include "minimise.h"
#include "options.h"

#include "base/time.h"
#include "fragtest/cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    EXIT_TROUBLE = 1,
    EXIT_USAGE = 2,
    EXIT_SKIPPED = 77,
    PATIENCE_MS = 20000,
    RUNS_A_CHILD = 64
};

/* No seed was given. */
#define NO_SEED UINT64_MAX

struct options {
    bool is_replay;
    bool is_minimise;
    bool is_binary; /* files are libFuzzer's */
    bool is_listed;
    bool has_schedules;
    uint64_t seed;
    uint64_t runs;
    uint64_t operations;
    uint64_t patience_ms;
    uint64_t seconds;     /* 0: until all runs are done */
    uint64_t compactions; /* that each file must bring about, at least */
    enum profile profile;
    vmm_driver_kind kind;
    enum control_kind control;
    const char *output; /* where a finding is written; NULL: stress-SEED.txt */
    char **files;
    int file_count;
};

static const char usage_text[] =
    "usage: stress [--seed S] [--runs N] [--operations N] [--seconds N] [--schedules] [--output "
    "FILE]\n"
    "       stress --replay [--list] [--compactions N] FILE...\n"
    "       stress --minimise [FILE | --seed S] [--operations N] [--schedules] [--output FILE]\n"
    "\n"
    "  --seed S        of the first run; each further run has the next one; default: a new one\n"
    "  --runs N        default 1000\n"
    "  --operations N  of a run, default 400\n"
    "  --seconds N     begin no run after so many\n"
    "  --schedules     no faults and no misuse: many streams whose work ends in adverse orders\n"
    "  --driver NAME   sim, host or cuda; default sim\n"
    "  --output FILE   where what fails is written; default stress-SEED.txt\n"
    "  --replay        run the files' sequences of operations\n"
    "  --compactions N that move live bytes: a file with fewer fails\n"
    "  --list          write each operation as it is run, and what its calls returned\n"
    "  --minimise      shorten a sequence that fails, and write the shortest\n"
    "  --bytes         the files are inputs of libFuzzer, not text\n"
    "  --patience MS   a run that takes longer hangs; default 20000\n"
    "  --control NAME  make the cache or the driver wrong: overlap, forget, status, crash, pool,\n"
    "                  align, commit, decommit, resize, import, hang, announce, limbo, epoch,\n"
    "                  stamp, query, follow, device, record, clock, partial, use or end\n";

/* ---- Arguments ------------------------------------------------------------------------------- */

static bool driver_read(const char *text, void *out)
{
    vmm_driver_kind *kind = out;
    return vmm__driver_kind_parse(text, kind) && *kind != VMM_DRIVER_DEFAULT;
}

static bool control_name_read(const char *text, void *out)
{
    return control_read(text, out);
}

static bool arguments_read(int argc, char **argv, struct options *options)
{
    const struct option_row rows[] = {
        { .name = "--replay", .flag = &options->is_replay },
        { .name = "--minimise", .flag = &options->is_minimise },
        { .name = "--bytes", .flag = &options->is_binary },
        { .name = "--list", .flag = &options->is_listed },
        { .name = "--schedules", .flag = &options->has_schedules },
        { .name = "--seed", .number = &options->seed, .most = NO_SEED - 1 },
        { .name = "--runs", .number = &options->runs, .most = UINT32_MAX },
        { .name = "--operations", .number = &options->operations, .most = 10000000 },
        { .name = "--seconds", .number = &options->seconds, .most = UINT32_MAX },
        { .name = "--compactions", .number = &options->compactions, .most = UINT32_MAX },
        { .name = "--patience", .number = &options->patience_ms, .least = 1, .most = UINT32_MAX },
        { .name = "--control", .read = control_name_read, .out = &options->control },
        { .name = "--driver", .read = driver_read, .out = &options->kind },
        { .name = "--output", .read = text_read, .out = &options->output },
    };
    options->files = argv + 1;
    if (!options_read(argc, argv, rows, sizeof rows / sizeof rows[0], &options->file_count))
        return false;
    options->profile = options->has_schedules ? PROFILE_SCHEDULE : PROFILE_RANDOM;
    if (options->is_replay)
        return options->file_count > 0;
    if (options->is_minimise)
        return options->file_count == (options->seed != NO_SEED ? 0 : 1);
    return options->file_count == 0;
}

/* ---- Findings -------------------------------------------------------------------------------- */

static bool file_write(const struct sequence *sequence, const char *path, const char *comment)
{
    FILE *out = fopen(path, "we");
    if (out == NULL) {
        (void)fprintf(stderr, "stress: %s: %s\n", path, strerror(errno));
        return false;
    }
    sequence_write(sequence, comment, out);
    return fclose(out) == 0;
}

static void finding_write(const struct options *options, const struct child_report *report)
{
    struct sequence sequence;
    char path[64];
    uint64_t seed = report->seed;
    (void)snprintf(path, sizeof path, "stress-%" PRIu64 ".txt", seed);
    const char *output = options->output != NULL ? options->output : path;
    (void)fprintf(stderr, "stress: seed %" PRIu64 ", operation %" PRIu64 ": %s\n", seed,
                  (uint64_t)report->index, report->trouble);
    if (!sequence_make(&sequence, (size_t)options->operations))
        return;
    operations_generate(seed, options->profile, sequence.operations, sequence.count);
    if (report->index + 1 < sequence.count)
        sequence.count = (size_t)report->index + 1;
    if (file_write(&sequence, output, report->trouble))
        (void)fprintf(stderr,
                      "stress: its %zu operations are in %s\n"
                      "  again:   stress --replay %s\n"
                      "  shorter: stress --minimise %s\n",
                      sequence.count, output, output, output);
    sequence_end(&sequence);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

struct runs {
    const struct options *options;
    struct progress progress;
    uint64_t next; /* how many were begun before the child under way */
    uint64_t start_ns;
    struct operation *operations;
};

static double runs_seconds(const struct runs *runs)
{
    return (double)(vmm__time_ns() - runs->start_ns) / 1e9;
}

static bool runs_end(const struct runs *runs, uint64_t done)
{
    const struct options *options = runs->options;
    bool is_late = options->seconds != 0 && runs_seconds(runs) >= (double)options->seconds;
    return done >= options->runs || is_late;
}

static void operation_noted(void *context, size_t index)
{
    struct child_report *report = context;
    atomic_store_explicit(&report->index, index, memory_order_relaxed);
    atomic_fetch_add_explicit(&report->operations, 1, memory_order_relaxed);
}

/* Some runs, each of a seed of its own, until one fails. */
static bool runs_work(void *context, struct child_report *report)
{
    static struct stress stress;
    const struct runs *runs = context;
    const struct options *options = runs->options;
    stress.control.kind = options->control;
    stress.kind = options->kind;
    stress.stream_count = STRESS_STREAMS;
    stress.sums = report->sums;
    stress_on_step(operation_noted, report);
    bool is_well = true;
    for (uint64_t i = 0; i < RUNS_A_CHILD && is_well && !runs_end(runs, runs->next + i); i++) {
        child_breathes((unsigned)options->patience_ms);
        report->seed = options->seed + runs->next + i;
        operations_generate(report->seed, options->profile, runs->operations,
                            (size_t)options->operations);
        is_well = stress_run(&stress, runs->operations, (size_t)options->operations, NULL);
        report->runs += is_well;
    }
    report->sums = stress.sums;
    memcpy(report->trouble, stress.trouble, sizeof report->trouble);
    return is_well;
}

static void progress_told(void *context, const struct child_report *report)
{
    struct runs *runs = context;
    progress_step(&runs->progress, report->operations);
}

static void sums_write(const struct runs *runs, const struct child_report *report)
{
    const struct stress_sums *sums = &report->sums;
    double seconds = runs_seconds(runs);
    (void)printf("stress: seed %" PRIu64 ": %" PRIu64 " runs, %" PRIu64 " operations, %" PRIu64
                 " caches, %" PRIu64 " allocations (%" PRIu64 " refused), %" PRIu64
                 " faults, %" PRIu64 " misuses, %" PRIu64 " launches, %" PRIu64 " moves, %" PRIu64
                 " compactions, %" PRIu64 " walks, %" PRIu64 " stream waits, %" PRIu64
                 " stalls, %" PRIu64 " streams ended, %" PRIu64
                 " undeclared uses; %.1f s, %.0f operations/s\n",
                 runs->options->seed, (uint64_t)report->runs, sums->operations, sums->caches,
                 sums->allocations, sums->refused, sums->faults, sums->misuses, sums->launches,
                 sums->moves, sums->compactions, sums->walks, sums->stream_waits, sums->stalls,
                 sums->ends, sums->undeclared, seconds, (double)sums->operations / seconds);
}

static int runs_make(struct runs *runs, struct child_report *report)
{
    const struct options *options = runs->options;
    struct child_job job = { .work = runs_work,
                             .context = runs,
                             .patience_ms = (unsigned)options->patience_ms,
                             .wait = progress_told,
                             .wait_context = runs };
    enum child_outcome outcome = CHILD_WELL;
    progress_init(&runs->progress, stderr, false);
    progress_begin(&runs->progress, options->runs * options->operations, "stress: seed %" PRIu64,
                   options->seed);
    while (outcome == CHILD_WELL && !runs_end(runs, runs->next)) {
        outcome = child_run(&job, report);
        runs->next += RUNS_A_CHILD;
    }
    progress_end(&runs->progress);
    if (outcome != CHILD_WELL)
        finding_write(options, report);
    sums_write(runs, report);
    return outcome == CHILD_WELL ? EXIT_SUCCESS : EXIT_TROUBLE;
}

static int mode_run(const struct options *options, struct child_report *report)
{
    struct runs runs = { .options = options, .start_ns = vmm__time_ns() };
    struct sequence sequence;
    if (!sequence_make(&sequence, (size_t)options->operations))
        return EXIT_TROUBLE;
    runs.operations = sequence.operations;
    int status = runs_make(&runs, report);
    sequence_end(&sequence);
    return status;
}

/* ---- Replay, minimise ------------------------------------------------------------------------ */

static bool file_read(const struct options *options, const char *path, struct sequence *sequence)
{
    char error[128];
    if (sequence_read(sequence, path, options->is_binary, error, sizeof error))
        return true;
    (void)fprintf(stderr, "stress: %s: %s\n", path, error);
    return false;
}

/* Says how a file went. A file that must compact fails if it no longer does. */
static bool replay_report(const struct options *options, const char *path, uint64_t operations,
                          const struct child_report *report)
{
    bool is_well = report->outcome == CHILD_WELL;
    uint64_t compactions = report->sums.compactions;
    (void)printf("%s: %" PRIu64 " operations, %" PRIu64 " compactions: %s", path, operations,
                 compactions, child_outcome_name(report->outcome));
    if (!is_well)
        (void)printf(" at operation %" PRIu64 ": %s", (uint64_t)report->index, report->trouble);
    else if (compactions < options->compactions)
        (void)printf(", but with fewer than %" PRIu64 " compactions", options->compactions);
    (void)printf("\n");
    return is_well && compactions >= options->compactions;
}

static int mode_replay(const struct options *options, struct child_report *report)
{
    int status = EXIT_SUCCESS;
    for (int i = 0; i < options->file_count; i++) {
        struct minimise minimise = { .report = report,
                                     .control = options->control,
                                     .kind = options->kind,
                                     .patience_ms = (unsigned)options->patience_ms,
                                     .is_listed = options->is_listed };
        struct sequence sequence;
        if (!file_read(options, options->files[i], &sequence))
            return EXIT_USAGE;
        (void)sequence_run(&minimise, &sequence, false);
        if (!replay_report(options, options->files[i], sequence.count, report))
            status = EXIT_TROUBLE;
        sequence_end(&sequence);
    }
    return status;
}

static bool minimise_read(const struct options *options, struct sequence *sequence)
{
    if (options->seed == NO_SEED)
        return file_read(options, options->files[0], sequence);
    if (!sequence_make(sequence, (size_t)options->operations))
        return false;
    operations_generate(options->seed, options->profile, sequence->operations, sequence->count);
    return true;
}

static int mode_minimise(const struct options *options, struct child_report *report)
{
    struct sequence sequence;
    if (!minimise_read(options, &sequence))
        return EXIT_USAGE;
    size_t whole = sequence.count;
    struct minimise minimise = { .report = report,
                                 .control = options->control,
                                 .kind = options->kind,
                                 .patience_ms = (unsigned)options->patience_ms };
    bool fails = sequence_minimise(&minimise, &sequence);
    if (!fails) {
        (void)fprintf(stderr, "stress: these operations do not fail\n");
        return EXIT_TROUBLE;
    }
    (void)fprintf(stderr, "stress: %zu of %zu operations are left after %" PRIu64 " tries\n",
                  sequence.count, whole, minimise.tries);
    sequence_write(&sequence, report->trouble, stdout);
    bool is_written =
        options->output == NULL || file_write(&sequence, options->output, report->trouble);
    sequence_end(&sequence);
    return is_written ? EXIT_SUCCESS : EXIT_TROUBLE;
}

/* Whether the driver opens: without a GPU, runs on one are skipped unless VMM_REQUIRE_GPU is 1. */
static int driver_open_status(const struct options *options)
{
    const char *required = getenv("VMM_REQUIRE_GPU");
    struct driver_options driver_options = { .device_bytes = 0 };
    struct driver *driver;
    vmm_status status = vmm__driver_open(options->kind, &driver_options, &driver);
    if (status == VMM_OK)
        vmm__driver_close(driver);
    if (status == VMM_OK)
        return EXIT_SUCCESS;
    (void)fprintf(stderr, "stress: %s\n", vmm_last_error());
    bool is_missing = status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED;
    bool is_required = required != NULL && strcmp(required, "1") == 0;
    return is_missing && !is_required ? EXIT_SKIPPED : EXIT_TROUBLE;
}

/* Tries in a child: the children of a process that has started CUDA cannot use it. */
static int driver_try(const struct options *options)
{
    int status = 0;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(driver_open_status(options));
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return EXIT_TROUBLE;
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    struct options options = { .seed = NO_SEED,
                               .kind = VMM_DRIVER_SIM,
                               .runs = 1000,
                               .operations = 400,
                               .patience_ms = PATIENCE_MS };
    if (!arguments_read(argc, argv, &options)) {
        (void)fputs(usage_text, stderr);
        return EXIT_USAGE;
    }
    if (options.seed == NO_SEED && !options.is_replay && !options.is_minimise)
        options.seed = (vmm__time_ns() ^ (uint64_t)getpid() << 32) % 1000000000;
    struct child_report *report = child_report_make();
    if (report == NULL) {
        perror("stress");
        return EXIT_TROUBLE;
    }
    int status = options.kind == VMM_DRIVER_SIM ? EXIT_SUCCESS : driver_try(&options);
    if (status != EXIT_SUCCESS)
        return status;
    if (options.is_replay)
        return mode_replay(&options, report);
    return options.is_minimise ? mode_minimise(&options, report) : mode_run(&options, report);
}
