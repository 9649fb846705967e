/*
 * fragtest: which allocation policies survive a program's real requests in too little memory?
 *
 * Steps: options, traces, output files, driver (a fault in these ends the program with 2 before
 * anything runs); each trace through each policy, with its pictures; the table, the verdict, the
 * JSON and the CSV.
 */
#include "driver/sim/sim.h"
#include "fragtest/cli/distinct.h"
#include "fragtest/cli/help.h"
#include "fragtest/cli/interrupt.h"
#include "fragtest/cli/machine.h"
#include "fragtest/cli/output.h"
#include "fragtest/cli/pick.h"
#include "fragtest/cli/runner.h"
#include "fragtest/cli/standard.h"
#include "fragtest/report/crowd_show.h"
#include "fragtest/report/csv.h"
#include "fragtest/report/json.h"
#include "fragtest/report/picture.h"
#include "fragtest/report/table.h"
#include "fragtest/report/turns_show.h"
#include "fragtest/report/unrecorded_show.h"
#include "fragtest/report/wrap.h"

#include <locale.h>

#define EXIT_BAD 2

struct outputs {
    FILE *text; /* for people; stderr when stdout is for one of the next two */
    struct output json;
    struct output timeline;
    struct style style;
    struct progress progress;
};

static int fail(const char *text)
{
    (void)fprintf(stderr, "fragtest: %s\n", text);
    return EXIT_BAD;
}

static bool outputs_init(struct outputs *outputs, const struct options *options,
                         struct trace_error *error)
{
    bool to_stdout = output_is_stdout(options->json) || output_is_stdout(options->timeline);

    *outputs = (struct outputs){ .text = to_stdout ? stderr : stdout };
    outputs->style = style_of(outputs->text);
    progress_init(&outputs->progress, options->quiet ? NULL : stderr, outputs->style.utf8);
    interrupt_init(outputs->progress.bar);
    return output_init(&outputs->json, options->json, error) &&
           output_init(&outputs->timeline, options->timeline, error);
}

static bool json_output(struct output *output, const char *machine, const struct runner *runner)
{
    if (output->name == NULL)
        return true;
    FILE *file = output_begin(output);
    return output_end(output, file != NULL &&
                                  json_write(file, machine, runner->results, runner->result_count));
}

static bool timeline_output(struct output *output, const struct runner *runner)
{
    if (output->name == NULL)
        return true;
    FILE *file = output_begin(output);
    return output_end(output,
                      file != NULL && csv_write(file, runner->results, runner->result_count));
}

/* All pictures of a trace have the same scale. */
static void pictures_draw(const struct outputs *outputs, const struct result *results,
                          unsigned count)
{
    uint64_t top = 0;

    for (unsigned i = 0; i < count; i++)
        if (picture_top(&results[i]) > top)
            top = picture_top(&results[i]);
    for (unsigned i = 0; i < count; i++)
        picture_draw(outputs->text, outputs->style, &results[i], top);
}

static int runner_show(struct runner *runner, struct outputs *outputs, struct driver *driver)
{
    const struct options *options = runner->options;
    const struct table_columns columns = {
        .least = options->least,
        .trims = options->trims > 0,
        .compacts = options->compacts > 0,
        .lower_bound = options->lag > 0,
    };
    char machine[320];

    for (unsigned i = 0; i < runner->trace_count; i++) {
        unsigned count;
        struct result *results = runner_run(runner, i, driver, &outputs->progress, &count);
        if (!options->quiet)
            pictures_draw(outputs, results, count);
    }
    machine_describe(driver, machine, sizeof(machine));
    if (!options->quiet) {
        picture_legend(outputs->text, outputs->style);
        wrap_write(outputs->text, outputs->style.width, 0, 0, machine);
        (void)fputc('\n', outputs->text);
    }
    table_write(outputs->text, outputs->style.width, runner->results, runner->result_count,
                &columns);
    verdict_write(outputs->text, outputs->style.width, runner->results, runner->result_count);
    if (fflush(outputs->text) != 0)
        return fail("the output could not be written");
    if (!json_output(&outputs->json, machine, runner))
        return fail("the JSON could not be written");
    if (!timeline_output(&outputs->timeline, runner))
        return fail("the timeline could not be written");
    return verdict_exit(runner->results, runner->result_count);
}

/* Opens the driver; false after one line that says why not. */
static bool driver_begin(const struct options *options, struct driver **out)
{
    char choice[512];

    if (pick_driver(options->driver, out, choice, sizeof(choice)) != VMM_OK) {
        (void)fail(vmm_last_error());
        return false;
    }
    if (choice[0] != '\0')
        (void)fprintf(stderr, "fragtest: %s\n", choice);
    return true;
}

static int driver_run(struct runner *runner, struct outputs *outputs)
{
    struct driver *driver;

    if (!driver_begin(runner->options, &driver))
        return EXIT_BAD;
    if (replay_is_sim(driver))
        vmm__sim_lag_set(driver, runner->options->lag);
    int code = runner_show(runner, outputs, driver);
    vmm__driver_close(driver);
    return code;
}

/* ---- Workloads with steps of their own --------------------------------------------------------- */

static int turns_outcome(const struct turns *turns, struct driver *driver, struct outputs *outputs)
{
    char machine[320];

    machine_describe(driver, machine, sizeof(machine));
    wrap_write(outputs->text, outputs->style.width, 0, 0, machine);
    turns_show(outputs->text, outputs->style, turns);
    if (fflush(outputs->text) != 0)
        return fail("the output could not be written");
    if (outputs->json.name != NULL) {
        FILE *file = output_begin(&outputs->json);
        if (!output_end(&outputs->json, file != NULL && turns_json_write(file, machine, turns)))
            return fail("the JSON could not be written");
    }
    return turns->mismatches == 0 ? 0 : 1;
}

/* The workload sleep. */
static int turns_main(const struct options *options, struct driver *driver, struct outputs *outputs)
{
    struct turns turns = { .tenant_bytes = options->tenant_bytes };

    turns.limit_bytes = options_limit(options, TURNS_TENANTS * turns.tenant_bytes);
    progress_begin(&outputs->progress, TURNS, "tenants take turns");
    vmm_status status = turns_run(driver, options->policies, &turns, &outputs->progress);
    progress_end(&outputs->progress);
    if (status == VMM_OK)
        return turns_outcome(&turns, driver, outputs);
    (void)fail(vmm_last_error());
    return 1;
}

static int unrecorded_outcome(const struct unrecorded *unrecorded, struct driver *driver,
                              struct outputs *outputs, bool quiet)
{
    const char *name = driver->ops->name;
    char machine[320];

    machine_describe(driver, machine, sizeof(machine));
    if (!quiet)
        wrap_write(outputs->text, outputs->style.width, 0, 0, machine);
    unrecorded_show(outputs->text, outputs->style, name, unrecorded);
    if (fflush(outputs->text) != 0)
        return fail("the output could not be written");
    if (outputs->json.name != NULL) {
        FILE *file = output_begin(&outputs->json);
        bool ok = file != NULL && unrecorded_json_write(file, machine, name, unrecorded);
        if (!output_end(&outputs->json, ok))
            return fail("the JSON could not be written");
    }
    return unrecorded_exit(unrecorded);
}

/* The workload of that name. */
static int unrecorded_main(const struct options *options, struct driver *driver,
                           struct outputs *outputs)
{
    struct unrecorded unrecorded = { .settings = options->settings };

    unrecorded.limit_bytes = options_limit(options, unrecorded_peak(driver));
    if (unrecorded_run(driver, options->policies, &unrecorded, &outputs->progress) == VMM_OK)
        return unrecorded_outcome(&unrecorded, driver, outputs, options->quiet);
    (void)fail(vmm_last_error());
    return 1;
}

/* The workload neighbours. Its processes open the driver. */
static int crowd_main(const struct options *options, struct outputs *outputs)
{
    struct crowd crowd = { .need_bytes = options->crowd_bytes };

    crowd.device_bytes = options_limit(options, crowd.need_bytes);
    if (crowd_run(&crowd, &outputs->progress) != VMM_OK) {
        (void)fail(vmm_last_error());
        return 1;
    }
    crowd_show(outputs->text, outputs->style, &crowd, options->quiet);
    if (fflush(outputs->text) != 0)
        return fail("the output could not be written");
    if (outputs->json.name != NULL) {
        FILE *file = output_begin(&outputs->json);
        if (!output_end(&outputs->json, file != NULL && crowd_json_write(file, &crowd)))
            return fail("the JSON could not be written");
    }
    return crowd_survived(&crowd.runs[1]) ? 0 : 1;
}

static int alone_run(const struct options *options)
{
    struct outputs outputs;
    struct trace_error error;
    struct driver *driver;

    if (!outputs_init(&outputs, options, &error))
        return fail(error.text);
    if (options->crowd_bytes > 0)
        return crowd_main(options, &outputs);
    if (!driver_begin(options, &driver))
        return EXIT_BAD;
    int code = options->is_unrecorded ? unrecorded_main(options, driver, &outputs)
                                      : turns_main(options, driver, &outputs);
    vmm__driver_close(driver);
    return code;
}

static void cuts_tell(const struct runner *runner)
{
    for (unsigned i = 0; i < runner->trace_count; i++) {
        if (runner->traces[i].is_cut)
            (void)fprintf(stderr,
                          "fragtest: %s: the file was cut: replayed up to its last whole line\n",
                          runner->traces[i].name);
    }
}

static int options_run(const struct options *options)
{
    struct runner runner;
    struct outputs outputs;
    struct trace_error error;
    int code = EXIT_BAD;

    if (!distinct_check(options, &error) || !runner_load(&runner, options, &error))
        return fail(error.text);
    cuts_tell(&runner);
    if (outputs_init(&outputs, options, &error))
        code = driver_run(&runner, &outputs);
    else
        (void)fail(error.text);
    runner_free(&runner);
    return code;
}

/* Of what fragtest says about itself. */
static int text_end(void)
{
    return fflush(stdout) == 0 ? 0 : fail("the output could not be written");
}

int main(int argc, char **argv)
{
    struct options options;
    struct options_error error;

    if (!standard_open())
        return fail("cannot open /dev/null in place of a closed standard output");
    (void)setlocale(LC_CTYPE, "");
    switch (options_parse(argc, argv, &options, &error)) {
    case OPTIONS_HELP:
        help_write(stdout, style_of(stdout).width);
        return text_end();
    case OPTIONS_VERSION:
        help_version(stdout);
        return text_end();
    case OPTIONS_WORKLOADS:
        help_workloads(stdout, style_of(stdout).width);
        return text_end();
    case OPTIONS_BAD:
        return fail(error.text);
    case OPTIONS_RUN:
        break;
    }
    bool alone = options.tenant_bytes > 0 || options.crowd_bytes > 0 || options.is_unrecorded;
    return alone ? alone_run(&options) : options_run(&options);
}
