/* The JSON writer: see json.h. Numbers rely on the C locale's decimal point (LC_NUMERIC). */
#include "fragtest/report/json.h"

#include "fragtest/report/sizes.h"
#include "text/json_string.h"

#include <inttypes.h>

/* The name may have a part in front. "null" for what is not there. */
static void number_write(FILE *out, const char *part, const char *name, double number, bool there)
{
    if (there)
        (void)fprintf(out, "\"%s%s\":%.3f,", part, name, number);
    else
        (void)fprintf(out, "\"%s%s\":null,", part, name);
}

static void calls_write(FILE *out, const uint64_t *calls)
{
    (void)fprintf(out,
                  "\"driver_calls\":{\"create\":%" PRIu64 ",\"map\":%" PRIu64 ",\"access\":%" PRIu64
                  ",\"unmap\":%" PRIu64 ",\"release\":%" PRIu64 "},",
                  calls[DRIVER_CALL_create], calls[DRIVER_CALL_map], calls[DRIVER_CALL_access],
                  calls[DRIVER_CALL_unmap], calls[DRIVER_CALL_release]);
}

static void passes_write(FILE *out, const struct replay_outcome *outcome)
{
    (void)fputs("\"ns_per_op\":[", out);
    for (unsigned i = 0; i < outcome->pass_count; i++)
        (void)fprintf(out, "%s%.1f", i == 0 ? "" : ",", outcome->passes[i].ns_per_op);
    (void)fputs("],\"driver_ms_per_pass\":[", out);
    for (unsigned i = 0; i < outcome->pass_count; i++)
        (void)fprintf(out, "%s%.3f", i == 0 ? "" : ",", (double)outcome->passes[i].driver_ns / 1e6);
    (void)fputs("],", out);
}

/* A footprint of null is the library's default. */
static void settings_write(FILE *out, const struct result *result)
{
    const struct policy_settings *settings = &result->settings;

    if (!result->policy->has_settings) {
        (void)fputs("\"settings\":null,", out);
        return;
    }
    (void)fputs("\"settings\":{\"footprint_permille\":", out);
    if (settings->footprint_permille == 0)
        (void)fputs("null", out);
    else if (settings->footprint_permille == VMM_FOOTPRINT_ANY)
        (void)fputs("\"any\"", out);
    else
        (void)fprintf(out, "%" PRIu32, settings->footprint_permille);
    (void)fprintf(out, ",\"reuse\":\"%s\",\"compaction\":\"%s\"},",
                  policy_reuse_words[settings->reuse],
                  policy_compaction_words[settings->compaction]);
}

/* "trims" and "trim_...", or "compacts" and "compact_...". */
static void trims_write(FILE *out, const char *name, const struct trims_outcome *trims)
{
    bool any = trims->count > 0;

    (void)fprintf(out, "\"%ss\":%" PRIu64 ",", name, trims->count);
    number_write(out, name, "_worst_excess_mib", size_mib(trims->worst_excess_bytes), any);
    number_write(out, name, "_worst_live_mib", size_mib(trims->worst_live_bytes), any);
    number_write(out, name, "_median_excess_mib", size_mib(trims->median_excess_bytes), any);
    number_write(out, name, "_worst_driver_ms", (double)trims->worst_driver_ns / 1e6, any);
    if (any)
        (void)fprintf(out, "\"%ss_over_bar\":%" PRIu64 ",", name, trims->over_bar);
    else
        (void)fprintf(out, "\"%ss_over_bar\":null,", name);
}

/* The statistics of views at the end of the run. */
static void views_write(FILE *out, const struct replay_outcome *outcome)
{
    const vmm_stats *stats = &outcome->stats;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        { "views", stats->views },           { "places", stats->places },
        { "places_max", stats->places_max }, { "view_hits", stats->view_hits },
        { "stitches", stats->stitches },     { "evictions", stats->evictions },
        { "plans", stats->plans },           { "planning_ns", stats->planning_ns },
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (outcome->has_stats)
            (void)fprintf(out, "\"%s\":%" PRIu64 ",", numbers[i].name, numbers[i].value);
        else
            (void)fprintf(out, "\"%s\":null,", numbers[i].name);
    }
}

static void run_write(FILE *out, const struct result *result)
{
    static const char *const verified[] = { "null", "false", "true" };
    const struct replay_outcome *outcome = &result->outcome;

    (void)fputs("{\"trace\":", out);
    json_string_write(out, result->trace->name);
    (void)fputs(",\"policy\":", out);
    json_string_write(out, result->policy->name);
    (void)fputs(",\"driver\":", out);
    json_string_write(out, result->driver);
    (void)fputc(',', out);
    settings_write(out, result);
    number_write(out, "", "limit_mib", size_mib(result->limit_bytes), result->limit_bytes > 0);
    (void)fprintf(out, "\"ok\":%s,\"ops\":%" PRIu64 ",\"ops_done\":%" PRIu64 ",",
                  outcome->ok ? "true" : "false", outcome->ops, outcome->ops_done);
    number_write(out, "", "peak_live_mib", size_mib(outcome->peak_live_bytes), true);
    number_write(out, "", "peak_busy_mib", size_mib(outcome->peak_busy_bytes), true);
    number_write(out, "", "lower_bound_mib", size_mib(outcome->lower_bound_bytes), true);
    number_write(out, "", "peak_reserved_mib", size_mib(outcome->peak_reserved_bytes), true);
    (void)fprintf(out, "\"footprint\":%.5f,\"over_lower_bound\":%.5f,", replay_footprint(outcome),
                  replay_over_lower_bound(outcome));
    number_write(out, "", "least_mib", size_mib(result->least_bytes), result->least_bytes > 0);
    trims_write(out, "trim", &outcome->trims);
    trims_write(out, "compact", &outcome->compacts);
    calls_write(out, outcome->calls);
    number_write(out, "", "driver_ms", (double)outcome->driver_ns / 1e6, true);
    passes_write(out, outcome);
    views_write(out, outcome);
    (void)fprintf(out, "\"stalls\":%" PRIu64 ",\"verified\":%s,\"reason\":", outcome->stalls,
                  verified[outcome->verified]);
    if (outcome->reason[0] == '\0')
        (void)fputs("null", out);
    else
        json_string_write(out, outcome->reason);
    (void)fputc('}', out);
}

void json_write(FILE *out, const char *machine, const struct result *results, unsigned count)
{
    (void)fputs("{\"machine\":", out);
    json_string_write(out, machine);
    (void)fputs(",\"runs\":[", out);
    for (unsigned i = 0; i < count; i++) {
        (void)fputs(i == 0 ? "\n" : ",\n", out);
        run_write(out, &results[i]);
    }
    (void)fputs("\n]}\n", out);
}
