/*
 * Clocks in every order of their steps: the code of vm/clock, vm/captures and vm/events, compiled here with atomic
 * operations, locks and driver calls that pass control to a scheduler (support/explorer_support.h). Two or three
 * threads free memory, tick, ask, let memory leave its stream, and capture. In each order, no memory may leave
 * while work that was submitted before its free is unfinished, and no announced capture may be spoiled. The device
 * is the worst that the events allow: a queried event may be complete at once, and then only the work that it
 * covers has finished. Negative controls: without one of the rules a scenario must fail.
 */
#define _GNU_SOURCE
#include "support/explorer_support.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/hostmem.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/time.h"
#include "driver/driver.h"

#include <string.h>

enum control {
    CONTROL_NONE,
    CONTROL_STAMP_EARLY,   /* memory is stamped with an epoch from before its last work */
    CONTROL_STAMP_LATE,    /* memory is free before it has its stamp */
    CONTROL_RECORD_FIRST,  /* an event is recorded before the clock moves on */
    CONTROL_CHECK_OUTSIDE, /* the clock asks about captures outside of their lock */
    CONTROL_NOT_ANNOUNCED, /* a capture that no net holds */
    CONTROL_NO_END         /* a stream ends without a word to a clock of streams */
};
static enum control control;

/* ---- The device ------------------------------------------------------------------------------ */

/* Streams: the default one, A and B that the cache knows, C that it does not, and the one that a clock joins on. */
enum { STREAM_DEFAULT, STREAM_A, STREAM_B, STREAM_C, STREAM_JOIN, STREAMS, EVENTS_MOST = 12 };
#define HANDLE(stream) ((vmm_stream)(uintptr_t)((stream) == 0 ? 0 : 0x100 + (stream)))

struct model_event {
    uint64_t covers[STREAMS];
    bool is_captured;
};

static struct {
    uint64_t finished[STREAMS];
    uint64_t clocks[STREAMS]
                   [STREAMS]; /* what the work of a stream comes after; of itself: submitted */
    bool is_captured[STREAMS];
    bool is_destroyed[STREAMS];
    bool was_spoiled[STREAMS];
    struct model_event events[EVENTS_MOST];
    unsigned event_count;
    unsigned waits; /* queries that may still find an event incomplete */
} device;

static unsigned stream_of(vmm_stream handle)
{
    return handle == NULL ? STREAM_DEFAULT : (unsigned)((uintptr_t)handle - 0x100);
}

static uint64_t submitted(unsigned stream)
{
    return device.clocks[stream][stream];
}

static void work_submit(unsigned stream)
{
    explorer_step();
    device.clocks[stream][stream]++;
}

static void merge(uint64_t *into, const uint64_t *from)
{
    for (unsigned i = 0; i < STREAMS; i++)
        into[i] = vmm__max(into[i], from[i]);
}

static vmm_status model_capturing(struct driver *driver, vmm_stream stream, bool *is_capturing)
{
    (void)driver;
    explorer_step();
    if (device.is_destroyed[stream_of(stream)])
        return VMM_ERR_INVALID_ARGUMENT;
    *is_capturing = device.is_captured[stream_of(stream)];
    return VMM_OK;
}

static vmm_status model_captures(struct driver *driver, const vmm_stream *streams, unsigned count,
                                 bool *is_capturing)
{
    vmm_status status = VMM_OK;
    bool is_any = false;
    for (unsigned i = 0; i < count && !is_any; i++) {
        vmm_status answer = model_capturing(driver, streams[i], &is_any);
        status = answer != VMM_OK ? answer : status;
    }
    *is_capturing = is_any;
    return is_any ? VMM_OK : status;
}

static vmm_status model_event_create(struct driver *driver, void **event)
{
    (void)driver;
    assert_true(device.event_count < EVENTS_MOST);
    *event = &device.events[device.event_count++];
    return VMM_OK;
}

static vmm_status model_event_destroy(struct driver *driver, void *event)
{
    (void)driver;
    (void)event;
    return VMM_OK;
}

/* CONTROL_RECORD_FIRST: the clock moves on after this. */
static _Atomic uint64_t *late_now;

static void late_move(void)
{
    explorer_step();
    if (late_now != NULL)
        *late_now += 1;
    late_now = NULL;
}

static vmm_status model_event_record(struct driver *driver, void *handle, vmm_stream stream)
{
    struct model_event *event = handle;
    (void)driver;
    explorer_step();
    if (device.is_destroyed[stream_of(stream)])
        return VMM_ERR_INVALID_ARGUMENT;
    event->is_captured = device.is_captured[stream_of(stream)];
    memcpy(event->covers, device.clocks[stream_of(stream)], sizeof event->covers);
    late_move();
    return VMM_OK;
}

static vmm_status model_clock_record(struct driver *driver, void *handle)
{
    struct model_event *event = handle;
    vmm_status status = VMM_OK;
    (void)driver;
    explorer_step();
    for (unsigned i = 0; i < STREAMS; i++) {
        event->covers[i] = submitted(i);
        device.was_spoiled[i] = device.was_spoiled[i] || device.is_captured[i];
        status = device.is_captured[i] ? VMM__PENDING : status;
    }
    late_move();
    return status;
}

static void all_spoil(void)
{
    for (unsigned i = 0; i < STREAMS; i++)
        device.was_spoiled[i] = true;
}

static vmm_status model_event_query(struct driver *driver, void *handle)
{
    const struct model_event *event = handle;
    (void)driver;
    explorer_step();
    if (event->is_captured)
        all_spoil();
    bool is_complete = true;
    for (unsigned i = 0; i < STREAMS; i++)
        is_complete = is_complete && device.finished[i] >= event->covers[i];
    if (!is_complete && device.waits > 0 && explorer_choose(2) == 1) {
        device.waits--;
        return VMM__PENDING;
    }
    merge(device.finished, event->covers);
    return VMM_OK;
}

static vmm_status model_event_wait(struct driver *driver, void *handle)
{
    device.waits = 0;
    return model_event_query(driver, handle);
}

static vmm_status model_device_wait(struct driver *driver)
{
    (void)driver;
    explorer_step();
    for (unsigned i = 0; i < STREAMS; i++) {
        device.finished[i] = submitted(i);
        device.was_spoiled[i] = device.was_spoiled[i] || device.is_captured[i];
    }
    explorer_step();
    return VMM_OK;
}

static vmm_status model_stream_wait(struct driver *driver, vmm_stream stream, void *handle)
{
    const struct model_event *event = handle;
    (void)driver;
    explorer_step();
    merge(device.clocks[stream_of(stream)], event->covers);
    return VMM_OK;
}

static vmm_status model_stream_create(struct driver *driver, vmm_stream *stream)
{
    (void)driver;
    *stream = HANDLE(STREAM_JOIN);
    return VMM_OK;
}

static vmm_status model_stream_end(struct driver *driver, vmm_stream stream)
{
    (void)driver;
    (void)stream;
    return VMM_OK;
}

/* ---- The code, with its atomic operations, locks and driver calls replaced ---------------------- */

enum { LOCKS_MOST = 8 };
static struct {
    const void *lock;
    bool is_taken;
} locks[LOCKS_MOST];

static unsigned lock_find(const void *lock)
{
    unsigned i = 0;
    while (locks[i].lock != lock && locks[i].lock != NULL)
        i++;
    assert_true(i + 1 < LOCKS_MOST);
    locks[i].lock = lock;
    return i;
}

/* The lock of the pool of events is a leaf without further steps under it. */
static const void *quiet_lock;

static void model_lock(const void *lock)
{
    unsigned i = lock_find(lock);
    if (lock != quiet_lock)
        explorer_step();
    while (locks[i].is_taken)
        explorer_wait_idle();
    locks[i].is_taken = true;
}

static void model_unlock(const void *lock)
{
    locks[lock_find(lock)].is_taken = false;
}

static uintptr_t model_self(void)
{
    return explorer.current + 1;
}

/* The statistics are no steps. */
static void step_at(const void *value);

static uint64_t now_add(_Atomic uint64_t *value, uint64_t add, bool is_now)
{
    if (!is_now)
        return atomic_fetch_add(value, add);
    explorer_step();
    if (control != CONTROL_RECORD_FIRST)
        return atomic_fetch_add(value, add);
    late_now = value;
    return *value;
}

static bool exchange(_Atomic bool *value, bool to)
{
    explorer_step();
    return atomic_exchange(value, to);
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_load_explicit(value, order)         (step_at(value), *(value))
#define atomic_store_explicit(value, to, order)    (step_at(value), (void)(*(value) = (to)))
#define atomic_exchange_explicit(value, to, order) exchange(value, to)
#define atomic_fetch_add_explicit(value, add, order)                                               \
    now_add(value, add, (order) == memory_order_seq_cst)
#define atomic_compare_exchange_weak_explicit(value, from, to, order, other)                       \
    (explorer_step(), atomic_compare_exchange_strong(value, from, to))
#define vmm__mutex_lock              model_lock
#define vmm__mutex_unlock            model_unlock
#define vmm__thread_self             model_self
#define vmm__driver_capturing        model_captures
#define vmm__driver_stream_capturing model_capturing
#define vmm__driver_event_create     model_event_create
#define vmm__driver_event_destroy    model_event_destroy
#define vmm__driver_event_record     model_event_record
#define vmm__driver_clock_record     model_clock_record
#define vmm__driver_event_query      model_event_query
#define vmm__driver_event_wait       model_event_wait
#define vmm__driver_device_wait      model_device_wait
#define vmm__driver_stream_wait      model_stream_wait
#define vmm__driver_stream_create    model_stream_create
#define vmm__driver_stream_end       model_stream_end
#undef VMM_ASSERT_HELD
#define VMM_ASSERT_HELD(lock) ((void)(lock))

/* Under names of their own, as the library has them, too. */
#define vmm__captures_any_locked explored_captures_any
#define vmm__captures_has_locked explored_captures_has
#define vmm__captures_lock       explored_captures_lock
#define vmm__captures_unlock     explored_captures_unlock
#define vmm__captures_announce   explored_captures_announce
#define vmm__captures_retract    explored_captures_retract
#define vmm__captures_forget     explored_captures_forget
#define vmm__events_init         explored_events_init
#define vmm__events_fini         explored_events_fini
#define vmm__event_take          explored_event_take
#define vmm__event_hold          explored_event_hold
#define vmm__event_drop          explored_event_drop
#define vmm__clock_init          explored_clock_init
#define vmm__clock_init_own      explored_clock_init_own
#define vmm__clock_fini          explored_clock_fini
#define vmm__clock_tick          explored_clock_tick
#define vmm__clock_tick_due      explored_clock_tick_due
#define vmm__clock_query         explored_clock_query
#define vmm__clock_query_all     explored_clock_query_all
#define vmm__clock_wait          explored_clock_wait
#define vmm__clock_wait_all      explored_clock_wait_all
#define vmm__clock_capture_query explored_clock_capture_query
#define vmm__clock_follow        explored_clock_follow
#define vmm__clock_follow_check  explored_clock_follow_check
#define vmm__clock_pass          explored_clock_pass
#define vmm__clock_end_begin     explored_clock_end_begin
#define vmm__clock_end           explored_clock_end
#define vmm__clock_stream_end    explored_clock_stream_end
#define vmm__clock_move          explored_clock_move
#define vmm__clock_mark          explored_clock_mark
#define vmm__clock_event_follow  explored_clock_event_follow
#define vmm__clock_event_wait    explored_clock_event_wait
#define vmm__clock_stream_wait   explored_clock_stream_wait
#define vmm__clock_check         explored_clock_check
#define first                    announcements
#include "vm/captures.c"
#undef first
#include "vm/events.c"

/* CONTROL_CHECK_OUTSIDE: the clock holds the lock only while it asks. */
static void clock_captures_lock(void)
{
    if (control != CONTROL_CHECK_OUTSIDE)
        explored_captures_lock();
}

static void clock_captures_unlock(void)
{
    if (control != CONTROL_CHECK_OUTSIDE)
        explored_captures_unlock();
}

static bool clock_captures_any(void)
{
    if (control != CONTROL_CHECK_OUTSIDE)
        return explored_captures_any();
    explored_captures_lock();
    bool any = explored_captures_any();
    explored_captures_unlock();
    return any;
}

static bool clock_captures_has(vmm_stream stream)
{
    if (control != CONTROL_CHECK_OUTSIDE)
        return explored_captures_has(stream);
    explored_captures_lock();
    bool has = explored_captures_has(stream);
    explored_captures_unlock();
    return has;
}

#undef vmm__captures_lock
#undef vmm__captures_unlock
#undef vmm__captures_any_locked
#undef vmm__captures_has_locked
#define vmm__captures_lock       clock_captures_lock
#define vmm__captures_unlock     clock_captures_unlock
#define vmm__captures_any_locked clock_captures_any
#define vmm__captures_has_locked clock_captures_has
#include "vm/clock.c"

/* ---- The world ------------------------------------------------------------------------------- */

enum { BLOCKS = 2 };

/* Memory of a stream, under the lock of its lane. */
struct block {
    struct mutex lane;
    bool is_free;
    bool has_left;
    uint64_t epoch;
    uint64_t before[STREAMS]; /* work that was submitted before the free */
};

static struct events events;
static struct clock general;
static struct clock own;
static struct block blocks[BLOCKS];
static _Atomic bool gone[STREAMS];
static struct {
    bool is_known[STREAMS];
    bool left_early;
    bool is_announced[STREAMS];
    bool spoiled_announced;
    unsigned lines;
    unsigned left; /* blocks */
} world;

static void step_at(const void *value)
{
    const struct clock *clocks[] = { &general, &own };
    for (unsigned i = 0; i < 2; i++) {
        const struct clock *clock = clocks[i];
        if (value == &clock->now || value == &clock->passed || value == &clock->kind ||
            value == &clock->covers_all)
            explorer_step();
    }
}

static bool watch_next(void *context, void **cursor, struct known_stream *out)
{
    (void)context;
    for (uintptr_t i = (uintptr_t)*cursor; i < STREAMS; i++) {
        if (!world.is_known[i])
            continue;
        *cursor = (void *)(i + 1);
        *out = (struct known_stream){ .stream = HANDLE(i), .is_gone = &gone[i] };
        return true;
    }
    return false;
}

static void watch_tell(void *context, const char *line)
{
    (void)context;
    (void)line;
    world.lines++;
}

/* ---- Steps of actors ------------------------------------------------------------------------- */

static void free_of(unsigned number, struct clock *clock, unsigned stream)
{
    struct block *block = &blocks[number];
    uint64_t early = control == CONTROL_STAMP_EARLY ? vmm__clock_now(clock) : 0;
    work_submit(stream);
    model_lock(&block->lane);
    for (unsigned i = 0; i < STREAMS; i++)
        block->before[i] = submitted(i);
    if (control == CONTROL_STAMP_LATE) {
        block->is_free = true;
        model_unlock(&block->lane);
        explorer_step();
        model_lock(&block->lane);
    }
    block->epoch = control == CONTROL_STAMP_EARLY ? early : vmm__clock_now(clock);
    block->is_free = true;
    model_unlock(&block->lane);
}

/* As a search of another stream does. */
static void leave(unsigned number, struct clock *clock)
{
    struct block *block = &blocks[number];
    model_lock(&block->lane);
    if (block->is_free && !block->has_left && vmm__clock_query(clock, block->epoch) == VMM_OK) {
        block->has_left = true;
        world.left++;
        for (unsigned i = 0; i < STREAMS; i++)
            world.left_early = world.left_early || device.finished[i] < block->before[i];
    }
    model_unlock(&block->lane);
}

static void capture(unsigned stream)
{
    world.is_announced[stream] = control != CONTROL_NOT_ANNOUNCED;
    if (world.is_announced[stream])
        assert_ok(vmm__captures_announce(NULL, HANDLE(stream)));
    explorer_step();
    device.is_captured[stream] = true;
    explorer_step();
    device.is_captured[stream] = false;
    world.spoiled_announced = world.spoiled_announced || device.was_spoiled[stream];
    explorer_step();
    (void)vmm__captures_retract(NULL, HANDLE(stream));
}

static void stream_destroy(unsigned stream)
{
    explorer_step();
    device.is_destroyed[stream] = true;
}

static void free_a(void)
{
    free_of(0, &general, STREAM_A);
}

static void free_a_and_b(void)
{
    free_of(0, &general, STREAM_A);
    free_of(1, &general, STREAM_B);
}

static void free_b(void)
{
    free_of(1, &general, STREAM_B);
}

static void free_c(void)
{
    free_of(1, &general, STREAM_C);
}

static void leave_0(void)
{
    leave(0, &general);
}

static void leave_0_twice(void)
{
    leave(0, &general);
    leave(0, &general);
}

static void leave_both(void)
{
    leave(1, &general);
    leave(0, &general);
}

static void tick(void)
{
    vmm__clock_tick(&general);
}

static void advance_and_tick(void)
{
    (void)vmm__clock_advance(&general);
    vmm__clock_due(&general);
    vmm__clock_tick_due(&general, NULL);
}

static void work_wait(void)
{
    (void)vmm__clock_wait_all(&general);
}

static void wait_now(void)
{
    (void)vmm__clock_wait(&general, vmm__clock_now(&general));
}

static void capture_c(void)
{
    capture(STREAM_C);
}

static void capture_a(void)
{
    capture(STREAM_A);
}

/* The capture is not begun: the thread asks instead. */
static void announce_and_ask(void)
{
    assert_ok(vmm__captures_announce(NULL, HANDLE(STREAM_C)));
    leave(0, &general);
}

/* Stream A frees, ends and is destroyed. */
static void free_and_end_a(void)
{
    free_of(0, &general, STREAM_A);
    if (control != CONTROL_NO_END)
        vmm__clock_stream_end(&general, HANDLE(STREAM_A));
    world.is_known[STREAM_A] = false;
    stream_destroy(STREAM_A);
}

static void free_and_lose_a(void)
{
    free_of(0, &general, STREAM_A);
    stream_destroy(STREAM_A);
}

static void free_own(void)
{
    free_of(0, &own, STREAM_A);
}

static void leave_own_twice(void)
{
    leave(0, &own);
    leave(0, &own);
}

static void free_own_and_end(void)
{
    free_of(0, &own, STREAM_A);
    while (vmm__clock_end_begin(&own) != VMM_OK)
        explorer_wait();
    vmm__clock_end(&own);
    stream_destroy(STREAM_A);
    free_of(1, &own, STREAM_B); /* a live block of stream A, which B has used undeclared */
}

static void leave_own_both(void)
{
    leave(1, &own);
    leave(0, &own);
}

/* ---- Scenarios ------------------------------------------------------------------------------- */

struct scenario {
    void (*runs[ACTORS_MOST])(void);
    unsigned switches; /* most of them, away from an actor that could go on */
    vmm_clock_kind kind;
    bool was_freed; /* block 0, before */
};

enum { SWITCHES_MOST = 6 };

#define CONTEXT VMM_CLOCK_CONTEXT
#define JOINED  VMM_CLOCK_STREAMS

static const struct scenario scenarios[] = {
    /* frees, ticks and leaves */
    { { free_a, leave_0_twice, NULL }, 6, CONTEXT, false },
    { { free_a, tick, leave_0 }, 4, CONTEXT, false },
    { { free_a_and_b, advance_and_tick, leave_both }, 3, CONTEXT, false },
    { { free_a, free_b, leave_both }, 3, CONTEXT, false },
    { { free_a, work_wait, leave_0_twice }, 4, CONTEXT, false },
    { { free_a, wait_now, leave_0 }, 3, CONTEXT, false },
    { { free_c, leave_both, NULL }, 6, CONTEXT, true },
    /* captures */
    { { capture_c, tick, NULL }, 6, CONTEXT, false },
    { { capture_c, leave_0_twice, NULL }, 5, CONTEXT, true },
    { { capture_c, tick, leave_0 }, 3, CONTEXT, true },
    { { capture_c, capture_a, tick }, 3, CONTEXT, false },
    { { capture_c, free_a, leave_0_twice }, 3, CONTEXT, false },
    { { announce_and_ask, capture_a, tick }, 3, CONTEXT, true },
    { { capture_a, wait_now, NULL }, 6, CONTEXT, true },
    { { capture_c, work_wait, NULL }, 6, CONTEXT, true },
    { { capture_a, work_wait, leave_0 }, 3, CONTEXT, true },
    /* events of known streams */
    { { free_a, tick, leave_0 }, 3, JOINED, false },
    { { free_a, free_b, leave_both }, 3, JOINED, false },
    { { free_and_end_a, leave_0_twice, NULL }, 5, JOINED, false },
    { { free_and_lose_a, work_wait, leave_0_twice }, 3, JOINED, false },
    { { capture_a, leave_0_twice, NULL }, 5, JOINED, true },
    { { capture_a, wait_now, NULL }, 5, JOINED, true },
    /* a clock of a lane */
    { { free_own, leave_own_twice, NULL }, 6, CONTEXT, false },
    { { capture_a, free_own, leave_own_twice }, 3, CONTEXT, false },
    { { free_own_and_end, leave_own_both, NULL }, 5, CONTEXT, false },
    { { free_own_and_end, capture_c, leave_own_both }, 2, CONTEXT, false },
};

static uint64_t model_time(struct driver *driver)
{
    (void)driver;
    return 0;
}

static void world_begin(const struct scenario *scenario)
{
    static const struct clock_watch watch = { .next = watch_next, .tell = watch_tell };
    static const struct driver_ops ops = {
        .clock = model_time
    }; /* the clock does not watch long waits then */
    static struct driver driver = { .ops = &ops, .has_clock = true };
    memset(&world, 0, sizeof world);
    memset(&device, 0, sizeof device);
    memset(blocks, 0, sizeof blocks);
    memset((void *)gone, 0, sizeof gone);
    memset(locks, 0, sizeof locks);
    device.waits = 1;
    late_now = NULL;
    quiet_lock = &events.lock;
    world.is_known[STREAM_A] = true;
    world.is_known[STREAM_B] = true;
    vmm__events_init(&events, &driver);
    vmm__clock_init(&general, &driver, &events, &watch, scenario->kind);
    vmm__clock_init_own(&own, &general, HANDLE(STREAM_A));
    explorer.current = 0;
    if (scenario->was_freed) {
        enum control saved = control;
        control = CONTROL_NONE;
        free_of(0, &general, STREAM_A);
        control = saved;
    }
    explorer.actor_count = 0;
    for (unsigned i = 0; i < ACTORS_MOST && scenario->runs[i] != NULL; i++)
        actor_add(scenario->runs[i]);
}

static bool world_is_sound(void)
{
    bool is_sound = !world.left_early && !world.spoiled_announced && world.lines <= 1;
    enum control saved = control;
    control = CONTROL_NONE;
    is_sound = is_sound && vmm__clock_check(&general) == VMM_OK && vmm__clock_check(&own) == VMM_OK;
    vmm__captures_forget(NULL);
    (void)vmm__clock_fini(&own);
    (void)vmm__clock_fini(&general);
    (void)vmm__events_fini(&events);
    control = saved;
    return is_sound;
}

/* Counts the orders, and the blocks that left in them; *sound: whether all orders passed. Stops at the first that did
 * not. */
struct tally {
    unsigned long orders;
    unsigned long left;
};

static struct tally scenario_explore(const struct scenario *scenario, unsigned switches,
                                     bool *sound)
{
    struct tally tally = { .orders = 0 };
    explorer.length = 0;
    explorer.switches_most = switches;
    do {
        world_begin(scenario);
        bool all_ended = order_run();
        tally.orders++;
        tally.left += world.left;
        *sound = world_is_sound() && all_ended;
    } while (*sound && order_next());
    return tally;
}

/* Whether all scenarios pass with at most `switches` switches, or fewer where a scenario says so. */
static bool all_are_sound(unsigned switches)
{
    struct tally sum = { .orders = 0 };
    bool sound = true;
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios && sound; i++) {
        unsigned most = (unsigned)vmm__min(switches, scenarios[i].switches);
        struct tally tally = scenario_explore(&scenarios[i], most, &sound);
        if (!sound)
            print_message("scenario %u, %u switches: order %lu\n", i, most, tally.orders);
        sum.orders += tally.orders;
        sum.left += tally.left;
    }
    print_message("%lu orders, in which %lu blocks left\n", sum.orders, sum.left);
    assert_true(sum.left > 0);
    return sound;
}

/* A fault shows in the orders with the fewest switches that it needs: they come first. */
static bool is_found(enum control broken)
{
    bool sound = true;
    control = broken;
    for (unsigned switches = 1; switches <= SWITCHES_MOST && sound; switches++)
        sound = all_are_sound(switches);
    control = CONTROL_NONE;
    return !sound;
}

TEST(in_every_order_memory_leaves_in_time_and_no_capture_is_spoiled)
{
    assert_true(all_are_sound(SWITCHES_MOST));
}

TEST(a_stamp_from_before_the_work_is_found)
{
    assert_true(is_found(CONTROL_STAMP_EARLY));
}

TEST(a_stamp_that_comes_late_is_found)
{
    assert_true(is_found(CONTROL_STAMP_LATE));
}

TEST(an_event_from_before_the_clock_moves_on_is_found)
{
    assert_true(is_found(CONTROL_RECORD_FIRST));
}

TEST(a_look_for_captures_outside_of_their_lock_is_found)
{
    assert_true(is_found(CONTROL_CHECK_OUTSIDE));
}

TEST(a_capture_that_is_not_announced_is_found)
{
    assert_true(is_found(CONTROL_NOT_ANNOUNCED));
}

TEST(an_end_that_the_clock_does_not_learn_of_is_found)
{
    assert_true(is_found(CONTROL_NO_END));
}
