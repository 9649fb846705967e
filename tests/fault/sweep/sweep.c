/*
 * fault_sweep: makes every call of the driver, every allocation of host memory and every call of the
 * system fail, one by one, over a workload that reaches every feature.
 *
 * usage: fault_sweep [--kind KIND]... [--slice K/N] [--seed S] [--pairs N]
 *                    [--chapter C] [--at N] [--variant V]
 *
 *   --kind KIND   driver, for-ever, memory, memory-for-ever, double, system, system-for-ever;
 *                 default: all
 *   --slice K/N   every Nth fault from the Kth on; default 1/1
 *   --seed S      of the pairs that `double` draws; default 1
 *   --pairs N     how many of them; default 100000
 *   --chapter C, --at N, --variant V
 *                 only those faults: as told with a failure, to replay it
 *
 * Exit status: 0 all was well, 1 trouble (told on stderr with what replays it), 2 wrong arguments.
 */
#include "run.h"

#include "base/clock.h"
#include "point.h"
#include "progress.h"
#include "table.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { EXIT_TROUBLE = 1, EXIT_USAGE = 2, PAIRS = 100000 };

static struct progress progress;
static uint64_t children_done;

static void child_stepped(void *context)
{
    (void)context;
    progress_step(&progress, ++children_done);
}

static void system_stepped(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    progress.total = total;
    progress_step(&progress, done);
}

/* ---- Chapters ---------------------------------------------------------------------------------- */

/* Each chapter that is to be run, on the host driver or on the sim driver. */
static void chapters_each(const struct sweep_order *order, bool is_host,
                          void (*visit)(const struct sweep_order *order, unsigned chapter))
{
    for (unsigned chapter = 1; chapter <= sweep_chapter_count; chapter++) {
        bool is_ordered = order->chapter == 0 || order->chapter == chapter;
        if (is_ordered && sweep_chapters[chapter - 1].is_host == is_host)
            visit(order, chapter);
    }
}

static void chapter_counted(const struct sweep_order *order, unsigned chapter)
{
    sweep_count_begin(order, chapter);
    run_chapter(chapter);
    progress.total += sweep_count_end();
}

static void chapter_swept(const struct sweep_order *order, unsigned chapter)
{
    sweep_begin(order, chapter, child_stepped, NULL);
    run_chapter(chapter);
    sweep_end();
}

static void system_swept(const struct sweep_order *order, unsigned chapter)
{
    (void)setenv("VMM_LOG", "/dev/null", 1); /* a log that must be opened */
    progress_begin(&progress, 1, "fault_sweep: calls of the system");
    sweep_system(order, chapter, run_chapter, system_stepped, NULL);
    progress_end(&progress);
    (void)unsetenv("VMM_LOG");
}

/* False if the workload does not reach everything. */
static bool sim_swept(const struct sweep_order *order)
{
    progress_begin(&progress, 0, "fault_sweep: calls of the driver, memory");
    chapters_each(order, false, chapter_counted);
    chapters_each(order, false, chapter_swept);
    progress_end(&progress);
    return reach_write(stdout) || order->chapter != 0;
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
    uint64_t start = vmm__clock_ns();
    bool reached = true;
    sweep_sums =
        mmap(NULL, sizeof *sweep_sums, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sweep_sums == MAP_FAILED) {
        perror("fault_sweep: mmap");
        return EXIT_TROUBLE;
    }
    progress_init(&progress, stderr, false);
    if (order->kinds[KIND_SYSTEM] || order->kinds[KIND_SYSTEM_FOR_EVER])
        chapters_each(order, true, system_swept);
    if (has_sim_kind(order))
        reached = sim_swept(order);
    table_write(stdout, order, (double)(vmm__clock_ns() - start) / 1e9);
    return reached && sweep_sums->failures == 0 ? 0 : EXIT_TROUBLE;
}

/* ---- Arguments --------------------------------------------------------------------------------- */

static bool number_read(const char *text, char end_at, uint64_t *out, const char **rest)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (rest != NULL)
        *rest = end + 1;
    return *text >= '0' && *text <= '9' && *end == end_at && errno == 0;
}

static bool kind_read(const char *name, struct sweep_order *order)
{
    for (int kind = 0; kind < KINDS; kind++) {
        if (strcmp(name, sweep_kind_name((enum sweep_kind)kind)) != 0)
            continue;
        order->kinds[kind] = true;
        return true;
    }
    return false;
}

static bool option_read(int option, const char *text, struct sweep_order *order)
{
    uint64_t number = 0;
    if (option == 'k')
        return kind_read(text, order);
    if (option == 'l')
        return number_read(text, '/', &order->slice, &text) &&
               number_read(text, '\0', &order->slices, NULL) && order->slice >= 1 &&
               order->slice <= order->slices;
    if (!number_read(text, '\0', &number, NULL))
        return false;
    switch (option) {
    case 's':
        order->seed = number;
        return true;
    case 'p':
        order->pairs = number;
        return true;
    case 'c':
        order->chapter = (unsigned)number;
        return number >= 1 && number <= sweep_chapter_count;
    case 'a':
        order->at = number;
        return true;
    default:
        order->variant = (int)(number % INT32_MAX);
        return option == 'v';
    }
}

static bool order_read(int argc, char **argv, struct sweep_order *order)
{
    static const struct option options[] = {
        { "kind", required_argument, NULL, 'k' },    { "slice", required_argument, NULL, 'l' },
        { "seed", required_argument, NULL, 's' },    { "pairs", required_argument, NULL, 'p' },
        { "chapter", required_argument, NULL, 'c' }, { "at", required_argument, NULL, 'a' },
        { "variant", required_argument, NULL, 'v' }, { NULL, 0, NULL, 0 },
    };
    bool is_any = false;
    int option;
    *order =
        (struct sweep_order){ .seed = 1, .slice = 1, .slices = 1, .pairs = PAIRS, .variant = -1 };
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?' || !option_read(option, optarg, order))
            return false;
    }
    for (int kind = 0; kind < KINDS; kind++)
        is_any = is_any || order->kinds[kind];
    for (int kind = 0; kind < KINDS && !is_any; kind++)
        order->kinds[kind] = true;
    order->pairs /= sweep_chapter_count - 1; /* all but that of the host driver have as many */
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct sweep_order order;
    if (!order_read(argc, argv, &order)) {
        (void)fprintf(stderr,
                      "usage: %s [--kind KIND]... [--slice K/N] [--seed S] [--pairs N]\n"
                      "       [--chapter C] [--at N] [--variant V]\n",
                      argv[0]);
        return EXIT_USAGE;
    }
    return sweep_run(&order);
}
