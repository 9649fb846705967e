/*
 * Guarantees of every driver (driver.h, D1 to D6), on the driver that the first argument names.
 * Each test leaves nothing outstanding and keeps the callers' guarantees.
 */
#include "support/driver_choice.h"
#include "support/driver_steps.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- Fill and check -------------------------------------------------------------------------- */

DRIVER_TEST(check_accepts_filled_memory)
{
    struct region region = region_open(driver, 1, 8);
    for (uint32_t bytes = 1; bytes <= 5000; bytes++) {
        uint64_t block = region.address + bytes % 16 * 8192;
        memory_fill(driver, block, bytes, bytes, NULL);
        memory_check(driver, block, bytes, bytes, NULL);
    }
    static const uint64_t large[] = { 65535, 65536, 1048577, 2097152, 2097153, 16777215, 16777216 };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        memory_fill(driver, region.address, large[i], 70000, NULL);
        memory_check(driver, region.address, large[i], 70000, NULL);
    }
    assert_int_equal(mismatches(driver), 0);
    region_close(driver, &region);
}

DRIVER_TEST(check_detects_overwritten_memory)
{
    struct region region = region_open(driver, 1, 1);
    uint64_t whole = region.address;
    memory_fill(driver, whole, 8192, 1, NULL);
    memory_check(driver, whole, 8192, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
    memory_check(driver, whole, 8192, 2, NULL);
    uint64_t wrong_word = mismatches(driver);
    assert_true(wrong_word > 0);
    memory_fill(driver, whole + 2048, 512, 2, NULL);
    memory_check(driver, whole + 2048, 512, 2, NULL);
    assert_int_equal(mismatches(driver), wrong_word);
    memory_check(driver, whole, 8192, 1, NULL);
    uint64_t wrong_part = mismatches(driver) - wrong_word;
    assert_true(wrong_part > 0);
    assert_true(wrong_part <= wrong_word);
    region_close(driver, &region);
}

DRIVER_TEST(fill_spans_handles)
{
    struct region region = region_open(driver, 6, 2);
    uint64_t block = region.address + region.each - 3 * 512;
    memory_fill(driver, region.address, region.bytes, 5, NULL);
    memory_check(driver, region.address, region.bytes, 5, NULL);
    memory_fill(driver, block, 3 * region.each + 777, 6, NULL);
    memory_check(driver, block, 3 * region.each + 777, 6, NULL);
    assert_int_equal(mismatches(driver), 0);
    region_close(driver, &region);
}

DRIVER_TEST(copy_transfers_the_contents)
{
    struct region from = region_open(driver, 3, 1);
    struct region to = region_open(driver, 1, 3);
    memory_fill(driver, from.address, from.bytes, 8, NULL);
    assert_ok(vmm__driver_copy(driver, to.address, from.address, from.bytes, NULL));
    memory_fill(driver, from.address, from.bytes, 9, NULL);
    memory_check(driver, to.address, to.bytes, 8, NULL);
    memory_fill(driver, from.address + 512, 1024, 10, NULL);
    assert_ok(vmm__driver_copy(driver, to.address + 4096, from.address + 512, 1024, NULL));
    memory_check(driver, to.address + 4096, 1024, 10, NULL);
    assert_int_equal(mismatches(driver), 0);
    region_close(driver, &from);
    region_close(driver, &to);
}

/* ---- Order ----------------------------------------------------------------------------------- */

DRIVER_TEST(a_stream_keeps_its_order)
{
    struct region region = region_open(driver, 1, 4);
    vmm_stream stream = stream_new(driver);
    for (uint32_t round = 0; round < 200; round++) {
        memory_fill(driver, region.address, region.bytes, round, stream);
        memory_check(driver, region.address, region.bytes, round, stream);
    }
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    region_close(driver, &region);
}

DRIVER_TEST(an_event_completes_with_preceding_work)
{
    struct region region = region_open(driver, 1, 4);
    vmm_stream stream = stream_new(driver);
    void *event = event_new(driver);
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_stream_wait(driver, stream, event));
    for (uint32_t round = 0; round < 50; round++) {
        memory_fill(driver, region.address, region.bytes, round, stream);
        assert_ok(vmm__driver_event_record(driver, event, stream));
        vmm_status status = vmm__driver_event_query(driver, event);
        assert_true(status == VMM_OK || status == VMM__PENDING);
        assert_ok(vmm__driver_event_wait(driver, event));
        assert_ok(vmm__driver_event_query(driver, event));
    }
    memory_check(driver, region.address, region.bytes, 49, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    region_close(driver, &region);
}

DRIVER_TEST(a_stream_waits_for_another)
{
    struct region region = region_open(driver, 1, 4);
    vmm_stream writer = stream_new(driver);
    vmm_stream reader = stream_new(driver);
    void *event = event_new(driver);
    for (uint32_t round = 0; round < 100; round++) {
        memory_fill(driver, region.address, region.bytes, round, writer);
        stream_order_after(driver, reader, writer, event);
        memory_check(driver, region.address, region.bytes, round, reader);
        stream_order_after(driver, writer, reader, event);
    }
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, writer));
    assert_ok(vmm__driver_stream_destroy(driver, reader));
    region_close(driver, &region);
}

/* ---- Mappings -------------------------------------------------------------------------------- */

/* Work still runs at the old address when the handle is mapped at the new one; no thread waits. */
DRIVER_TEST(a_handle_moves_while_work_runs)
{
    uint64_t bytes = 16 * driver->granule_bytes;
    uint64_t arena = address_reserve(driver, 2 * bytes);
    uint64_t handle = handle_create(driver, bytes);
    void *event = event_new(driver);
    uint64_t at = arena;
    assert_ok(vmm__driver_map(driver, at, bytes, handle));
    assert_ok(vmm__driver_access(driver, at, bytes));
    for (uint32_t round = 0; round < 50; round++) {
        uint64_t next = at == arena ? arena + bytes : arena;
        memory_fill(driver, at, bytes, round, NULL);
        assert_ok(vmm__driver_event_record(driver, event, NULL));
        assert_ok(vmm__driver_map(driver, next, bytes, handle));
        assert_ok(vmm__driver_access(driver, next, bytes));
        memory_check(driver, next, bytes, round, NULL);
        assert_ok(vmm__driver_event_wait(driver, event));
        assert_ok(vmm__driver_unmap(driver, at, bytes));
        at = next;
    }
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_unmap(driver, at, bytes));
    assert_ok(vmm__driver_release(driver, handle, bytes));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_address_free(driver, arena, 2 * bytes));
}

DRIVER_TEST(aliases_show_the_same_memory)
{
    uint64_t bytes = 2 * driver->granule_bytes;
    uint64_t arena = address_reserve(driver, 4 * bytes);
    uint64_t handle = handle_create(driver, bytes);
    assert_true(driver->has_aliases);
    for (uint64_t i = 0; i < 4; i++)
        assert_ok(vmm__driver_map(driver, arena + i * bytes, bytes, handle));
    assert_ok(vmm__driver_access(driver, arena, 4 * bytes));
    for (uint32_t round = 0; round < 100; round++) {
        memory_fill(driver, arena + round % 4 * bytes, bytes, round, NULL);
        memory_check(driver, arena + (round + 1) % 4 * bytes, bytes, round, NULL);
        memory_check(driver, arena + (round + 2) % 4 * bytes, bytes, round, NULL);
    }
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_unmap(driver, arena, 2 * bytes));
    memory_check(driver, arena + 3 * bytes, bytes, 99, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_unmap(driver, arena + 2 * bytes, 2 * bytes));
    assert_ok(vmm__driver_release(driver, handle, bytes));
    assert_ok(vmm__driver_address_free(driver, arena, 4 * bytes));
}

DRIVER_TEST(contents_stay_with_the_handle)
{
    uint64_t bytes = driver->granule_bytes;
    uint64_t address = address_reserve(driver, bytes);
    uint64_t handles[2] = { handle_create(driver, bytes), handle_create(driver, bytes) };
    for (uint32_t round = 0; round < 20; round++) {
        assert_ok(vmm__driver_map(driver, address, bytes, handles[round % 2]));
        assert_ok(vmm__driver_access(driver, address, bytes));
        if (round >= 2)
            memory_check(driver, address, bytes, round - 2, NULL);
        memory_fill(driver, address, bytes, round, NULL);
        assert_ok(vmm__driver_device_wait(driver));
        assert_ok(vmm__driver_unmap(driver, address, bytes));
    }
    assert_int_equal(mismatches(driver), 0);
    for (int i = 0; i < 2; i++)
        assert_ok(vmm__driver_release(driver, handles[i], bytes));
    assert_ok(vmm__driver_address_free(driver, address, bytes));
}

DRIVER_TEST(mappings_outlive_the_release)
{
    struct region region = region_open(driver, 2, 1);
    memory_fill(driver, region.address, region.bytes, 3, NULL);
    assert_ok(vmm__driver_device_wait(driver));
    for (int i = 0; i < 2; i++)
        assert_ok(vmm__driver_release(driver, region.handles[i], region.each));
    memory_check(driver, region.address, region.bytes, 3, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_unmap(driver, region.address, region.bytes));
    assert_ok(vmm__driver_address_free(driver, region.address, region.bytes));
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static uint64_t free_bytes(struct driver *driver)
{
    uint64_t free_now;
    uint64_t total;
    assert_ok(vmm__driver_memory_info(driver, &free_now, &total));
    assert_true(free_now <= total);
    assert_int_equal(total, driver->total_bytes);
    return free_now;
}

DRIVER_TEST(oversized_requests_fail_without_changes)
{
    struct region region = region_open(driver, 1, 1);
    uint64_t before = free_bytes(driver);
    uint64_t untouched = 77;
    uint64_t beyond = (driver->total_bytes / driver->granule_bytes + 1) * driver->granule_bytes;
    assert_status(vmm__driver_create(driver, beyond, false, &untouched), VMM_ERR_DEVICE_OOM);
    assert_true(strlen(vmm_last_error()) > 0);
    assert_status(vmm__driver_reserve(driver, UINT64_C(1) << 50, 0, &untouched),
                  VMM_ERR_ADDRESS_SPACE);
    assert_true(strlen(vmm_last_error()) > 0);
    assert_int_equal(untouched, 77);
    assert_int_equal(driver->handles, 1);
    assert_int_equal(free_bytes(driver), before);
    memory_fill(driver, region.address, region.bytes, 1, NULL);
    memory_check(driver, region.address, region.bytes, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
    region_close(driver, &region);
}

/* Halves the size until a granule is refused: that uses all memory, even if it is scattered. */
DRIVER_TEST(all_memory_can_be_used)
{
    enum { MOST = 4096 };
    uint64_t *handles = calloc(2 * MOST, sizeof *handles);
    assert_non_null(handles);
    uint64_t before = free_bytes(driver);
    uint64_t taken = 0;
    int count = 0;
    for (uint64_t bytes = driver->granule_bytes << 15; bytes >= driver->granule_bytes;) {
        vmm_status status = vmm__driver_create(driver, bytes, false, &handles[2 * count]);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
        handles[2 * count + 1] = bytes;
        taken += status == VMM_OK ? bytes : 0;
        count += status == VMM_OK;
        bytes = status == VMM_OK ? bytes : bytes / 2;
        assert_true(count < MOST);
    }
    assert_int_equal(driver->created_bytes, taken);
    assert_true(free_bytes(driver) < driver->granule_bytes ||
                driver_choice_kind() == VMM_DRIVER_CUDA);
    assert_true(taken + 64 * MIB + before / 50 >= before);
    for (int i = 0; i < count; i++)
        assert_ok(vmm__driver_release(driver, handles[2 * i], handles[2 * i + 1]));
    free(handles);
    struct region region = region_open(driver, 1, 32);
    region_close(driver, &region);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Makes no assertions: cmocka needs them on the test's own thread. */
static void *thread_main(void *argument)
{
    struct driver *driver = argument;
    uint64_t bytes = driver->granule_bytes;
    uint64_t address;
    uint64_t handle;
    void *event;
    vmm_stream stream;
    bool ok = vmm__driver_reserve(driver, bytes, 0, &address) == VMM_OK &&
              vmm__driver_event_create(driver, &event) == VMM_OK &&
              vmm__driver_stream_create(driver, &stream) == VMM_OK;
    for (uint32_t round = 0; ok && round < 30; round++) {
        ok = vmm__driver_create(driver, bytes, false, &handle) == VMM_OK &&
             vmm__driver_map(driver, address, bytes, handle) == VMM_OK &&
             vmm__driver_access(driver, address, bytes) == VMM_OK &&
             vmm__driver_fill(driver, address, bytes, round, stream) == VMM_OK &&
             vmm__driver_check(driver, address, bytes, round, stream) == VMM_OK &&
             vmm__driver_event_record(driver, event, stream) == VMM_OK &&
             vmm__driver_event_wait(driver, event) == VMM_OK &&
             vmm__driver_unmap(driver, address, bytes) == VMM_OK &&
             vmm__driver_release(driver, handle, bytes) == VMM_OK;
    }
    ok = ok && vmm__driver_stream_destroy(driver, stream) == VMM_OK &&
         vmm__driver_event_destroy(driver, event) == VMM_OK &&
         vmm__driver_address_free(driver, address, bytes) == VMM_OK;
    return ok ? argument : NULL;
}

DRIVER_TEST(any_thread_may_call)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, driver), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, driver);
    }
    assert_int_equal(mismatches(driver), 0);
}

DRIVER_MAIN(NULL, NULL)
