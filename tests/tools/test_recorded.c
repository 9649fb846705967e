/* fragtest reads what the library records: the same operations, the same live bytes. */
#define _GNU_SOURCE
#include "fragtest/trace/trace.h"
#include "support/made_support.h"
#include "support/test_support.h"
#include "support/trace_support.h"

#include <stdlib.h>

enum { SLOTS = 100, ROUNDS = 10000, STREAMS = 3 };

/* Reads the recording; it must have the live bytes of the cache. */
static void trace_compare(const char *path, const vmm_stats *stats, struct trace *trace)
{
    struct trace_error error;
    assert_true(trace_read(path, trace, &error));
    assert_int_equal(trace->live_bytes, stats->requested_bytes.current);
    assert_int_equal(trace->peak_live_bytes, stats->requested_bytes.peak);
}

/* Units of a reserved block are blocks, and so is each size of a resized one. */
TEST(blocks_that_grow_are_read_by_fragtest)
{
    struct trace trace;
    void *reserved;
    vmm_cache *cache = cache_with(.driver = VMM_DRIVER_SIM);
    const char *path = trace_path();
    assert_ok(vmm_trace_start(cache, path, NULL));
    assert_ok(vmm_reserve(vmm_cache_pool(cache), 64 * MIB, 4 * MIB, NULL, &reserved));
    void *block = block_in(cache, 3 * MIB, NULL);
    for (size_t i = 0; i < 16; i++) {
        assert_ok(vmm_commit(cache, reserved, i * 4 * MIB, 4 * MIB));
        assert_ok(vmm_resize(cache, block, (i + 2) * 2 * MIB + 1, &block));
    }
    assert_ok(vmm_decommit(cache, reserved, 8 * MIB, 16 * MIB));
    vmm_stats stats = stats_of(cache);
    assert_ok(vmm_trace_stop(cache));
    assert_ok(vmm_destroy(cache));
    trace_compare(path, &stats, &trace);
    assert_int_equal(trace.op_count, 16 + 1 + 2 * 16 + 4);
    assert_int_equal(trace.live_count, 12 + 1);
    trace_free(&trace);
}

static void recording_read(const char *path)
{
    void *slots[SLOTS] = { NULL };
    uint32_t operations = 0;
    vmm_cache *cache = cache_with(.driver = VMM_DRIVER_SIM);
    assert_ok(vmm_trace_start(cache, path, NULL));
    srand(1);
    for (int i = 0; i < ROUNDS; i++, operations++) {
        unsigned draw = (unsigned)rand();
        void **slot = &slots[draw % SLOTS];
        vmm_stream stream = (vmm_stream)(uintptr_t)(draw / SLOTS % STREAMS * 64);
        if (*slot == NULL) {
            assert_ok(vmm_alloc(cache, draw % 5000000, stream, slot));
            continue;
        }
        assert_ok(vmm_free(cache, *slot));
        *slot = NULL;
    }
    vmm_stats stats = stats_of(cache);
    assert_ok(vmm_trace_stop(cache));
    assert_ok(vmm_destroy(cache));
    struct trace trace;
    trace_compare(path, &stats, &trace);
    assert_int_equal(trace.op_count, operations);
    assert_int_equal(trace.live_count, stats.allocations.current);
    assert_int_equal(trace.stream_count, STREAMS);
    trace_free(&trace);
}

TEST(a_recorded_trace_is_read_by_fragtest)
{
    recording_read(trace_path());
    recording_read(trace_path_packed());
}
