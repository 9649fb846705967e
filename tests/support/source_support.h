/*
 * A source of segments for pools (vmm_segment_source): a second cache on the driver of a test, so that a segment is
 * real memory on each driver. It counts, and fails when told to.
 */
#ifndef VMM_SOURCE_SUPPORT_H
#define VMM_SOURCE_SUPPORT_H

#include "support/pool_support.h"

#include <stdatomic.h>

struct source {
    vmm_cache *cache;
    size_t shift;               /* of the address that it returns */
    void *same;                 /* returned instead; NULL: nothing */
    vmm_cache *calls;           /* a cache that the functions call; NULL: none */
    atomic_uint allocs;         /* calls that succeeded */
    atomic_uint frees;          /* the same */
    atomic_uint refusals;       /* calls to refuse */
    _Atomic(size_t) last_bytes; /* of the last call of alloc */
    _Atomic(size_t) live_bytes;
};

static inline void *source_alloc(void *context, size_t bytes, vmm_stream stream)
{
    struct source *source = context;
    void *segment = NULL;
    source->last_bytes = bytes;
    if (source->calls != NULL)
        assert_ok(vmm_poll(source->calls));
    if (source->refusals > 0) {
        source->refusals--;
        return NULL;
    }
    if (source->same == NULL &&
        vmm_alloc(source->cache, bytes + source->shift, stream, &segment) != VMM_OK)
        return NULL;
    source->allocs++;
    source->live_bytes += bytes;
    return source->same != NULL ? source->same : (char *)segment + source->shift;
}

static inline void source_free(void *context, void *segment, size_t bytes)
{
    struct source *source = context;
    if (source->calls != NULL)
        assert_ok(vmm_poll(source->calls));
    if (segment != source->same)
        assert_ok(vmm_free(source->cache, (char *)segment - source->shift));
    source->frees++;
    source->live_bytes -= bytes;
}

#define source_of(source, bytes)                                                                   \
    {                                                                                              \
        source_alloc, source_free, (source), (bytes)                                               \
    }

/* A failed test leaves its source, which the end of the test's cache calls. */
static inline struct source *source_open(struct cache_test *test)
{
    static struct source source;
    source = (struct source){ .cache = cache_second(test) };
    return &source;
}

/* Whether the source has got all segments back. */
static inline void source_close(struct source *source)
{
    assert_int_equal(source->allocs, source->frees);
    assert_int_equal(source->live_bytes, 0);
    assert_ok(vmm_destroy(source->cache));
}

/* cache_verify() beside a source, which has memory of the same driver. */
static inline void sourced_verify(struct cache_test *test)
{
    assert_ok(vmm__cache_check(test->cache));
    struct occupancy_scan scan = cache_scan(test);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.reserved_bytes.current, scan.chunk_bytes);
    assert_int_equal(stats.allocated_bytes.current, scan.live_bytes);
    assert_int_equal(stats.requested_bytes.current, scan.requested_bytes);
    assert_int_equal(stats.active_bytes.current, scan.live_bytes + scan.waiting_bytes);
    assert_int_equal(stats.allocations.current, scan.live_blocks);
    assert_int_equal(stats.idle_bytes, scan.idle_bytes);
    assert_int_equal(stats.limbo_bytes, scan.limbo_bytes);
}

#endif
