/*
 * fuzz_cache: random operations on a cache against a reference model. See engine.h, docs/reliability.md.
 *
 * Exit status: 0 all was well, 1 trouble (told with what replays it), 2 wrong arguments.
 */
#define _GNU_SOURCE
#include "minimise.h"

#include "base/clock.h"
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_TROUBLE = 1, EXIT_USAGE = 2, PATIENCE_MS = 20000, RUNS_A_CHILD = 64 };

enum mode { MODE_RUN, MODE_REPLAY, MODE_MINIMISE };

struct options {
    enum mode mode;
    uint64_t seed;
    bool has_seed;
    uint64_t runs;
    uint64_t operations;
    uint64_t patience_ms;
    uint64_t seconds; /* 0: until all runs are done */
    bool is_binary;   /* files are libFuzzer's */
    bool is_listed;
    enum plant_kind plant;
    const char *output; /* where a finding is written; NULL: fuzz-SEED.txt */
    char **files;
    int file_count;
};

static const char usage_text[] =
    "usage: fuzz_cache [--seed S] [--runs N] [--operations N] [--seconds N] [--output FILE]\n"
    "       fuzz_cache --replay [--list] FILE...\n"
    "       fuzz_cache --minimise [FILE | --seed S] [--operations N] [--output FILE]\n"
    "\n"
    "  --seed S        the first run's; that of each further one is by one higher; default: a new "
    "one\n"
    "  --runs N        default 1000\n"
    "  --operations N  of a run, default 400\n"
    "  --seconds N     begin no run after so many\n"
    "  --output FILE   where what fails is written; default fuzz-SEED.txt\n"
    "  --replay        run the files' sequences of operations\n"
    "  --list          write each operation as it is run, and what its calls returned\n"
    "  --minimise      shorten a sequence that fails, and write the shortest\n"
    "  --bytes         the files are inputs of libFuzzer, not text\n"
    "  --patience MS   a run that takes longer hangs; default 20000\n"
    "  --plant BUG     a planted bug: overlap, forget, status, crash or hang\n";

/* ---- Arguments ------------------------------------------------------------------------------- */

static bool number_read(const char *text, uint64_t *out)
{
    char *end;
    if (text == NULL)
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* An option with a value; false: it is none of them, or the value is wrong. */
static bool value_read(struct options *options, const char *name, const char *value)
{
    if (strcmp(name, "--seed") == 0) {
        options->has_seed = true;
        return number_read(value, &options->seed);
    }
    if (strcmp(name, "--runs") == 0)
        return number_read(value, &options->runs);
    if (strcmp(name, "--operations") == 0)
        return number_read(value, &options->operations) && options->operations <= 10000000;
    if (strcmp(name, "--seconds") == 0)
        return number_read(value, &options->seconds);
    if (strcmp(name, "--patience") == 0)
        return number_read(value, &options->patience_ms) && options->patience_ms > 0 &&
               options->patience_ms <= UINT32_MAX;
    if (strcmp(name, "--plant") == 0)
        return value != NULL && plant_kind_read(value, &options->plant);
    if (strcmp(name, "--output") != 0)
        return false;
    options->output = value;
    return value != NULL;
}

static bool flag_read(struct options *options, const char *name)
{
    if (strcmp(name, "--replay") == 0)
        options->mode = MODE_REPLAY;
    else if (strcmp(name, "--minimise") == 0)
        options->mode = MODE_MINIMISE;
    else if (strcmp(name, "--bytes") == 0)
        options->is_binary = true;
    else if (strcmp(name, "--list") == 0)
        options->is_listed = true;
    else
        return false;
    return true;
}

/* What is no option is a file; files gather at the beginning of argv. */
static bool options_read(int argc, char **argv, struct options *options)
{
    options->files = argv;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            argv[options->file_count++] = argv[i];
        else if (flag_read(options, argv[i]))
            continue;
        else if (!value_read(options, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    if (options->mode == MODE_REPLAY)
        return options->file_count > 0;
    if (options->mode == MODE_MINIMISE)
        return options->file_count == (options->has_seed ? 0 : 1);
    return options->file_count == 0;
}

/* ---- Findings -------------------------------------------------------------------------------- */

static bool file_write(const struct sequence *sequence, const char *path, const char *comment)
{
    FILE *out = fopen(path, "we");
    if (out == NULL) {
        (void)fprintf(stderr, "fuzz_cache: %s: %s\n", path, strerror(errno));
        return false;
    }
    sequence_write(sequence, comment, out);
    return fclose(out) == 0;
}

static void finding_tell(const struct options *options, const struct child_report *report)
{
    struct sequence sequence;
    char path[64];
    uint64_t seed = report->seed;
    (void)snprintf(path, sizeof path, "fuzz-%" PRIu64 ".txt", seed);
    const char *output = options->output != NULL ? options->output : path;
    (void)fprintf(stderr, "fuzz_cache: seed %" PRIu64 ", operation %" PRIu64 ": %s\n", seed,
                  (uint64_t)report->index, report->trouble);
    if (!sequence_make(&sequence, (size_t)options->operations))
        return;
    operations_generate(seed, sequence.operations, sequence.count);
    if (report->index + 1 < sequence.count)
        sequence.count = (size_t)report->index + 1;
    if (file_write(&sequence, output, report->trouble))
        (void)fprintf(stderr,
                      "fuzz_cache: its %zu operations are in %s\n"
                      "  again:   fuzz_cache --seed %" PRIu64 " --runs 1 --operations %" PRIu64 "\n"
                      "  again:   fuzz_cache --replay %s\n"
                      "  shorter: fuzz_cache --minimise %s\n",
                      sequence.count, output, seed, options->operations, output, output);
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
    return (double)(vmm__clock_ns() - runs->start_ns) / 1e9;
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
    static struct engine engine;
    const struct runs *runs = context;
    const struct options *options = runs->options;
    engine.plant.kind = options->plant;
    engine.sums = report->sums;
    engine_on_step(operation_noted, report);
    bool is_well = true;
    for (uint64_t i = 0; i < RUNS_A_CHILD && is_well && !runs_end(runs, runs->next + i); i++) {
        child_breathes((unsigned)options->patience_ms);
        report->seed = options->seed + runs->next + i;
        operations_generate(report->seed, runs->operations, (size_t)options->operations);
        is_well = engine_run(&engine, runs->operations, (size_t)options->operations, NULL);
        report->runs += is_well;
    }
    report->sums = engine.sums;
    memcpy(report->trouble, engine.trouble, sizeof report->trouble);
    return is_well;
}

static void progress_told(void *context, const struct child_report *report)
{
    struct runs *runs = context;
    progress_step(&runs->progress, report->operations);
}

static void sums_write(const struct runs *runs, const struct child_report *report)
{
    const struct engine_sums *sums = &report->sums;
    double seconds = runs_seconds(runs);
    (void)printf("fuzz_cache: seed %" PRIu64 ": %" PRIu64 " runs, %" PRIu64 " operations, %" PRIu64
                 " caches, %" PRIu64 " allocations (%" PRIu64 " refused), %" PRIu64
                 " faults, %" PRIu64 " misuses, %" PRIu64 " launches, %" PRIu64 " moves, %" PRIu64
                 " compactions, %" PRIu64 " walks; %.1f s, %.0f runs/s, %.0f operations/s\n",
                 runs->options->seed, (uint64_t)report->runs, sums->operations, sums->caches,
                 sums->allocations, sums->refused, sums->faults, sums->misuses, sums->launches,
                 sums->moves, sums->compactions, sums->walks, seconds,
                 (double)report->runs / seconds, (double)sums->operations / seconds);
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
    progress_begin(&runs->progress, options->runs * options->operations,
                   "fuzz_cache: seed %" PRIu64, options->seed);
    while (outcome == CHILD_WELL && !runs_end(runs, runs->next)) {
        outcome = child_run(&job, report);
        runs->next += RUNS_A_CHILD;
    }
    progress_end(&runs->progress);
    if (outcome != CHILD_WELL)
        finding_tell(options, report);
    sums_write(runs, report);
    return outcome == CHILD_WELL ? EXIT_SUCCESS : EXIT_TROUBLE;
}

static int mode_run(const struct options *options, struct child_report *report)
{
    struct runs runs = { .options = options, .start_ns = vmm__clock_ns() };
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
    (void)fprintf(stderr, "fuzz_cache: %s: %s\n", path, error);
    return false;
}

static int mode_replay(const struct options *options, struct child_report *report)
{
    int status = EXIT_SUCCESS;
    for (int i = 0; i < options->file_count; i++) {
        struct minimise minimise = { .report = report,
                                     .plant = options->plant,
                                     .patience_ms = (unsigned)options->patience_ms,
                                     .is_listed = options->is_listed };
        struct sequence sequence;
        if (!file_read(options, options->files[i], &sequence))
            return EXIT_USAGE;
        enum child_outcome outcome = sequence_run(&minimise, &sequence, false);
        (void)printf("%s: %zu operations: %s", options->files[i], sequence.count,
                     child_outcome_name(outcome));
        if (outcome != CHILD_WELL)
            (void)printf(" at operation %" PRIu64 ": %s", (uint64_t)report->index, report->trouble);
        (void)printf("\n");
        sequence_end(&sequence);
        status = outcome == CHILD_WELL ? status : EXIT_TROUBLE;
    }
    return status;
}

static bool minimise_read(const struct options *options, struct sequence *sequence)
{
    if (!options->has_seed)
        return file_read(options, options->files[0], sequence);
    if (!sequence_make(sequence, (size_t)options->operations))
        return false;
    operations_generate(options->seed, sequence->operations, sequence->count);
    return true;
}

struct minimise_progress {
    struct progress progress;
    uint64_t whole;
};

static void minimise_told(void *context, const struct minimise *minimise)
{
    struct minimise_progress *told = context;
    progress_step(&told->progress, told->whole - minimise->shortest);
}

static int mode_minimise(const struct options *options, struct child_report *report)
{
    struct sequence sequence;
    struct minimise_progress told;
    if (!minimise_read(options, &sequence))
        return EXIT_USAGE;
    told.whole = sequence.count;
    progress_init(&told.progress, stderr, false);
    progress_begin(&told.progress, told.whole, "fuzz_cache: left out of %zu", sequence.count);
    struct minimise minimise = { .report = report,
                                 .plant = options->plant,
                                 .patience_ms = (unsigned)options->patience_ms,
                                 .step = minimise_told,
                                 .context = &told };
    bool fails = sequence_minimise(&minimise, &sequence);
    progress_end(&told.progress);
    if (!fails) {
        (void)fprintf(stderr, "fuzz_cache: these operations do not fail\n");
        return EXIT_TROUBLE;
    }
    (void)fprintf(stderr,
                  "fuzz_cache: %zu of %" PRIu64 " operations are left after %" PRIu64 " tries\n",
                  sequence.count, told.whole, minimise.tries);
    sequence_write(&sequence, report->trouble, stdout);
    bool is_written =
        options->output == NULL || file_write(&sequence, options->output, report->trouble);
    sequence_end(&sequence);
    return is_written ? EXIT_SUCCESS : EXIT_TROUBLE;
}

int main(int argc, char **argv)
{
    struct options options = { .runs = 1000, .operations = 400, .patience_ms = PATIENCE_MS };
    if (!options_read(argc, argv, &options)) {
        (void)fputs(usage_text, stderr);
        return EXIT_USAGE;
    }
    if (!options.has_seed && options.mode == MODE_RUN)
        options.seed = (vmm__clock_ns() ^ (uint64_t)getpid() << 32) % 1000000000;
    struct child_report *report = child_report_make();
    if (report == NULL) {
        perror("fuzz_cache");
        return EXIT_TROUBLE;
    }
    if (options.mode == MODE_REPLAY)
        return mode_replay(&options, report);
    return options.mode == MODE_MINIMISE ? mode_minimise(&options, report)
                                         : mode_run(&options, report);
}
