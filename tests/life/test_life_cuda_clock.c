/* Events of all work where other devices have contexts: what the cuda driver makes of their answers, and whether it
 * waits for their work. */
#define _GNU_SOURCE
#include "life/cuda_support.h"

#include "driver/cuda/internal.h"

/* ---- Answers ------------------------------------------------------------------------------------ */

struct answer {
    const char *call;
    int result;
    uint64_t from; /* the first call of that name is for the driver's own context if this is 2 */
    vmm_status status;
};

static void answer_check(struct driver *driver, void *event, const struct answer *answer)
{
    fault_set(answer->call, answer->result, answer->from, false);
    vmm_status status = vmm__driver_clock_record(driver, event);
    bool was_made = fake->fail_count >= answer->from;
    calls_succeed();
    if (status != answer->status || !was_made)
        (void)fprintf(stderr, "%s %d: %s\n", answer->call, answer->result, vmm_status_name(status));
    CHILD_REQUIRES(was_made && status == answer->status);
    CHILD_REQUIRES(!vmm__driver_is_lost(driver));
    CHILD_REQUIRES(vmm__driver_clock_record(driver, event) == VMM_OK);
}

/* A context that was reset, destroyed or broken runs no work: the event is complete without it. After any other answer
 * its work may go on: there is no event. Either way this device is not lost. */
FAKE_TEST(another_device_answers)
{
    static const struct answer answers[] = {
        { "cuDevicePrimaryCtxGetState", CUDA_ERROR_UNKNOWN, 1, VMM_ERR_DRIVER },
        { "cuDevicePrimaryCtxRetain", CUDA_ERROR_UNKNOWN, 1, VMM_ERR_DRIVER },
        { "cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, 1, VMM_ERR_HOST_OOM },
        { "cuStreamIsCapturing", CUDA_ERROR_UNKNOWN, 1, VMM_ERR_DRIVER },
        { "cuStreamIsCapturing", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 1, VMM__PENDING },
        { "cuCtxRecordEvent", CUDA_ERROR_UNKNOWN, 2, VMM_ERR_DRIVER },
        { "cuCtxRecordEvent", CUDA_ERROR_INVALID_HANDLE, 2, VMM_ERR_DRIVER },
        { "cuCtxRecordEvent", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 2, VMM__PENDING },
        { "cuCtxRecordEvent", CUDA_ERROR_CONTEXT_IS_DESTROYED, 2, VMM_OK },
        { "cuCtxRecordEvent", CUDA_ERROR_INVALID_CONTEXT, 2, VMM_OK },
        { "cuCtxRecordEvent", CUDA_ERROR_LAUNCH_FAILED, 2, VMM_OK },
        { "cuStreamWaitEvent", CUDA_ERROR_INVALID_HANDLE, 2, VMM_ERR_DRIVER },
        { "cuStreamWaitEvent", CUDA_ERROR_CONTEXT_IS_DESTROYED, 2, VMM_OK },
    };
    const struct driver_options options = { .device = 0 };
    struct driver *driver = NULL;
    void *event = NULL;
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    context_retain(1);
    CHILD_REQUIRES(vmm__driver_event_create(driver, &event) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_clock_record(driver, event) == VMM_OK);
    for (unsigned i = 0; i < sizeof answers / sizeof *answers; i++)
        answer_check(driver, event, &answers[i]);
    (void)device_call_by_name("cuDevicePrimaryCtxReset_v2", 1);
    CHILD_REQUIRES(vmm__driver_clock_record(driver, event) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_event_destroy(driver, event) == VMM_OK);
    vmm__driver_close(driver);
}

/* ---- Work --------------------------------------------------------------------------------------- */

static const struct cuda_api *true_api;
static CUcontext own_context;

/* A seeded bug: no event in a peer's context. */
static CUresult own_record(CUcontext context, CUevent event)
{
    return context == own_context ? true_api->cuCtxRecordEvent(context, event) : CUDA_SUCCESS;
}

static void peers_forget(struct driver *driver)
{
    static struct cuda_api wrong_api;
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    true_api = cuda->api;
    own_context = cuda->context;
    wrong_api = *true_api;
    wrong_api.cuCtxRecordEvent = own_record;
    cuda->api = &wrong_api;
}

/* Another device works for so long. Whether it is done when an event of all work of this one is. */
static bool event_covers_peer(uint64_t work_ns, bool forgets_peers)
{
    struct driver *drivers[2];
    void *events[2];
    vmm_stream stream = NULL;
    for (int i = 0; i < 2; i++) {
        const struct driver_options options = { .device = i };
        CHILD_REQUIRES(vmm__driver_cuda_open(&options, &drivers[i]) == VMM_OK);
        CHILD_REQUIRES(vmm__driver_event_create(drivers[i], &events[i]) == VMM_OK);
    }
    if (forgets_peers)
        peers_forget(drivers[0]);
    CHILD_REQUIRES(vmm__driver_stream_create(drivers[1], &stream) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_delay(drivers[1], work_ns, stream) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_event_record(drivers[1], events[1], stream) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_clock_record(drivers[0], events[0]) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_event_wait(drivers[0], events[0]) == VMM_OK);
    bool covers = vmm__driver_event_query(drivers[1], events[1]) == VMM_OK;
    CHILD_REQUIRES(vmm__driver_event_wait(drivers[1], events[1]) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_stream_destroy(drivers[1], stream) == VMM_OK);
    for (int i = 0; i < 2; i++) {
        CHILD_REQUIRES(vmm__driver_event_destroy(drivers[i], events[i]) == VMM_OK);
        vmm__driver_close(drivers[i]);
    }
    fake_check_misuses();
    return covers;
}

FAKE_TEST(an_event_of_all_work_covers_other_devices)
{
    enum { WORK_NS = 100000000 };
    CHILD_REQUIRES(event_covers_peer(WORK_NS, false));
}

FAKE_TEST(a_missing_event_of_another_device_is_found)
{
    enum { WORK_NS = 2000000000 };
    CHILD_REQUIRES(!event_covers_peer(WORK_NS, true));
}
