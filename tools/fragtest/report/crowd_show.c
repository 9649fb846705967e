/* Shows processes with peaks one after the other: a picture over time, a table, a verdict, and JSON. See crowd.h. */
#include "fragtest/replay/crowd.h"

#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"

#include <inttypes.h>

enum { ROWS = 4, EIGHTHS = 8 };

static const char *const run_names[CROWD_RUNS] = { "without neighbours", "with neighbours" };

static char name_of(unsigned member)
{
    return (char)('A' + (char)member);
}

/* ---- Picture ----------------------------------------------------------------------------------- */

/* A cell of a row shows the bytes above those of the rows below it. */
static void cell_draw(FILE *out, struct style style, uint64_t live_bytes, uint64_t reserved_bytes,
                      uint64_t below_bytes, uint64_t cell_bytes)
{
    static const char *const parts[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    uint64_t live = live_bytes > below_bytes ? live_bytes - below_bytes : 0;
    uint64_t eighths = live >= cell_bytes ? EIGHTHS : live * EIGHTHS / cell_bytes;
    if (eighths > 0)
        (void)fputs(style.utf8 ? parts[eighths - 1] : "#", out);
    else if (reserved_bytes > below_bytes)
        (void)fputs(style.utf8 ? "░" : ".", out);
    else
        (void)fputc(' ', out);
}

static void member_draw(FILE *out, struct style style, const struct crowd *crowd,
                        const struct crowd_run *run, unsigned member)
{
    uint64_t cell_bytes = crowd->run.options->scene_bytes / ROWS;
    const struct crowd_member *end = &run->members[member];
    for (unsigned row = ROWS; row-- > 0;) {
        (void)fprintf(out, "  %c %s", row == 0 ? name_of(member) : ' ', style.utf8 ? "│" : "|");
        for (unsigned i = 0; i < run->sample_count; i++) {
            const struct crowd_sample *sample = &run->samples[i];
            bool has_died = end->status != VMM_OK && i >= end->died_at;
            if (has_died)
                (void)fputs(row > 0 || i > end->died_at ? " " : style.utf8 ? "✗" : "X", out);
            else
                cell_draw(out, style, sample->live_bytes[member], sample->reserved_bytes[member],
                          row * cell_bytes, cell_bytes);
        }
        (void)fputc('\n', out);
    }
}

static void run_draw(FILE *out, struct style style, const struct crowd *crowd, unsigned number)
{
    (void)fprintf(out, "%s, %.1f s\n", run_names[number], (double)crowd->runs[number].ns / 1e9);
    for (unsigned i = 0; i < CROWD; i++)
        member_draw(out, style, crowd, &crowd->runs[number], i);
    (void)fputc('\n', out);
}

/* ---- Table ------------------------------------------------------------------------------------- */

static void member_show(FILE *out, const struct crowd_run *run, const char *run_name,
                        unsigned number)
{
    const struct crowd_member *member = &run->members[number];
    char end[32] = "finished";
    if (member->status != VMM_OK)
        (void)snprintf(end, sizeof end, "died in phase %u", member->phases + 1);
    else if (member->mismatches > 0)
        (void)snprintf(end, sizeof end, "WRONG in %" PRIu64, member->mismatches);
    (void)fprintf(out, "%-19s%c %-17s%10.0f%8" PRIu64 "%12.1f%10.0f\n", number == 0 ? run_name : "",
                  name_of(number), end, size_mib(member->peak_bytes), member->claims,
                  (double)member->wait_ns / 1e6, size_mib(member->given_bytes));
}

static void crowd_show(const struct scene_run *run)
{
    const struct crowd *crowd = (const struct crowd *)run;
    struct style style = run->style;
    FILE *out = run->text;
    char text[256];
    for (unsigned i = 0; i < CROWD_RUNS && !run->options->quiet; i++)
        run_draw(out, style, crowd, i);
    if (!run->options->quiet)
        (void)fprintf(out, "  %s live   %s reserved, not live   %s died\n\n",
                      style.utf8 ? "█" : "#", style.utf8 ? "░" : ".", style.utf8 ? "✗" : "X");
    (void)fprintf(out, "%-39s%9s%8s%12s%10s\n", "process", "peak MiB", "claims", "ms waited",
                  "MiB given");
    for (unsigned i = 0; i < CROWD_RUNS; i++)
        for (unsigned member = 0; member < CROWD; member++)
            member_show(out, &crowd->runs[i], run_names[i], member);
    (void)fputc('\n', out);
    (void)snprintf(
        text, sizeof(text),
        "%d processes that need %.0f MiB each, in turn, on a device of %.0f MiB: "
        "without neighbours %s, with neighbours %s.",
        CROWD, size_mib(crowd->run.options->scene_bytes), size_mib(crowd->run.limit_bytes),
        crowd_survived(&crowd->runs[0]) ? "all finished" : "not all finished",
        crowd_survived(&crowd->runs[1]) ? "all finished and verified" : "NOT all finished");
    wrap_write(out, style.width, 0, 2, text);
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void member_write(FILE *out, const struct crowd_member *member)
{
    (void)fprintf(out,
                  "{\"status\":\"%s\",\"phases\":%u,\"mismatches\":%" PRIu64
                  ",\"peak_reserved_mib\":%.3f,\"claims\":%" PRIu64
                  ",\"waited_s\":%.6f,\"given_mib\":%.3f}",
                  vmm_status_name(member->status), member->phases, member->mismatches,
                  size_mib(member->peak_bytes), member->claims, (double)member->wait_ns / 1e9,
                  size_mib(member->given_bytes));
}

static void crowd_json_write(FILE *out, const struct scene_run *asked)
{
    const struct crowd *crowd = (const struct crowd *)asked;
    (void)fprintf(out,
                  "{\"version\":\"%s\",\"workload\":\"neighbours\",\"need_mib\":%.3f,"
                  "\"device_mib\":%.3f,\"runs\":[",
                  vmm_version(), size_mib(crowd->run.options->scene_bytes),
                  size_mib(crowd->run.limit_bytes));
    for (unsigned i = 0; i < CROWD_RUNS; i++) {
        const struct crowd_run *run = &crowd->runs[i];
        (void)fprintf(out, "%s\n{\"neighbours\":%s,\"s\":%.6f,\"processes\":[", i == 0 ? "" : ",",
                      i == 0 ? "false" : "true", (double)run->ns / 1e9);
        for (unsigned member = 0; member < CROWD; member++) {
            (void)fputs(member == 0 ? "" : ",", out);
            member_write(out, &run->members[member]);
        }
        (void)fputs("]}", out);
    }
    (void)fputs("]}\n", out);
}

/* ---- Scene ------------------------------------------------------------------------------------- */

#define MIB   (UINT64_C(1) << 20)
#define SIZES "32MiB to 4GiB"

const struct scene scene_neighbours = {
    .name = "neighbours",
    .listed = "neighbours[:SIZE]",
    .note = "Three processes that need SIZE (192MiB; " SIZES
            ") in turn, without neighbours and with them; runs alone",
    .sizes = SIZES,
    .bytes = 192 * MIB,
    .least_bytes = 32 * MIB,
    .most_bytes = 4096 * MIB,
    .memory = "150%", /* holds the peak of one process, and a part of the others */
    .opens_driver = true,
    .run_bytes = sizeof(struct crowd),
    .run = crowd_run,
    .show = crowd_show,
    .json_write = crowd_json_write,
};
