/*
 * Orders that a history must keep where two things happen at once, or where the program uses a cache of PyTorch itself:
 * each snapshot must play back.
 *
 * The linker leads the library's calls of vmm_walk() to the function __wrap_ below.
 *
 * usage: test_torch_orders sim|host [record|debug]
 */
#define _GNU_SOURCE
#include "torch/playback.h"

#include "cache/cache.h"
#include "driver/host/host.h"
#include "driver/sim/sim.h"
#include "support/driver_choice.h"
#include "torch/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENTRIES = 4096, STORY_BYTES = 512, THREADS = 3, ROUNDS = 300 };

static const vmm_stream own = (vmm_stream)0x101, other = (vmm_stream)0x102;
static vmm_debug_mode debug = VMM_DEBUG_OFF;
static int device = -1; /* of the test that runs */

static vmm_cache *cache(void)
{
    return vmm_torch_cache(device);
}

/* ---- Stacks ---------------------------------------------------------------------------------- */

static _Atomic int64_t copies; /* of stacks that are counted */
static _Thread_local void (*stack_step)(
    void); /* what the thread's next stack does first; NULL: nothing */

static uint64_t stack_new(void)
{
    static _Atomic uint64_t number;
    void (*step)(void) = stack_step;
    stack_step = NULL;
    copies++;
    if (step != NULL)
        step();
    return ++number;
}

static void stack_count(uint64_t stack, int change)
{
    (void)stack;
    copies += change;
}

static void recording_start(void)
{
    const vmm_torch_recording wanted = { .struct_size = sizeof wanted,
                                         .entries = ENTRIES,
                                         .stack = stack_new,
                                         .free_stack = stack_new,
                                         .use = stack_count };
    assert_ok(vmm_torch_provider()->history_start(&wanted));
}

static void recording_stop(void)
{
    assert_ok(vmm_torch_history_stop());
}

/* ---- Blocks and work -------------------------------------------------------------------------- */

static void *block_new(size_t bytes)
{
    void *block = vmm_torch_try_alloc(bytes, device, own);
    assert_non_null(block);
    return block;
}

static void block_end(void *block)
{
    vmm_torch_free(block, 0, device, own);
}

static atomic_bool work_goes_on;

static void work_wait(void *context)
{
    (void)context;
    for (int i = 0; atomic_load(&work_goes_on) && i < (debug == VMM_DEBUG_ON ? 20 : 10000); i++)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* The other stream works on a block until work_end(); in debug mode, in which frees wait, not for long. */
static void work_begin(void *block)
{
    struct driver *driver = cache()->driver;
    vmm_torch_record_stream(block, other);
    atomic_store(&work_goes_on, true);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(driver, UINT64_C(1) << 40);
    else
        assert_ok(vmm__host_launch(driver, work_wait, NULL, other));
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        assert_ok(vmm__driver_fill(driver, (uintptr_t)block, 8, 7, other));
}

static void work_end(void)
{
    atomic_store(&work_goes_on, false);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(cache()->driver, 0);
    vmm_torch_reset();
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static void snapshot_check(void)
{
    const vmm_torch_snapshot *snapshot;
    assert_ok(vmm_torch_snapshot_take(device, &snapshot));
    (void)snapshot_play_back(snapshot);
    vmm_torch_snapshot_drop(snapshot);
}

static bool event_is_of_block(const vmm_torch_event *event)
{
    return event->action == VMM_TORCH_ALLOC || event->action == VMM_TORCH_FREE_REQUESTED ||
           event->action == VMM_TORCH_FREE_COMPLETED;
}

/* Requires that a snapshot plays back, and has these events of the block. */
static void story_check(const void *block, const char *wanted)
{
    const vmm_torch_snapshot *snapshot;
    char story[STORY_BYTES] = "";
    assert_ok(vmm_torch_snapshot_take(device, &snapshot));
    (void)snapshot_play_back(snapshot);
    for (uint64_t i = 0; i < snapshot->event_count; i++) {
        const vmm_torch_event *event = &snapshot->events[i];
        if (event->address != (uintptr_t)block || !event_is_of_block(event))
            continue;
        assert_true(strlen(story) + 32 < sizeof story);
        (void)strcat(strcat(story, story[0] == '\0' ? "" : " "),
                     vmm_torch_action_word(event->action));
    }
    vmm_torch_snapshot_drop(snapshot);
    assert_string_equal(story, wanted);
}

static bool is_known(const void *block)
{
    struct live_block known;
    return vmm__history_recall(&vmm__torch_devices[device].history, (uintptr_t)block, &known);
}

/* Each test has a device. */
static int device_begin(void **state)
{
    (void)state;
    device++;
    vmm_torch_free(vmm_torch_try_alloc(MIB, device, own), MIB, device, own);
    return cache() == NULL;
}

/* No test leaves a stack, nor what makes calls slower. */
static int device_end(void **state)
{
    (void)state;
    recording_stop();
    assert_int_equal(copies, 0);
    assert_false(vmm__history_knows());
    assert_int_equal(vmm__torch_mode_now(), 0);
    return 0;
}

#define ORDER_TEST(name) TEST_BETWEEN(name, device_begin, device_end)

/* ---- The stop of a recording ------------------------------------------------------------------ */

/* Frees a recorded block, during which the recording changes; returns where it was. */
static void *block_end_beside(void (*step)(void))
{
    recording_start();
    void *block = block_new(3 * MIB);
    stack_step = step;
    block_end(block);
    assert_false(is_known(block));
    return block;
}

ORDER_TEST(a_free_beside_the_stop_forgets_its_block)
{
    (void)block_end_beside(recording_stop);
}

static void recording_restart(void)
{
    recording_stop();
    recording_start();
}

ORDER_TEST(a_free_beside_a_new_recording_is_recorded)
{
    void *block = block_end_beside(recording_restart);
    story_check(block, "free_requested free_completed");
}

ORDER_TEST(an_allocation_beside_the_stop_is_not_known)
{
    recording_start();
    stack_step = recording_stop;
    void *block = block_new(3 * MIB);
    assert_false(is_known(block));
    block_end(block);
}

/* As one that waits when the recording ends. */
ORDER_TEST(a_block_that_waits_after_its_free_beside_the_stop_keeps_its_stack)
{
    recording_start();
    void *block = block_new(3 * MIB);
    work_begin(block);
    stack_step = recording_stop;
    block_end(block);
    assert_int_equal(is_known(block), debug != VMM_DEBUG_ON);
    work_end();
    assert_false(is_known(block));
}

static void *blocks_make(void *context)
{
    (void)context;
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *block = block_new((i % 7 + 1) * 700 * KIB);
        if (i % 3 == 0)
            vmm_torch_record_stream(block, other);
        block_end(block);
    }
    return NULL;
}

ORDER_TEST(frees_on_other_threads_beside_stops_leave_nothing)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, blocks_make, NULL), 0);
    for (unsigned i = 0; i < 20; i++) {
        recording_start();
        (void)nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        recording_stop();
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    vmm_torch_reset();
    assert_false(vmm__history_knows());
}

/* ---- Blocks that wait ------------------------------------------------------------------------- */

static void wait_check(size_t bytes)
{
    recording_start();
    void *block = block_new(bytes);
    work_begin(block);
    block_end(block);
    story_check(block, debug == VMM_DEBUG_ON ? "alloc free_requested free_completed"
                                             : "alloc free_requested");
    work_end();
    story_check(block, "alloc free_requested free_completed");
    recording_stop();
}

/* In debug mode, which finds out by waiting whether its bytes are as they should be, it is free at once. */
ORDER_TEST(a_block_that_others_use_is_free_after_it_has_waited)
{
    wait_check(3 * MIB);
    wait_check(100 * KIB);
    wait_check(1000);
}

static uint64_t completed_bytes(void)
{
    const vmm_torch_snapshot *snapshot;
    uint64_t bytes = 0;
    assert_ok(vmm_torch_snapshot_take(device, &snapshot));
    for (uint64_t i = 0; i < snapshot->event_count; i++)
        bytes +=
            snapshot->events[i].action == VMM_TORCH_FREE_COMPLETED ? snapshot->events[i].bytes : 0;
    vmm_torch_snapshot_drop(snapshot);
    return bytes;
}

ORDER_TEST(a_wait_from_before_the_recording_ends_with_what_was_requested)
{
    void *block = block_new(3 * MIB - 100);
    work_begin(block);
    block_end(block);
    recording_start();
    work_end();
    assert_int_equal(completed_bytes(), debug == VMM_DEBUG_ON ? 0 : 3 * MIB - 100);
}

/* Also debug mode cannot wait then. */
ORDER_TEST(a_block_of_a_captured_stream_is_told_in_order)
{
    struct driver *driver = cache()->driver;
    recording_start();
    void *block = block_new(3 * MIB);
    work_begin(block);
    assert_ok(vmm_capture_announce(cache(), own));
    assert_ok(vmm__driver_capture_begin(driver, own));
    block_end(block);
    snapshot_check();
    assert_ok(vmm__driver_capture_end(driver, own));
    assert_ok(vmm_capture_retract(cache(), own));
    snapshot_check();
    work_end();
    story_check(block, "alloc free_requested free_completed");
}

/* ---- Frees that call the program --------------------------------------------------------------- */

static uint64_t now_ns; /* of the caches */
static void *again;     /* a block that the source has allocated; NULL: none */

static uint64_t clock_read(void *context)
{
    (void)context;
    return now_ns;
}

static void *segment_new(void *context, size_t bytes, vmm_stream stream)
{
    (void)context;
    (void)stream;
    return aligned_alloc(2 * MIB, bytes);
}

/* Another thread could do so, too. */
static void segment_end(void *context, void *segment, size_t bytes)
{
    (void)context;
    (void)bytes;
    free(segment);
    again = block_new(3 * MIB);
}

static int all_streams(void *context, vmm_stream stream)
{
    (void)context;
    (void)stream;
    return 1;
}

/* Leaves a pool with an idle segment of a source. */
static void segment_make(void)
{
    static const vmm_segment_source source = { .alloc = segment_new, .free = segment_end };
    const vmm_torch_functions *torch = vmm_torch_provider();
    const vmm_pool_id id = { 1, 1 };
    assert_ok(torch->pool_use(device, id));
    assert_ok(torch->pool_source(device, id, &source));
    assert_ok(torch->pool_use_on_oom(device, id, 1)); /* so that no graph keeps its memory */
    assert_ok(torch->pool_route(device, id, all_streams, NULL));
    block_end(block_new(4 * MIB));
    assert_ok(torch->pool_unroute(device, id));
}

/* A free may find that the segment is due. */
ORDER_TEST(a_block_where_a_free_under_way_had_one_is_known)
{
    again = NULL;
    if (debug == VMM_DEBUG_ON)
        return; /* no free releases what is not the block's */
    segment_make();
    recording_start();
    for (unsigned i = 0; i < 1000 && again == NULL; i++) {
        void *block = block_new(3 * MIB);
        now_ns += 2000000;
        block_end(block);
    }
    assert_non_null(again);
    assert_true(is_known(again));
    snapshot_check();
    block_end(again);
}

/* ---- The program's own calls ------------------------------------------------------------------ */

ORDER_TEST(a_block_that_the_program_frees_itself_is_told_no_more)
{
    recording_start();
    void *block = block_new(3 * MIB);
    assert_ok(vmm_free(cache(), block));
    snapshot_check();
    vmm_torch_reset();
    snapshot_check();
    block_end(block_new(3 * MIB));
    snapshot_check();
    block = block_new(4 * MIB);
    work_begin(block);
    assert_ok(vmm_free(cache(), block));
    snapshot_check();
    work_end();
    snapshot_check();
    assert_false(is_known(block));
}

/* A block that a snapshot finds is one of the history. */
ORDER_TEST(a_block_of_the_program_is_told_until_it_is_free)
{
    void *block;
    recording_start();
    assert_ok(vmm_alloc(cache(), 3 * MIB, own, &block));
    story_check(block, "alloc");
    assert_ok(vmm_free(cache(), block));
    snapshot_check();
    block_end(block_new(3 * MIB));
    vmm_torch_reset();
    snapshot_check();
}

static void resize_check(size_t before, size_t after)
{
    recording_start();
    void *block = block_new(before);
    void *neighbour = block_new(3 * MIB);
    void *resized;
    assert_ok(vmm_resize(cache(), block, after, &resized));
    snapshot_check();
    block_end(block_new(before)); /* where it was, if it has moved */
    snapshot_check();
    block_end(resized);
    snapshot_check();
    block_end(neighbour);
    vmm_torch_reset();
    snapshot_check();
    recording_stop();
}

ORDER_TEST(a_resize_is_told_in_order)
{
    resize_check(8 * MIB, 4 * MIB);
    resize_check(4 * MIB, 24 * MIB);
    resize_check(40 * MIB, 90 * MIB);
    resize_check(3000, 200 * KIB);
}

/* ---- Reserved blocks -------------------------------------------------------------------------- */

static void *reserved_new(void)
{
    void *block;
    assert_ok(vmm_reserve(vmm_cache_pool(cache()), 64 * MIB, 4 * MIB, own, &block));
    assert_ok(vmm_commit(cache(), block, 0, 8 * MIB));
    assert_ok(vmm_commit(cache(), block, 16 * MIB, 4 * MIB));
    return block;
}

static void reserved_check(void (*end)(void *block))
{
    recording_start();
    void *block = reserved_new();
    snapshot_check();
    assert_ok(vmm_decommit(cache(), block, 4 * MIB, 4 * MIB));
    snapshot_check();
    void *resized;
    assert_ok(vmm_resize(cache(), block, 128 * MIB, &resized));
    snapshot_check();
    end(resized);
    snapshot_check();
    vmm_torch_reset();
    snapshot_check();
    recording_stop();
}

static void free_past_hooks(void *block)
{
    assert_ok(vmm_free(cache(), block));
}

ORDER_TEST(a_reserved_block_is_told_in_order)
{
    reserved_check(free_past_hooks);
    reserved_check(block_end);
}

ORDER_TEST(a_reserved_block_that_others_use_is_told_in_order)
{
    recording_start();
    void *block = reserved_new();
    work_begin(block);
    block_end(block);
    snapshot_check();
    work_end();
    snapshot_check();
}

/* ---- The program's own listener --------------------------------------------------------------- */

struct heard {
    atomic_int changes;
    atomic_bool is_strange;
};

static void change_hear(void *context, const vmm_change *change)
{
    struct heard *heard = context;
    heard->changes++;
    if (change->kind > VMM_CHANGE_FREE)
        heard->is_strange = true;
}

static uint64_t segments_reserved(void)
{
    vmm_torch_stats stats = { .struct_size = sizeof stats };
    assert_ok(vmm_torch_stats_get(device, &stats));
    return stats.small.reserved_bytes.current + stats.large.reserved_bytes.current;
}

static void history_and_figures_check(void)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_torch_reset();
    recording_start();
    void *block = block_new(30 * MIB);
    work_begin(block);
    block_end(block);
    work_end();
    story_check(block, "alloc free_requested free_completed");
    assert_ok(vmm_stats_get(cache(), &stats));
    assert_int_equal(segments_reserved(), stats.reserved_bytes.current - stats.limbo_bytes);
    recording_stop();
}

ORDER_TEST(a_listener_of_the_program_takes_nothing_from_the_history)
{
    struct heard heard = { 0 };
    assert_ok(vmm_listen(cache(), change_hear, &heard));
    history_and_figures_check();
    assert_true(heard.changes >= 2);
    assert_false(heard.is_strange);
    assert_ok(vmm_listen(cache(), NULL, NULL));
    int before = heard.changes;
    history_and_figures_check();
    assert_int_equal(heard.changes, before);
}

/* ---- The length of a snapshot's history -------------------------------------------------------- */

static void (*walk_step)(void); /* what happens before the next walk; NULL: nothing */

vmm_status __real_vmm_walk(vmm_cache *walked, vmm_visitor visit, void *context);
vmm_status __wrap_vmm_walk(vmm_cache *walked, vmm_visitor visit, void *context);
vmm_status __wrap_vmm_walk(vmm_cache *walked, vmm_visitor visit, void *context)
{
    void (*step)(void) = walk_step;
    walk_step = NULL;
    if (step != NULL)
        step();
    return __real_vmm_walk(walked, visit, context);
}

/* As the thread of decay may. */
static void cache_trim(void)
{
    assert_ok(vmm_wait(cache()));
    assert_ok(vmm_trim(cache(), 0, NULL));
}

static unsigned unmapped_count(void)
{
    const vmm_torch_snapshot *snapshot;
    unsigned count = 0;
    assert_ok(vmm_torch_snapshot_take(device, &snapshot));
    (void)snapshot_play_back(snapshot);
    for (uint64_t i = 0; i < snapshot->event_count; i++)
        count += snapshot->events[i].action == VMM_TORCH_SEGMENT_UNMAP;
    vmm_torch_snapshot_drop(snapshot);
    return count;
}

ORDER_TEST(a_snapshot_of_an_empty_cache_has_all_events)
{
    vmm_torch_reset();
    recording_start();
    block_end(block_new(800 * KIB));
    walk_step = cache_trim;
    assert_true(unmapped_count() > 0);
}

static void *memory_drop(void *context)
{
    const atomic_bool *is_over = context;
    while (!atomic_load(is_over))
        (void)vmm_trim(cache(), 0, NULL);
    return NULL;
}

ORDER_TEST(snapshots_beside_trims_play_back)
{
    atomic_bool is_over = false;
    pthread_t thread;
    recording_start();
    assert_int_equal(pthread_create(&thread, NULL, memory_drop, &is_over), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        block_end(block_new((i % 3 + 1) * 900 * KIB));
        snapshot_check();
    }
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(int argc, char **argv)
{
    driver_choice_parse(argc, argv);
    const char *mode = argc > 2 ? argv[2] : "";
    debug = strcmp(mode, "debug") == 0    ? VMM_DEBUG_ON
            : strcmp(mode, "record") == 0 ? VMM_DEBUG_RECORD
                                          : VMM_DEBUG_OFF;
    vmm_config config = CONFIG(.driver = driver_choice_kind(), .device_bytes = GIB, .debug = debug,
                               .decay_ms = 1, .clock = clock_read);
    if (vmm_torch_configure(&config) != VMM_OK)
        return 2;
    return tests_run(NULL, NULL);
}
