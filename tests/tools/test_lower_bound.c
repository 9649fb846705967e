/* Busy memory: by hand, and against a slow count of every window. */
#include "fragtest_support.h"

#include "fragtest/trace/lower_bound.h"
#include "fragtest/trace/random.h"

static uint64_t lower_bound_of(const struct trace *trace, uint64_t lag)
{
    uint64_t peak_bytes = 0;

    assert_true(lower_bound_find(trace, lag, &peak_bytes));
    return peak_bytes;
}

/*
 * What the two streams of the second trace need right after each operation:
 *
 *   operation   + 100 0   + 60 1   - 100 0   + 10 0   - 60 1   + 90 1   + 50 0
 *   lag 0       100 0     100 60   100 60     10 60    10 60    10 90    60 90
 *   lag 1       100 0     100 60   100 60    100 60    10 60    10 90    60 90
 *   lag 4       100 0     100 60   100 60    100 60   100 60   100 90   100 90
 */
TEST(test_by_hand)
{
    /* Freed bytes of the one stream are used again at once, however long work takes. */
    static const char one_stream[] = "+ 1 100 0\n- 1\n+ 2 100 0\n- 2\n+ 3 100 0\n- 3\n";
    static const char two_streams[] = "+ 1 100 0\n+ 2 60 1\n- 1\n+ 3 10 0\n- 2\n+ 4 90 1\n"
                                      "+ 5 50 0\n";
    /* The free that the lag has not passed is counted, the one that it has passed is not. */
    static const char edge[] = "+ 1 100 0\n- 1\n+ 2 1 1\n- 2\n+ 3 60 1\n";
    static const struct {
        const char *text;
        uint64_t lag;
        uint64_t bytes;
    } cases[] = {
        { one_stream, 0, 100 },  { one_stream, 1, 100 },  { one_stream, UINT64_MAX, 100 },
        { two_streams, 0, 160 }, { two_streams, 1, 160 }, { two_streams, 2, 160 },
        { two_streams, 3, 190 }, { two_streams, 4, 190 }, { edge, 2, 101 },
        { edge, 3, 160 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trace trace = test_trace(cases[i].text);
        assert_int_equal(lower_bound_of(&trace, cases[i].lag), cases[i].bytes);
        trace_free(&trace);
    }
}

/* ---- Against a slow count -------------------------------------------------------------------- */

enum { STREAMS = 3, OPS = 400, MOST_LIVE = 40 };

static struct trace random_trace(uint64_t seed)
{
    struct trace trace;
    uint32_t live[MOST_LIVE];
    unsigned count = 0;

    assert_true(trace_init(&trace, "random"));
    for (unsigned i = 0; i < OPS; i++) {
        bool frees = count == MOST_LIVE || (count > 0 && random_between(&seed, 0, 9) < 5);
        if (frees) {
            unsigned at = (unsigned)random_between(&seed, 0, count - 1);
            assert_null(trace_add_free(&trace, live[at]));
            live[at] = live[--count];
        } else {
            assert_null(trace_add_alloc(&trace, random_between(&seed, 1, 1000),
                                        random_between(&seed, 0, STREAMS - 1), &live[count]));
            count++;
        }
    }
    return trace;
}

/* live[i]: before operation i; live[OPS]: at the end. */
static void live_count(const struct trace *trace, uint32_t stream, uint64_t *live)
{
    live[0] = 0;
    for (unsigned i = 0; i < OPS; i++) {
        const struct trace_block *block = &trace->blocks[trace_op_block(trace->ops[i])];
        uint64_t bytes = block->stream == stream ? block->bytes : 0;
        live[i + 1] = trace_op_frees(trace->ops[i]) ? live[i] - bytes : live[i] + bytes;
    }
}

/* For each operation, the highest of each stream's live bytes before and after it and the `lag`
 * operations before it. */
static uint64_t lower_bound_slowly(const struct trace *trace, unsigned lag)
{
    static uint64_t live[STREAMS][OPS + 1];
    uint64_t peak = 0;

    for (uint32_t stream = 0; stream < STREAMS; stream++)
        live_count(trace, stream, live[stream]);
    for (unsigned i = 0; i < OPS; i++) {
        uint64_t total = 0;
        for (uint32_t stream = 0; stream < STREAMS; stream++) {
            uint64_t most = 0;
            for (unsigned at = i > lag ? i - lag : 0; at <= i + 1; at++)
                most = live[stream][at] > most ? live[stream][at] : most;
            total += most;
        }
        peak = total > peak ? total : peak;
    }
    return peak;
}

TEST(test_random_traces)
{
    static const unsigned lags[] = { 0, 1, 2, 5, 17, 60, 399, 400, 1000 };

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct trace trace = random_trace(seed);
        assert_int_equal(lower_bound_of(&trace, 0), trace.peak_live_bytes);
        for (size_t i = 0; i < sizeof(lags) / sizeof(lags[0]); i++)
            assert_int_equal(lower_bound_of(&trace, lags[i]), lower_bound_slowly(&trace, lags[i]));
        trace_free(&trace);
    }
}
