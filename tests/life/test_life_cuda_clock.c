/* Events of all work where other devices have contexts: what the cuda driver makes of their answers. */
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
    fault_set("", 0, 1, false);
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
    fake_check_misuses();
}
