/*
 * fragtest: who survives a program's real requests in too little memory?
 *
 * The order of things: options, traces, driver, output files (whatever is wrong with these ends the
 * program with 2 before anything has run); then each trace through each policy with its pictures;
 * then the table, the verdict, the JSON and the CSV.
 */
#include "campaign.h"
#include "csv.h"
#include "driver/sim.h"
#include "json.h"
#include "machine.h"
#include "picture.h"
#include "table.h"

#include <errno.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#define EXIT_BAD 2

struct outputs {
    FILE *text;     /* for people; stderr when stdout is for one of the next two */
    FILE *json;     /* NULL: none */
    FILE *timeline; /* NULL: none */
    struct style style;
    struct progress progress;
};

static int fail(const char *text)
{
    (void)fprintf(stderr, "fragtest: %s\n", text);
    return EXIT_BAD;
}

static bool is_stdout(const char *name)
{
    return name != NULL && strcmp(name, "-") == 0;
}

/* *file is NULL when no name was given. */
static bool output_open(FILE **file, const char *name, struct trace_error *error)
{
    *file = NULL;
    if (name == NULL)
        return true;
    *file = is_stdout(name) ? stdout : fopen(name, "we");
    if (*file != NULL)
        return true;
    (void)snprintf(error->text, sizeof(error->text), "cannot write %.200s: %s", name,
                   strerror(errno));
    return false;
}

static bool output_close(FILE *file)
{
    return file == NULL || file == stdout || fclose(file) == 0;
}

static bool outputs_open(struct outputs *outputs, const struct options *options,
                         struct trace_error *error)
{
    bool to_stdout = is_stdout(options->json) || is_stdout(options->timeline);

    *outputs = (struct outputs){ .text = to_stdout ? stderr : stdout };
    outputs->style = style_of(outputs->text);
    progress_init(&outputs->progress, options->quiet ? NULL : stderr, outputs->style.utf8);
    if (!output_open(&outputs->json, options->json, error))
        return false;
    if (output_open(&outputs->timeline, options->timeline, error))
        return true;
    (void)output_close(outputs->json);
    return false;
}

static bool outputs_close(struct outputs *outputs)
{
    bool ok = fflush(outputs->text) == 0;

    ok = output_close(outputs->json) && ok;
    return output_close(outputs->timeline) && ok;
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

static int campaign_show(struct campaign *campaign, struct outputs *outputs, struct driver *driver)
{
    const struct options *options = campaign->options;
    const struct table_columns columns = {
        .least = options->least,
        .trims = options->trims > 0,
        .apart = options->lag > 0,
    };
    char machine[320];

    for (unsigned i = 0; i < campaign->trace_count; i++) {
        unsigned count;
        struct result *results = campaign_run(campaign, i, driver, &outputs->progress, &count);
        if (!options->quiet)
            pictures_draw(outputs, results, count);
    }
    machine_describe(driver, machine, sizeof(machine));
    if (!options->quiet) {
        picture_legend(outputs->text, outputs->style);
        (void)fprintf(outputs->text, "%s\n\n", machine);
    }
    table_write(outputs->text, campaign->results, campaign->result_count, &columns);
    verdict_write(outputs->text, campaign->results, campaign->result_count);
    if (outputs->json != NULL &&
        !json_write(outputs->json, machine, campaign->results, campaign->result_count))
        return fail("the JSON could not be written");
    if (outputs->timeline != NULL &&
        !csv_write(outputs->timeline, campaign->results, campaign->result_count))
        return fail("the timeline could not be written");
    return verdict_exit(campaign->results, campaign->result_count);
}

static int driver_run(struct campaign *campaign, struct outputs *outputs)
{
    struct driver_options driver_options = { 0 };
    struct driver *driver;

    if (vmm__driver_open(campaign->options->driver, &driver_options, &driver) != VMM_OK)
        return fail(vmm_last_error());
    if (replay_is_sim(driver))
        vmm__sim_lag_set(driver, campaign->options->lag);
    int code = campaign_show(campaign, outputs, driver);
    vmm__driver_close(driver);
    return code;
}

static int options_run(const struct options *options)
{
    struct campaign campaign;
    struct outputs outputs;
    struct trace_error error;
    int code = EXIT_BAD;

    if (!campaign_load(&campaign, options, &error))
        return fail(error.text);
    if (outputs_open(&outputs, options, &error)) {
        code = driver_run(&campaign, &outputs);
        if (!outputs_close(&outputs))
            code = fail("the output could not be written");
    } else {
        (void)fail(error.text);
    }
    campaign_free(&campaign);
    return code;
}

int main(int argc, char **argv)
{
    struct options options;
    struct options_error error;

    (void)setlocale(LC_CTYPE, "");
    switch (options_parse(argc, argv, &options, &error)) {
    case OPTIONS_HELP:
        options_help(stdout);
        return 0;
    case OPTIONS_BAD:
        return fail(error.text);
    case OPTIONS_RUN:
        break;
    }
    return options_run(&options);
}
