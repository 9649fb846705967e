/* Replays traces: each of them through each policy, with its pictures; the table, the verdict, JSON and CSV. */
#include "fragtest/replay/scene.h"

#include "driver/sim/sim.h"
#include "fragtest/cli/nearest.h"
#include "fragtest/replay/search.h"
#include "fragtest/report/csv.h"
#include "fragtest/report/json.h"
#include "fragtest/report/picture.h"
#include "fragtest/report/table.h"
#include "fragtest/trace/bundled_traces.h"
#include "fragtest/trace/workload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

struct runner {
    struct scene_run run;
    struct trace *traces;
    unsigned trace_count;
    struct result *results; /* those of one trace follow each other */
    unsigned result_count;
};

static const struct runner *runner_of(const struct scene_run *run)
{
    return (const struct runner *)run;
}

/* ---- Traces ------------------------------------------------------------------------------------ */

/* Adds the near names to the reader's error, where the name is neither a path nor a file. */
static void trace_suggest(const char *name, struct trace_error *error)
{
    size_t used = strlen(error->text);

    if (strcmp(name, TRACE_STDIN) == 0 || strchr(name, '/') != NULL || access(name, F_OK) == 0)
        return;
    struct nearest_text nearest =
        nearest_name(name, strlen(name), bundled_trace_names, BUNDLED_TRACES);
    (void)snprintf(error->text + used, sizeof(error->text) - used, "; %s", nearest.text);
}

static bool source_load(const struct options_source *source, struct trace *trace,
                        struct trace_error *error)
{
    char path[PATH_BYTES];

    if (!source->is_workload) {
        bool is_bundled = bundled_trace_find(source->name, path, sizeof(path));
        if (trace_read(path, trace, error))
            return true;
        if (!is_bundled)
            trace_suggest(source->name, error);
        return false;
    }
    if (workload_make(source->name, trace))
        return true;
    (void)snprintf(error->text, sizeof(error->text), "out of host memory for workload %s",
                   source->name);
    return false;
}

static bool traces_load(struct scene_run *run, struct trace_error *error)
{
    const struct options *options = run->options;
    struct runner *runner = (struct runner *)run;

    runner->traces = calloc(options->source_count, sizeof(*runner->traces));
    runner->results = calloc(options->source_count, POLICY_COUNT * sizeof(*runner->results));
    if (runner->traces == NULL || runner->results == NULL) {
        (void)snprintf(error->text, sizeof(error->text), "out of host memory");
        return false;
    }
    for (unsigned i = 0; i < options->source_count; i++) {
        if (!source_load(&options->sources[i], &runner->traces[i], error))
            return false;
        runner->trace_count++;
    }
    for (unsigned i = 0; i < runner->trace_count; i++)
        if (runner->traces[i].is_cut)
            (void)fprintf(stderr,
                          "fragtest: %s: the file was cut: replayed up to its last whole line\n",
                          runner->traces[i].name);
    return true;
}

static void runner_close(struct scene_run *run)
{
    struct runner *runner = (struct runner *)run;

    for (unsigned i = 0; i < runner->result_count; i++)
        replay_outcome_free(&runner->results[i].outcome);
    for (unsigned i = 0; i < runner->trace_count; i++)
        trace_free(&runner->traces[i]);
    free(runner->results);
    free(runner->traces);
}

/* ---- Replays ----------------------------------------------------------------------------------- */

static void result_fill(const struct scene_run *run, struct result *result)
{
    const struct options *options = run->options;
    struct progress *progress = run->progress;
    struct replay_request request = {
        .trace = result->trace,
        .policy = result->policy,
        .driver = run->driver,
        .limit_bytes = result->limit_bytes,
        .passes = options->passes,
        .lag = options->lag,
        .trims = options->trims,
        .compacts = options->compacts,
        .jitter = options->jitter,
        .verify = options->verify,
        .settings = result->settings,
        .timeline = &result->timeline,
        .progress = progress,
    };
    const char *trace = result->trace->name;

    progress_begin(progress, (uint64_t)result->trace->op_count * options->passes, "%s, %s", trace,
                   result->policy->name);
    replay_run(&request, &result->outcome);
    progress_end(progress);
    if (!options->least)
        return;
    progress_begin(progress, result->trace->op_count, "%s, %s: least memory", trace,
                   result->policy->name);
    result->least_bytes = search_least(&request);
    progress_end(progress);
}

/* One trace through the chosen policies. Returns how many they are. */
static unsigned trace_run(struct runner *runner, const struct trace *trace)
{
    struct result *first = &runner->results[runner->result_count];
    const struct options *options = runner->run.options;
    unsigned count = 0;

    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        if (!options->policies[i])
            continue;
        struct result *result = &first[count++];
        result->trace = trace;
        result->policy = policy_at(i);
        result->driver = runner->run.driver->ops->name;
        result->settings = options->settings;
        result->limit_bytes = policy_limit(options->memory, trace->peak_live_bytes);
        result_fill(&runner->run, result);
        runner->result_count++;
    }
    return count;
}

/* All pictures of a trace have the same scale. */
static void pictures_draw(const struct scene_run *run, const struct result *results, unsigned count)
{
    uint64_t top = 0;

    for (unsigned i = 0; i < count; i++)
        if (picture_top(&results[i]) > top)
            top = picture_top(&results[i]);
    for (unsigned i = 0; i < count; i++)
        picture_draw(run->text, run->style, &results[i], top);
}

static vmm_status runner_run(struct scene_run *run)
{
    struct runner *runner = (struct runner *)run;

    if (replay_is_sim(run->driver))
        vmm__sim_lag_set(run->driver, run->options->lag);
    for (unsigned i = 0; i < runner->trace_count; i++) {
        unsigned count = trace_run(runner, &runner->traces[i]);
        if (!run->options->quiet)
            pictures_draw(run, &runner->results[runner->result_count - count], count);
    }
    run->is_good = verdict_exit(runner->results, runner->result_count) == 0;
    return VMM_OK;
}

/* ---- Outcomes ---------------------------------------------------------------------------------- */

static void runner_show(const struct scene_run *run)
{
    const struct runner *runner = runner_of(run);
    const struct options *options = run->options;
    const struct table_columns columns = {
        .least = options->least,
        .trims = options->trims > 0,
        .compacts = options->compacts > 0,
        .lower_bound = options->lag > 0,
    };

    if (!options->quiet)
        picture_legend(run->text, run->style);
    scene_machine_write(run);
    if (!options->quiet)
        (void)fputc('\n', run->text);
    table_write(run->text, run->style.width, runner->results, runner->result_count, &columns);
    verdict_write(run->text, run->style.width, runner->results, runner->result_count);
}

static void runner_json_write(FILE *out, const struct scene_run *run)
{
    json_write(out, run->machine, runner_of(run)->results, runner_of(run)->result_count);
}

static void runner_csv_write(FILE *out, const struct scene_run *run)
{
    csv_write(out, runner_of(run)->results, runner_of(run)->result_count);
}

const struct scene scene_replay = {
    .run_bytes = sizeof(struct runner),
    .open = traces_load,
    .run = runner_run,
    .show = runner_show,
    .json_write = runner_json_write,
    .csv_write = runner_csv_write,
    .close = runner_close,
};
