/* Shows the outcomes of an undeclared use: a table, a closing sentence, and JSON. See unrecorded.h. */
#include "fragtest/replay/unrecorded.h"

#include "fragtest/report/grid.h"
#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"
#include "text/json_string.h"

static const char *const way_words[] = {
    [UNRECORDED_REQUEST] = "request",
    [UNRECORDED_THREAD] = "thread",
    [UNRECORDED_TRIM] = "trim",
};

/* ---- Table ------------------------------------------------------------------------------------- */

static void case_add(struct grid_row *row, const struct unrecorded_case *what, int wrong)
{
    char title[GRID_CELL_BYTES];
    bool is_plain = what->way == UNRECORDED_REQUEST;

    (void)snprintf(title, sizeof(title), "%.0f MiB%s%s", size_mib(what->bytes), is_plain ? "" : " ",
                   is_plain ? "" : way_words[what->way]);
    if (wrong > 0)
        (void)grid_add(row, title, "WRONG (%d of %d)", wrong, UNRECORDED_ROUNDS);
    else if (wrong == 0)
        (void)grid_add(row, title, "right");
    else
        (void)grid_add(row, title, wrong == UNRECORDED_MEMORY ? "no memory" : "-");
}

static void table_show(FILE *out, unsigned width, const struct unrecorded *unrecorded)
{
    struct grid_row rows[UNRECORDED_ROWS] = { { .count = 0 } };
    struct grid_widths widths = { { 0 } };

    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        const struct unrecorded_row *from = &unrecorded->rows[i];
        (void)grid_add(&rows[i], "policy", "%s%s", from->ops->name,
                       from->is_declared ? ", use declared" : "");
        for (unsigned k = 0; k < UNRECORDED_CASES; k++)
            case_add(&rows[i], &unrecorded->cases[k], from->wrong[k]);
        grid_widen(&widths, &rows[i]);
    }
    grid_write(out, width, &widths, rows, unrecorded->row_count);
}

/* ---- Closing sentence -------------------------------------------------------------------------- */

static void verdict_write(FILE *out, unsigned width, const struct unrecorded *unrecorded,
                          const struct unrecorded_row *row)
{
    const char *reuse = policy_reuse_words[unrecorded->run.options->settings.reuse];
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

static void unrecorded_show(const struct scene_run *run)
{
    const struct unrecorded *unrecorded = (const struct unrecorded *)run;
    unsigned width = run->style.width;
    FILE *out = run->text;
    char text[400];
    scene_machine_write(run);
    (void)snprintf(text, sizeof(text),
                   "A stream frees a block that a second one still reads, without a declaration; "
                   "a third one allocates and writes as much (thread: on another thread; trim: "
                   "idle memory is given back instead). %d rounds each, %s driver, --reuse %s.",
                   UNRECORDED_ROUNDS, unrecorded->driver,
                   policy_reuse_words[unrecorded->run.options->settings.reuse]);
    wrap_write(out, width, 0, 2, text);
    table_show(out, width, unrecorded);
    (void)fputc('\n', out);
    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        const struct unrecorded_row *row = &unrecorded->rows[i];
        if (row->ops == &policy_vmmcache && row->is_promised)
            verdict_write(out, width, unrecorded, row);
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

static void unrecorded_json_write(FILE *out, const struct scene_run *run)
{
    const struct unrecorded *unrecorded = (const struct unrecorded *)run;
    (void)fprintf(out, "{\"version\":\"%s\",\"machine\":", vmm_version());
    json_string_write(out, run->machine);
    (void)fprintf(out,
                  ",\"workload\":\"unrecorded\",\"driver\":\"%s\",\"reuse\":\"%s\","
                  "\"rounds\":%d,\"policies\":[",
                  unrecorded->driver, policy_reuse_words[unrecorded->run.options->settings.reuse],
                  UNRECORDED_ROUNDS);
    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        (void)fputs(i == 0 ? "\n" : ",\n", out);
        row_json_write(out, unrecorded, &unrecorded->rows[i]);
    }
    (void)fputs("]}\n", out);
}

const struct scene scene_unrecorded = {
    .name = "unrecorded",
    .listed = "unrecorded",
    .note = "A block is freed while another stream reads it without a declaration; runs alone",
    .run_bytes = sizeof(struct unrecorded),
    .run = unrecorded_run,
    .show = unrecorded_show,
    .json_write = unrecorded_json_write,
};
