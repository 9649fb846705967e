/*
 * The two baselines against the real ones: what PyTorch 2.11 reserved at most on an H200 for the
 * same traces (data/peers.csv). A weak baseline would be a lie.
 */
#include "fragtest_support.h"

#include "fragtest/replay/replay.h"
#include "fragtest/report/sizes.h"
#include "fragtest/trace/bundled_traces.h"

#include <math.h>

#define NATIVE_PERCENT     2.0
#define EXPANDABLE_PERCENT 3.0
#define MOST_PEERS         16

struct peer {
    char trace[64];
    unsigned ops;
    double peak_live_mib;
    double native_mib;
    double expandable_mib;
};

static struct peer peers[MOST_PEERS];
static unsigned peer_count;

static int peers_read(void **state)
{
    static const char columns[] = "trace,ops,peak_live_mib,native_reserved_mib,native_least_mib,"
                                  "expandable_reserved_mib,";
    FILE *file = fopen(VMM_TEST_DATA_DIR "/peers.csv", "r");
    char line[256];

    (void)state;
    if (file == NULL || fgets(line, sizeof(line), file) == NULL)
        return -1;
    if (strncmp(line, columns, sizeof(columns) - 1) != 0)
        return -1;
    while (peer_count < MOST_PEERS && fgets(line, sizeof(line), file) != NULL) {
        struct peer *peer = &peers[peer_count++];
        if (sscanf(line, "%63[^,],%u,%lf,%lf,%*f,%lf", peer->trace, &peer->ops,
                   &peer->peak_live_mib, &peer->native_mib, &peer->expandable_mib) != 5)
            return -1;
    }
    (void)fclose(file);
    return peer_count > 0 ? 0 : -1;
}

static void peer_compare(const struct trace *trace, const struct policy_ops *policy,
                         struct driver *driver, double real_mib, double percent)
{
    struct replay_request request = {
        .trace = trace,
        .policy = policy,
        .driver = driver,
        .passes = 1,
        .verify = true,
    };
    struct replay_outcome outcome;

    replay_run(&request, &outcome);
    if (!outcome.ok || outcome.verified != REPLAY_VERIFIED)
        fail_msg("%s, %s: %s", trace->name, policy->name, outcome.reason);
    double mib = size_mib(outcome.peak_reserved_bytes);
    double off = 100 * (mib - real_mib) / real_mib;
    print_message("%s, %s: reserved %.1f MiB, the real one %.1f MiB, %+.2f %%\n", trace->name,
                  policy->name, mib, real_mib, off);
    assert_true(fabs(off) <= percent);
    assert_int_equal(outcome.ops_done, trace->op_count);
    replay_outcome_free(&outcome);
}

TEST(test_baselines_agree)
{
    struct driver_options options = { 0 };
    struct driver *driver;

    assert_ok(vmm__driver_open(VMM_DRIVER_SIM, &options, &driver));
    for (unsigned i = 0; i < peer_count; i++) {
        char path[4096];
        struct trace trace;
        struct trace_error error;
        bundled_trace_find(peers[i].trace, path, sizeof(path));
        if (!trace_read(path, &trace, &error))
            fail_msg("%s", error.text);
        assert_int_equal(trace.op_count, peers[i].ops);
        assert_true(fabs(size_mib(trace.peak_live_bytes) - peers[i].peak_live_mib) < 0.1);
        peer_compare(&trace, &policy_block_splitting, driver, peers[i].native_mib, NATIVE_PERCENT);
        peer_compare(&trace, &policy_expandable, driver, peers[i].expandable_mib,
                     EXPANDABLE_PERCENT);
        trace_free(&trace);
    }
    vmm__driver_close(driver);
}

TEST(test_all_traces_are_there)
{
    assert_int_equal(peer_count, 5);
}

int main(void)
{
    return tests_run(peers_read, NULL);
}
