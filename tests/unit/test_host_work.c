/*
 * The host driver's work: order within a stream, independence between streams, events, bounded
 * queues, patterns. Kernels that wait at a gate block a stream for as long as a test needs.
 */
#define _GNU_SOURCE
#include "support/host_support.h"

#include "driver/host/host.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- Gates and traces ------------------------------------------------------------------------ */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open;
    bool is_reached;
};

#define GATE_INIT                                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false                          \
    }

static void gate_kernel(void *context)
{
    struct gate *gate = context;
    pthread_mutex_lock(&gate->lock);
    gate->is_reached = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_close(struct driver *driver, struct gate *gate, vmm_stream stream)
{
    assert_ok(vmm__host_launch(driver, gate_kernel, gate, stream));
}

static void gate_reach(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    while (!gate->is_reached)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

struct trace {
    atomic_int count;
    int seen[10000];
};

struct step {
    struct trace *trace;
    int number;
};

static void step_kernel(void *context)
{
    struct step *step = context;
    int place = atomic_fetch_add(&step->trace->count, 1);
    step->trace->seen[place] = step->number;
}

/* ---- Order ----------------------------------------------------------------------------------- */

HOST_TEST(stream_runs_in_order)
{
    static struct trace trace;
    static struct step steps[10000];
    for (int i = 0; i < 10000; i++) {
        steps[i] = (struct step){ &trace, i };
        assert_ok(vmm__host_launch(driver, step_kernel, &steps[i], STREAM(77)));
    }
    assert_ok(vmm__driver_device_wait(driver));
    assert_int_equal(trace.count, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(trace.seen[i], i);
}

HOST_TEST(events_cover_work_before_their_record)
{
    struct gate first = GATE_INIT;
    struct gate second = GATE_INIT;
    void *event = event_new(driver);
    void *early = event_new(driver);
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_event_record(driver, early, STREAM(1)));
    gate_close(driver, &first, STREAM(1));
    assert_ok(vmm__driver_event_record(driver, event, STREAM(1)));
    gate_close(driver, &second, STREAM(1));
    assert_ok(vmm__driver_event_query(driver, early));
    assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
    gate_open(&first);
    gate_reach(&second);
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_event_record(driver, event, STREAM(1)));
    assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
    assert_ok(vmm__driver_event_record(driver, event, STREAM(2)));
    assert_ok(vmm__driver_event_query(driver, event));
    gate_open(&second);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_event_destroy(driver, early));
}

HOST_TEST(waiting_streams_occupy_no_worker)
{
    static struct trace trace;
    struct step late = { &trace, 1 };
    struct step free_step = { &trace, 2 };
    struct gate gate = GATE_INIT;
    void *event = event_new(driver);
    void *done = event_new(driver);
    atomic_store(&trace.count, 0);
    gate_close(driver, &gate, STREAM(1));
    assert_ok(vmm__driver_event_record(driver, event, STREAM(1)));
    for (uintptr_t other = 10; other < 110; other++) {
        assert_ok(vmm__driver_stream_wait(driver, STREAM(other), event));
        assert_ok(vmm__host_launch(driver, step_kernel, &late, STREAM(other)));
    }
    assert_ok(vmm__driver_event_record(driver, done, STREAM(10)));
    assert_ok(vmm__driver_stream_wait(driver, STREAM(10), event));
    /* On one core the only worker waits at the gate. */
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        assert_ok(vmm__host_launch(driver, step_kernel, &free_step, STREAM(2)));
        void *passed = event_new(driver);
        assert_ok(vmm__driver_event_record(driver, passed, STREAM(2)));
        assert_ok(vmm__driver_event_wait(driver, passed));
        assert_ok(vmm__driver_event_destroy(driver, passed));
        assert_int_equal(trace.count, 1);
        assert_int_equal(trace.seen[0], 2);
    }
    assert_status(vmm__driver_event_query(driver, done), VMM__PENDING);
    int before = atomic_load(&trace.count);
    gate_open(&gate);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_query(driver, done));
    assert_int_equal(trace.count, before + 100);
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_event_destroy(driver, done));
}

HOST_TEST(waits_chain_through_streams)
{
    static struct trace trace;
    static struct step steps[1000];
    struct gate gate = GATE_INIT;
    void *event = event_new(driver);
    atomic_store(&trace.count, 0);
    gate_close(driver, &gate, STREAM(1000));
    for (int i = 0; i < 1000; i++) {
        steps[i] = (struct step){ &trace, i };
        uintptr_t before = i == 0 ? 1000 : (uintptr_t)(i - 1) % 50;
        assert_ok(vmm__driver_event_record(driver, event, STREAM(before)));
        assert_ok(vmm__driver_stream_wait(driver, STREAM(i % 50), event));
        assert_ok(vmm__host_launch(driver, step_kernel, &steps[i], STREAM(i % 50)));
    }
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_int_equal(trace.count, 0);
    gate_open(&gate);
    assert_ok(vmm__driver_device_wait(driver));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(trace.seen[i], i);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

struct flood {
    struct driver *driver;
    struct trace trace;
    struct step step;
    atomic_int submitted;
};

enum { FLOOD_STEPS = 9000, QUEUE_LIMIT = 4096 };

static void *flood_main(void *argument)
{
    struct flood *flood = argument;
    for (int i = 0; i < FLOOD_STEPS; i++) {
        if (vmm__host_launch(flood->driver, step_kernel, &flood->step, STREAM(5)) != VMM_OK)
            return NULL;
        atomic_fetch_add(&flood->submitted, 1);
    }
    return flood;
}

HOST_TEST(full_queues_block_only_the_submitter)
{
    static struct flood flood;
    struct gate gate = GATE_INIT;
    pthread_t thread;
    void *result;
    flood.driver = driver;
    flood.step = (struct step){ &flood.trace, 1 };
    gate_close(driver, &gate, STREAM(5));
    assert_int_equal(pthread_create(&thread, NULL, flood_main, &flood), 0);
    while (atomic_load(&flood.submitted) < QUEUE_LIMIT - 1)
        sched_yield();
    assert_int_equal(vmm__host_launch(driver, step_kernel, &flood.step, STREAM(6)), VMM_OK);
    assert_true(atomic_load(&flood.submitted) < QUEUE_LIMIT);
    gate_open(&gate);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &flood);
    assert_ok(vmm__driver_device_wait(driver));
    assert_int_equal(flood.trace.count, FLOOD_STEPS + 1);
}

HOST_TEST(destroyed_streams_finish_their_work)
{
    static struct trace trace;
    struct step step = { &trace, 1 };
    struct gate gate = GATE_INIT;
    vmm_stream stream;
    vmm_stream other;
    void *event = event_new(driver);
    atomic_store(&trace.count, 0);
    assert_ok(vmm__driver_stream_create(driver, &stream));
    assert_ok(vmm__driver_stream_create(driver, &other));
    assert_ptr_not_equal(stream, other);
    gate_close(driver, &gate, stream);
    assert_ok(vmm__host_launch(driver, step_kernel, &step, stream));
    assert_ok(vmm__driver_event_record(driver, event, stream));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_status(vmm__driver_stream_destroy(driver, stream), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm__driver_stream_destroy(driver, other));
    assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
    gate_open(&gate);
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_int_equal(trace.count, 1);
    assert_ok(vmm__driver_event_destroy(driver, event));
}

/* ---- Patterns -------------------------------------------------------------------------------- */

HOST_TEST(check_counts_differing_units)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    unsigned char *bytes = (unsigned char *)(uintptr_t)address;
    assert_ok(vmm__driver_fill(driver, address, 10 * 512 + 3, 1234, NULL));
    assert_ok(vmm__driver_device_wait(driver));
    bytes[0] ^= 1;
    bytes[512 + 7] ^= 0x80;
    bytes[5 * 512 + 3] ^= 0x10;
    bytes[10 * 512 + 2] ^= 1;
    bytes[10 * 512 + 3] ^= 1;
    bytes[3 * 512 + 8] ^= 1;
    assert_ok(vmm__driver_check(driver, address, 10 * 512 + 3, 1234, NULL));
    assert_int_equal(mismatches(driver), 4);
    assert_ok(vmm__driver_check(driver, address, 10 * 512 + 3, 1235, NULL));
    assert_int_equal(mismatches(driver), 4 + 11);
}

HOST_TEST(fill_stays_within_the_block)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)address;
    for (uint64_t size = 1; size < 1600; size++) {
        assert_ok(vmm__driver_fill(driver, address + 4096 - size, size, 9, NULL));
        assert_ok(vmm__driver_check(driver, address + 4096 - size, size, 9, NULL));
    }
    assert_int_equal(mismatches(driver), 0);
    for (uint64_t i = 4096; i < 8192; i++)
        assert_int_equal(bytes[i], 0);
}
