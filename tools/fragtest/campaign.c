/* Traces through policies: see campaign.h. */
#include "campaign.h"

#include "search.h"
#include "shipped.h"
#include "workload.h"

#include <stdlib.h>

#define PATH_BYTES 4096

static bool source_load(const struct options_source *source, struct trace *trace,
                        struct trace_error *error)
{
    char path[PATH_BYTES];

    if (!source->is_workload) {
        shipped_find(source->name, path, sizeof(path));
        return trace_read(path, trace, error);
    }
    if (workload_make(source->name, trace))
        return true;
    (void)snprintf(error->text, sizeof(error->text), "out of host memory for workload %s",
                   source->name);
    return false;
}

bool campaign_load(struct campaign *campaign, const struct options *options,
                   struct trace_error *error)
{
    *campaign = (struct campaign){ .options = options };
    campaign->traces = calloc(options->source_count, sizeof(*campaign->traces));
    campaign->results = calloc(options->source_count, POLICY_COUNT * sizeof(*campaign->results));
    if (campaign->traces == NULL || campaign->results == NULL) {
        (void)snprintf(error->text, sizeof(error->text), "out of host memory");
        goto fail;
    }
    for (unsigned i = 0; i < options->source_count; i++) {
        if (!source_load(&options->sources[i], &campaign->traces[i], error))
            goto fail;
        campaign->trace_count++;
    }
    return true;

fail:
    campaign_free(campaign);
    return false;
}

void campaign_free(struct campaign *campaign)
{
    for (unsigned i = 0; i < campaign->result_count; i++)
        replay_outcome_free(&campaign->results[i].outcome);
    for (unsigned i = 0; i < campaign->trace_count; i++)
        trace_free(&campaign->traces[i]);
    free(campaign->results);
    free(campaign->traces);
    *campaign = (struct campaign){ 0 };
}

static void result_fill(struct campaign *campaign, struct result *result, struct driver *driver,
                        struct progress *progress)
{
    const struct options *options = campaign->options;
    struct replay_request request = {
        .trace = result->trace,
        .policy = result->policy,
        .driver = driver,
        .limit_bytes = result->limit_bytes,
        .passes = options->passes,
        .lag = options->lag,
        .trims = options->trims,
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

struct result *campaign_run(struct campaign *campaign, unsigned trace, struct driver *driver,
                            struct progress *progress, unsigned *count)
{
    struct result *first = &campaign->results[campaign->result_count];

    *count = 0;
    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        if (!campaign->options->policies[i])
            continue;
        struct result *result = &first[(*count)++];
        result->trace = &campaign->traces[trace];
        result->policy = policy_at(i);
        result->driver = driver->ops->name;
        result->settings = campaign->options->settings;
        result->limit_bytes =
            options_limit(campaign->options, campaign->traces[trace].peak_live_bytes);
        result_fill(campaign, result, driver, progress);
        campaign->result_count++;
    }
    return first;
}
