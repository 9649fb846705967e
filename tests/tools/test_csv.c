/*
 * The CSV that plots rely on: its columns, its samples, and names that need quoting.
 */
#include "fragtest_support.h"

#include "fragtest/report/csv.h"

static void csv_expect(const struct result *results, unsigned count, const char *expected)
{
    csv_write(write_begin(), results, count);
    assert_string_equal(write_end(), expected);
}

static struct result result_of(struct trace *trace, uint64_t ops)
{
    return (struct result){ .trace = trace,
                            .policy = &policy_vmmcache,
                            .timeline = { .ops = ops, .ops_done = ops } };
}

/* Fewer operations than samples: a line for each of them. */
TEST(test_every_operation)
{
    struct trace trace = { .name = (char[]){ "gnn" } };
    struct result result = result_of(&trace, 3);

    timeline_note(&result.timeline, 0, 10, 100);
    timeline_note(&result.timeline, 1, 30, 100);
    timeline_note(&result.timeline, 2, 20, 90);
    csv_expect(&result, 1,
               "trace,policy,operation,live_bytes,reserved_bytes\n"
               "gnn,vmmcache,0,10,100\n"
               "gnn,vmmcache,1,30,100\n"
               "gnn,vmmcache,2,20,90\n");
}

/* More operations than samples: the highest of each share, each value on its own. */
TEST(test_shares)
{
    struct trace trace = { .name = (char[]){ "gnn" } };
    struct result result = result_of(&trace, 10ULL * TIMELINE_SAMPLES);

    result.timeline.ops_done = 15; /* died in the second share */
    for (uint64_t op = 0; op < 15; op++)
        timeline_note(&result.timeline, op, op, 100 - op);
    csv_expect(&result, 1,
               "trace,policy,operation,live_bytes,reserved_bytes\n"
               "gnn,vmmcache,0,9,100\n"
               "gnn,vmmcache,10,14,90\n");
}

/* Whatever the number of operations, the shares cover each of them once. */
TEST(test_shares_cover_the_run)
{
    static const uint64_t counts[] = { 1, 2, 2045, 2046, 2047, 9417, 728187, 1ULL << 36 };
    struct timeline timeline;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        timeline.ops = counts[i];
        assert_int_equal(timeline_first(&timeline, 0), 0);
        assert_int_equal(timeline_first(&timeline, TIMELINE_SAMPLES), counts[i]);
        for (unsigned sample = 0; sample < TIMELINE_SAMPLES; sample++) {
            uint64_t first = timeline_first(&timeline, sample);
            uint64_t next = timeline_first(&timeline, sample + 1);
            assert_true(first <= next);
            if (first == next)
                continue;
            assert_int_equal(timeline_sample(&timeline, first), sample);
            assert_int_equal(timeline_sample(&timeline, next - 1), sample);
        }
    }
}

TEST(test_names)
{
    struct trace traces[] = { { .name = (char[]){ "a,b" } }, { .name = (char[]){ "a\"b" } } };
    struct result results[] = { result_of(&traces[0], 1), result_of(&traces[1], 1) };

    csv_expect(results, 2,
               "trace,policy,operation,live_bytes,reserved_bytes\n"
               "\"a,b\",vmmcache,0,0,0\n"
               "\"a\"\"b\",vmmcache,0,0,0\n");
}
