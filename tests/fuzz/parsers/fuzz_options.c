/* fragtest's command line: each line of the input is an argument. */
#include "parser.h"

#include "fragtest/cli/options.h"

enum { MOST_ARGUMENTS = 200 };

static void options_check(const struct options *options)
{
    must((options->source_count == 0) == (options->scene != NULL));
    must(options->source_count <= OPTIONS_MAX_SOURCES);
    must(options->settings.reuse >= VMM_REUSE_ANY_USE &&
         options->settings.reuse <= VMM_REUSE_STREAM_WAIT);
    must(options->settings.compaction == VMM_ON || options->settings.compaction == VMM_OFF);
    for (unsigned i = 0; i < options->source_count; i++)
        must(options->sources[i].name != NULL && *options->sources[i].name != '\0');
    must(options->passes >= 1 && options->passes <= 1000);
    must(options->driver >= VMM_DRIVER_DEFAULT && options->driver <= VMM_DRIVER_SIM);
    must(options->lag == 0 || options->driver == VMM_DRIVER_SIM);
    must(options->settings.footprint_permille <= 1000 ||
         options->settings.footprint_permille == VMM_FOOTPRINT_ANY);
    bool any = false;
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        any |= options->policies[i];
    must(any);
    must((policy_limit(options->memory, UINT64_C(1) << 33) == 0) == (options->memory == NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = text_of(data, bytes);
    char *argv[MOST_ARGUMENTS + 1] = { "fragtest" };
    int argc = 1;
    struct options options;
    struct options_error error = { "" };
    for (char *at = text; at != NULL && argc < MOST_ARGUMENTS;) {
        argv[argc++] = at;
        at = strchr(at, '\n');
        if (at != NULL)
            *at++ = '\0';
    }
    enum options_outcome outcome = options_parse(argc, argv, &options, &error);
    if (outcome == OPTIONS_RUN)
        options_check(&options);
    if (outcome == OPTIONS_BAD)
        must(is_one_line(error.text));
    free(text);
    return 0;
}
