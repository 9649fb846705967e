/* The command line: see options.h. */
#include "options.h"

#include "base/error.h"
#include "base/size.h"
#include "workload.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PASSES    1000U
#define MOST_LAG       1000000000U
#define MOST_TRIMS     1000000U
#define MOST_FOOTPRINT 1000U
#define LEAST_LIMIT    (2U << 20) /* a chunk: nobody survives in less */

struct parser {
    struct options *options;
    struct options_error *error;
    bool memory_given;
};

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

static bool driver_take(struct parser *parser, const char *value)
{
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

static bool trace_take(struct parser *parser, const char *value)
{
    return source_take(parser, value, false);
}

static bool workload_take(struct parser *parser, const char *value)
{
    if (workload_exists(value))
        return source_take(parser, value, true);
    return parser_fail(parser, "--workload knows no \"%.60s\" (--help lists them)", value);
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
    return known || parser_fail(parser,
                                "--policy knows no \"%.*s\" (block-splitting, expandable, "
                                "vmmcache, all)",
                                (int)(length < 60 ? length : 60), name);
}

static bool policies_take(struct parser *parser, const char *value)
{
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

static bool memory_take(struct parser *parser, const char *value)
{
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

static bool number_parse(const char *value, uint64_t least, uint64_t most, uint64_t *out)
{
    bool digits = value[strspn(value, "0123456789")] == '\0' && strlen(value) <= 18;
    uint64_t number = digits ? strtoull(value, NULL, 10) : 0;

    if (!digits || number < least || number > most)
        return false;
    *out = number;
    return true;
}

static bool count_take(struct parser *parser, const char *option, const char *value, uint64_t least,
                       uint64_t most, uint64_t *out)
{
    if (number_parse(value, least, most, out))
        return true;
    return parser_fail(parser, "%s takes a whole number from %llu to %llu, not \"%.60s\"", option,
                       (unsigned long long)least, (unsigned long long)most, value);
}

static bool passes_take(struct parser *parser, const char *value)
{
    uint64_t passes = 1;
    if (!count_take(parser, "--passes", value, 1, MOST_PASSES, &passes))
        return false;
    parser->options->passes = (unsigned)passes;
    return true;
}

static bool lag_take(struct parser *parser, const char *value)
{
    return count_take(parser, "--lag", value, 0, MOST_LAG, &parser->options->lag);
}

static bool trims_take(struct parser *parser, const char *value)
{
    uint64_t trims = 0;
    if (!count_take(parser, "--trims", value, 1, MOST_TRIMS, &trims))
        return false;
    parser->options->trims = (unsigned)trims;
    return true;
}

static bool footprint_take(struct parser *parser, const char *value)
{
    uint64_t permille = VMM_FOOTPRINT_ANY;
    if (strcmp(value, "any") != 0 && !number_parse(value, 1, MOST_FOOTPRINT, &permille))
        return parser_fail(parser,
                           "--footprint takes a whole number from 1 to %u, or any, not \"%.60s\"",
                           MOST_FOOTPRINT, value);
    parser->options->settings.footprint_permille = (uint32_t)permille;
    return true;
}

/* Which of some words a value is. */
static bool word_take(struct parser *parser, const char *option, const char *const *words,
                      unsigned count, const char *value, unsigned *out)
{
    const char *third = count > 2 ? words[2] : "";

    for (unsigned i = 0; i < count; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return parser_fail(parser, "%s takes %s, %s%s%s, not \"%.60s\"", option, words[0], words[1],
                       count > 2 ? ", " : "", third, value);
}

static bool sharing_take(struct parser *parser, const char *value)
{
    unsigned sharing = 0;
    bool ok =
        word_take(parser, "--sharing", policy_sharing_words, POLICY_SHARING_WORDS, value, &sharing);
    parser->options->settings.sharing = (vmm_sharing)sharing;
    return ok;
}

static bool compaction_take(struct parser *parser, const char *value)
{
    unsigned compaction = 0;
    bool ok = word_take(parser, "--compaction", policy_compaction_words, POLICY_COMPACTION_WORDS,
                        value, &compaction);
    parser->options->settings.compaction = (vmm_compaction)compaction;
    return ok;
}

static bool json_take(struct parser *parser, const char *value)
{
    parser->options->json = value;
    return true;
}

static bool timeline_take(struct parser *parser, const char *value)
{
    parser->options->timeline = value;
    return true;
}

static const struct {
    const char *name;
    bool (*take)(struct parser *parser, const char *value);
} valued[] = {
    { "--driver", driver_take },
    { "--trace", trace_take },
    { "--workload", workload_take },
    { "--policy", policies_take },
    { "--memory", memory_take },
    { "--passes", passes_take },
    { "--lag", lag_take },
    { "--json", json_take },
    { "--timeline", timeline_take },
    { "--trims", trims_take },
    { "--footprint", footprint_take },
    { "--sharing", sharing_take },
    { "--compaction", compaction_take },
};

static bool flag_take(struct options *options, const char *argument)
{
    if (strcmp(argument, "--least") == 0)
        return options->least = true;
    if (strcmp(argument, "--verify") == 0)
        return options->verify = true;
    if (strcmp(argument, "--quiet") == 0)
        return options->quiet = true;
    return false;
}

/* One option with its value, "--name value" or "--name=value"; *at moves past what was used. */
static bool valued_take(struct parser *parser, char **argv, int argc, int *at)
{
    const char *argument = argv[*at];
    size_t length = strcspn(argument, "=");

    for (size_t i = 0; i < sizeof(valued) / sizeof(valued[0]); i++) {
        if (strlen(valued[i].name) != length || strncmp(argument, valued[i].name, length) != 0)
            continue;
        const char *value = argument[length] == '=' ? argument + length + 1 : NULL;
        if (value == NULL && *at + 1 < argc)
            value = argv[++*at];
        if (value == NULL || *value == '\0')
            return parser_fail(parser, "%s needs a value", valued[i].name);
        return valued[i].take(parser, value);
    }
    return parser_fail(parser, "unknown option \"%.60s\" (--help lists them)", argument);
}

/* What follows from the options together. */
static bool options_settle(struct parser *parser)
{
    struct options *options = parser->options;

    if (options->lag > 0 && options->driver != VMM_DRIVER_SIM)
        return parser_fail(parser, "--lag needs --driver sim: real work has its own pace");
    if (options->json != NULL && options->timeline != NULL && strcmp(options->json, "-") == 0 &&
        strcmp(options->timeline, "-") == 0)
        return parser_fail(parser, "--json and --timeline cannot both go to stdout");
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

    *options = (struct options){ .driver = VMM_DRIVER_AUTO, .passes = 1 };
    options->settings.compaction =
        VMM_COMPACTION_AUTO; /* this thread makes all calls, and all work */
    memset(options->policies, true, sizeof(options->policies));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return OPTIONS_HELP;
        if (!flag_take(options, argv[i]) && !valued_take(&parser, argv, argc, &i))
            return OPTIONS_BAD;
    }
    return options_settle(&parser) ? OPTIONS_RUN : OPTIONS_BAD;
}

uint64_t options_limit(const struct options *options, uint64_t peak_live_bytes)
{
    uint64_t bytes = 0;

    if (options->memory == NULL)
        return 0;
    (void)vmm__size_or_share_parse(options->memory, peak_live_bytes, &bytes);
    return bytes == 0 ? 1 : bytes;
}

void options_help(FILE *out)
{
    (void)fputs(
        "Replays what a program asked of its allocator, under a memory limit, through several\n"
        "policies, and shows who survives.\n\n"
        "fragtest [--driver auto|cuda|host|sim] [--trace FILE]... [--workload NAME]...\n"
        "         [--policy NAME,...|all] [--memory SIZE|none|N%] [--passes N] [--lag N]\n"
        "         [--footprint N|any] [--sharing finished|wait] [--compaction off|auto|on]\n"
        "         [--trims N] [--least] [--verify] [--json FILE] [--timeline FILE] [--quiet]\n"
        "         [--help]\n\n"
        "  --driver    auto (default): CUDA where there is a GPU, else host memory; sim: rules\n"
        "              and costs of an H200 with 139 GiB, no memory\n"
        "  --trace     a trace, text or gzip, or the name of one that ships with fragtest:\n"
        "              detection, encoder_streams, gnn, llm_generate, llm_train_varlen\n",
        out);
    workload_help(out);
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        (void)fprintf(out, "  %-11s %-15s %s\n", i == 0 ? "--policy" : "", policy_at(i)->name,
                      policy_at(i)->note);
    (void)fputs(
        "  --memory    most physical memory: 8GiB, 1644MiB, bytes; N% of the trace's peak live\n"
        "              bytes; none (default when a trace or workload is given)\n"
        "  --passes    how often the trace is run in a row (default 1)\n"
        "  --lag       sim: work finishes N operations after it was submitted (default 0)\n"
        "  --footprint how many thousandths vmmcache lets reserved memory rise above the peak of\n"
        "              active memory before idle chunks move: 1 to 1000, or any\n"
        "  --sharing   what another stream freed and its work still uses: vmmcache takes it once\n"
        "              that has finished, or lets the stream that needs it wait\n"
        "  --compaction\n"
        "              when vmmcache may move live bytes: see vmm_compaction in vmmcache.h;\n"
        "              auto (default; the library's own is off): one thread makes all calls here\n"
        "  --trims     at N random moments of each pass, the same for all, the policy gives back\n"
        "              all that it can; shown is the most that stays reserved beyond live bytes.\n"
        "              The device first finishes its work, at nobody's cost: memory that is in "
        "use\n"
        "              cannot be given back by anybody. The rest of the run sees that, too\n"
        "  --least     also searches the smallest limit that survives, to 0.1 %; without trims\n"
        "  --verify    fills every block, checks it when it is freed, and checks the rules\n"
        "  --json      writes the results to FILE; - is stdout\n"
        "  --timeline  writes live and reserved memory over time to FILE, for plots: lines of "
        "CSV,\n"
        "              trace,policy,operation,live_bytes,reserved_bytes, at most 2046 for each\n"
        "              run; operation is the first of a sample's share of the run, counted from\n"
        "              0 over all passes, the bytes the highest of the share; - is stdout\n"
        "  --quiet     only the closing table\n\n"
        "Without a trace or workload: " OPTIONS_DEMO_TRACE " with --memory " OPTIONS_DEMO_MEMORY
        " --verify.\n"
        "Ends with 0 if vmmcache survived (and verified) everywhere, 1 if not, 2 for bad usage or\n"
        "a bad trace.\n",
        out);
}
