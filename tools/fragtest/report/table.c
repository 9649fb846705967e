/* The closing table and the verdict: see table.h. */
#include "fragtest/report/table.h"

#include "fragtest/report/grid.h"
#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"

#include <inttypes.h>

/* Calls that move memory: what a policy pays for. */
static uint64_t memory_calls(const struct replay_outcome *outcome)
{
    return outcome->calls[DRIVER_CALL_create] + outcome->calls[DRIVER_CALL_map] +
           outcome->calls[DRIVER_CALL_access] + outcome->calls[DRIVER_CALL_unmap] +
           outcome->calls[DRIVER_CALL_release];
}

/* First pass, and the last when there were several. */
static void times_add(struct grid_row *row, const struct replay_outcome *outcome)
{
    double first = outcome->pass_count > 0 ? outcome->passes[0].ns_per_op : 0;

    (void)grid_add(row, "driver ms", "%.1f", (double)outcome->driver_ns / 1e6);
    if (outcome->pass_count > 1)
        (void)grid_add(row, "ns/op", "%.0f, then %.0f", first,
                       outcome->passes[outcome->pass_count - 1].ns_per_op);
    else
        (void)grid_add(row, "ns/op", "%.0f", first);
}

/* A size beside what it is in parts of another one; 0: not known. */
static void size_add(struct grid_row *row, const char *title, uint64_t bytes, double share)
{
    if (bytes == 0)
        (void)grid_add(row, title, "-");
    else if (share > 0)
        (void)grid_add(row, title, "%s (%.3f)", size_format(bytes).text, share);
    else
        (void)grid_add(row, title, "%s", size_format(bytes).text);
}

static void trims_add(struct grid_row *row, const char *title, const struct trims_outcome *trims)
{
    if (trims->count > 0)
        (void)grid_add(row, title, "+%s", size_format(trims->worst_excess_bytes).text);
    else
        (void)grid_add(row, title, "-");
}

/* At the end; what planning took on average. */
static void views_add(struct grid_row *row, const struct replay_outcome *outcome)
{
    const vmm_stats *stats = &outcome->stats;
    const struct {
        const char *title;
        uint64_t value;
    } counts[] = { { "views", stats->views },
                   { "places max", stats->places_max },
                   { "stitches", stats->stitches } };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (outcome->has_stats)
            (void)grid_add(row, counts[i].title, "%" PRIu64, counts[i].value);
        else
            (void)grid_add(row, counts[i].title, "-");
    }
    if (outcome->has_stats && stats->plans > 0)
        (void)grid_add(row, "planning", "%.1f us",
                       (double)stats->planning_ns / 1e3 / (double)stats->plans);
    else
        (void)grid_add(row, "planning", "-");
}

/* The title of a column that may not be shown. */
static const char *shown(bool is_shown, const char *title)
{
    return is_shown ? title : "";
}

static struct grid_row row_make(const struct result *result, const struct table_columns *columns)
{
    static const char *const verified[] = { "-", "NO", "yes" };
    const struct replay_outcome *outcome = &result->outcome;
    bool has_bound = columns->lower_bound && result->trace->stream_count > 1;
    struct grid_row row = { .count = 0 };
    struct grid_cell *end;

    (void)grid_add(&row, "policy", "%s", result->policy->name);
    if (outcome->ok)
        end = grid_add(&row, "outcome", "survived");
    else
        end = grid_add(&row, "outcome", "died at %" PRIu64 "/%" PRIu64, outcome->ops_done + 1,
                       outcome->ops);
    end->is_left = true;
    (void)grid_add(&row, "peak live", "%s", size_format(outcome->peak_live_bytes).text);
    (void)grid_add(&row, "peak reserved", "%s", size_format(outcome->peak_reserved_bytes).text);
    if (outcome->ok)
        (void)grid_add(&row, "footprint", "%.3f", replay_footprint(outcome));
    else
        (void)grid_add(&row, "footprint", "-");
    size_add(&row, shown(has_bound, "lower bound"), outcome->lower_bound_bytes,
             outcome->ok ? replay_over_lower_bound(outcome) : 0);
    size_add(&row, shown(columns->least, "least"), result->least_bytes,
             (double)result->least_bytes / (double)outcome->peak_live_bytes);
    trims_add(&row, shown(columns->trims, "after trim"), &outcome->trims);
    trims_add(&row, shown(columns->compacts, "after compact"), &outcome->compacts);
    (void)grid_add(&row, "driver calls", "%" PRIu64, memory_calls(outcome));
    (void)grid_add(&row, "stalls", "%" PRIu64, outcome->stalls);
    times_add(&row, outcome);
    views_add(&row, outcome);
    (void)grid_add(&row, "verified", "%s", verified[outcome->verified]);
    return row;
}

static void title_write(FILE *out, unsigned width, const struct result *result)
{
    char limit[96] = "";
    char text[512];

    if (result->limit_bytes > 0)
        (void)snprintf(limit, sizeof(limit), ", limit %s (%.1f %% of peak live)",
                       size_format(result->limit_bytes).text,
                       100.0 * (double)result->limit_bytes /
                           (double)result->trace->peak_live_bytes);
    (void)snprintf(text, sizeof(text), "%s, %" PRIu32 " operations%s, %s driver",
                   result->trace->name, result->trace->op_count, limit, result->driver);
    wrap_write(out, width, 0, 2, text);
}

static void reasons_write(FILE *out, unsigned width, const struct result *results, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct result *result = &results[i];
        if (result->outcome.reason[0] == '\0')
            continue;
        int used = fprintf(out, "  %s: ", result->policy->name);
        wrap_write(out, width, (unsigned)used, 4, result->outcome.reason);
    }
}

/* The widths of columns are those of the whole table. */
void table_write(FILE *out, unsigned width, const struct result *results, unsigned count,
                 const struct table_columns *columns)
{
    struct grid_widths widths = { { 0 } };
    struct grid_row rows[POLICY_COUNT];

    for (unsigned i = 0; i < count; i++) {
        rows[0] = row_make(&results[i], columns);
        grid_widen(&widths, &rows[0]);
    }
    for (unsigned begin = 0, end; begin < count; begin = end) {
        const struct trace *trace = results[begin].trace;
        for (end = begin; end < count && end - begin < POLICY_COUNT && results[end].trace == trace;
             end++)
            rows[end - begin] = row_make(&results[end], columns);
        title_write(out, width, &results[begin]);
        grid_write(out, width, &widths, rows, end - begin);
        reasons_write(out, width, &results[begin], end - begin);
        (void)fputc('\n', out);
    }
}

struct score {
    unsigned runs;
    unsigned good;
    unsigned verified;
};

static struct score score_of(const struct result *results, unsigned count,
                             const struct policy_ops *policy)
{
    struct score score = { 0 };

    for (unsigned i = 0; i < count; i++) {
        if (results[i].policy != policy)
            continue;
        score.runs++;
        score.good += result_is_good(&results[i]);
        score.verified +=
            result_is_good(&results[i]) && results[i].outcome.verified == REPLAY_VERIFIED;
    }
    return score;
}

/* "vmmcache survived and verified; block-splitting failed." With several traces, with numbers. */
void verdict_write(FILE *out, unsigned width, const struct result *results, unsigned count)
{
    char text[256] = "";
    size_t used = 0;

    for (unsigned i = POLICY_COUNT; i-- > 0;) {
        const struct policy_ops *policy = policy_at(i);
        struct score score = score_of(results, count, policy);
        bool good = score.good == score.runs;
        char times[48] = "";
        if (score.runs == 0)
            continue;
        if (score.runs > 1)
            (void)snprintf(times, sizeof(times), " in %u of %u",
                           good ? score.runs : score.runs - score.good, score.runs);
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s%s%s", used == 0 ? "" : "; ",
                             policy->name, good ? "survived" : "failed",
                             good && score.verified == score.runs ? " and verified" : "", times);
    }
    (void)snprintf(text + used, sizeof(text) - used, ".");
    wrap_write(out, width, 0, 0, text);
}

int verdict_exit(const struct result *results, unsigned count)
{
    bool has_vmmcache = score_of(results, count, &policy_vmmcache).runs > 0;

    for (unsigned i = 0; i < count; i++) {
        bool counts = !has_vmmcache || results[i].policy == &policy_vmmcache;
        if (counts && !result_is_good(&results[i]))
            return 1;
    }
    return 0;
}
