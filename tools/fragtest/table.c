/* The closing table and the verdict: see table.h. Plain ASCII, so that a byte is a column. */
#include "table.h"

#include "sizes.h"

#include <inttypes.h>
#include <string.h>

#define CELL_BYTES 48

enum column {
    COLUMN_POLICY,
    COLUMN_OUTCOME,
    COLUMN_LIVE,
    COLUMN_RESERVED,
    COLUMN_FOOTPRINT,
    COLUMN_APART,
    COLUMN_LEAST,
    COLUMN_TRIMS,
    COLUMN_CALLS,
    COLUMN_STALLS,
    COLUMN_DRIVER_MS,
    COLUMN_NS,
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
    [COLUMN_APART] = "apart",
    [COLUMN_LEAST] = "least",
    [COLUMN_TRIMS] = "after trim",
    [COLUMN_CALLS] = "driver calls",
    [COLUMN_STALLS] = "stalls",
    [COLUMN_DRIVER_MS] = "driver ms",
    [COLUMN_NS] = "ns/op",
    [COLUMN_VERIFIED] = "verified",
} };

#define CELL(row, column, ...) (void)snprintf((row)->cells[column], CELL_BYTES, __VA_ARGS__)

/* Calls that move memory: what a policy is billed for. */
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

static void row_apart(struct row *row, const struct replay_outcome *outcome)
{
    struct size_text apart = size_format(outcome->peak_apart_bytes);

    if (outcome->ok)
        CELL(row, COLUMN_APART, "%s (%.3f)", apart.text, replay_footprint_apart(outcome));
    else
        CELL(row, COLUMN_APART, "%s", apart.text);
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
    row_apart(&row, outcome);
    if (result->least_bytes > 0)
        CELL(&row, COLUMN_LEAST, "%s (%.3f)", size_format(result->least_bytes).text,
             (double)result->least_bytes / (double)outcome->peak_live_bytes);
    else
        CELL(&row, COLUMN_LEAST, "-");
    if (outcome->trims.count > 0)
        CELL(&row, COLUMN_TRIMS, "+%s", size_format(outcome->trims.worst_excess_bytes).text);
    else
        CELL(&row, COLUMN_TRIMS, "-");
    CELL(&row, COLUMN_CALLS, "%" PRIu64, memory_calls(outcome));
    CELL(&row, COLUMN_STALLS, "%" PRIu64, outcome->stalls);
    row_times(&row, outcome);
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
    case COLUMN_APART:
        return columns->apart && result->trace->stream_count > 1;
    case COLUMN_LEAST:
        return columns->least;
    case COLUMN_TRIMS:
        return columns->trims;
    default:
        return true;
    }
}

/* A row of the part of the table that `result` is in. */
static void row_write(FILE *out, const struct row *row, const int *widths,
                      const struct table_columns *columns, const struct result *result)
{
    for (int i = 0; i < COLUMN_COUNT; i++) {
        bool left = i == COLUMN_POLICY || i == COLUMN_OUTCOME;
        if (!column_is_shown(i, columns, result))
            continue;
        (void)fprintf(out, left ? "%s%-*s" : "%s%*s", i == 0 ? "" : "  ", widths[i], row->cells[i]);
    }
    (void)fputc('\n', out);
}

static void trace_write(FILE *out, const struct result *result)
{
    (void)fprintf(out, "%s, %" PRIu32 " operations", result->trace->name, result->trace->op_count);
    if (result->limit_bytes > 0)
        (void)fprintf(out, ", limit %s (%.1f %% of peak live)",
                      size_format(result->limit_bytes).text,
                      100.0 * (double)result->limit_bytes / (double)result->trace->peak_live_bytes);
    (void)fprintf(out, ", %s driver\n", result->driver);
}

/* The reasons of the results of one trace. */
static void reasons_write(FILE *out, const struct result *results, unsigned count)
{
    for (unsigned i = 0; i < count && results[i].trace == results[0].trace; i++)
        if (results[i].outcome.reason[0] != '\0')
            (void)fprintf(out, "  %s: %s\n", results[i].policy->name, results[i].outcome.reason);
}

void table_write(FILE *out, const struct result *results, unsigned count,
                 const struct table_columns *columns)
{
    int widths[COLUMN_COUNT] = { 0 };

    widths_raise(widths, &header);
    for (unsigned i = 0; i < count; i++) {
        struct row row = row_make(&results[i]);
        widths_raise(widths, &row);
    }
    for (unsigned i = 0; i < count; i++) {
        bool first = i == 0 || results[i].trace != results[i - 1].trace;
        bool last = i + 1 == count || results[i].trace != results[i + 1].trace;
        struct row row = row_make(&results[i]);
        if (first) {
            trace_write(out, &results[i]);
            row_write(out, &header, widths, columns, &results[i]);
        }
        row_write(out, &row, widths, columns, &results[i]);
        if (!last)
            continue;
        unsigned begin = i;
        while (begin > 0 && results[begin - 1].trace == results[i].trace)
            begin--;
        reasons_write(out, &results[begin], count - begin);
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

/* "vmmcache survived and verified; block-splitting died." With several traces, with numbers. */
void verdict_write(FILE *out, const struct result *results, unsigned count)
{
    const char *separator = "";

    for (unsigned i = POLICY_COUNT; i-- > 0;) {
        const struct policy_ops *policy = policy_at(i);
        struct score score = score_of(results, count, policy);
        if (score.runs == 0)
            continue;
        (void)fprintf(out, "%s%s ", separator, policy->name);
        separator = "; ";
        if (score.good == score.runs)
            (void)fprintf(out, "survived%s", score.verified == score.runs ? " and verified" : "");
        else
            (void)fprintf(out, "failed");
        if (score.runs > 1)
            (void)fprintf(out, " in %u of %u",
                          score.good == score.runs ? score.runs : score.runs - score.good,
                          score.runs);
    }
    (void)fputs(".\n", out);
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
