/* Shows tenants that took turns: a table with a bar of reserved memory, a verdict, and JSON. See turns.h. */
#include "fragtest/replay/turns.h"

#include "fragtest/report/sizes.h"
#include "fragtest/report/wrap.h"
#include "text/json_string.h"

#include <inttypes.h>

enum { BAR_COLUMNS = 20, NS_A_SECOND = 1000000000 };

static double seconds(uint64_t ns)
{
    return (double)ns / NS_A_SECOND;
}

/* GB a second; 0 for no time. */
static double rate(uint64_t bytes, uint64_t ns)
{
    return ns == 0 ? 0 : (double)bytes / (double)ns;
}

static uint64_t both_bytes(const struct turns *turns)
{
    return TURNS_TENANTS * turns->run.options->scene_bytes;
}

/* Reserved memory as a part of what both tenants need. */
static void bar_draw(FILE *out, struct style style, uint64_t bytes, uint64_t whole)
{
    uint64_t filled = bytes >= whole ? BAR_COLUMNS : bytes * BAR_COLUMNS / whole;
    (void)fputs("  [", out);
    for (uint64_t i = 0; i < BAR_COLUMNS; i++)
        (void)fputs(i >= filled ? " " : style.utf8 ? "█" : "#", out);
    (void)fputs("]\n", out);
}

static void time_show(FILE *out, const char *what, uint64_t bytes, uint64_t ns)
{
    if (bytes == 0)
        (void)fprintf(out, " %-9s%9s %6s", what, "", "");
    else
        (void)fprintf(out, " %-9s%9.3f %6.1f", what, seconds(ns), rate(bytes, ns));
}

static void turn_show(FILE *out, struct style style, const struct turns *turns, unsigned number)
{
    static const char *const sleeps[TURNS_TENANTS] = { "A sleeps", "B sleeps" };
    static const char *const wakes[TURNS_TENANTS] = { "A wakes", "B wakes" };
    const struct turn *turn = &turns->turns[number];
    (void)fprintf(out, "%4u", number + 1);
    time_show(out, sleeps[turn->sleeper], turn->slept_bytes, turn->sleep_ns);
    time_show(out, turn->woken_bytes == 0 ? "B begins" : wakes[1 - turn->sleeper],
              turn->woken_bytes, turn->wake_ns);
    (void)fprintf(out, " %11.0f %12.0f", size_mib(turn->checked_bytes),
                  size_mib(turn->reserved_bytes));
    bar_draw(out, style, turn->reserved_bytes, both_bytes(turns));
}

static void rival_show(FILE *out, unsigned width, const struct turns *turns,
                       const struct turns_rival *rival)
{
    char text[256];
    if (rival->holds_both)
        (void)snprintf(text, sizeof(text), "%s: has no sleep; holds both tenants at once.",
                       rival->name);
    else
        (void)snprintf(text, sizeof(text),
                       "%s: has no sleep; out of memory at %.0f of %.0f MiB: one tenant must free "
                       "everything and load it again.",
                       rival->name, size_mib(rival->live_bytes), size_mib(both_bytes(turns)));
    wrap_write(out, width, 0, 2, text);
}

static void turns_show(const struct scene_run *run)
{
    const struct turns *turns = (const struct turns *)run;
    FILE *out = run->text;
    char text[256];
    scene_machine_write(run);
    (void)fprintf(out, "turn %-9s%9s %6s %-9s%9s %6s %11s %12s  of both tenants\n", "", "seconds",
                  "GB/s", "", "seconds", "GB/s", "MiB checked", "MiB reserved");
    for (unsigned i = 0; i < turns->count; i++)
        turn_show(out, run->style, turns, i);
    (void)fputc('\n', out);
    (void)snprintf(
        text, sizeof(text),
        "vmmcache: 2 tenants of %.0f MiB took %u turns in at most %.0f MiB, %.1f %% of "
        "both; %" PRIu64 " places are wrong.",
        size_mib(turns->run.options->scene_bytes), turns->count, size_mib(turns->peak_bytes),
        100.0 * (double)turns->peak_bytes / (double)both_bytes(turns), turns->mismatches);
    wrap_write(out, run->style.width, 0, 2, text);
    for (unsigned i = 0; i < turns->rival_count; i++)
        rival_show(out, run->style.width, turns, &turns->rivals[i]);
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void turn_write(FILE *out, const struct turn *turn)
{
    (void)fprintf(out,
                  "{\"sleeper\":\"%c\",\"slept_mib\":%.3f,\"sleep_s\":%.9f,\"woken_mib\":%.3f,"
                  "\"wake_s\":%.9f,\"checked_mib\":%.3f,\"reserved_mib\":%.3f}",
                  'A' + (char)turn->sleeper, size_mib(turn->slept_bytes), seconds(turn->sleep_ns),
                  size_mib(turn->woken_bytes), seconds(turn->wake_ns),
                  size_mib(turn->checked_bytes), size_mib(turn->reserved_bytes));
}

static void rival_write(FILE *out, const struct turns_rival *rival)
{
    (void)fprintf(out, "{\"policy\":\"%s\",\"holds_both\":%s,\"live_mib\":%.3f}", rival->name,
                  rival->holds_both ? "true" : "false", size_mib(rival->live_bytes));
}

static void turns_json_write(FILE *out, const struct scene_run *run)
{
    const struct turns *turns = (const struct turns *)run;
    (void)fprintf(out, "{\"version\":\"%s\",\"machine\":", vmm_version());
    json_string_write(out, run->machine);
    (void)fprintf(out,
                  ",\"workload\":\"sleep\",\"tenant_mib\":%.3f,\"limit_mib\":%.3f,"
                  "\"peak_reserved_mib\":%.3f,\"mismatches\":%" PRIu64 ",\"turns\":[",
                  size_mib(turns->run.options->scene_bytes), size_mib(turns->run.limit_bytes),
                  size_mib(turns->peak_bytes), turns->mismatches);
    for (unsigned i = 0; i < turns->count; i++) {
        (void)fputs(i == 0 ? "\n" : ",\n", out);
        turn_write(out, &turns->turns[i]);
    }
    (void)fputs("],\n\"policies\":[", out);
    for (unsigned i = 0; i < turns->rival_count; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        rival_write(out, &turns->rivals[i]);
    }
    (void)fputs("]}\n", out);
}

/* ---- Scene ------------------------------------------------------------------------------------- */

#define MIB   (UINT64_C(1) << 20)
#define SIZES "8MiB to 1024GiB"

const struct scene scene_sleep = {
    .name = "sleep",
    .listed = "sleep[:SIZE]",
    .note = "Two tenants of SIZE (512MiB; " SIZES ") take turns in memory for one; runs alone",
    .sizes = SIZES,
    .bytes = 512 * MIB,
    .least_bytes = 8 * MIB,
    .most_bytes = MIB * MIB,
    .memory = "60%", /* holds one of the tenants, not both */
    .run_bytes = sizeof(struct turns),
    .run = turns_run,
    .show = turns_show,
    .json_write = turns_json_write,
};
