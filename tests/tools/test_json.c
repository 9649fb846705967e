/*
 * The JSON that scripts rely on: every field, its type and its order, to the byte.
 */
#include "fragtest_support.h"

#include "fragtest/report/json.h"

/* Two passes that went well, with a limit and a least size. */
static struct result good_result(const struct trace *trace, struct replay_pass *passes)
{
    struct result result = {
        .trace = trace,
        .policy = &policy_vmmcache,
        .driver = "sim",
        .limit_bytes = 3 * MIB,
        .least_bytes = 3 * MIB / 2,
        .outcome = {
            .ok = true,
            .ops = 7,
            .ops_done = 7,
            .peak_live_bytes = 2 * MIB,
            .peak_busy_bytes = 7 * MIB / 2,
            .lower_bound_bytes = 5 * MIB / 2,
            .peak_reserved_bytes = 3 * MIB,
            .driver_ns = 1500000,
            .stalls = 2,
            .passes = passes,
            .pass_count = 2,
            .verified = REPLAY_VERIFIED,
            .trims = { .count = 100,
                       .over_bar = 3,
                       .worst_excess_bytes = 5 * MIB / 4,
                       .worst_live_bytes = 7 * MIB / 4,
                       .median_excess_bytes = MIB,
                       .worst_driver_ns = 2500000 },
            .compacts = { .count = 9, .over_bar = 1, .worst_excess_bytes = MIB },
            .has_stats = true,
            .stats = { .views = 1, .places = 2, .places_max = 3, .view_hits = 4, .stitches = 5,
                       .evictions = 6, .plans = 7, .planning_ns = 8 },
        },
        .settings = { .footprint_permille = 50, .reuse = VMM_REUSE_STREAM_WAIT,
                      .compaction = VMM_OFF },
    };
    passes[0] = (struct replay_pass){ .driver_ns = 1250000, .ns_per_op = 321.04 };
    passes[1] = (struct replay_pass){ .driver_ns = 250000, .ns_per_op = 40 };
    result.outcome.calls[DRIVER_CALL_create] = 1;
    result.outcome.calls[DRIVER_CALL_map] = 2;
    result.outcome.calls[DRIVER_CALL_access] = 3;
    result.outcome.calls[DRIVER_CALL_unmap] = 4;
    result.outcome.calls[DRIVER_CALL_release] = 5;
    return result;
}

static void json_expect(const struct result *results, unsigned count, const char *machine,
                        const char *expected)
{
    json_write(write_begin(), machine, results, count);
    assert_string_equal(write_end(), expected);
}

TEST(test_all_fields)
{
    struct trace trace = { .name = (char[]){ "gnn" } };
    struct replay_pass passes[2];
    struct result result = good_result(&trace, passes);

    json_expect(&result, 1, "a machine",
                "{\"machine\":\"a machine\",\"runs\":[\n"
                "{\"trace\":\"gnn\",\"policy\":\"vmmcache\",\"driver\":\"sim\","
                "\"settings\":{\"footprint_permille\":50,\"reuse\":\"stream_wait\","
                "\"compaction\":\"off\"},\"limit_mib\":3.000,"
                "\"ok\":true,\"ops\":7,\"ops_done\":7,\"peak_live_mib\":2.000,"
                "\"peak_busy_mib\":3.500,\"lower_bound_mib\":2.500,\"peak_reserved_mib\":3.000,"
                "\"footprint\":1.50000,"
                "\"over_lower_bound\":1.20000,\"least_mib\":1.500,\"trims\":100,"
                "\"trim_worst_excess_mib\":1.250,\"trim_worst_live_mib\":1.750,"
                "\"trim_median_excess_mib\":1.000,\"trim_worst_driver_ms\":2.500,"
                "\"trims_over_bar\":3,\"compacts\":9,\"compact_worst_excess_mib\":1.000,"
                "\"compact_worst_live_mib\":0.000,\"compact_median_excess_mib\":0.000,"
                "\"compact_worst_driver_ms\":0.000,\"compacts_over_bar\":1,\"driver_calls\":{"
                "\"create\":1,\"map\":2,\"access\":3,"
                "\"unmap\":4,\"release\":5},\"driver_ms\":1.500,\"ns_per_op\":[321.0,40.0],"
                "\"driver_ms_per_pass\":[1.250,0.250],\"views\":1,\"places\":2,\"places_max\":3,"
                "\"view_hits\":4,\"stitches\":5,\"evictions\":6,\"plans\":7,\"planning_ns\":8,"
                "\"stalls\":2,\"verified\":true,"
                "\"reason\":null}\n]}\n");
}

TEST(test_what_is_not_there_is_null)
{
    struct trace trace = { .name = (char[]){ "t" } };
    struct replay_pass passes[2];
    struct result result = good_result(&trace, passes);

    result.policy = &policy_expandable;
    result.limit_bytes = 0;
    result.least_bytes = 0;
    result.outcome.ok = false;
    result.outcome.ops_done = 0;
    result.outcome.pass_count = 0;
    result.outcome.trims = (struct trims_outcome){ 0 };
    result.outcome.compacts = (struct trims_outcome){ 0 };
    result.outcome.has_stats = false;
    result.outcome.verified = REPLAY_UNASKED;
    (void)snprintf(result.outcome.reason, sizeof(result.outcome.reason), "needed 2 MiB");
    json_expect(&result, 1, "m",
                "{\"machine\":\"m\",\"runs\":[\n"
                "{\"trace\":\"t\",\"policy\":\"expandable\",\"driver\":\"sim\",\"settings\":null,"
                "\"limit_mib\":null,"
                "\"ok\":false,\"ops\":7,\"ops_done\":0,\"peak_live_mib\":2.000,"
                "\"peak_busy_mib\":3.500,\"lower_bound_mib\":2.500,\"peak_reserved_mib\":3.000,"
                "\"footprint\":1.50000,"
                "\"over_lower_bound\":1.20000,\"least_mib\":null,\"trims\":0,"
                "\"trim_worst_excess_mib\":null,\"trim_worst_live_mib\":null,"
                "\"trim_median_excess_mib\":null,\"trim_worst_driver_ms\":null,"
                "\"trims_over_bar\":null,\"compacts\":0,\"compact_worst_excess_mib\":null,"
                "\"compact_worst_live_mib\":null,\"compact_median_excess_mib\":null,"
                "\"compact_worst_driver_ms\":null,\"compacts_over_bar\":null,\"driver_calls\":{"
                "\"create\":1,\"map\":2,\"access\":3,"
                "\"unmap\":4,\"release\":5},\"driver_ms\":1.500,\"ns_per_op\":[],"
                "\"driver_ms_per_pass\":[],\"views\":null,\"places\":null,\"places_max\":null,"
                "\"view_hits\":null,\"stitches\":null,\"evictions\":null,\"plans\":null,"
                "\"planning_ns\":null,\"stalls\":2,\"verified\":null,"
                "\"reason\":\"needed 2 MiB\"}\n]}\n");
}

static void settings_expect(struct policy_settings settings, const char *part)
{
    struct trace trace = { .name = (char[]){ "t" } };
    struct replay_pass passes[2];
    struct result result = good_result(&trace, passes);

    result.settings = settings;
    json_write(write_begin(), "m", &result, 1);
    assert_contains(write_end(), part);
}

TEST(test_settings)
{
    settings_expect((struct policy_settings){ .reuse = VMM_REUSE_ANY_USE, .compaction = VMM_OFF },
                    "\"settings\":{\"footprint_permille\":null,\"reuse\":\"any_use\","
                    "\"compaction\":\"off\"},");
    settings_expect((struct policy_settings){ .footprint_permille = VMM_FOOTPRINT_ANY,
                                              .reuse = VMM_REUSE_ANY_USE,
                                              .compaction = VMM_ON },
                    "\"settings\":{\"footprint_permille\":\"any\",\"reuse\":\"any_use\","
                    "\"compaction\":\"on\"},");
}

TEST(test_texts_are_escaped)
{
    json_expect(NULL, 0, "a\"b\\c\n\x01\x7F é 漢 \xFF \xC3",
                "{\"machine\":\"a\\\"b\\\\c\\u000a\\u0001\\u007f é 漢 \\ufffd \\ufffd\","
                "\"runs\":[\n]}\n");
}

/* Forms that are too long, halves of pairs of UTF-16, and what is above U+10FFFF. */
TEST(test_only_characters_of_unicode_pass)
{
    json_expect(NULL, 0, "\xE0\x80\x80 \xED\xA0\x80 \xF0\x80\x80\x80 \xF4\x90\x80\x80",
                "{\"machine\":\"\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd "
                "\\ufffd\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd\\ufffd\",\"runs\":[\n]}\n");
    json_expect(NULL, 0, "\xE0\xA0\x80 \xED\x9F\xBF \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF",
                "{\"machine\":\"\xE0\xA0\x80 \xED\x9F\xBF \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF\","
                "\"runs\":[\n]}\n");
}

TEST(test_several_runs)
{
    struct trace trace = { .name = (char[]){ "t" } };
    struct replay_pass passes[2];
    struct result results[2] = { good_result(&trace, passes), good_result(&trace, passes) };

    json_write(write_begin(), "m", results, 2);
    assert_contains(write_end(), "\"reason\":null},\n{\"trace\":\"t\"");
}
