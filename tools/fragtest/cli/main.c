/*
 * fragtest: which allocation policies survive a program's real requests in too little memory?
 *
 * Steps: options, traces, output files, driver (a fault in these ends the program with 2 before
 * anything runs); the scene, which is most often to replay each trace through each policy; its table, the JSON and the
 * CSV.
 */
#include "fragtest/cli/distinct.h"
#include "fragtest/cli/help.h"
#include "fragtest/cli/interrupt.h"
#include "fragtest/cli/machine.h"
#include "fragtest/cli/output.h"
#include "fragtest/cli/pick.h"
#include "fragtest/cli/standard.h"
#include "fragtest/replay/scene.h"

#include <locale.h>
#include <stdlib.h>

#define EXIT_BAD 2

struct outputs {
    struct output json;
    struct output timeline;
    struct progress progress;
};

static int fail(const char *text)
{
    (void)fprintf(stderr, "fragtest: %s\n", text);
    return EXIT_BAD;
}

/* Text for people goes to stderr if stdout is for another output. */
static bool outputs_init(struct outputs *outputs, struct scene_run *run, struct trace_error *error)
{
    const struct options *options = run->options;
    bool to_stdout = output_is_stdout(options->json) || output_is_stdout(options->timeline);

    run->text = to_stdout ? stderr : stdout;
    run->style = style_of(run->text);
    run->progress = &outputs->progress;
    progress_init(run->progress, options->quiet ? NULL : stderr, run->style.utf8);
    interrupt_init(run->progress->bar);
    return output_init(&outputs->json, options->json, error) &&
           output_init(&outputs->timeline, options->timeline, error);
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

static int scene_show(struct scene_run *run, struct outputs *outputs)
{
    const struct scene *scene = run->options->scene;

    if (run->driver != NULL)
        machine_describe(run->driver, run->machine, sizeof(run->machine));
    scene->show(run);
    if (fflush(run->text) != 0)
        return fail("the output could not be written");
    FILE *json = output_begin(&outputs->json);
    if (json != NULL)
        scene->json_write(json, run);
    if (!output_end(&outputs->json))
        return fail("the JSON could not be written");
    FILE *timeline = output_begin(&outputs->timeline);
    if (timeline != NULL)
        scene->csv_write(timeline, run);
    if (!output_end(&outputs->timeline))
        return fail("the timeline could not be written");
    return run->is_good ? 0 : 1;
}

static int driver_run(struct scene_run *run, struct outputs *outputs)
{
    const struct scene *scene = run->options->scene;
    int code = 1;

    if (!scene->opens_driver && !driver_begin(run->options, &run->driver))
        return EXIT_BAD;
    if (scene->run(run) == VMM_OK)
        code = scene_show(run, outputs);
    else
        (void)fail(vmm_last_error());
    if (run->driver != NULL)
        vmm__driver_close(run->driver);
    return code;
}

static int options_run(const struct options *options)
{
    const struct scene *scene = options->scene;
    struct scene_run *run = calloc(1, scene->run_bytes);
    struct outputs outputs;
    struct trace_error error;
    int code = EXIT_BAD;

    if (run == NULL)
        return fail("out of host memory");
    run->options = options;
    if (distinct_check(options, &error) && (scene->open == NULL || scene->open(run, &error)) &&
        outputs_init(&outputs, run, &error))
        code = driver_run(run, &outputs);
    else
        (void)fail(error.text);
    if (scene->close != NULL)
        scene->close(run);
    free(run);
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
    if (options.scene == NULL)
        options.scene = &scene_replay;
    return options_run(&options);
}
