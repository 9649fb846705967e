/* Recordings of a cache under test, for API tests of vmm_trace_start(). */
#ifndef VMM_RECORDING_SUPPORT_H
#define VMM_RECORDING_SUPPORT_H

#include "support/cache_support.h"
#include "support/trace_support.h"

static inline const char *recording_begin(struct cache_test *test)
{
    const char *path = trace_path();
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    return path;
}

static inline struct trace_sum recording_end(struct cache_test *test, const char *path)
{
    assert_ok(vmm_trace_stop(test->cache));
    return trace_sum_of(path);
}

#endif
