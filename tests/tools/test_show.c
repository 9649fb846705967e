/* What people see: the picture, the table, the verdict and the exit code. */
#include "fragtest_support.h"

#include "fragtest/report/picture.h"
#include "fragtest/report/sizes.h"
#include "fragtest/report/table.h"

static struct trace trace = { .name = (char[]){ "gnn" }, .op_count = 1000 };
static struct replay_pass passes[2] = { { .ns_per_op = 250 }, { .ns_per_op = 40 } };

/* Survived, or died at operation 501 of 1000; memory rises in a straight line. */
static struct result result_make(const struct policy_ops *policy, bool ok)
{
    struct result result = {
        .trace = &trace,
        .policy = policy,
        .driver = "sim",
        .limit_bytes = 10 * MIB,
        .outcome = {
            .ok = ok,
            .ops = 1000,
            .ops_done = ok ? 1000 : 500,
            .peak_live_bytes = 8 * MIB,
            .lower_bound_bytes = 8 * MIB,
            .peak_reserved_bytes = 10 * MIB,
            .passes = passes,
            .pass_count = 1,
            .verified = REPLAY_VERIFIED,
        },
        .timeline = { .ops = 1000, .ops_done = ok ? 1000 : 500 },
    };
    for (uint64_t op = 0; op < result.outcome.ops_done; op++)
        timeline_note(&result.timeline, op, op * 8 * MIB / 1000, op * 10 * MIB / 1000);
    if (!ok)
        (void)snprintf(result.outcome.reason, sizeof(result.outcome.reason), "needed 9 MiB");
    return result;
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

static const char *picture_text(struct style style, bool ok)
{
    struct result result = result_make(&policy_vmmcache, ok);

    picture_draw(write_begin(), style, &result, picture_top(&result));
    return write_end();
}

TEST(test_picture_in_ascii)
{
    const char *text = picture_text((struct style){ .utf8 = false }, true);
    assert_contains(text, "gnn - vmmcache survived");
    assert_contains(text, "10.0 MiB +----");
    assert_contains(text, "100 % of 1000 operations");
    assert_true(count_of(text, "#") > count_of(text, ":"));
    assert_true(count_of(text, ":") > 20);
    for (const char *at = text; *at != '\0'; at++)
        assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
}

TEST(test_picture_marks_the_death)
{
    const char *text = picture_text((struct style){ .utf8 = true }, false);
    assert_contains(text, "died at 50 %");
    assert_int_equal(count_of(text, "✗"), 1);
    assert_contains(text, "╌");
    assert_null(strchr(text, '\033'));
    text = picture_text((struct style){ .utf8 = true, .colour = true }, false);
    assert_contains(text, "\033[1;31m✗\033[0m");
}

TEST(test_picture_fits_a_terminal)
{
    static const unsigned widths[] = { 40, 41, 57, 80, 100, 143, 500 };
    const char *text = picture_text((struct style){ .utf8 = false }, true);
    assert_int_equal(widest_line(text), 77);
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        unsigned width = widths[i];
        for (int ok = 0; ok < 2; ok++) {
            text = picture_text((struct style){ .utf8 = true, .colour = true, .width = width }, ok);
            assert_int_equal(widest_line(text), width < 143 ? width : 143);
            assert_contains(text, "100 %");
            assert_int_equal(count_of(text, "✗"), 1 - ok);
        }
    }
}

TEST(test_legend_fits_a_terminal)
{
    picture_legend(write_begin(), (struct style){ .utf8 = true, .width = 40 });
    const char *text = write_end();
    assert_true(widest_line(text) <= 40);
    assert_contains(text, "█ live   ");
    assert_contains(text, "✗ out of memory\n");
}

/* A table that is too wide is folded: each part begins with the policies, and nothing is lost. */
TEST(test_table_folds)
{
    struct result results[2] = { result_make(&policy_block_splitting, false),
                                 result_make(&policy_vmmcache, true) };
    struct table_columns columns = { .least = true, .trims = true, .compacts = true };
    static const char *const headers[] = {
        "outcome",       "peak live",    "peak reserved", "footprint", "least", "after trim",
        "after compact", "driver calls", "stalls",        "driver ms", "ns/op", "views",
        "places max",    "stitches",     "planning",      "verified"
    };
    results[1].outcome.pass_count = 2;
    results[1].least_bytes = 9 * MIB;
    (void)snprintf(results[0].outcome.reason, sizeof(results[0].outcome.reason),
                   "needed 9.00 MiB contiguous; 1.00 MiB free in 7 pieces, largest 300 KiB");
    for (unsigned width = 40; width < 200; width += 7) {
        FILE *out = write_begin();
        table_write(out, width, results, 2, &columns);
        verdict_write(out, width, results, 2);
        const char *text = write_end();
        assert_true(widest_line(text) <= width);
        unsigned parts = count_of(text, "policy  ");
        assert_int_equal(count_of(text, "vmmcache   "), parts);
        assert_true(width < 100 ? parts > 1 : parts >= 1);
        for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
            assert_true(count_of(text, headers[i]) >= 1);
        assert_contains(text, "9.00 MiB (1.125)");
        assert_contains(text, "250, then 40");
    }
}

TEST(test_table)
{
    struct result results[2] = { result_make(&policy_block_splitting, false),
                                 result_make(&policy_vmmcache, true) };
    results[1].outcome.pass_count = 2;
    results[1].least_bytes = 9 * MIB;
    table_write(write_begin(), 0, results, 2, &(struct table_columns){ .least = true });
    const char *text = write_end();
    assert_contains(text, "gnn, 1000 operations, limit 10.0 MiB");
    assert_contains(text, "block-splitting  died at 501/1000");
    assert_contains(text, "vmmcache         survived");
    assert_contains(text, "1.250");
    assert_contains(text, "9.00 MiB (1.125)");
    assert_contains(text, "250, then 40");
    assert_contains(text, "  block-splitting: needed 9 MiB\n");
    assert_null(strstr(text, "lower bound"));
    assert_null(strstr(text, "after trim"));
    assert_null(strstr(text, "after compact"));
}

TEST(test_views_in_the_table)
{
    struct result results[2] = { result_make(&policy_expandable, true),
                                 result_make(&policy_vmmcache, true) };
    results[1].outcome.has_stats = true;
    results[1].outcome.stats = (vmm_stats){
        .views = 12, .places_max = 5, .stitches = 40, .plans = 50, .planning_ns = 125000
    };
    table_write(write_begin(), 0, results, 2, &(struct table_columns){ .least = false });
    const char *text = write_end();
    assert_contains(text, "    -           -         -         -       yes");
    assert_contains(text, "   12           5        40    2.5 us       yes");
}

TEST(test_table_columns)
{
    struct trace streams = { .name = (char[]){ "four" }, .op_count = 1000, .stream_count = 4 };
    struct result results[3] = { result_make(&policy_vmmcache, true),
                                 result_make(&policy_block_splitting, false),
                                 result_make(&policy_vmmcache, true) };
    struct table_columns columns = { .trims = true, .lower_bound = true };
    results[0].outcome.trims = (struct trims_outcome){ .count = 1, .worst_excess_bytes = 3 * MIB };
    results[1].trace = &streams;
    results[2].trace = &streams;
    results[2].outcome.lower_bound_bytes = 9 * MIB;
    table_write(write_begin(), 0, results, 3, &columns);
    const char *text = write_end();
    assert_int_equal(count_of(text, "after trim"), 2);
    assert_contains(text, " +3.00 MiB ");
    assert_null(strstr(text, "least"));
    const char *second = strstr(text, "four, 1000 operations");
    assert_non_null(second);
    assert_true(strstr(text, "lower bound") > second);
    assert_contains(second, " 9.00 MiB (1.111) ");
    assert_contains(second, " 8.00 MiB ");
    assert_null(strstr(second, "8.00 MiB ("));
}

TEST(test_verdict)
{
    struct result results[2] = { result_make(&policy_block_splitting, false),
                                 result_make(&policy_vmmcache, true) };
    verdict_write(write_begin(), 0, results, 2);
    const char *text = write_end();
    assert_string_equal(text, "vmmcache survived and verified; block-splitting failed.\n");
}

TEST(test_exit_code)
{
    struct result results[2] = { result_make(&policy_block_splitting, false),
                                 result_make(&policy_vmmcache, true) };

    assert_int_equal(verdict_exit(results, 2), 0);
    assert_int_equal(verdict_exit(results, 1), 1);
    results[1].outcome.verified = REPLAY_WRONG;
    assert_int_equal(verdict_exit(results, 2), 1);
    results[1].outcome.verified = REPLAY_UNASKED;
    assert_int_equal(verdict_exit(results, 2), 0);
    results[1].outcome.ok = false;
    assert_int_equal(verdict_exit(results, 2), 1);
}

TEST(test_sizes)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        { 0, "0 B" },
        { 512, "512 B" },
        { 1000, "0.98 KiB" },
        { 1024, "1.00 KiB" },
        { 410 * MIB, "410 MiB" },
        { 1023 * MIB, "1.00 GiB" },
        { 139 * GIB, "139 GiB" },
        { UINT64_MAX, "16.0 EiB" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(size_format(cases[i].bytes).text, cases[i].text);
}
