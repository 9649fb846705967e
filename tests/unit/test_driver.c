/* Counted calls, outstanding counts, and names of driver kinds, on the sim driver. */
#include "support/sim_support.h"

#include <unistd.h>

static uint64_t failures(const struct driver *driver, enum driver_call call)
{
    return driver->tally[call].failures;
}

/* Imports a new handle of the driver into the driver itself. */
static uint64_t share_with_itself(struct driver *driver, uint64_t *handle)
{
    uint64_t import;
    int descriptor;
    assert_ok(vmm__driver_create(driver, GRANULE, VMM_SHARE_FABRIC, handle));
    assert_ok(vmm__driver_share_export(driver, *handle, &descriptor));
    assert_ok(vmm__driver_share_import(driver, descriptor, GRANULE, &import));
    assert_int_equal(close(descriptor), 0);
    return import;
}

static void share_once(struct driver *driver)
{
    uint64_t handle;
    uint64_t import = share_with_itself(driver, &handle);
    assert_int_equal(driver->imports, 1);
    assert_int_equal(driver->imported_bytes, GRANULE);
    assert_int_equal(driver->created_bytes, 3 * GRANULE);
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_int_equal(driver->imported_bytes, 0);
    struct driver_fabric fabric;
    assert_ok(vmm__driver_fabric_check(driver));
    assert_ok(vmm__driver_fabric_export(driver, handle, &fabric));
    assert_ok(vmm__driver_fabric_import(driver, &fabric, GRANULE, &import));
    assert_int_equal(driver->imports, 1);
    assert_int_equal(driver->imported_bytes, GRANULE);
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
}

static uint64_t calls_wanted(enum driver_call call)
{
    switch (call) {
    case DRIVER_CALL_dmabuf_export: /* sim has none */
        return 0;
    case DRIVER_CALL_create:
        return 3;
    case DRIVER_CALL_reserve:
    case DRIVER_CALL_map:
    case DRIVER_CALL_access:
    case DRIVER_CALL_release:
    case DRIVER_CALL_share_release:
        return 2;
    default:
        return 1;
    }
}

SIM_TEST(every_call_is_counted)
{
    uint64_t handle;
    uint64_t free_bytes;
    uint64_t total_bytes;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    uint64_t other = memory_map(driver, GRANULE, NULL);
    bool is_capturing = true;
    assert_ok(vmm__driver_stream_capturing(driver, STREAM(1), &is_capturing));
    assert_false(is_capturing);
    unsigned char byte;
    struct driver_piece piece = { other, sizeof byte, &byte };
    vmm_stream stream;
    assert_ok(vmm__driver_stream_create(driver, &stream));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_pin(driver, &byte, sizeof byte));
    share_once(driver);
    void *event = sim_record(driver, STREAM(1));
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_stream_wait(driver, STREAM(2), event));
    assert_ok(vmm__driver_clock_record(driver, event));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_ok(vmm__driver_peers_check(driver, 2));
    memory_fill(driver, address, GRANULE, 1, NULL);
    assert_ok(vmm__driver_copy(driver, other, address, GRANULE, NULL));
    assert_ok(vmm__driver_clear(driver, other, GRANULE, 0, NULL));
    assert_ok(vmm__driver_read(driver, &piece, 1, NULL));
    assert_ok(vmm__driver_save(driver, &piece, 1, NULL));
    assert_ok(vmm__driver_load(driver, &piece, 1, NULL));
    assert_ok(vmm__driver_device_wait(driver));
    assert_int_equal(driver->pinned_bytes, sizeof byte);
    assert_ok(vmm__driver_unpin(driver, &byte, sizeof byte));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_ok(vmm__driver_address_free(driver, address, GRANULE));
    for (int call = 0; call < DRIVER_CALL_COUNT; call++) {
        assert_int_equal(vmm__driver_calls(driver, (enum driver_call)call),
                         calls_wanted((enum driver_call)call));
        assert_int_equal(failures(driver, (enum driver_call)call), 0);
    }
    assert_int_equal(driver->counts.stalls, 3);
    assert_int_equal(driver->reservations, 1);
    assert_int_equal(driver->handles, 1);
    assert_int_equal(driver->created_bytes, GRANULE);
    assert_int_equal(driver->mapped_bytes, GRANULE);
    assert_int_equal(driver->events, 0);
    assert_int_equal(driver->streams, 0);
    assert_int_equal(driver->imports + driver->imported_bytes + driver->pinned_bytes, 0);
    assert_true(vmm__driver_clock_ns(driver) > 0);
    assert_true(vmm__driver_host_ns(driver) > 0);
}

SIM_TEST(failures_are_counted_and_change_nothing)
{
    uint64_t out = 5;
    void *event = driver;
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm__driver_reserve(driver, GRANULE, 0, &out), VMM_ERR_DRIVER);
    assert_status(vmm__driver_create(driver, GRANULE, false, &out), VMM_ERR_DRIVER);
    assert_status(vmm__driver_event_create(driver, &event), VMM_ERR_DRIVER);
    assert_int_equal(out, 5);
    assert_ptr_equal(event, driver);
    assert_int_equal(failures(driver, DRIVER_CALL_reserve), 1);
    assert_int_equal(failures(driver, DRIVER_CALL_create), 1);
    assert_int_equal(driver->reservations + driver->handles + driver->events, 0);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
}

/* A pending event is not a failure. */
SIM_TEST(a_pending_event_is_not_a_failure)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    memory_fill(driver, address, GRANULE, 1, STREAM(1));
    void *event = sim_record(driver, STREAM(1));
    assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
    assert_int_equal(failures(driver, DRIVER_CALL_event_query), 0);
    assert_ok(vmm__driver_event_destroy(driver, event));
}

/* D5: a failure of any other call must not look like out of memory or addresses. */
SIM_TEST(only_allocating_calls_report_out_of_memory)
{
    uint64_t handle;
    uint64_t address = address_reserve(driver, GRANULE);
    void *event;
    vmm__sim_fail_at(driver, 1, VMM_ERR_DEVICE_OOM, true);
    assert_status(vmm__driver_create(driver, GRANULE, false, &handle), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__driver_map(driver, address, GRANULE, 1), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__driver_access(driver, address, GRANULE), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__driver_share_import(driver, -1, GRANULE, &handle), VMM_ERR_DEVICE_OOM);
    assert_status(vmm__driver_pin(driver, &handle, sizeof handle), VMM_ERR_DRIVER);
    assert_status(vmm__driver_event_create(driver, &event), VMM_ERR_DRIVER);
    assert_status(vmm__driver_unmap(driver, address, GRANULE), VMM_ERR_DRIVER);
    vmm__sim_fail_at(driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    assert_status(vmm__driver_reserve(driver, GRANULE, 0, &address), VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm__driver_create(driver, GRANULE, false, &handle), VMM_ERR_DRIVER);
    vmm__sim_fail_at(driver, 1, VMM_ERR_NO_DEVICE, true); /* it was there when the driver opened */
    assert_status(vmm__driver_create(driver, GRANULE, false, &handle), VMM_ERR_DRIVER);
    vmm__sim_fail_at(driver, 1, VMM_ERR_LOST, true);
    assert_status(vmm__driver_event_create(driver, &event), VMM_ERR_LOST);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
}

/* ---- The lost device -------------------------------------------------------------------------- */

/* Memory and an event that the driver knows when its device is lost. */
struct lost_scene {
    struct driver *driver;
    uint64_t address, handle;
    void *event;
};

static struct lost_scene lost_scene_create(struct driver *driver)
{
    struct lost_scene scene = { .driver = driver };
    scene.address = memory_map(driver, GRANULE, &scene.handle);
    scene.event = sim_record(driver, STREAM(1));
    void *other;
    vmm__sim_fail_at(driver, 1, VMM_ERR_LOST, false);
    assert_status(vmm__driver_event_create(driver, &other), VMM_ERR_LOST);
    assert_true(vmm__driver_is_lost(driver));
    return scene;
}

static uint64_t calls_of_all_kinds(const struct driver *driver)
{
    uint64_t sum = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        sum += vmm__driver_calls(driver, (enum driver_call)call);
    return sum;
}

/* The sim driver would accept each of them. */
SIM_TEST(a_lost_device_gets_no_call)
{
    struct lost_scene scene = lost_scene_create(driver);
    uint64_t before = calls_of_all_kinds(driver);
    uint64_t number = 5;
    void *event = driver;
    vmm_stream stream = STREAM(3);
    bool is_capturing = true;
    int descriptor = 5;
    unsigned char byte = 7;
    struct driver_piece piece = { scene.address, sizeof byte, &byte };
    const vmm_status refused[] = {
        vmm__driver_reserve(driver, GRANULE, 0, &number),
        vmm__driver_create(driver, GRANULE, false, &number),
        vmm__driver_map(driver, scene.address, GRANULE, scene.handle),
        vmm__driver_access(driver, scene.address, GRANULE),
        vmm__driver_memory_info(driver, &number, &number),
        vmm__driver_peers_check(driver, 2),
        vmm__driver_event_create(driver, &event),
        vmm__driver_event_record(driver, scene.event, STREAM(1)),
        vmm__driver_event_query(driver, scene.event),
        vmm__driver_event_wait(driver, scene.event),
        vmm__driver_event_destroy(driver, scene.event),
        vmm__driver_stream_wait(driver, STREAM(2), scene.event),
        vmm__driver_stream_capturing(driver, STREAM(1), &is_capturing),
        vmm__driver_device_wait(driver),
        vmm__driver_copy(driver, scene.address, scene.address, 512, NULL),
        vmm__driver_clear(driver, scene.address, 512, 0, NULL),
        vmm__driver_read(driver, &piece, 1, NULL),
        vmm__driver_save(driver, &piece, 1, NULL),
        vmm__driver_load(driver, &piece, 1, NULL),
        vmm__driver_pin(driver, &byte, sizeof byte),
        vmm__driver_unpin(driver, &byte, sizeof byte),
        vmm__driver_share_export(driver, scene.handle, &descriptor),
        vmm__driver_share_import(driver, 0, GRANULE, &number),
        vmm__driver_share_release(driver, scene.handle, GRANULE),
        vmm__driver_dmabuf_export(driver, scene.address, GRANULE, &descriptor),
        vmm__driver_fill(driver, scene.address, 512, 1, NULL),
        vmm__driver_check(driver, scene.address, 512, 1, NULL),
        vmm__driver_delay(driver, 1, NULL),
        vmm__driver_mismatches(driver, &number),
        vmm__driver_stream_create(driver, &stream),
        vmm__driver_stream_destroy(driver, STREAM(1)),
        vmm__driver_capture_begin(driver, STREAM(1)),
        vmm__driver_capture_end(driver, STREAM(1)),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_status(refused[i], VMM_ERR_LOST);
    assert_int_equal(calls_of_all_kinds(driver), before);
    assert_int_equal(number, 5);
    assert_ptr_equal(event, driver);
    assert_ptr_equal(stream, STREAM(3));
    assert_int_equal(byte, 7);
    assert_int_equal(descriptor, 5);
    assert_true(is_capturing);
}

SIM_TEST(a_lost_device_is_asked_to_release_imports)
{
    uint64_t handle;
    uint64_t import = share_with_itself(driver, &handle);
    (void)lost_scene_create(driver);
    atomic_store(&driver->accepts_release, true);
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_int_equal(driver->imports, 0);
}

/* Some drivers take memory back from a lost device. The first refusal ends that. */
SIM_TEST(a_lost_device_is_asked_to_release_until_it_refuses)
{
    struct lost_scene scene = lost_scene_create(driver);
    assert_status(vmm__driver_unmap(driver, scene.address, GRANULE), VMM_ERR_LOST);
    atomic_store(&driver->accepts_release, true);
    assert_ok(vmm__driver_unmap(driver, scene.address, GRANULE));
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__driver_release(driver, scene.handle, GRANULE), VMM_ERR_LOST);
    uint64_t before = calls_of_all_kinds(driver);
    assert_status(vmm__driver_release(driver, scene.handle, GRANULE), VMM_ERR_LOST);
    assert_status(vmm__driver_address_free(driver, scene.address, GRANULE), VMM_ERR_LOST);
    assert_int_equal(calls_of_all_kinds(driver), before);
    assert_int_equal(driver->handles, 1);
}

struct counting_listener {
    struct lost_listener listener;
    unsigned notified;
};

static void loss_count(struct lost_listener *listener)
{
    ((struct counting_listener *)listener)->notified++;
}

SIM_TEST(listeners_learn_of_a_loss_once)
{
    struct counting_listener listeners[3];
    for (int i = 0; i < 3; i++) {
        listeners[i] = (struct counting_listener){ .listener.notify = loss_count };
        vmm__lost_listen(&driver->lost, &listeners[i].listener);
    }
    vmm__lost_unlisten(&driver->lost, &listeners[0].listener); /* the last of the list */
    vmm__lost_unlisten(&driver->lost, &listeners[0].listener); /* not in it any longer */
    (void)lost_scene_create(driver);
    vmm__lost_note(&driver->lost);
    assert_int_equal(listeners[0].notified, 0);
    assert_int_equal(listeners[1].notified, 1);
    assert_int_equal(listeners[2].notified, 1);
    vmm__lost_listen(&driver->lost, &listeners[0].listener);
    assert_int_equal(listeners[0].notified, 1);
    for (int i = 0; i < 3; i++)
        vmm__lost_unlisten(&driver->lost, &listeners[i].listener);
}

TEST(kind_names_are_parsed)
{
    vmm_driver_kind kind = VMM_DRIVER_HOST;
    assert_true(vmm__driver_kind_parse("sim", &kind));
    assert_int_equal(kind, VMM_DRIVER_SIM);
    assert_false(vmm__driver_kind_parse("", &kind));
    assert_false(vmm__driver_kind_parse("Sim", &kind));
    assert_int_equal(kind, VMM_DRIVER_SIM);
    struct driver_options options = { 0 };
    struct driver *driver = NULL;
    assert_status(vmm__driver_open((vmm_driver_kind)9, &options, &driver),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_null(driver);
    vmm__driver_close(NULL);
}
