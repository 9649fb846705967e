/* The closing table and the verdict: see table.h. Plain ASCII, so that a byte is a column. */
#include "fragtest/report/table.h"

#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"

#include <inttypes.h>
#include <string.h>

#define CELL_BYTES 48

enum column {
    COLUMN_POLICY,
    COLUMN_OUTCOME,
    COLUMN_LIVE,
    COLUMN_RESERVED,
    COLUMN_FOOTPRINT,
    COLUMN_LOWER_BOUND,
    COLUMN_LEAST,
    COLUMN_TRIMS,
    COLUMN_COMPACTS,
    COLUMN_CALLS,
    COLUMN_STALLS,
    COLUMN_DRIVER_MS,
    COLUMN_NS,
    COLUMN_VIEWS,
    COLUMN_PLACES,
    COLUMN_STITCHES,
    COLUMN_PLANNING,
    COLUMN_VERIFIED,
    COLUMN_COUNT
};

struct row {
    char cells[COLUMN_COUNT][CELL_BYTES];
};

static const struct row header = { {
    [COLUMN_POLICY] = "policy",
    [COLUMN_OUTCOME] = "outcome",
    [COLUMN_LIVE] = "peak live",
    [COLUMN_RESERVED] = "peak reserved",
    [COLUMN_FOOTPRINT] = "footprint",
    [COLUMN_LOWER_BOUND] = "lower bound",
    [COLUMN_LEAST] = "least",
    [COLUMN_TRIMS] = "after trim",
    [COLUMN_COMPACTS] = "after compact",
    [COLUMN_CALLS] = "driver calls",
    [COLUMN_STALLS] = "stalls",
    [COLUMN_DRIVER_MS] = "driver ms",
    [COLUMN_NS] = "ns/op",
    [COLUMN_VIEWS] = "views",
    [COLUMN_PLACES] = "places max",
    [COLUMN_STITCHES] = "stitches",
    [COLUMN_PLANNING] = "planning",
    [COLUMN_VERIFIED] = "verified",
} };

#define CELL(row, column, ...) (void)snprintf((row)->cells[column], CELL_BYTES, __VA_ARGS__)

/* Calls that move memory: what a policy pays for. */
static uint64_t memory_calls(const struct replay_outcome *outcome)
{
    return outcome->calls[DRIVER_CALL_create] + outcome->calls[DRIVER_CALL_map] +
           outcome->calls[DRIVER_CALL_access] + outcome->calls[DRIVER_CALL_unmap] +
           outcome->calls[DRIVER_CALL_release];
}

/* First pass, and the last when there were several. */
static void row_times(struct row *row, const struct replay_outcome *outcome)
{
    double first = outcome->pass_count > 0 ? outcome->passes[0].ns_per_op : 0;

    CELL(row, COLUMN_NS, "%.0f", first);
    if (outcome->pass_count > 1)
        CELL(row, COLUMN_NS, "%.0f, then %.0f", first,
             outcome->passes[outcome->pass_count - 1].ns_per_op);
    CELL(row, COLUMN_DRIVER_MS, "%.1f", (double)outcome->driver_ns / 1e6);
}

static void row_lower_bound(struct row *row, const struct replay_outcome *outcome)
{
    struct size_text bound = size_format(outcome->lower_bound_bytes);

    if (outcome->ok)
        CELL(row, COLUMN_LOWER_BOUND, "%s (%.3f)", bound.text, replay_over_lower_bound(outcome));
    else
        CELL(row, COLUMN_LOWER_BOUND, "%s", bound.text);
}

static void cell_trims(struct row *row, enum column column, const struct trims_outcome *trims)
{
    if (trims->count > 0)
        CELL(row, column, "+%s", size_format(trims->worst_excess_bytes).text);
    else
        CELL(row, column, "-");
}

/* At the end; what planning took on average. */
static void row_views(struct row *row, const struct replay_outcome *outcome)
{
    const vmm_stats *stats = &outcome->stats;

    for (int column = COLUMN_VIEWS; column <= COLUMN_PLANNING; column++)
        CELL(row, column, "-");
    if (!outcome->has_stats)
        return;
    CELL(row, COLUMN_VIEWS, "%" PRIu64, stats->views);
    CELL(row, COLUMN_PLACES, "%" PRIu64, stats->places_max);
    CELL(row, COLUMN_STITCHES, "%" PRIu64, stats->stitches);
    if (stats->plans > 0)
        CELL(row, COLUMN_PLANNING, "%.1f us",
             (double)stats->planning_ns / 1e3 / (double)stats->plans);
}

static struct row row_make(const struct result *result)
{
    static const char *const verified[] = { "-", "NO", "yes" };
    const struct replay_outcome *outcome = &result->outcome;
    struct row row;

    CELL(&row, COLUMN_POLICY, "%s", result->policy->name);
    if (outcome->ok)
        CELL(&row, COLUMN_OUTCOME, "survived");
    else
        CELL(&row, COLUMN_OUTCOME, "died at %" PRIu64 "/%" PRIu64, outcome->ops_done + 1,
             outcome->ops);
    CELL(&row, COLUMN_LIVE, "%s", size_format(outcome->peak_live_bytes).text);
    CELL(&row, COLUMN_RESERVED, "%s", size_format(outcome->peak_reserved_bytes).text);
    if (outcome->ok)
        CELL(&row, COLUMN_FOOTPRINT, "%.3f", replay_footprint(outcome));
    else
        CELL(&row, COLUMN_FOOTPRINT, "-");
    row_lower_bound(&row, outcome);
    if (result->least_bytes > 0)
        CELL(&row, COLUMN_LEAST, "%s (%.3f)", size_format(result->least_bytes).text,
             (double)result->least_bytes / (double)outcome->peak_live_bytes);
    else
        CELL(&row, COLUMN_LEAST, "-");
    cell_trims(&row, COLUMN_TRIMS, &outcome->trims);
    cell_trims(&row, COLUMN_COMPACTS, &outcome->compacts);
    CELL(&row, COLUMN_CALLS, "%" PRIu64, memory_calls(outcome));
    CELL(&row, COLUMN_STALLS, "%" PRIu64, outcome->stalls);
    row_times(&row, outcome);
    row_views(&row, outcome);
    CELL(&row, COLUMN_VERIFIED, "%s", verified[outcome->verified]);
    return row;
}

static void widths_raise(int *widths, const struct row *row)
{
    for (int i = 0; i < COLUMN_COUNT; i++) {
        int width = (int)strlen(row->cells[i]);
        if (width > widths[i])
            widths[i] = width;
    }
}

static bool column_is_shown(int column, const struct table_columns *columns,
                            const struct result *result)
{
    switch (column) {
    case COLUMN_LOWER_BOUND:
        return columns->lower_bound && result->trace->stream_count > 1;
    case COLUMN_LEAST:
        return columns->least;
    case COLUMN_TRIMS:
        return columns->trims;
    case COLUMN_COMPACTS:
        return columns->compacts;
    default:
        return true;
    }
}

/* The results of one trace, and how wide their columns are in the whole table. */
struct group {
    const struct result *results;
    unsigned count;
    unsigned width; /* of a line; 0: no limit */
    const int *widths;
    const struct table_columns *columns;
};

static bool group_shows(const struct group *group, int column)
{
    return column_is_shown(column, group->columns, &group->results[0]);
}

/* The columns from `begin` on that fit beside the policy: the first that does not, at least one on. */
static int part_end(const struct group *group, int begin)
{
    unsigned used = (unsigned)group->widths[COLUMN_POLICY];
    int end = begin;

    for (; end < COLUMN_COUNT; end++) {
        if (!group_shows(group, end))
            continue;
        used += 2 + (unsigned)group->widths[end];
        if (group->width != 0 && used > group->width && end > begin)
            break;
    }
    return end;
}

static void cell_write(FILE *out, const struct group *group, const struct row *row, int column)
{
    bool left = column == COLUMN_POLICY || column == COLUMN_OUTCOME;
    const char *separator = column == COLUMN_POLICY ? "" : "  ";

    (void)fprintf(out, left ? "%s%-*s" : "%s%*s", separator, group->widths[column],
                  row->cells[column]);
}

/* The policy, then the columns from begin to before end. */
static void row_write(FILE *out, const struct group *group, const struct row *row, int begin,
                      int end)
{
    cell_write(out, group, row, COLUMN_POLICY);
    for (int column = begin; column < end; column++)
        if (group_shows(group, column))
            cell_write(out, group, row, column);
    (void)fputc('\n', out);
}

static void rows_write(FILE *out, const struct group *group)
{
    for (int begin = COLUMN_POLICY + 1; begin < COLUMN_COUNT;) {
        int end = part_end(group, begin);
        row_write(out, group, &header, begin, end);
        for (unsigned i = 0; i < group->count; i++) {
            struct row row = row_make(&group->results[i]);
            row_write(out, group, &row, begin, end);
        }
        begin = end;
    }
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

static void reasons_write(FILE *out, const struct group *group)
{
    for (unsigned i = 0; i < group->count; i++) {
        const struct result *result = &group->results[i];
        if (result->outcome.reason[0] == '\0')
            continue;
        int used = fprintf(out, "  %s: ", result->policy->name);
        wrap_write(out, group->width, (unsigned)used, 4, result->outcome.reason);
    }
}

void table_write(FILE *out, unsigned width, const struct result *results, unsigned count,
                 const struct table_columns *columns)
{
    int widths[COLUMN_COUNT] = { 0 };

    widths_raise(widths, &header);
    for (unsigned i = 0; i < count; i++) {
        struct row row = row_make(&results[i]);
        widths_raise(widths, &row);
    }
    for (unsigned begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count && results[end].trace == results[begin].trace;)
            end++;
        struct group group = { &results[begin], end - begin, width, widths, columns };
        title_write(out, width, &results[begin]);
        rows_write(out, &group);
        reasons_write(out, &group);
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
    bool has_vmmcache = score_of(results, count, policy_vmmcache()).runs > 0;

    for (unsigned i = 0; i < count; i++) {
        bool counts = !has_vmmcache || results[i].policy == policy_vmmcache();
        if (counts && !result_is_good(&results[i]))
            return 1;
    }
    return 0;
}
