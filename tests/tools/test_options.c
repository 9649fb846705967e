/* The command line: what every option means, and that nothing odd is let through. */
#include "fragtest_support.h"

#include "fragtest/replay/scene.h"

#define MOST_WORDS 32

struct parsed {
    struct options options;
    struct options_error error;
    enum options_outcome outcome;
    char line[512];
};

/* Parses "fragtest LINE", words parted by blanks. The result points into itself. */
static void line_parse(struct parsed *parsed, const char *line)
{
    char *words[MOST_WORDS + 1] = { "fragtest" };
    int count = 1;
    char *rest;

    (void)snprintf(parsed->line, sizeof(parsed->line), "%s", line);
    for (char *word = strtok_r(parsed->line, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < MOST_WORDS);
        words[count++] = word;
    }
    parsed->outcome = options_parse(count, words, &parsed->options, &parsed->error);
}

static void line_accept(struct parsed *parsed, const char *line)
{
    line_parse(parsed, line);
    if (parsed->outcome != OPTIONS_RUN)
        fail_msg("\"%s\": %s", line, parsed->error.text);
}

TEST(test_no_arguments)
{
    struct parsed parsed;

    line_accept(&parsed, "");
    assert_int_equal(parsed.options.driver, VMM_DRIVER_DEFAULT);
    assert_int_equal(parsed.options.source_count, 1);
    assert_string_equal(parsed.options.sources[0].name, "encoder_streams");
    assert_false(parsed.options.sources[0].is_workload);
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        assert_true(parsed.options.policies[i]);
    assert_int_equal(parsed.options.passes, 1);
    assert_true(parsed.options.verify);
    assert_false(parsed.options.least);
    assert_int_equal(parsed.options.trims, 0);
    assert_int_equal(parsed.options.compacts, 0);
    assert_int_equal(parsed.options.jitter, 0);
    assert_int_equal(parsed.options.settings.footprint_permille, 0);
    assert_int_equal(parsed.options.settings.reuse, VMM_REUSE_ANY_USE);
    assert_int_equal(parsed.options.settings.compaction, VMM_OFF);
    assert_int_equal(policy_limit(parsed.options.memory, 1000), 1050);
}

TEST(test_all_options)
{
    struct parsed parsed;

    line_accept(&parsed, "--driver sim --trace a.gz --workload steady --trace=b --policy "
                         "vmmcache,expandable --memory 1644MiB --passes 3 --lag 1000 --least "
                         "--json out.json --timeline=out.csv --quiet --trims 100 --footprint=50 "
                         "--reuse stream_wait --compaction on --compacts 7 --jitter=10");
    assert_int_equal(parsed.options.driver, VMM_DRIVER_SIM);
    assert_int_equal(parsed.options.source_count, 3);
    assert_string_equal(parsed.options.sources[0].name, "a.gz");
    assert_true(parsed.options.sources[1].is_workload);
    assert_string_equal(parsed.options.sources[2].name, "b");
    assert_false(parsed.options.policies[0]);
    assert_true(parsed.options.policies[1] && parsed.options.policies[2]);
    assert_int_equal(parsed.options.passes, 3);
    assert_int_equal(parsed.options.lag, 1000);
    assert_int_equal(parsed.options.trims, 100);
    assert_int_equal(parsed.options.compacts, 7);
    assert_int_equal(parsed.options.jitter, 10);
    assert_int_equal(parsed.options.settings.footprint_permille, 50);
    assert_int_equal(parsed.options.settings.reuse, VMM_REUSE_STREAM_WAIT);
    assert_int_equal(parsed.options.settings.compaction, VMM_ON);
    assert_true(parsed.options.least && parsed.options.quiet);
    assert_false(parsed.options.verify);
    assert_string_equal(parsed.options.json, "out.json");
    assert_string_equal(parsed.options.timeline, "out.csv");
    assert_true(policy_limit(parsed.options.memory, 1000) == 1644 * MIB);
}

TEST(test_memory)
{
    static const struct {
        const char *line;
        uint64_t limit; /* for a peak of 1000000 bytes, rounded down */
    } cases[] = {
        { "--trace a", 0 },
        { "--trace a --memory none", 0 },
        { "--memory none", 0 },
        { "--memory 110%", 1100000 },
        { "--memory 100.5%", 1005000 },
        { "--memory 8GiB", 8 * GIB },
        { "--memory 2.5G", 5 * GIB / 2 },
        { "--memory 12345678", 12345678 },
    };
    struct parsed parsed;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        line_accept(&parsed, cases[i].line);
        uint64_t limit = policy_limit(parsed.options.memory, 1000000);
        assert_true(limit <= cases[i].limit && limit + 1 >= cases[i].limit);
    }
}

TEST(test_settings)
{
    static const struct {
        const char *line;
        struct policy_settings settings;
    } cases[] = {
        { "--footprint 1", { .footprint_permille = 1, .compaction = VMM_OFF } },
        { "--footprint 1000", { .footprint_permille = 1000, .compaction = VMM_OFF } },
        { "--footprint any", { .footprint_permille = VMM_FOOTPRINT_ANY, .compaction = VMM_OFF } },
        { "--reuse stream_wait --reuse any_use", { .compaction = VMM_OFF } },
        { "--compaction off", { .compaction = VMM_OFF } },
        { "--compaction off --compaction on", { .compaction = VMM_ON } },
    };
    struct parsed parsed;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        line_accept(&parsed, cases[i].line);
        const struct policy_settings *settings = &parsed.options.settings;
        assert_int_equal(settings->footprint_permille, cases[i].settings.footprint_permille);
        assert_int_equal(settings->reuse, VMM_REUSE_ANY_USE); /* the last word, or the default */
        assert_int_equal(settings->compaction, cases[i].settings.compaction);
    }
}

TEST(test_workloads_with_a_size)
{
    struct parsed parsed;

    line_accept(&parsed, "--workload alternate:2MiB --workload=alternate:64K");
    assert_int_equal(parsed.options.source_count, 2);
    assert_true(parsed.options.sources[0].is_workload);
    assert_string_equal(parsed.options.sources[1].name, "alternate:64K");
}

TEST(test_each_reuse)
{
    static const char *const lines[] = { "--reuse any_use", "--reuse declared",
                                         "--reuse stream_wait" };
    struct parsed parsed;

    for (unsigned i = 0; i < 3; i++) {
        line_accept(&parsed, lines[i]);
        assert_int_equal(parsed.options.settings.reuse, VMM_REUSE_ANY_USE + i);
    }
}

TEST(test_scenes)
{
    static const struct {
        const char *line;
        const struct scene *scene;
        uint64_t bytes;
        uint64_t limit; /* for a whole of 1000 bytes */
    } cases[] = {
        { "--workload sleep", &scene_sleep, 512 * MIB, 600 },
        { "--workload sleep:8MiB", &scene_sleep, 8 * MIB, 600 },
        { "--workload sleep:1024GiB --memory 100%", &scene_sleep, 1024 * GIB, 1000 },
        { "--workload neighbours", &scene_neighbours, 192 * MIB, 1500 },
        { "--workload=neighbours:32MiB", &scene_neighbours, 32 * MIB, 1500 },
        { "--workload neighbours:4GiB --driver host", &scene_neighbours, 4 * GIB, 1500 },
        { "--workload unrecorded --driver host --memory 90%", &scene_unrecorded, 0, 900 },
        { "--workload unrecorded", &scene_unrecorded, 0, 0 },
    };
    struct parsed parsed;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        line_accept(&parsed, cases[i].line);
        assert_ptr_equal(parsed.options.scene, cases[i].scene);
        assert_int_equal(parsed.options.scene_bytes, cases[i].bytes);
        assert_int_equal(parsed.options.source_count, 0);
        assert_int_equal(policy_limit(parsed.options.memory, 1000), cases[i].limit);
    }
}

TEST(test_help)
{
    struct parsed parsed;

    line_parse(&parsed, "--driver sim -h");
    assert_int_equal(parsed.outcome, OPTIONS_HELP);
    line_parse(&parsed, "--version");
    assert_int_equal(parsed.outcome, OPTIONS_VERSION);
    line_parse(&parsed, "--workload list --quiet");
    assert_int_equal(parsed.outcome, OPTIONS_WORKLOADS);
    line_parse(&parsed, "--driver sim --help");
    assert_int_equal(parsed.outcome, OPTIONS_HELP);
}

static const struct {
    const char *line;
    const char *part;
} refusals[] = {
    { "--fast", "unknown option \"--fast\"" },
    { "-v", "unknown option" },
    { "trace.gz", "unknown option \"trace.gz\"" },
    { "--traces a", "unknown option" },
    { "--quiet=1", "unknown option" },
    { "--driver", "--driver needs a value" },
    { "--driver=", "--driver needs a value" },
    { "--driver gpu", "--driver takes auto, cuda, host or sim" },
    { "--workload idle", "--workload knows no \"idle\"" },
    { "--policy best", "--policy knows no \"best\"" },
    { "--policy vmmcache,", "--policy knows no \"\"" },
    { "--policy vmm", "--policy knows no \"vmm\"" },
    { "--memory lots", "--memory takes" },
    { "--memory 110", "less than a chunk" },
    { "--memory 8Gb", "--memory takes" },
    { "--memory -1", "--memory takes" },
    { "--memory 0", "--memory takes" },
    { "--memory 0%", "--memory takes" },
    { "--memory %", "--memory takes" },
    { "--memory 1e3", "--memory takes" },
    { "--memory 99999999999999999999", "--memory takes" },
    { "--passes 0", "--passes takes a whole number from 1" },
    { "--passes 1.5", "--passes takes" },
    { "--passes 1x", "--passes takes" },
    { "--passes 1001", "--passes takes" },
    { "--driver sim --lag -1", "--lag takes" },
    { "--driver sim --lag 99999999999999999999", "--lag takes" },
    { "--driver host --lag 5", "--lag needs --driver sim" },
    { "--lag 5", "--lag needs --driver sim" },
    { "--timeline", "--timeline needs a value" },
    { "--trims 0", "--trims takes a whole number from 1 to 1000000" },
    { "--trims 1000001", "--trims takes" },
    { "--trims -3", "--trims takes" },
    { "--trims 99999999999999999999", "--trims takes" },
    { "--compacts 0", "--compacts takes a whole number from 1 to 1000000" },
    { "--jitter 0", "--jitter takes a whole number from 1 to 90" },
    { "--jitter 91", "--jitter takes" },
    { "--jitter 10%", "--jitter takes" },
    { "--workload alternate", "did you mean alternate:SIZE?" },
    { "--workload alternate:0", "--workload knows no \"alternate:0\"" },
    { "--workload alternate:2GiB", "--workload knows no" },
    { "--workload alternate:1KiB", "--workload knows no" },
    { "--workload alternate:32MiBs", "--workload knows no" },
    { "--workload steady:2MiB", "--workload knows no" },
    { "--workload sleep:2MiB", "--workload sleep:2MiB: its SIZE is 8MiB to 1024GiB" },
    { "--workload sleep:1048577MiB", "its SIZE is 8MiB to 1024GiB" },
    { "--workload sleep:8MiBs", "its SIZE is 8MiB to 1024GiB" },
    { "--workload sleepy", "--workload knows no \"sleepy\"" },
    { "--workload sleep:", "its SIZE is 8MiB to 1024GiB" },
    { "--workload neighbours:8MiB", "--workload neighbours:8MiB: its SIZE is 32MiB to 4GiB" },
    { "--workload neighbours:4097MiB", "its SIZE is 32MiB to 4GiB" },
    { "--workload neighbours:x", "its SIZE is 32MiB to 4GiB" },
    { "--workload neighbour", "did you mean neighbours[:SIZE]?" },
    { "--footprint 0", "--footprint takes a whole number from 1 to 1000, or any, not \"0\"" },
    { "--footprint 1001", "--footprint takes" },
    { "--footprint 4294967295", "--footprint takes" },
    { "--footprint any1", "--footprint takes" },
    { "--footprint 1%", "--footprint takes" },
    { "--reuse", "--reuse needs a value" },
    { "--reuse waits", "--reuse takes any_use, declared, stream_wait, not \"waits\"" },
    { "--reuse WAIT", "--reuse takes" },
    { "--reuse default", "--reuse takes" },
    { "--reuse completed", "--reuse takes" },
    { "--compaction 1", "--compaction takes on, off, not \"1\"" },
    { "--compaction auto", "--compaction takes on, off, not \"auto\"" },
    { "--compaction=of", "--compaction takes" },
    { "--compaction default", "--compaction takes" },
    { "--reuse a\nb\033[2J", "--reuse takes any_use, declared, stream_wait, not \"a?b?[2J\"" },
    { "--json - --timeline -", "cannot both go to stdout" },
    { "--workload unrecorded:2MiB", "did you mean unrecorded?" },
    { "--workload unrecorded --trace a", "--workload unrecorded runs alone" },
    { "--workload unrecorded --workload sleep", "runs alone" },
    { "--workload unrecorded --timeline a", "--workload unrecorded has no timeline" },
};

TEST(test_bad_usage)
{
    struct parsed parsed;

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        line_parse(&parsed, refusals[i].line);
        if (parsed.outcome != OPTIONS_BAD)
            fail_msg("\"%s\" was accepted", refusals[i].line);
        assert_contains(parsed.error.text, refusals[i].part);
        assert_null(strchr(parsed.error.text, '\n'));
    }
}

TEST(test_too_many_sources)
{
    char *words[2 * OPTIONS_MAX_SOURCES + 3];
    struct options options;
    struct options_error error;
    int count = 1;

    words[0] = "fragtest";
    for (int i = 0; i <= OPTIONS_MAX_SOURCES; i++) {
        words[count++] = "--trace";
        words[count++] = "a";
    }
    assert_int_equal(options_parse(count - 2, words, &options, &error), OPTIONS_RUN);
    assert_int_equal(options_parse(count, words, &options, &error), OPTIONS_BAD);
}
