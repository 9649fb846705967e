/*
 * stress_faults: makes every call of the driver, every allocation of host memory and every call of the
 * system fail, one by one, over scenarios that reach every feature.
 *
 * usage: stress_faults [--kind KIND]... [--slice K/N] [--seed S] [--pairs N]
 *                      [--scenario C] [--at N] [--variant V] [--host FILE]... FILE...
 *
 *   --kind KIND   driver, for-ever, memory, memory-for-ever, double, system, system-for-ever;
 *                 default: all
 *   --slice K/N   every Nth fault from the Kth on; default 1/1
 *   --seed S      of the pairs that `double` draws; default 1
 *   --pairs N     how many of them; default 100000
 *   --scenario C, --at N, --variant V
 *                 only those faults: as written with a failure, to replay it
 *   --host FILE   a scenario on the host driver, for calls of the system; the others run on the sim driver
 *
 * Exit status: 0 all was well, 1 trouble (on stderr, with what replays it), 2 wrong arguments.
 */
#include "options.h"
#include "run.h"

#include "base/arith.h"
#include "base/time.h"
#include "fragtest/cli/progress.h"
#include "point.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { EXIT_TROUBLE = 1, EXIT_USAGE = 2, PAIRS = 100000 };

static struct progress progress;
static uint64_t children_done;

static void child_step(void *context)
{
    (void)context;
    progress_step(&progress, ++children_done);
}

static void system_step(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    progress.total = total;
    progress_step(&progress, done);
}

/* ---- Scenarios ---------------------------------------------------------------------------------- */

/* Each scenario that is to be run, on the host driver or on the sim driver. */
static void scenarios_each(const struct sweep_order *order, bool is_host,
                           void (*visit)(const struct sweep_order *order, unsigned scenario))
{
    for (unsigned scenario = 1; scenario <= scenario_count(); scenario++) {
        bool is_ordered = order->scenario == 0 || order->scenario == scenario;
        if (is_ordered && scenario_is_host(scenario) == is_host)
            visit(order, scenario);
    }
}

static void scenario_count_points(const struct sweep_order *order, unsigned scenario)
{
    sweep_count_begin(order, scenario);
    scenario_run(scenario);
    progress.total += sweep_count_end();
}

static void scenario_sweep(const struct sweep_order *order, unsigned scenario)
{
    sweep_begin(order, scenario, child_step, NULL);
    scenario_run(scenario);
    sweep_end();
}

static void system_sweep(const struct sweep_order *order, unsigned scenario)
{
    (void)setenv("VMM_LOG", "/dev/null", 1); /* a log that must be opened */
    progress_begin(&progress, 1, "stress_faults: calls of the system");
    sweep_system(order, scenario, scenario_run, system_step, NULL);
    progress_end(&progress);
    (void)unsetenv("VMM_LOG");
}

/* False if the workload does not reach everything. */
static bool sim_sweep(const struct sweep_order *order)
{
    progress_begin(&progress, 0, "stress_faults: calls of the driver, memory");
    scenarios_each(order, false, scenario_count_points);
    scenarios_each(order, false, scenario_sweep);
    progress_end(&progress);
    return reach_write(stdout) || order->scenario != 0;
}

static bool has_sim_kind(const struct sweep_order *order)
{
    bool any = false;
    for (int kind = 0; kind < KIND_SYSTEM; kind++)
        any = any || order->kinds[kind];
    return any;
}

/* Children on the host driver have threads, so they want a process that never had a cache: they come first. */
static int sweep_run(const struct sweep_order *order)
{
    uint64_t start = vmm__time_ns();
    bool reached = true;
    sweep_sums =
        mmap(NULL, sizeof *sweep_sums, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sweep_sums == MAP_FAILED) {
        perror("stress_faults: mmap");
        return EXIT_TROUBLE;
    }
    progress_init(&progress, stderr, false);
    if (order->kinds[KIND_SYSTEM] || order->kinds[KIND_SYSTEM_FOR_EVER])
        scenarios_each(order, true, system_sweep);
    if (has_sim_kind(order))
        reached = sim_sweep(order);
    table_write(stdout, order, (double)(vmm__time_ns() - start) / 1e9);
    return reached && sweep_sums->failures == 0 ? 0 : EXIT_TROUBLE;
}

/* ---- Arguments --------------------------------------------------------------------------------- */

static bool kind_read(const char *name, void *out)
{
    struct sweep_order *order = out;
    int kind = 0;
    while (kind < KINDS && strcmp(name, sweep_kind_name((enum sweep_kind)kind)) != 0)
        kind++;
    if (kind < KINDS)
        order->kinds[kind] = true;
    return kind < KINDS;
}

static bool slice_read(const char *text, void *out)
{
    struct sweep_order *order = out;
    char first[32];
    size_t bytes = strcspn(text, "/");
    if (text[bytes] == '\0' || bytes >= sizeof first)
        return false;
    memcpy(first, text, bytes);
    first[bytes] = '\0';
    return number_read(text + bytes + 1, 1, UINT64_MAX, &order->slices) &&
           number_read(first, 1, order->slices, &order->slice);
}

static bool file_add(const char *path, bool is_host)
{
    char error[128];
    if (scenario_add(path, is_host, error, sizeof error))
        return true;
    (void)fprintf(stderr, "stress_faults: %s: %s\n", path, error);
    return false;
}

static bool host_read(const char *path, void *out)
{
    (void)out;
    return file_add(path, true);
}

static bool order_read(int argc, char **argv, struct sweep_order *order)
{
    const struct option_row rows[] = {
        { .name = "--kind", .read = kind_read, .out = order },
        { .name = "--slice", .read = slice_read, .out = order },
        { .name = "--host", .read = host_read },
        { .name = "--seed", .number = &order->seed, .most = UINT64_MAX },
        { .name = "--pairs", .number = &order->pairs, .most = UINT32_MAX },
        { .name = "--scenario", .number = &order->scenario, .least = 1, .most = SWEEP_SCENARIOS },
        { .name = "--at", .number = &order->at, .most = UINT64_MAX },
        { .name = "--variant", .number = &order->variant, .most = ALL_VARIANTS - 1 },
    };
    bool is_any = false;
    int files;
    *order = (struct sweep_order){
        .seed = 1, .slice = 1, .slices = 1, .pairs = PAIRS, .variant = ALL_VARIANTS
    };
    if (!options_read(argc, argv, rows, sizeof rows / sizeof rows[0], &files))
        return false;
    for (int i = 1; i <= files; i++) {
        if (!file_add(argv[i], false))
            return false;
    }
    for (int kind = 0; kind < KINDS; kind++)
        is_any = is_any || order->kinds[kind];
    for (int kind = 0; kind < KINDS && !is_any; kind++)
        order->kinds[kind] = true;
    order->pairs /= vmm__max(scenario_count(), 1);
    return scenario_count() > 0;
}

int main(int argc, char **argv)
{
    struct sweep_order order;
    if (!order_read(argc, argv, &order)) {
        (void)fprintf(stderr,
                      "usage: %s [--kind KIND]... [--slice K/N] [--seed S] [--pairs N]\n"
                      "       [--scenario C] [--at N] [--variant V] [--host FILE]... FILE...\n",
                      argv[0]);
        return EXIT_USAGE;
    }
    return sweep_run(&order);
}
