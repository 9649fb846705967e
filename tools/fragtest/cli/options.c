/* The command line: see options.h. */
#include "fragtest/cli/options.h"

#include "fragtest/cli/nearest.h"
#include "fragtest/replay/scene.h"
#include "fragtest/trace/workload.h"

#include "base/error.h"
#include "base/size.h"
#include "text/number.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#define MOST_TRIMS     1000000U
#define MOST_FOOTPRINT 1000U
#define LEAST_LIMIT    (2U << 20) /* one chunk: no allocator works with less */

struct parser {
    struct options *options;
    struct options_error *error;
    bool memory_given;
    bool lists_workloads;
    bool takes_stdin;
};

/* An option, and how it takes its value. What follows is for those that only set a member of struct options. */
struct known {
    struct options_entry entry;
    bool (*take)(struct parser *parser, const struct known *option, const char *value);
    size_t member;
    unsigned least; /* of a number, or of words: their first */
    unsigned most;
    const char *const *words;
};

static void *member_of(const struct parser *parser, const struct known *option)
{
    return (char *)parser->options + option->member;
}

__attribute__((format(printf, 2, 3))) static bool parser_fail(struct parser *parser,
                                                              const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(parser->error->text, sizeof(parser->error->text), format, arguments);
    va_end(arguments);
    vmm__line_make(parser->error->text); /* what was typed may hold anything: this stays one line */
    return false;
}

static bool driver_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)option;
    if (strcmp(value, "auto") == 0) {
        parser->options->driver = VMM_DRIVER_DEFAULT;
        return true;
    }
    if (vmm__driver_kind_parse(value, &parser->options->driver))
        return true;
    return parser_fail(parser, "--driver takes auto, cuda, host or sim, not \"%.60s\"", value);
}

static bool source_take(struct parser *parser, const char *name, bool is_workload)
{
    struct options *options = parser->options;

    if (options->source_count == OPTIONS_MAX_SOURCES)
        return parser_fail(parser, "more than %d traces and workloads", OPTIONS_MAX_SOURCES);
    options->sources[options->source_count++] =
        (struct options_source){ .name = name, .is_workload = is_workload };
    return true;
}

static bool trace_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)option;
    bool is_stdin = strcmp(value, TRACE_STDIN) == 0;

    if (is_stdin && parser->takes_stdin)
        return parser_fail(parser, "--trace - may be given only once: it is read to its end");
    parser->takes_stdin |= is_stdin;
    return source_take(parser, value, false);
}

static bool scene_take(struct parser *parser, const struct scene *scene, const char *value)
{
    struct options *options = parser->options;

    if (!scene_size(scene, value, &options->scene_bytes))
        return parser_fail(parser, "--workload %.60s: its SIZE is %s", value, scene->sizes);
    if (options->scene != NULL && options->scene != scene)
        return parser_fail(parser, "--workload %s runs alone", scene->name);
    options->scene = scene;
    return true;
}

static bool workload_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)option;
    const struct scene *scene = scene_find(value);
    const char *names[WORKLOAD_COUNT + SCENES];

    if (strcmp(value, "list") == 0) {
        parser->lists_workloads = true;
        return true;
    }
    if (workload_exists(value))
        return source_take(parser, value, true);
    if (scene != NULL)
        return scene_take(parser, scene, value);
    for (unsigned i = 0; i < WORKLOAD_COUNT; i++)
        names[i] = workload_name(i);
    for (unsigned i = 0; i < SCENES; i++)
        names[WORKLOAD_COUNT + i] = scene_at(i)->listed;
    struct nearest_text nearest =
        nearest_name(value, strlen(value), names, WORKLOAD_COUNT + SCENES);
    return parser_fail(parser, "--workload knows no \"%.60s\"; %s", value, nearest.text);
}

static bool policy_fail(struct parser *parser, const char *name, size_t length)
{
    const char *names[POLICY_COUNT + 1] = { [POLICY_COUNT] = "all" };

    for (unsigned i = 0; i < POLICY_COUNT; i++)
        names[i] = policy_at(i)->name;
    struct nearest_text nearest = nearest_name(name, length, names, POLICY_COUNT + 1);
    return parser_fail(parser, "--policy knows no \"%.*s\"; %s", (int)(length < 60 ? length : 60),
                       name, nearest.text);
}

static bool policy_add(struct parser *parser, const char *name, size_t length)
{
    bool all = length == 3 && strncmp(name, "all", 3) == 0;
    bool known = all;

    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        const char *own = policy_at(i)->name;
        if (all || (strlen(own) == length && strncmp(name, own, length) == 0)) {
            parser->options->policies[i] = true;
            known = true;
        }
    }
    return known || policy_fail(parser, name, length);
}

static bool policies_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)option;
    memset(parser->options->policies, 0, sizeof(parser->options->policies));
    for (;;) {
        size_t length = strcspn(value, ",");
        if (!policy_add(parser, value, length))
            return false;
        if (value[length] == '\0')
            return true;
        value += length + 1;
    }
}

static bool memory_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)option;
    uint64_t bytes;

    parser->memory_given = true;
    parser->options->memory = NULL;
    if (strcmp(value, "none") == 0)
        return true;
    if (!vmm__size_or_share_parse(value, 1ULL << 40, &bytes) || bytes == 0)
        return parser_fail(
            parser, "--memory takes a size (8GiB, 1644MiB), none or N%%, not \"%.60s\"", value);
    if (strchr(value, '%') == NULL && bytes < LEAST_LIMIT)
        return parser_fail(parser,
                           "--memory %.60s is less than a chunk, 2 MiB; a share of the peak is "
                           "written N%%",
                           value);
    parser->options->memory = value;
    return true;
}

static bool number_take(struct parser *parser, const struct known *option, const char *value)
{
    uint64_t number = 0;

    if (!number_parse(value, option->least, option->most, &number))
        return parser_fail(parser, "%s takes a whole number from %u to %u, not \"%.60s\"",
                           option->entry.name, option->least, option->most, value);
    *(unsigned *)member_of(parser, option) = (unsigned)number;
    return true;
}

static bool footprint_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)option;
    uint64_t permille = VMM_FOOTPRINT_ANY;
    if (strcmp(value, "any") != 0 && !number_parse(value, 1, MOST_FOOTPRINT, &permille))
        return parser_fail(parser,
                           "--footprint takes a whole number from 1 to %u, or any, not \"%.60s\"",
                           MOST_FOOTPRINT, value);
    parser->options->settings.footprint_permille = (uint32_t)permille;
    return true;
}

/* Which word a value is. */
static bool word_take(struct parser *parser, const struct known *option, const char *value)
{
    char list[64];
    size_t used = 0;

    for (unsigned i = option->least; i <= option->most; i++) {
        if (strcmp(value, option->words[i]) == 0) {
            memcpy(member_of(parser, option), &i, sizeof(i)); /* an enumeration */
            return true;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s, ", option->words[i]);
    }
    return parser_fail(parser, "%s takes %snot \"%.60s\"", option->entry.name, list, value);
}

static bool text_take(struct parser *parser, const struct known *option, const char *value)
{
    *(const char **)member_of(parser, option) = value;
    return true;
}

/* An option without a value. */
static bool flag_take(struct parser *parser, const struct known *option, const char *value)
{
    (void)value;
    return *(bool *)member_of(parser, option) = true;
}

#define OWN(take)                 take, 0, 0, 0, NULL
#define SETS(take, name)          take, offsetof(struct options, name), 0, 0, NULL
#define NUMBER(name, least, most) number_take, offsetof(struct options, name), least, most, NULL
/* The first word stands for no value, and cannot be given. */
#define WORD(name, words, count) word_take, offsetof(struct options, name), 1, count - 1, words
_Static_assert(sizeof(vmm_reuse) == sizeof(unsigned) && sizeof(vmm_switch) == sizeof(unsigned),
               "word_take() sets them");

static const struct known known[OPTIONS_COUNT] = {
    { { "--driver", "auto|cuda|host|sim",
        "auto (default): cuda where there is a GPU, else host. host: ordinary memory. sim: a model "
        "of an H200 with 139 GiB, its rules and costs, without memory." },
      OWN(driver_take) },
    { { "--trace", "FILE",
        "A trace to replay, text or gzip; - is standard input. Or the name of a bundled trace: "
        "detection, encoder_streams, gnn, llm_generate, llm_train_varlen." },
      OWN(trace_take) },
    { { "--workload", "NAME", "A built-in workload to replay; \"list\" shows them." },
      OWN(workload_take) },
    { { "--policy", "NAME,...",
        "Policies to run: block-splitting (PyTorch's default), expandable (PyTorch's expandable "
        "segments), vmmcache (this library), or all (default)." },
      OWN(policies_take) },
    { { "--memory", "SIZE|N%|none",
        "Memory limit: a size (8GiB, 1644MiB, bytes), a share of the trace's peak live bytes, or "
        "none (default if you name a trace or workload)." },
      OWN(memory_take) },
    { { "--passes", "N", "Replay each trace N times in a row (default 1)." },
      NUMBER(passes, 1, 1000) },
    { { "--jitter", "N",
        "From the second pass on, each block is smaller than in the trace by a random share of up "
        "to N percent, 1 to 90; the same in every run." },
      NUMBER(jitter, 1, 90) },
    { { "--lag", "N",
        "With sim only: work finishes N operations after it was submitted (default 0)." },
      NUMBER(lag, 0, 1000000000) },
    { { "--footprint", "N|any",
        "For vmmcache: reserved memory may exceed the peak of active memory by N thousandths, 1 to "
        "1000, before it makes views." },
      OWN(footprint_take) },
    { { "--reuse", "MODE",
        "For vmmcache: when a stream reuses another stream's freed memory. any_use (default): once "
        "all work has finished; declared: once declared work has; stream_wait: at once, and waits "
        "for that work. See vmmcache.h." },
      WORD(settings.reuse, policy_reuse_words, POLICY_REUSE_WORDS) },
    { { "--compaction", "off|on",
        "For vmmcache: whether it may move live blocks; see vmm_config in vmmcache.h (default off, "
        "as the library's)." },
      WORD(settings.compaction, policy_compaction_words, POLICY_COMPACTION_WORDS) },
    { { "--trims", "N",
        "At N random moments of each pass, wait for the device and give back all idle memory; the "
        "table shows the most that stays reserved beyond live bytes." },
      NUMBER(trims, 1, MOST_TRIMS) },
    { { "--compacts", "N",
        "For vmmcache: at N random moments of each pass, those of --trims, wait for the device and "
        "call vmm_compact()." },
      NUMBER(compacts, 1, MOST_TRIMS) },
    { { "--least", NULL,
        "Also search the smallest limit that each policy survives, to 0.1 %; without trims and "
        "compactions." },
      SETS(flag_take, least) },
    { { "--verify", NULL, "Fill every block, and check it when it is freed." },
      SETS(flag_take, verify) },
    { { "--json", "FILE", "Write the results to FILE as JSON; - is standard output." },
      SETS(text_take, json) },
    { { "--timeline", "FILE",
        "Write memory over time to FILE as CSV (- is standard output): trace, policy, operation, "
        "live_bytes, reserved_bytes; at most 2046 lines a run. Operations count over all passes; "
        "each line has the highest bytes until the next one's." },
      SETS(text_take, timeline) },
    { { "--quiet", NULL, "Show only the table at the end." }, SETS(flag_take, quiet) },
};

const struct options_entry *options_entry(unsigned index)
{
    return &known[index].entry;
}

static bool option_fail(struct parser *parser, const char *argument, size_t length)
{
    const char *names[OPTIONS_COUNT + 2] = { [OPTIONS_COUNT] = "--help",
                                             [OPTIONS_COUNT + 1] = "--version" };

    for (unsigned i = 0; i < OPTIONS_COUNT; i++)
        names[i] = known[i].entry.name;
    if (strncmp(argument, "--", 2) != 0 || length < 4)
        return parser_fail(parser, "unknown option \"%.60s\"; --help lists all", argument);
    struct nearest_text nearest = nearest_name(argument, length, names, OPTIONS_COUNT + 2);
    return parser_fail(parser, "unknown option \"%.60s\"; %s", argument, nearest.text);
}

/* Takes one option, "--name", "--name value" or "--name=value". *at moves to its last argument. */
static bool option_take(struct parser *parser, char **argv, int argc, int *at)
{
    const char *argument = argv[*at];
    size_t length = strcspn(argument, "=");

    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct options_entry *entry = &known[i].entry;
        if (strlen(entry->name) != length || strncmp(argument, entry->name, length) != 0)
            continue;
        const char *value = argument[length] == '=' ? argument + length + 1 : NULL;
        if (entry->value == NULL && value == NULL)
            return known[i].take(parser, &known[i], NULL);
        if (entry->value == NULL)
            break;
        if (value == NULL && *at + 1 < argc)
            value = argv[++*at];
        if (value == NULL || *value == '\0')
            return parser_fail(parser, "%s needs a value", entry->name);
        return known[i].take(parser, &known[i], value);
    }
    return option_fail(parser, argument, length);
}

static bool scene_settle(struct parser *parser)
{
    struct options *options = parser->options;
    const struct scene *scene = options->scene;

    if (options->source_count > 0)
        return parser_fail(parser, "--workload %s runs alone", scene->name);
    if (options->timeline != NULL && scene->csv_write == NULL)
        return parser_fail(parser, "--workload %s has no timeline", scene->name);
    if (scene->opens_driver && options->driver != VMM_DRIVER_HOST &&
        options->driver != VMM_DRIVER_DEFAULT)
        return parser_fail(parser, "--workload %s runs with --driver host", scene->name);
    if (!parser->memory_given)
        options->memory = scene->memory;
    return true;
}

/* Checks options against each other, and fills in the defaults that depend on others. */
static bool options_settle(struct parser *parser)
{
    struct options *options = parser->options;

    if (options->lag > 0 && options->driver != VMM_DRIVER_SIM)
        return parser_fail(parser, "--lag needs --driver sim: real work has its own pace");
    if (options->json != NULL && options->timeline != NULL && strcmp(options->json, "-") == 0 &&
        strcmp(options->timeline, "-") == 0)
        return parser_fail(parser, "--json and --timeline cannot both go to stdout");
    if (options->scene != NULL)
        return scene_settle(parser);
    if (options->source_count > 0)
        return true;
    if (!parser->memory_given)
        options->memory = OPTIONS_DEMO_MEMORY;
    options->verify = true;
    return source_take(parser, OPTIONS_DEMO_TRACE, false);
}

enum options_outcome options_parse(int argc, char **argv, struct options *options,
                                   struct options_error *error)
{
    struct parser parser = { .options = options, .error = error };

    *options = (struct options){ .driver = VMM_DRIVER_DEFAULT, .passes = 1 };
    options->settings.reuse = VMM_REUSE_ANY_USE;
    options->settings.compaction = VMM_OFF;
    memset(options->policies, true, sizeof(options->policies));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return OPTIONS_HELP;
        if (strcmp(argv[i], "--version") == 0)
            return OPTIONS_VERSION;
        if (!option_take(&parser, argv, argc, &i))
            return OPTIONS_BAD;
    }
    if (parser.lists_workloads)
        return OPTIONS_WORKLOADS;
    return options_settle(&parser) ? OPTIONS_RUN : OPTIONS_BAD;
}
