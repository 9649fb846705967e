/*
 * VMM_PRELOAD=record: libcuda serves every call, and allocations and frees are written to a trace,
 * docs/trace-format.md.
 *
 * Owns: a recording for each device, made at the first allocation on it: the first in the file that VMM_TRACE names,
 * others in FILE.2 and so on. The recorder orders events itself. A child of fork() records nothing.
 * Called by: memory, any thread. `lock` guards making and ending recordings.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/stack.h"
#include "base/time.h"
#include "base/variable.h"
#include "preload/preload.h"
#include "trace/file_name.h"
#include "trace/recorder.h"

enum { CHUNK_BYTES = 2 << 20 };

static struct mutex lock = VMM_MUTEX_INIT;
static _Atomic(struct recorder *) recorders[PRELOAD_DEVICES];
static bool is_refused;

static vmm_status recorder_open(struct recorder *recorder, const char *file)
{
    static unsigned files;
    char path[TRACE_PATH_BYTES];
    struct writer_origin origin = { .chunk_bytes = CHUNK_BYTES };
    vmm_status status = VMM__IN_USE;
    while (status == VMM__IN_USE) {
        status = vmm__trace_file_name(path, file, ++files);
        if (status == VMM_OK)
            status = vmm__recorder_open(recorder, path, origin);
    }
    return status;
}

static struct recorder *recorder_make_locked(void)
{
    const char *file = vmm__variable("VMM_TRACE");
    const char *stacks = vmm__variable("VMM_TRACE_STACKS");
    struct recorder *recorder = NULL;
    vmm_status status = vmm__preload_leave_children();
    if (status == VMM_OK)
        status = vmm__recorder_make(&recorder);
    if (status == VMM_OK)
        status = recorder_open(recorder, file != NULL ? file : "vmmcache.trace");
    if (status != VMM_OK) {
        vmm__preload_complain("nothing is recorded: %s", vmm_last_error());
        vmm__recorder_free(recorder);
        is_refused = true;
        return NULL;
    }
    bool has_stacks = stacks != NULL && vmm__variable_is(stacks, "on");
    atomic_store_explicit(&recorder->has_stacks, has_stacks, memory_order_relaxed);
    return recorder;
}

static struct recorder *recorder_of_current(void)
{
    CUdevice ordinal = -1;
    if (vmm__preload_real()->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 ||
        ordinal >= PRELOAD_DEVICES)
        return NULL;
    struct recorder *recorder = atomic_load_explicit(&recorders[ordinal], memory_order_acquire);
    if (recorder != NULL)
        return recorder;
    VMM_HOLD(&lock);
    recorder = atomic_load_explicit(&recorders[ordinal], memory_order_acquire);
    if (recorder == NULL && !is_refused) {
        recorder = recorder_make_locked();
        atomic_store_explicit(&recorders[ordinal], recorder, memory_order_release);
    }
    return recorder;
}

void vmm__preload_record_alloc(CUdeviceptr address, size_t bytes, CUstream stream,
                               const void *caller)
{
    if (vmm__preload_mode() != PRELOAD_RECORD)
        return;
    struct recorder *recorder = recorder_of_current();
    if (recorder == NULL)
        return;
    struct trace_event event = { .kind = TRACE_ALLOC,
                                 .address = address,
                                 .bytes = bytes,
                                 .stream = (uint64_t)(uintptr_t)stream };
    if (atomic_load_explicit(&recorder->has_stacks, memory_order_relaxed))
        event.attached = vmm__stack_new(caller);
    vmm__recorder_push(recorder, event);
}

/* The recording that has no such block passes over it. */
void vmm__preload_record_free(CUdeviceptr address)
{
    if (vmm__preload_mode() != PRELOAD_RECORD || address == 0)
        return;
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        struct recorder *recorder = atomic_load_explicit(&recorders[i], memory_order_acquire);
        if (recorder != NULL)
            vmm__recorder_push_block(recorder, TRACE_FREE, address);
    }
}

/* Writes what the recorders still hold. They live on: another thread may be recording. */
static __attribute__((destructor)) void recordings_end(void)
{
    if (vmm__preload_mode() != PRELOAD_RECORD)
        return;
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        struct recorder *recorder = atomic_load_explicit(&recorders[i], memory_order_acquire);
        if (recorder != NULL && vmm__recorder_close(recorder) != VMM_OK)
            vmm__preload_complain("%s", vmm_last_error());
    }
}
