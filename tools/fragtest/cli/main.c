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
#include "fragtest/replay/scene.h"
#include "fragtest/report/csv.h"
#include "fragtest/report/json.h"
#include "fragtest/report/picture.h"
#include "fragtest/report/table.h"
#include "fragtest/report/wrap.h"

#include <locale.h>
#include <stdlib.h>

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

/* False after one line that says what could not be written. */
static bool files_write(struct outputs *outputs, const char *machine, const struct runner *runner)
{
    FILE *json = output_begin(&outputs->json);
    if (json != NULL)
        json_write(json, machine, runner->results, runner->result_count);
    if (!output_end(&outputs->json))
        return fail("the JSON could not be written") == 0;
    FILE *timeline = output_begin(&outputs->timeline);
    if (timeline != NULL)
        csv_write(timeline, runner->results, runner->result_count);
    return output_end(&outputs->timeline) || fail("the timeline could not be written") == 0;
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
    return files_write(outputs, machine, runner)
               ? verdict_exit(runner->results, runner->result_count)
               : EXIT_BAD;
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

/* ---- Scenes ------------------------------------------------------------------------------------ */

static int scene_show(const struct options *options, const struct scene_run *run,
                      struct outputs *outputs)
{
    char machine[320] = "";

    if (run->driver != NULL) {
        machine_describe(run->driver, machine, sizeof(machine));
        if (!options->quiet)
            wrap_write(outputs->text, outputs->style.width, 0, 0, machine);
    }
    options->scene->show(outputs->text, outputs->style, run);
    if (fflush(outputs->text) != 0)
        return fail("the output could not be written");
    FILE *json = output_begin(&outputs->json);
    if (json != NULL)
        options->scene->json_write(json, machine, run);
    if (!output_end(&outputs->json))
        return fail("the JSON could not be written");
    return run->is_good ? 0 : 1;
}

static int scene_run(const struct options *options, struct driver *driver, struct outputs *outputs)
{
    const struct scene *scene = options->scene;
    struct scene_run *run = calloc(1, scene->run_bytes);
    int code = 1;

    if (run == NULL)
        return fail("out of host memory");
    *run = (struct scene_run){
        .driver = driver,
        .bytes = options->scene_bytes,
        .memory = options->memory,
        .policies = options->policies,
        .settings = options->settings,
        .progress = &outputs->progress,
        .quiet = options->quiet,
    };
    if (scene->run(run) == VMM_OK)
        code = scene_show(options, run, outputs);
    else
        (void)fail(vmm_last_error());
    free(run);
    return code;
}

static int scene_main(const struct options *options)
{
    struct outputs outputs;
    struct trace_error error;
    struct driver *driver = NULL;

    if (!outputs_init(&outputs, options, &error))
        return fail(error.text);
    if (!options->scene->opens_driver && !driver_begin(options, &driver))
        return EXIT_BAD;
    int code = scene_run(options, driver, &outputs);
    if (driver != NULL)
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
    return options.scene != NULL ? scene_main(&options) : options_run(&options);
}
