/* vmm_wait_stream(): the host waits for the work of one stream. */
#define _GNU_SOURCE
#include "support/graph_support.h"
#include "support/thread_support.h"

#include <string.h>

#define LARGE     (8 * MIB)
#define NO_STREAM ((vmm_stream)2) /* CU_STREAM_PER_THREAD */

static vmm_status stream_wait(struct cache_test *test, unsigned stream)
{
    return vmm_wait_stream(test->cache, test->streams[stream]);
}

/* Records an event of all work that a stream has now. */
static void *event_record(struct cache_test *test, unsigned stream)
{
    void *event;
    assert_ok(vmm__driver_event_create(test->driver, &event));
    assert_ok(vmm__driver_event_record(test->driver, event, test->streams[stream]));
    return event;
}

static vmm_status event_end(struct cache_test *test, void *event)
{
    vmm_status status = vmm__driver_event_query(test->driver, event);
    assert_ok(vmm__driver_event_destroy(test->driver, event));
    return status;
}

CACHE_TEST(a_wait_for_a_stream_outlasts_its_work)
{
    enum { DELAY_NS = 20 * 1000 * 1000 };
    void *block = block_alloc(test, LARGE, 1);
    block_fill(test, block, LARGE, 5, 1); /* loads the kernels */
    assert_ok(stream_wait(test, 1));
    assert_ok(vmm__driver_delay(test->driver, DELAY_NS, test->streams[1]));
    void *event = event_record(test, 1);
    assert_status(vmm__driver_event_query(test->driver, event), VMM__PENDING);
    assert_ok(stream_wait(test, 1));
    assert_ok(event_end(test, event));
    assert_ok(stream_wait(test, 1)); /* there is nothing to wait for */
}

CACHE_TEST(a_wait_for_a_stream_is_not_one_for_another)
{
    void *busy = block_alloc(test, LARGE, 1);
    bool is_sure = flight_begin(test, busy, LARGE, 1);
    void *event = event_record(test, 1);
    void *block = block_alloc(test, LARGE, 2);
    block_fill(test, block, LARGE, 5, 2);
    assert_ok(stream_wait(test, 2));
    vmm_status status = event_end(test, event);
    assert_true(status == VMM__PENDING || (status == VMM_OK && !is_sure));
}

/* The cache need not have seen the stream. */
CACHE_TEST(a_wait_for_a_stream_without_blocks_works)
{
    void *block = block_alloc(test, LARGE, 0);
    block_fill(test, block, LARGE, 5, 3);
    void *event = event_record(test, 3);
    assert_ok(stream_wait(test, 3));
    assert_ok(event_end(test, event));
    assert_int_equal(cache_stats(test).streams, 1);
}

CACHE_TEST(a_wait_for_the_default_stream_works_by_both_names)
{
    void *block = block_alloc(test, LARGE, 0);
    for (uintptr_t name = 0; name <= 1; name++) {
        block_fill(test, block, LARGE, 5, 0);
        void *event = event_record(test, 0);
        assert_ok(vmm_wait_stream(test->cache, (vmm_stream)name));
        assert_ok(event_end(test, event));
    }
}

/* With clocks of streams, the work of the stream is all that its free memory waits for. */
CACHE_TEST(declared_memory_of_a_stream_goes_back_after_the_wait)
{
    cache_restart_with(test, .reuse = VMM_REUSE_DECLARED);
    void *block = block_alloc(test, LARGE, 1);
    block_fill(test, block, LARGE, 5, 1);
    block_free(test, block);
    assert_ok(stream_wait(test, 1));
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void wait_refused(struct cache_test *test, vmm_stream stream, const char *why)
{
    uint64_t stalls = cache_stats(test).stalls;
    assert_status(vmm_wait_stream(test->cache, stream), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_wait_stream: "));
    assert_non_null(strstr(vmm_last_error(), why));
    assert_int_equal(cache_stats(test).stalls, stalls);
}

CACHE_TEST(a_stream_in_a_capture_is_not_waited_for)
{
    void *block = block_alloc(test, LARGE, 2);
    capture_begin(test, 1);
    wait_refused(test, test->streams[1], "a capture of stream");
    block_fill(test, block, LARGE, 5, 2);
    void *event = event_record(test, 2);
    assert_ok(stream_wait(test, 2));
    assert_ok(event_end(test, event));
    capture_end(test, 1);
    assert_ok(stream_wait(test, 1));
}

CACHE_TEST(a_capture_without_announcement_is_seen)
{
    capture_begin_silently(test, 1);
    wait_refused(test, test->streams[1], "a capture of stream");
    capture_end(test, 1);
    assert_ok(stream_wait(test, 1));
}

static void *announce(void *context)
{
    struct cache_test *test = context;
    return vmm_capture_announce(test->cache, test->streams[1]) == VMM_OK ? test : NULL;
}

/* An announcement of the calling thread would end with its next call. */
CACHE_TEST(a_stream_that_another_thread_announced_is_not_waited_for)
{
    struct staying_thread announcer;
    thread_stay(&announcer, announce, test);
    wait_refused(test, test->streams[1], "a capture of stream");
    assert_ok(vmm_capture_retract(test->cache, test->streams[1]));
    assert_non_null(thread_leave(&announcer));
    assert_ok(stream_wait(test, 1));
}

CACHE_TEST(the_stream_of_each_thread_is_not_waited_for)
{
    wait_refused(test, NO_STREAM, "CU_STREAM_PER_THREAD");
}

CACHE_MAIN()
