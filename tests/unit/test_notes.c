/* Names of blocks, uses by other streams, and the waits of freed blocks. */
#include "support/engine_support.h"

#include "base/error.h"
#include "vm/captures.h"

static const uint64_t ADDRESS = UINT64_C(0x302000000000);

/* Starts a new pass for each call. */
static vmm_status notes_poll(struct notes *notes, unsigned most, uint64_t *address)
{
    struct notes_pass pass;
    vmm__notes_pass_begin(notes, most, &pass);
    return vmm__notes_pass_next(notes, &pass, address);
}

/* As reclaim does. */
static vmm_status notes_wait(struct notes *notes)
{
    struct event *event;
    uint64_t epoch;
    if (!vmm__notes_oldest(notes, &event, &epoch))
        return VMM__NOTHING;
    if (event == NULL)
        return vmm__clock_wait(notes->clock, epoch);
    vmm_status status = vmm__clock_event_wait(notes->clock, event);
    vmm__event_drop(notes->clock->events, event);
    return status;
}

/* Of all live blocks. */
static unsigned use_count(const struct notes *notes)
{
    unsigned count = 0;
    for (struct map_node *node = vmm__map_next(&notes->map, NULL); node != NULL;
         node = vmm__map_next(&notes->map, node)) {
        for (const struct use *use = ((struct note *)node)->uses; use != NULL; use = use->next)
            count++;
    }
    return count;
}

static struct user user_of(const struct lane *lane)
{
    return vmm__lane_user(lane);
}

/* Keeps stream 2 busy until a host wait. */
static void other_start(struct engine *engine)
{
    engine_map(engine, 0, 1, 1);
    engine_make_busy(engine, engine_address(engine, 0), GRANULE, 2);
}

static void other_finish(struct engine *engine)
{
    assert_int_equal(mismatches(engine->driver), 0);
}

/* A freed block waits for stream 2, which is busy. */
static void block_waits(struct engine *engine)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_true(vmm__notes_end(notes, ADDRESS));
}

static uint64_t records(const struct engine *engine)
{
    return vmm__driver_calls(engine->driver, DRIVER_CALL_event_record);
}

ENGINE_TEST(blocks_without_uses_do_not_wait)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address;
    assert_false(vmm__notes_end(notes, ADDRESS));
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
    assert_status(notes_wait(notes), VMM__NOTHING);
    assert_int_equal(notes->map.count, 0);
}

ENGINE_TEST(adding_a_use_again_changes_nothing)
{
    struct notes *notes = &engine->lane->notes;
    for (int i = 0; i < 5; i++)
        assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_int_equal(use_count(notes), 1);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->lane)));
    assert_ok(vmm__notes_use(notes, ADDRESS + 512, user_of(engine->other)));
    assert_int_equal(use_count(notes), 3);
    assert_true(vmm__notes_end(notes, ADDRESS));
    assert_int_equal(use_count(notes), 1);
}

ENGINE_TEST(wait_ends_when_the_other_stream_is_done)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address = 0;
    block_waits(engine);
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
    other_finish(engine);
    assert_ok(notes_poll(notes, UINT32_MAX, &address));
    assert_int_equal(address, ADDRESS);
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
}

/* forget() returns true once all uses that were recorded have passed, even if the stream runs
 * other work since. */
ENGINE_TEST(forget_drops_the_uses_that_have_passed)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->lane)));
    assert_ok(vmm__notes_use(notes, ADDRESS + 512, user_of(engine->lane)));
    assert_false(vmm__notes_forget(notes, ADDRESS)); /* none was recorded */
    assert_int_equal(use_count(notes), 3);
    vmm__notes_record(notes, ADDRESS);
    assert_false(vmm__notes_forget(notes, ADDRESS));
    assert_int_equal(use_count(notes), 2);
    other_finish(engine);
    engine_make_busy(engine, engine_address(engine, 0), GRANULE, 2); /* other work */
    assert_true(vmm__notes_forget(notes, ADDRESS));
    assert_int_equal(use_count(notes), 1);
    assert_true(vmm__notes_forget(notes, ADDRESS));
}

ENGINE_TEST(host_can_wait_for_the_oldest)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address = 0;
    block_waits(engine);
    assert_ok(notes_wait(notes));
    assert_int_equal(engine->driver->counts.stalls, 1);
    assert_ok(notes_poll(notes, 1, &address));
}

ENGINE_TEST(short_poll_checks_the_oldest_waits)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address = 0;
    other_start(engine);
    for (uint64_t i = 0; i < 3; i++) {
        struct user user = user_of(i < 2 ? engine->other : engine->lane);
        assert_ok(vmm__notes_use(notes, ADDRESS + i * 512, user));
        assert_true(vmm__notes_end(notes, ADDRESS + i * 512));
    }
    assert_status(notes_poll(notes, 2, &address), VMM__NOTHING);
    assert_ok(notes_poll(notes, 3, &address));
    assert_int_equal(address, ADDRESS + 1024);
    other_finish(engine);
    assert_ok(notes_poll(notes, 1, &address));
    assert_int_equal(address, ADDRESS);
    assert_ok(vmm__notes_use(notes, ADDRESS + 4096, user_of(engine->other)));
    assert_true(vmm__notes_end(notes, ADDRESS + 4096));
    assert_ok(notes_poll(notes, 2, &address));
    assert_ok(notes_poll(notes, 2, &address));
    assert_null(notes->oldest);
}

/* A pass queries a stream once, however many blocks wait for it. */
ENGINE_TEST(pass_queries_a_stream_once)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address = 0;
    other_start(engine);
    for (uint64_t i = 0; i < 100; i++) {
        assert_ok(vmm__notes_use(notes, ADDRESS + i * 512, user_of(engine->other)));
        assert_true(vmm__notes_end(notes, ADDRESS + i * 512));
    }
    uint64_t queries = vmm__driver_calls(engine->driver, DRIVER_CALL_event_query);
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_event_query), queries + 1);
    other_finish(engine);
    struct notes_pass pass;
    vmm__notes_pass_begin(notes, UINT32_MAX, &pass);
    for (uint64_t i = 0; i < 100; i++)
        assert_ok(vmm__notes_pass_next(notes, &pass, &address));
    assert_null(notes->oldest);
}

ENGINE_TEST(only_new_uses_and_names_need_host_memory)
{
    struct notes *notes = &engine->lane->notes;
    for (uint64_t call = 1; call <= 2; call++) {
        (void)vmm__host_fail_at(call);
        assert_status(vmm__notes_use(notes, ADDRESS, user_of(engine->other)), VMM_ERR_HOST_OOM);
        (void)vmm__host_fail_at(call);
        assert_status(vmm__notes_name(notes, ADDRESS, "name"), VMM_ERR_HOST_OOM);
        (void)vmm__host_fail_at(0);
        assert_false(vmm__notes_has(notes, ADDRESS));
    }
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    (void)vmm__host_fail_at(1);
    assert_true(vmm__notes_end(notes, ADDRESS));
    (void)vmm__host_fail_at(0);
    assert_int_equal(use_count(notes), 0);
}

/* ---- Names -------------------------------------------------------------------------------- */

static void assert_name(const struct notes *notes, uint64_t address, const char *text)
{
    char name[VMM_NAME_BYTES];
    vmm__notes_name_read(notes, address, name);
    assert_string_equal(name, text);
}

ENGINE_TEST(a_note_has_a_name_and_uses)
{
    struct notes *notes = &engine->lane->notes;
    assert_name(notes, ADDRESS, "");
    assert_ok(vmm__notes_name(notes, ADDRESS, NULL));
    assert_ok(vmm__notes_name(notes, ADDRESS, "first"));
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_ok(vmm__notes_name(notes, ADDRESS, "second"));
    vmm__notes_move(notes, ADDRESS, ADDRESS + 512);
    vmm__notes_move(notes, ADDRESS, ADDRESS + 1024); /* no note */
    assert_name(notes, ADDRESS, "");
    assert_name(notes, ADDRESS + 512, "second");
    assert_true(vmm__notes_has_uses(notes, ADDRESS + 512));
    assert_ok(vmm__notes_name(notes, ADDRESS + 512, NULL));
    assert_true(vmm__notes_has(notes, ADDRESS + 512));
    vmm__notes_drop(notes, ADDRESS + 512);
    assert_int_equal(notes->map.count, 0);
}

ENGINE_TEST(a_freed_block_has_no_name)
{
    struct notes *notes = &engine->lane->notes;
    for (int is_used = 0; is_used < 2; is_used++) {
        assert_ok(vmm__notes_name(notes, ADDRESS, "name"));
        if (is_used)
            assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
        assert_int_equal(vmm__notes_end(notes, ADDRESS), is_used);
        assert_name(notes, ADDRESS, "");
    }
}

/* ---- Uses that wait for the clock --------------------------------------------------------- */

/* The oldest wait needs an epoch, not an event, and ends with the work of all streams. */
static void assert_waits_for_all(struct engine *engine)
{
    struct notes *notes = &engine->lane->notes;
    struct event *event;
    uint64_t epoch = 0;
    uint64_t address = 0;
    assert_true(vmm__notes_oldest(notes, &event, &epoch));
    assert_null(event);
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
    assert_ok(notes_wait(notes));
    assert_ok(notes_poll(notes, UINT32_MAX, &address));
    assert_int_equal(address, ADDRESS);
}

/* Each step to an event fails: the wait is for the clock, and the line of an earlier failure stays. */
ENGINE_TEST(a_use_without_an_event_waits_for_the_clock)
{
    static const char earlier[] = "an earlier failure";
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    for (uint64_t call = 1; call <= 4; call++) { /* create, capturing, record, capturing */
        engine_make_busy(engine, engine_address(engine, 0), GRANULE, 2);
        assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
        (void)vmm__error(VMM_ERR_DRIVER, earlier);
        uint64_t failing = call == 1 || engine->events.idle == NULL ? call : call - 1;
        vmm__sim_fail_at(engine->driver, failing, VMM_ERR_DRIVER, false);
        assert_true(vmm__notes_end(notes, ADDRESS));
        assert_int_equal(vmm__sim_faults_fired(engine->driver), 1);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        assert_string_equal(vmm_last_error(), earlier);
        assert_waits_for_all(engine);
    }
}

ENGINE_TEST(a_use_without_host_memory_for_its_event_waits_for_the_clock)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    (void)vmm__host_fail_at(1);
    assert_true(vmm__notes_end(notes, ADDRESS));
    (void)vmm__host_fail_at(0);
    assert_waits_for_all(engine);
}

/* The handle may name another stream by now, on which no event is recorded. */
ENGINE_TEST(a_use_by_an_ended_stream_waits_for_the_clock)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    atomic_fetch_add(&engine->other->ends, 1);
    assert_true(vmm__notes_end(notes, ADDRESS));
    assert_int_equal(records(engine), 0);
    assert_waits_for_all(engine);
}

/* An ended stream and the next one with its handle are two users. */
ENGINE_TEST(a_stream_after_an_end_is_another_user)
{
    struct notes *notes = &engine->lane->notes;
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    atomic_fetch_add(&engine->other->ends, 1);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_int_equal(use_count(notes), 2);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_int_equal(use_count(notes), 2);
}

ENGINE_TEST(a_use_by_a_destroyed_stream_waits_for_the_clock)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_ok(vmm__driver_stream_destroy(engine->driver, STREAM(2)));
    assert_true(vmm__notes_end(notes, ADDRESS));
    assert_waits_for_all(engine);
}

/* The capture is not spoiled, and the clock pauses while it is announced. */
ENGINE_TEST(a_use_by_a_captured_stream_waits_for_the_clock)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_ok(vmm__captures_announce(engine->driver, STREAM(2)));
    assert_ok(vmm__driver_capture_begin(engine->driver, STREAM(2)));
    assert_true(vmm__notes_end(notes, ADDRESS));
    assert_int_equal(records(engine), 0);
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
    assert_ok(vmm__driver_capture_end(engine->driver, STREAM(2)));
    assert_true(vmm__captures_retract(engine->driver, STREAM(2)));
    assert_waits_for_all(engine);
}

/* A caller that knows that the uses of a block have ended may take it out of the list, wherever it stands. */
ENGINE_TEST(a_caller_can_end_a_wait)
{
    struct notes *notes = &engine->lane->notes;
    uint64_t address = 0;
    vmm_stream streams[2] = { 0 };
    other_start(engine);
    for (unsigned i = 0; i < 3; i++) {
        assert_ok(vmm__notes_use(notes, ADDRESS + i, user_of(engine->other)));
        assert_int_equal(vmm__notes_streams(notes, ADDRESS + i, streams, 2), 0);
        assert_true(vmm__notes_end(notes, ADDRESS + i));
    }
    assert_int_equal(vmm__notes_streams(notes, ADDRESS + 1, streams, 2), 1);
    assert_ptr_equal(streams[0], engine->other->owner.stream);
    assert_int_equal(vmm__notes_streams(notes, ADDRESS + 1, streams, 0), 1);
    assert_true(vmm__notes_wait_end(notes, ADDRESS + 2)); /* the last one */
    assert_true(vmm__notes_wait_end(notes, ADDRESS));
    assert_false(vmm__notes_wait_end(notes, ADDRESS));
    assert_true(vmm__notes_is_waiting(notes, ADDRESS + 1));
    assert_ok(vmm__notes_use(notes, ADDRESS + 3, user_of(engine->other)));
    assert_true(vmm__notes_end(notes, ADDRESS + 3));
    other_finish(engine);
    for (unsigned i = 1; i <= 3; i += 2) {
        assert_ok(notes_poll(notes, UINT32_MAX, &address));
        assert_int_equal(address, ADDRESS + i);
    }
    assert_status(notes_poll(notes, UINT32_MAX, &address), VMM__NOTHING);
}

/* After its free a borrowed block serves another stream: not only its own work may use it. */
ENGINE_TEST(a_borrowed_block_can_wait_for_all_work)
{
    struct notes *notes = &engine->lane->notes;
    struct user user = user_of(engine->other);
    vmm_stream stream;
    bool has_ended = true;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user));
    assert_false(vmm__notes_borrower(notes, ADDRESS, &stream, &has_ended));
    vmm__notes_lend(notes, ADDRESS, user, true);
    assert_true(vmm__notes_borrower(notes, ADDRESS, &stream, &has_ended));
    assert_ptr_equal(stream, STREAM(2));
    assert_false(has_ended);
    atomic_fetch_add(&engine->other->ends, 1);
    assert_true(vmm__notes_borrower(notes, ADDRESS, &stream, &has_ended));
    assert_true(has_ended);
    assert_true(vmm__notes_end(notes, ADDRESS));
    assert_int_equal(records(engine), 0);
    assert_waits_for_all(engine);
}

/* On a lost device no work runs, so that the block need not wait. */
ENGINE_TEST(on_a_lost_device_no_block_waits)
{
    struct notes *notes = &engine->lane->notes;
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    (void)vmm__error(VMM_ERR_DRIVER, "an earlier failure");
    vmm__sim_fail_at(engine->driver, 1, VMM_ERR_LOST, true);
    assert_false(vmm__notes_end(notes, ADDRESS));
    assert_string_equal(vmm_last_error(), "an earlier failure");
    assert_int_equal(use_count(notes), 0);
    assert_false(vmm__notes_have_waits(notes));
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    atomic_store(&engine->driver->lost.is_lost, false); /* for the teardown */
}

/* ---- Followers ---------------------------------------------------------------------------- */

/* Stream 1 follows the recorded use of stream 2, on the device. */
ENGINE_TEST(streams_follow_recorded_uses)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    assert_ok(vmm__notes_follow(notes, ADDRESS, STREAM(1))); /* nothing was recorded */
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_stream_wait), 0);
    vmm__notes_record(notes, ADDRESS);
    assert_ok(vmm__notes_follow(notes, ADDRESS, STREAM(1)));
    memory_check(engine->driver, engine_address(engine, 0), GRANULE, 1, STREAM(1));
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_stream_wait), 1);
    assert_int_equal(engine->driver->counts.stalls, 0);
}

/* Nothing orders it after the use, until that is over. */
ENGINE_TEST(a_captured_stream_follows_nothing)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    vmm__notes_record(notes, ADDRESS);
    assert_ok(vmm__driver_capture_begin(engine->driver, STREAM(1)));
    assert_status(vmm__notes_follow(notes, ADDRESS, STREAM(1)), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "a capture keeps stream"));
    other_finish(engine);
    assert_ok(vmm__notes_follow(notes, ADDRESS, STREAM(1)));
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_stream_wait), 0);
    assert_ok(vmm__driver_capture_end(engine->driver, STREAM(1)));
}

/* A second record replaces the event of the first. */
ENGINE_TEST(a_second_record_covers_later_work)
{
    struct notes *notes = &engine->lane->notes;
    other_start(engine);
    assert_ok(vmm__notes_use(notes, ADDRESS, user_of(engine->other)));
    vmm__notes_record(notes, ADDRESS);
    other_finish(engine);
    engine_make_busy(engine, engine_address(engine, 0), GRANULE, 2);
    vmm__notes_record(notes, ADDRESS);
    assert_false(vmm__notes_forget(notes, ADDRESS));
    other_finish(engine);
    assert_true(vmm__notes_forget(notes, ADDRESS));
    assert_true(engine->driver->events <= 2);
}

/* Uses more addresses than buckets. The teardown frees the remaining records in any state. */
ENGINE_TEST(many_uses_stay_separate)
{
    struct notes *notes = &engine->lane->notes;
    enum { MANY = 2000 };
    for (uint64_t i = 0; i < MANY; i++)
        assert_ok(vmm__notes_use(notes, ADDRESS + i * 512, user_of(engine->other)));
    for (uint64_t i = 0; i < MANY; i += 2)
        assert_true(vmm__notes_end(notes, ADDRESS + i * 512));
    assert_int_equal(use_count(notes), MANY / 2);
    uint64_t address;
    for (uint64_t i = 0; i < MANY; i += 2) {
        assert_ok(notes_poll(notes, 1, &address));
        assert_int_equal(address, ADDRESS + i * 512);
    }
}
