/* The outcomes of an undeclared use: see unrecorded_show.h. */
#include "fragtest/report/unrecorded_show.h"

#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"
#include "text/json_string.h"

#include <string.h>

enum { CELL_BYTES = 40, COLUMNS = UNRECORDED_CASES + 1 };

static const char *const way_words[] = {
    [UNRECORDED_REQUEST] = "request",
    [UNRECORDED_THREAD] = "thread",
    [UNRECORDED_TRIM] = "trim",
};

struct row {
    char cells[COLUMNS][CELL_BYTES]; /* the policy, then the cases */
};

/* ---- Table ------------------------------------------------------------------------------------- */

static struct row header_make(const struct unrecorded *unrecorded)
{
    struct row row = { { "policy" } };
    for (unsigned i = 0; i < UNRECORDED_CASES; i++) {
        const struct unrecorded_case *what = &unrecorded->cases[i];
        bool is_plain = what->way == UNRECORDED_REQUEST;
        (void)snprintf(row.cells[i + 1], CELL_BYTES, "%.0f MiB%s%s", size_mib(what->bytes),
                       is_plain ? "" : " ", is_plain ? "" : way_words[what->way]);
    }
    return row;
}

static const char *unchanged_word(int wrong)
{
    if (wrong == UNRECORDED_MEMORY)
        return "no memory";
    return wrong == UNRECORDED_NONE ? "-" : "right";
}

static struct row row_make(const struct unrecorded_row *from)
{
    struct row row;
    (void)snprintf(row.cells[0], CELL_BYTES, "%s%s", from->ops->name,
                   from->is_declared ? ", use declared" : "");
    for (unsigned i = 0; i < UNRECORDED_CASES; i++) {
        char *cell = row.cells[i + 1];
        if (from->wrong[i] > 0)
            (void)snprintf(cell, CELL_BYTES, "WRONG (%d of %d)", from->wrong[i], UNRECORDED_ROUNDS);
        else
            (void)snprintf(cell, CELL_BYTES, "%s", unchanged_word(from->wrong[i]));
    }
    return row;
}

static void widths_raise(unsigned *widths, const struct row *row)
{
    for (unsigned i = 0; i < COLUMNS; i++) {
        unsigned width = (unsigned)strlen(row->cells[i]);
        widths[i] = width > widths[i] ? width : widths[i];
    }
}

/* The columns from `begin` on that fit beside the policy: the first that does not, at least one on. */
static unsigned part_end(const unsigned *widths, unsigned width, unsigned begin)
{
    unsigned used = widths[0];
    unsigned end = begin;
    for (; end < COLUMNS; end++) {
        used += 2 + widths[end];
        if (width != 0 && used > width && end > begin)
            break;
    }
    return end;
}

static void row_write(FILE *out, const unsigned *widths, const struct row *row, unsigned begin,
                      unsigned end)
{
    (void)fprintf(out, "%-*s", (int)widths[0], row->cells[0]);
    for (unsigned i = begin; i < end; i++)
        (void)fprintf(out, "  %*s", (int)widths[i], row->cells[i]);
    (void)fputc('\n', out);
}

/* A table that is too wide is written in parts. Each begins with the policies. */
static void table_show(FILE *out, unsigned width, const struct unrecorded *unrecorded)
{
    struct row rows[UNRECORDED_ROWS + 1] = { header_make(unrecorded) };
    unsigned widths[COLUMNS] = { 0 };
    unsigned count = 1;
    for (unsigned i = 0; i < unrecorded->row_count; i++)
        rows[count++] = row_make(&unrecorded->rows[i]);
    for (unsigned i = 0; i < count; i++)
        widths_raise(widths, &rows[i]);
    for (unsigned begin = 1, end; begin < COLUMNS; begin = end) {
        end = part_end(widths, width, begin);
        for (unsigned i = 0; i < count; i++)
            row_write(out, widths, &rows[i], begin, end);
    }
}

/* ---- Closing sentence -------------------------------------------------------------------------- */

static void verdict_write(FILE *out, unsigned width, const struct unrecorded *unrecorded,
                          const struct unrecorded_row *row)
{
    const char *reuse = policy_reuse_words[unrecorded->settings.reuse];
    unsigned wrong = unrecorded_wrong(row);
    const char *use = row->is_declared ? "declared" : "undeclared";
    char text[400];
    int used = 0;
    if (row->is_declared)
        used = snprintf(text, sizeof(text),
                        "With --reuse %s, vmmcache waits only for uses that vmm_record_stream() "
                        "declares. ",
                        reuse);
    if (unrecorded_is_right(row))
        (void)snprintf(text + used, sizeof(text) - (size_t)used,
                       "vmmcache was right: no memory left its stream under the %s use.", use);
    else if (wrong == 0)
        (void)snprintf(text + used, sizeof(text) - (size_t)used, "vmmcache ran out of memory.");
    else
        (void)snprintf(text + used, sizeof(text) - (size_t)used,
                       "vmmcache was WRONG in %u rounds: memory left its stream under the %s use.",
                       wrong, use);
    wrap_write(out, width, 0, 0, text);
}

void unrecorded_show(FILE *out, struct style style, const char *driver,
                     const struct unrecorded *unrecorded)
{
    char text[400];
    (void)snprintf(text, sizeof(text),
                   "A stream frees a block that a second one still reads, without a declaration; "
                   "a third one allocates and writes as much (thread: on another thread; trim: "
                   "idle memory is given back instead). %d rounds each, %s driver, --reuse %s.",
                   UNRECORDED_ROUNDS, driver, policy_reuse_words[unrecorded->settings.reuse]);
    wrap_write(out, style.width, 0, 2, text);
    table_show(out, style.width, unrecorded);
    (void)fputc('\n', out);
    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        const struct unrecorded_row *row = &unrecorded->rows[i];
        if (row->ops == policy_vmmcache() && row->is_promised)
            verdict_write(out, style.width, unrecorded, row);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void case_write(FILE *out, const struct unrecorded_case *what, int wrong)
{
    (void)fprintf(out, "{\"case\":\"%s\",\"block_mib\":%.3f,\"wrong\":", way_words[what->way],
                  size_mib(what->bytes));
    if (wrong == UNRECORDED_NONE)
        (void)fputs("null}", out);
    else if (wrong == UNRECORDED_MEMORY)
        (void)fputs("\"no memory\"}", out);
    else
        (void)fprintf(out, "%d}", wrong);
}

static void row_json_write(FILE *out, const struct unrecorded *unrecorded,
                           const struct unrecorded_row *row)
{
    (void)fprintf(out, "{\"policy\":\"%s\",\"declared\":%s,\"promised\":%s,\"cases\":[",
                  row->ops->name, row->is_declared ? "true" : "false",
                  row->is_promised ? "true" : "false");
    for (unsigned i = 0; i < UNRECORDED_CASES; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        case_write(out, &unrecorded->cases[i], row->wrong[i]);
    }
    (void)fputs("]}", out);
}

bool unrecorded_json_write(FILE *out, const char *machine, const char *driver,
                           const struct unrecorded *unrecorded)
{
    (void)fprintf(out, "{\"version\":\"%s\",\"machine\":", vmm_version());
    json_string_write(out, machine);
    (void)fprintf(out,
                  ",\"workload\":\"" UNRECORDED_NAME "\",\"driver\":\"%s\",\"reuse\":\"%s\","
                  "\"rounds\":%d,\"policies\":[",
                  driver, policy_reuse_words[unrecorded->settings.reuse], UNRECORDED_ROUNDS);
    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        (void)fputs(i == 0 ? "\n" : ",\n", out);
        row_json_write(out, unrecorded, &unrecorded->rows[i]);
    }
    (void)fputs("]}\n", out);
    return ferror(out) == 0;
}
