/* Traces through policies: see runner.h. */
#include "fragtest/cli/runner.h"

#include "fragtest/cli/nearest.h"
#include "fragtest/replay/search.h"
#include "fragtest/trace/bundled_traces.h"
#include "fragtest/trace/workload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

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

bool runner_load(struct runner *runner, const struct options *options, struct trace_error *error)
{
    *runner = (struct runner){ .options = options };
    runner->traces = calloc(options->source_count, sizeof(*runner->traces));
    runner->results = calloc(options->source_count, POLICY_COUNT * sizeof(*runner->results));
    if (runner->traces == NULL || runner->results == NULL) {
        (void)snprintf(error->text, sizeof(error->text), "out of host memory");
        goto fail;
    }
    for (unsigned i = 0; i < options->source_count; i++) {
        if (!source_load(&options->sources[i], &runner->traces[i], error))
            goto fail;
        runner->trace_count++;
    }
    return true;

fail:
    runner_free(runner);
    return false;
}

void runner_free(struct runner *runner)
{
    for (unsigned i = 0; i < runner->result_count; i++)
        replay_outcome_free(&runner->results[i].outcome);
    for (unsigned i = 0; i < runner->trace_count; i++)
        trace_free(&runner->traces[i]);
    free(runner->results);
    free(runner->traces);
    *runner = (struct runner){ 0 };
}

static void result_fill(struct runner *runner, struct result *result, struct driver *driver,
                        struct progress *progress)
{
    const struct options *options = runner->options;
    struct replay_request request = {
        .trace = result->trace,
        .policy = result->policy,
        .driver = driver,
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

struct result *runner_run(struct runner *runner, unsigned trace, struct driver *driver,
                          struct progress *progress, unsigned *count)
{
    struct result *first = &runner->results[runner->result_count];

    *count = 0;
    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        if (!runner->options->policies[i])
            continue;
        struct result *result = &first[(*count)++];
        result->trace = &runner->traces[trace];
        result->policy = policy_at(i);
        result->driver = driver->ops->name;
        result->settings = runner->options->settings;
        result->limit_bytes =
            policy_limit(runner->options->memory, runner->traces[trace].peak_live_bytes);
        result_fill(runner, result, driver, progress);
        runner->result_count++;
    }
    return first;
}
