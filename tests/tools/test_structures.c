/* The ordered set against a plain array, the built-in workloads, and the names that are near a mistyped one. */
#include "fragtest_support.h"

#include "fragtest/cli/nearest.h"
#include "fragtest/policies/ordered.h"
#include "fragtest/trace/random.h"
#include "fragtest/trace/workload.h"

/* ---- Ordered set ----------------------------------------------------------------------------- */

enum { NODES = 400 };

struct model {
    struct ordered set;
    struct ordered_node nodes[NODES];
    bool in[NODES];
};

static bool pair_below(uint64_t major, uint64_t minor, const struct ordered_node *node)
{
    return major < node->major || (major == node->major && minor < node->minor);
}

/* The node that an array scan finds: the first at or after the pair, or the last before it. */
static struct ordered_node *model_find(struct model *model, uint64_t major, uint64_t minor,
                                       bool below)
{
    struct ordered_node *best = NULL;

    for (unsigned i = 0; i < NODES; i++) {
        struct ordered_node *node = &model->nodes[i];
        bool node_is_below =
            !pair_below(major, minor, node) && (node->major != major || node->minor != minor);
        if (!model->in[i] || node_is_below != below)
            continue;
        if (best == NULL || pair_below(best->major, best->minor, node) == below)
            best = node;
    }
    return best;
}

TEST(test_ordered_set)
{
    static struct model model;
    uint64_t seed = 5;

    for (unsigned i = 0; i < NODES; i++)
        model.nodes[i] = (struct ordered_node){ .major = i % 37, .minor = i };
    for (unsigned step = 0; step < 20000; step++) {
        unsigned at = (unsigned)random_between(&seed, 0, NODES - 1);
        if (model.in[at])
            ordered_remove(&model.set, &model.nodes[at]);
        else
            ordered_insert(&model.set, &model.nodes[at]);
        model.in[at] = !model.in[at];
        uint64_t major = random_between(&seed, 0, 38);
        uint64_t minor = random_between(&seed, 0, NODES);
        assert_ptr_equal(ordered_at_least(&model.set, major, minor),
                         model_find(&model, major, minor, false));
        assert_ptr_equal(ordered_below(&model.set, major, minor),
                         model_find(&model, major, minor, true));
    }
    unsigned count = 0;
    for (struct ordered_node *node = ordered_first(&model.set); node != NULL; count++) {
        struct ordered_node *next = ordered_after(&model.set, node);
        assert_true(next == NULL || pair_below(node->major, node->minor, next));
        node = next;
    }
    for (unsigned i = 0; i < NODES; i++)
        count -= model.in[i];
    assert_int_equal(count, 0);
}

/* ---- Workloads ------------------------------------------------------------------------------- */

TEST(test_workloads)
{
    static const char *const names[] = { "steady", "varlen", "serving", "sawtooth", "offload" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct trace first;
        struct trace second;
        assert_string_equal(workload_name((unsigned)i), names[i]);
        assert_true(workload_make(names[i], &first));
        assert_true(workload_make(names[i], &second));
        assert_string_equal(first.name, names[i]);
        assert_true(first.op_count > 5000);
        assert_true(first.peak_live_bytes > 500 * MIB && first.peak_live_bytes < 2 * GIB);
        assert_int_equal(first.op_count, second.op_count);
        assert_memory_equal(first.ops, second.ops, first.op_count * sizeof(first.ops[0]));
        for (uint32_t k = 0; k < first.block_count; k++)
            assert_true(first.blocks[k].bytes == second.blocks[k].bytes);
        assert_int_equal(first.stream_count, strcmp(names[i], "serving") == 0 ? 4 : 1);
        trace_free(&first);
        trace_free(&second);
    }
}

/* 12 blocks of 1 GiB, six of them freed, then the 6 GiB again in larger and in smaller blocks. */
TEST(test_alternate)
{
    struct trace trace;

    assert_true(workload_make("alternate:1GiB", &trace));
    assert_int_equal(trace.block_count, 12 + 11 + 8);
    assert_int_equal(trace.op_count, trace.block_count + 6);
    assert_true(trace.live_bytes == 12 * GIB && trace.peak_live_bytes == 12 * GIB);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(trace.ops[i], i << 1);
        assert_int_equal(trace.blocks[i].live, i % 2);
    }
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(trace.ops[12 + i], 2 * i << 1 | 1);
    trace_free(&trace);
    assert_true(workload_make("alternate:64KiB", &trace));
    assert_int_equal(trace.block_count, (12 << 14) + 11 + 8);
    trace_free(&trace);
    assert_false(workload_make("alternate:SIZE", &trace));
}

TEST(test_unknown_workload)
{
    struct trace trace;

    assert_false(workload_make("idle", &trace));
}

static void near_expect(const char *typed, const char *text)
{
    static const char *const names[] = { "alpha", "alphabet", "beta", "--gamma" };
    struct nearest_text nearest = nearest_name(typed, strlen(typed), names, 4);

    assert_string_equal(nearest.text, text);
}

TEST(test_nearest_name)
{
    char longest[80];
    const char *many[60];

    near_expect("alpah", "did you mean alpha?");
    near_expect("alphabe", "did you mean alphabet?");
    near_expect("be", "did you mean beta?");
    near_expect("--gama", "did you mean --gamma?");
    near_expect("omega-minus", "choose from alpha, alphabet, beta, --gamma");
    near_expect("", "choose from alpha, alphabet, beta, --gamma");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    near_expect(longest, "choose from alpha, alphabet, beta, --gamma");
    for (unsigned i = 0; i < 60; i++)
        many[i] = "name";
    struct nearest_text nearest = nearest_name("zz", 2, many, 60);
    assert_string_equal(nearest.text + strlen(nearest.text) - 9, "name, ...");
}
