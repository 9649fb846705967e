/*
 * Events, streams, copies, and the kernels of fill, check and delay.
 *
 * Owns: the kernel module and the mismatch counter, from the first use of a kernel on.
 * Called by: the driver table, any thread. kernels_lock guards the loading.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "driver/cuda/internal.h"
#include "driver/cuda/kernels.h"

#include <inttypes.h>

enum { BLOCK_THREADS = 256, WORD_BYTES = 4 };

/* ---- Events, streams, copies ----------------------------------------------------------------- */

vmm_status vmm__cuda_event_create(struct driver *driver, void **event)
{
    CUevent created = NULL;
    CUDA_CALL(vmm__cuda_of(driver), cuEventCreate(&created, CU_EVENT_DISABLE_TIMING),
              VMM_ERR_HOST_OOM, "cuEventCreate");
    if (status == VMM_OK)
        *event = created;
    return status;
}

vmm_status vmm__cuda_event_destroy(struct driver *driver, void *event)
{
    CUDA_CALL(vmm__cuda_of(driver), cuEventDestroy_v2(event), VMM_ERR_HOST_OOM, "cuEventDestroy");
    return status;
}

/* For every call that names a stream: CUDA may report a destroyed stream as an invalid handle or as a destroyed
 * context. If the context still answers, the stream was destroyed. */
static vmm_status stream_status(struct driver *driver, CUresult result, vmm_status status)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    if (result == CUDA_ERROR_INVALID_HANDLE)
        return VMM_ERR_INVALID_ARGUMENT;
    if (result != CUDA_ERROR_CONTEXT_IS_DESTROYED && result != CUDA_ERROR_INVALID_CONTEXT)
        return status;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status asked = vmm__cuda_memory_info(driver, &free_bytes, &total_bytes);
    vmm__error_restore(&line);
    return asked == VMM_OK ? VMM_ERR_INVALID_ARGUMENT : status;
}

vmm_status vmm__cuda_event_record(struct driver *driver, void *event, vmm_stream stream)
{
    CUDA_CALL(vmm__cuda_of(driver), cuEventRecord(event, stream), VMM_ERR_HOST_OOM,
              "cuEventRecord(stream %p)", stream);
    return stream_status(driver, result, status);
}

vmm_status vmm__cuda_event_query(struct driver *driver, void *event)
{
    CUDA_CALL(vmm__cuda_of(driver), cuEventQuery(event), VMM_ERR_HOST_OOM, "cuEventQuery");
    return status;
}

vmm_status vmm__cuda_event_wait(struct driver *driver, void *event)
{
    CUDA_CALL(vmm__cuda_of(driver), cuEventSynchronize(event), VMM_ERR_HOST_OOM,
              "cuEventSynchronize");
    return status;
}

vmm_status vmm__cuda_stream_wait(struct driver *driver, vmm_stream stream, void *event)
{
    CUDA_CALL(vmm__cuda_of(driver), cuStreamWaitEvent(stream, event, 0), VMM_ERR_HOST_OOM,
              "cuStreamWaitEvent(stream %p)", stream);
    return stream_status(driver, result, status);
}

vmm_status vmm__cuda_device_wait(struct driver *driver)
{
    CUDA_CALL(vmm__cuda_of(driver), cuCtxSynchronize(), VMM_ERR_HOST_OOM, "cuCtxSynchronize");
    return status;
}

/* CUDA refuses the query of the default stream while another stream is being captured: report it as captured. The
 * caller has made the context current. */
static CUresult capture_get(const struct cuda_driver *cuda, vmm_stream stream, bool *is_capturing)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cuda->api->cuStreamIsCapturing(stream, &capture);
    *is_capturing = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
                    (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE);
    return *is_capturing ? CUDA_SUCCESS : result;
}

vmm_status vmm__cuda_capturing(struct driver *driver, const vmm_stream *streams, unsigned count,
                               bool *is_capturing)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    struct cuda_scope scope;
    CUresult failed = CUDA_SUCCESS;
    vmm_stream unknown = NULL;
    bool is_any = false;
    vmm_status status = vmm__cuda_enter(cuda, &scope);
    if (status != VMM_OK)
        return status;
    for (unsigned i = 0; i < count && !is_any; i++) {
        CUresult result = capture_get(cuda, streams[i], &is_any);
        unknown = result == CUDA_SUCCESS ? unknown : streams[i];
        failed = result == CUDA_SUCCESS ? failed : result;
    }
    vmm__cuda_leave(cuda, &scope);
    if (is_any || failed == CUDA_SUCCESS) {
        *is_capturing = is_any;
        return VMM_OK;
    }
    status = vmm__cuda_status(cuda->api, failed, VMM_ERR_HOST_OOM, "cuStreamIsCapturing(stream %p)",
                              unknown);
    return stream_status(driver, failed, status);
}

/* Of a green context's stream: the primary context of its device, whose events cover it. Before CUDA 12.5: the green
 * context, which no event of the primary one covers. */
static CUresult stream_context_get(const struct cuda_api *api, CUstream stream, CUcontext *context)
{
    CUgreenCtx green;
    if (api->cuStreamGetCtx_v2 != NULL)
        return api->cuStreamGetCtx_v2(stream, context, &green);
    return api->cuStreamGetCtx != NULL ? api->cuStreamGetCtx(stream, context)
                                       : CUDA_ERROR_NOT_SUPPORTED;
}

/* Accepts a stream that CUDA does not know: it was destroyed, and stream_status() detects that. */
vmm_status vmm__cuda_stream_check(struct driver *driver, vmm_stream stream)
{
    const struct cuda_driver *cuda = vmm__cuda_of(driver);
    CUcontext context = NULL;
    struct cuda_scope scope;
    if (stream == NULL)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    if (vmm__cuda_enter(cuda, &scope) != VMM_OK) { /* the next counted call reports the failure */
        vmm__error_restore(&line);
        return VMM_OK;
    }
    CUresult result = stream_context_get(cuda->api, stream, &context);
    vmm__cuda_leave(cuda, &scope);
    if (result != CUDA_SUCCESS || context == cuda->context)
        return VMM_OK;
    return vmm__error(
        VMM_ERR_INVALID_ARGUMENT,
        "stream %p belongs to another context; the cache uses the primary context of device %d",
        stream, (int)cuda->device);
}

vmm_status vmm__cuda_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                          vmm_stream stream)
{
    CUDA_CALL(vmm__cuda_of(driver), cuMemcpyDtoDAsync_v2(to, from, bytes, stream),
              VMM_ERR_DEVICE_OOM,
              "cuMemcpyDtoDAsync(0x%" PRIx64 ", 0x%" PRIx64 ", %" PRIu64 ", stream %p)", to, from,
              bytes, stream);
    return stream_status(driver, result, status);
}

vmm_status vmm__cuda_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                           vmm_stream stream)
{
    CUDA_CALL(vmm__cuda_of(driver), cuMemsetD8Async(address, value, bytes, stream),
              VMM_ERR_DEVICE_OOM, "cuMemsetD8Async(0x%" PRIx64 ", %u, %" PRIu64 ", stream %p)",
              address, value, bytes, stream);
    return stream_status(driver, result, status);
}

enum pieces_way { PIECES_READ, PIECES_SAVE, PIECES_LOAD };

/* Submits the copies. A read always waits for them: they write to the caller's memory. */
static CUresult pieces_submit(const struct cuda_api *api, const struct driver_piece *pieces,
                              unsigned count, vmm_stream stream, enum pieces_way way)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct driver_piece *piece = &pieces[i];
        if (way == PIECES_LOAD)
            result = api->cuMemcpyHtoDAsync_v2(piece->address, piece->host, piece->bytes, stream);
        else
            result = api->cuMemcpyDtoHAsync_v2(piece->host, piece->address, piece->bytes, stream);
    }
    CUresult waited = way == PIECES_READ ? api->cuStreamSynchronize(stream) : CUDA_SUCCESS;
    return result != CUDA_SUCCESS ? result : waited;
}

static vmm_status pieces_copy(struct driver *driver, const struct driver_piece *pieces,
                              unsigned count, vmm_stream stream, enum pieces_way way)
{
    const struct cuda_driver *cuda = vmm__cuda_of(driver);
    CUDA_CALLS(cuda, pieces_submit(cuda->api, pieces, count, stream, way), VMM_ERR_HOST_OOM,
               "%s(0x%" PRIx64 " and %u more, stream %p)",
               way == PIECES_LOAD ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", pieces[0].address,
               count - 1, stream);
    return stream_status(driver, result, status);
}

vmm_status vmm__cuda_read(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream)
{
    return pieces_copy(driver, pieces, count, stream, PIECES_READ);
}

vmm_status vmm__cuda_save(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream)
{
    return pieces_copy(driver, pieces, count, stream, PIECES_SAVE);
}

vmm_status vmm__cuda_load(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream)
{
    return pieces_copy(driver, pieces, count, stream, PIECES_LOAD);
}

/* Created streams do not synchronize with the default stream. */
vmm_status vmm__cuda_stream_create(struct driver *driver, vmm_stream *stream)
{
    CUstream created = NULL;
    CUDA_CALL(vmm__cuda_of(driver), cuStreamCreate(&created, CU_STREAM_NON_BLOCKING),
              VMM_ERR_DEVICE_OOM, "cuStreamCreate");
    if (status == VMM_OK)
        *stream = created;
    return status;
}

vmm_status vmm__cuda_stream_destroy(struct driver *driver, vmm_stream stream)
{
    CUDA_CALL(vmm__cuda_of(driver), cuStreamDestroy_v2(stream), VMM_ERR_HOST_OOM,
              "cuStreamDestroy(%p)", stream);
    return status;
}

vmm_status vmm__cuda_capture_begin(struct driver *driver, vmm_stream stream)
{
    CUDA_CALL(vmm__cuda_of(driver), cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
              VMM_ERR_HOST_OOM, "cuStreamBeginCapture(stream %p)", stream);
    return status;
}

vmm_status vmm__cuda_capture_end(struct driver *driver, vmm_stream stream)
{
    CUgraph graph = NULL;
    CUDA_CALL(vmm__cuda_of(driver), cuStreamEndCapture(stream, &graph), VMM_ERR_HOST_OOM,
              "cuStreamEndCapture(stream %p)", stream);
    if (graph != NULL)
        (void)vmm__cuda_of(driver)->api->cuGraphDestroy(graph);
    return status;
}

/* ---- The kernels ----------------------------------------------------------------------------- */

static CUresult counter_make(const struct cuda_api *api, CUdeviceptr *counter)
{
    static const uint64_t zero = 0;
    CUresult result = api->cuMemAlloc_v2(counter, sizeof zero);
    if (result != CUDA_SUCCESS)
        return result;
    result = api->cuMemcpyHtoD_v2(*counter, &zero, sizeof zero);
    if (result != CUDA_SUCCESS)
        (void)api->cuMemFree_v2(*counter);
    return result;
}

static CUresult kernels_load(struct cuda_driver *cuda)
{
    CUmodule module;
    CUresult result = cuda->api->cuModuleLoadData(&module, CUDA_KERNELS_PTX);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->api->cuModuleGetFunction(&cuda->fill, module, "vmm_fill");
    if (result == CUDA_SUCCESS)
        result = cuda->api->cuModuleGetFunction(&cuda->check, module, "vmm_check");
    if (result == CUDA_SUCCESS)
        result = cuda->api->cuModuleGetFunction(&cuda->delay, module, "vmm_delay");
    if (result == CUDA_SUCCESS)
        result = counter_make(cuda->api, &cuda->mismatches);
    if (result == CUDA_SUCCESS)
        cuda->kernels = module;
    else
        (void)cuda->api->cuModuleUnload(module);
    return result;
}

static CUresult kernels_load_once(struct cuda_driver *cuda)
{
    VMM_HOLD(&cuda->kernels_lock);
    return cuda->kernels != NULL ? CUDA_SUCCESS : kernels_load(cuda);
}

void vmm__cuda_kernels_unload(struct cuda_driver *cuda)
{
    if (cuda->kernels == NULL)
        return;
    (void)cuda->api->cuMemFree_v2(cuda->mismatches);
    (void)cuda->api->cuModuleUnload(cuda->kernels);
}

/* The parameters of one launch; vmm_fill takes all but the last. */
struct cuda_pattern {
    CUdeviceptr address;
    uint64_t words;
    uint32_t tail;
    uint32_t seed;
    CUdeviceptr count;
};

/* `kernel` points into the driver, because its value is set when the kernels are loaded. */
static CUresult pattern_launch(struct cuda_driver *cuda, const CUfunction *kernel,
                               struct cuda_pattern *pattern, vmm_stream stream)
{
    CUresult result = kernels_load_once(cuda);
    if (result != CUDA_SUCCESS)
        return result;
    pattern->count = cuda->mismatches;
    uint64_t blocks = pattern->words / BLOCK_THREADS + 1;
    void *parameters[] = { &pattern->address, &pattern->words, &pattern->tail, &pattern->seed,
                           &pattern->count };
    return cuda->api->cuLaunchKernel(*kernel, (unsigned)vmm__min(blocks, cuda->blocks_limit), 1, 1,
                                     BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL);
}

static vmm_status pattern_submit(struct cuda_driver *cuda, const char *call,
                                 const CUfunction *kernel, struct cuda_pattern pattern,
                                 vmm_stream stream)
{
    if (!vmm__is_aligned(pattern.address, WORD_BYTES))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s(0x%" PRIx64 "): not a multiple of %d", call,
                          (uint64_t)pattern.address, WORD_BYTES);
    CUDA_CALLS(cuda, pattern_launch(cuda, kernel, &pattern, stream), VMM_ERR_DEVICE_OOM,
               "%s(0x%" PRIx64 ", %" PRIu64 " words) by a kernel on stream %p", call,
               (uint64_t)pattern.address, pattern.words, stream);
    return stream_status(&cuda->base, result, status);
}

static struct cuda_pattern pattern_of(uint64_t address, uint64_t bytes, uint32_t word)
{
    return (struct cuda_pattern){ .address = address,
                                  .words = bytes / WORD_BYTES,
                                  .tail = (uint32_t)(bytes % WORD_BYTES),
                                  .seed = word * 0x9E3779B1U };
}

vmm_status vmm__cuda_fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                          vmm_stream stream)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    return pattern_submit(cuda, "fill", &cuda->fill, pattern_of(address, bytes, word), stream);
}

vmm_status vmm__cuda_check(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                           vmm_stream stream)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    return pattern_submit(cuda, "check", &cuda->check, pattern_of(address, bytes, word), stream);
}

static CUresult delay_launch(struct cuda_driver *cuda, uint64_t ns, vmm_stream stream)
{
    void *parameters[] = { &ns };
    CUresult result = kernels_load_once(cuda);
    if (result != CUDA_SUCCESS)
        return result;
    return cuda->api->cuLaunchKernel(cuda->delay, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

vmm_status vmm__cuda_delay(struct driver *driver, uint64_t ns, vmm_stream stream)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    CUDA_CALLS(cuda, delay_launch(cuda, ns, stream), VMM_ERR_DEVICE_OOM,
               "delay(%" PRIu64 " ns) by a kernel on stream %p", ns, stream);
    return stream_status(driver, result, status);
}

static CUresult counter_read(struct cuda_driver *cuda, uint64_t *found)
{
    CUresult result = cuda->api->cuCtxSynchronize();
    VMM_HOLD(&cuda->kernels_lock);
    if (result == CUDA_SUCCESS && cuda->kernels != NULL)
        result = cuda->api->cuMemcpyDtoH_v2(found, cuda->mismatches, sizeof *found);
    return result;
}

vmm_status vmm__cuda_mismatches(struct driver *driver, uint64_t *places)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    uint64_t found = 0;
    CUDA_CALLS(cuda, counter_read(cuda, &found), VMM_ERR_HOST_OOM, "mismatches: read the counter");
    if (status == VMM_OK)
        *places = found;
    return status;
}
