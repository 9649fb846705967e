/*
 * Shared by the files of the cuda driver only.
 *
 *   cuda.c     opens and closes the driver; the table
 *   api.c      loads libcuda, translates its results
 *   probe.c    device attributes, and a self-test of every memory call
 *   memory.c   reservations, handles, mappings
 *   share.c    exported and imported handles, pinned memory
 *   plain.c    the same without mappings: one allocation
 *   work.c     events, streams, copies; the kernels of fill, check and delay
 *   clock.c    events of all work
 *   kernels.h  those kernels
 *
 * Owns: nothing. May be called by: driver/cuda. Locks: kernels_lock guards the loading of the kernels, clock.lock what
 * clock.c owns; nothing else changes after open.
 */
#ifndef VMM_DRIVER_CUDA_INTERNAL_H
#define VMM_DRIVER_CUDA_INTERNAL_H

#include "base/mutex.h"
#include "driver/driver.h"

#include <cuda.h>

/* ---- api.c ----------------------------------------------------------------------------------- */

/* X(exported name, name to look up, CUDA version of this form). cuda.h redirects some names to others, so the exported
 * name is always written out. */
#define CUDA_CALL_MAP(X)                                                                           \
    X(cuInit, "cuInit", 2000)                                                                      \
    X(cuDriverGetVersion, "cuDriverGetVersion", 2020)                                              \
    X(cuGetErrorName, "cuGetErrorName", 6000)                                                      \
    X(cuGetErrorString, "cuGetErrorString", 6000)                                                  \
    X(cuDeviceGetCount, "cuDeviceGetCount", 2000)                                                  \
    X(cuDeviceGet, "cuDeviceGet", 2000)                                                            \
    X(cuDeviceGetName, "cuDeviceGetName", 2000)                                                    \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000)                                          \
    X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000)                                        \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)                                  \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000)                            \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", 4000)                                                    \
    X(cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000)                                               \
    X(cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000)                                                 \
    X(cuCtxSynchronize, "cuCtxSynchronize", 2000)                                                  \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010)               \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020)                                                       \
    X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020)                       \
    X(cuMemAddressReserve, "cuMemAddressReserve", 10020)                                           \
    X(cuMemAddressFree, "cuMemAddressFree", 10020)                                                 \
    X(cuMemCreate, "cuMemCreate", 10020)                                                           \
    X(cuMemRelease, "cuMemRelease", 10020)                                                         \
    X(cuMemMap, "cuMemMap", 10020)                                                                 \
    X(cuMemUnmap, "cuMemUnmap", 10020)                                                             \
    X(cuMemSetAccess, "cuMemSetAccess", 10020)                                                     \
    X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020)                         \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020)                     \
    X(cuMemHostRegister_v2, "cuMemHostRegister", 6050)                                             \
    X(cuMemHostUnregister, "cuMemHostUnregister", 4000)                                            \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020)                                                           \
    X(cuMemFree_v2, "cuMemFree", 3020)                                                             \
    X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020)                                                       \
    X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020)                                                       \
    X(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020)                                             \
    X(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020)                                             \
    X(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020)                                             \
    X(cuMemsetD8Async, "cuMemsetD8Async", 3020)                                                    \
    X(cuStreamSynchronize, "cuStreamSynchronize", 2000)                                            \
    X(cuEventCreate, "cuEventCreate", 2000)                                                        \
    X(cuEventDestroy_v2, "cuEventDestroy", 4000)                                                   \
    X(cuEventRecord, "cuEventRecord", 2000)                                                        \
    X(cuEventQuery, "cuEventQuery", 2000)                                                          \
    X(cuEventSynchronize, "cuEventSynchronize", 2000)                                              \
    X(cuStreamCreate, "cuStreamCreate", 2000)                                                      \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000)                                                 \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", 3020)                                                \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", 10000)                                           \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010)                                      \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000)                                             \
    X(cuGraphDestroy, "cuGraphDestroy", 10000)                                                     \
    X(cuModuleLoadData, "cuModuleLoadData", 2000)                                                  \
    X(cuModuleUnload, "cuModuleUnload", 2000)                                                      \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000)                                            \
    X(cuLaunchKernel, "cuLaunchKernel", 4000)

/* Functions that older drivers do not have: NULL there. */
#define CUDA_OPTIONAL_CALL_MAP(X)                                                                  \
    X(cuCtxGetId, "cuCtxGetId", 12000)                                                             \
    X(cuCtxRecordEvent, "cuCtxRecordEvent", 12050)                                                 \
    X(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000)                              \
    X(cuStreamGetCtx, "cuStreamGetCtx", 9020)                                                      \
    X(cuStreamGetCtx_v2, "cuStreamGetCtx", 12050)                                                  \
    X(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040)                                                \
    X(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", 11070)

/* cuda.h before 12.5 does not declare them. */
typedef struct CUgreenCtx_st *CUgreenCtx;
CUresult cuCtxRecordEvent(CUcontext context, CUevent event);
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green);

struct cuda_api {
#define CUDA_API_MEMBER(name, asked, version) __typeof__(name) *name;
    CUDA_CALL_MAP(CUDA_API_MEMBER)
    CUDA_OPTIONAL_CALL_MAP(CUDA_API_MEMBER)
#undef CUDA_API_MEMBER
};

/* Loads and starts libcuda once for the process; it is never closed. Fails with ERR_NO_DEVICE, ERR_UNSUPPORTED,
 * ERR_HOST_OOM or ERR_FORKED. */
vmm_status vmm__cuda_api_start(const struct cuda_api **out);

/* Every libcuda call runs between these two; pairs may nest. begin returns false once exit() has begun or libcuda is
 * shutting down: then make no call, and do not call end. */
bool vmm__cuda_calls_begin(void);
void vmm__cuda_calls_end(void);

/* Whether the context of a call was reset, destroyed or broken: its work has ended. */
bool vmm__cuda_is_loss(CUresult result);

/* Translates a result. On failure sets the error line: the call as `format` describes it, then the name, number and
 * text of the result. `no_memory` is the status for OUT_OF_MEMORY from this call. */
vmm_status vmm__cuda_status(const struct cuda_api *api, CUresult result, vmm_status no_memory,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* cuda.h before 12.3 does not name it. */
#define CUDA_HANDLE_TYPE_FABRIC ((CUmemAllocationHandleType)0x8)

/* ---- cuda.c ---------------------------------------------------------------------------------- */

vmm_status vmm__cuda_device_count(const struct cuda_api *api, int *count);

enum { CUDA_PEERS = 64 }; /* the bits of vmm_config.peer_devices */

/* Another device, and the event of its primary context. */
struct cuda_peer {
    CUdevice device;
    CUevent event; /* NULL: none yet */
    unsigned long long context_id;
};

/* See clock.c. */
struct cuda_clock {
    struct mutex lock;
    CUstream stream; /* NULL until another device's context is active */
    CUevent event;
    int peer_count;
    struct cuda_peer peers[CUDA_PEERS];
};

struct cuda_driver {
    struct driver base;
    const struct cuda_api *api;
    CUdevice device;
    CUcontext context;  /* the primary context, retained */
    bool is_integrated; /* the device's memory is the system's: see system_memory.h */
    bool has_context_id;
    unsigned long long context_id; /* changes if the context is reset */
    CUmemAllocationProp property;
    bool has_dmabuf; /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
    struct cuda_clock clock;

    struct mutex kernels_lock;
    CUmodule kernels; /* NULL until the first fill, check or delay */
    CUfunction fill;
    CUfunction check;
    CUfunction delay;
    CUdeviceptr mismatches; /* a 64-bit counter on the device */
    unsigned blocks_limit;

    /* The table if memory is plain; plain memory also uses the fields below. */
    struct driver_ops plain_ops;
    CUdeviceptr plain_allocation;
    _Atomic uint64_t plain_bytes;   /* created and not released */
    _Atomic uint64_t plain_handles; /* total ever created */
};

static inline struct cuda_driver *vmm__cuda_of(struct driver *driver)
{
    return (struct cuda_driver *)driver;
}

/* enter makes our context current on this thread and relaxes the capture mode, so that calls which a stream capture in
 * this process forbids succeed. leave restores both. ERR_LOST if the context is not the one of open, or CUDA has shut
 * down. */
struct cuda_scope {
    bool pushed;
    CUstreamCaptureMode capture_mode;
};
vmm_status vmm__cuda_enter(const struct cuda_driver *cuda, struct cuda_scope *scope);
void vmm__cuda_leave(const struct cuda_driver *cuda, const struct cuda_scope *scope);

/* Like enter, for releases: once the device is lost, it neither checks the context nor makes it current, because mapped
 * memory belongs to no context. */
vmm_status vmm__cuda_enter_for_release(const struct cuda_driver *cuda, struct cuda_scope *scope);

/* Evaluates `calls`, an expression that calls libcuda, between enter() and leave, and declares `status` and `result`.
 * The arguments after it go to vmm__cuda_status(). */
#define CUDA_CALLS_WITHIN(enter, cuda, calls, ...)                                                 \
    struct cuda_scope scope;                                                                       \
    CUresult result = CUDA_SUCCESS;                                                                \
    vmm_status status = enter((cuda), &scope);                                                     \
    if (status == VMM_OK) {                                                                        \
        result = (calls);                                                                          \
        vmm__cuda_leave((cuda), &scope);                                                           \
        status = vmm__cuda_status((cuda)->api, result, __VA_ARGS__);                               \
    }

#define CUDA_CALLS(cuda, calls, ...) CUDA_CALLS_WITHIN(vmm__cuda_enter, cuda, calls, __VA_ARGS__)

/* The same for one function of the table of libcuda. */
#define CUDA_CALL(cuda, call, ...) CUDA_CALLS(cuda, (cuda)->api->call, __VA_ARGS__)
#define CUDA_RELEASE(cuda, call, ...)                                                              \
    CUDA_CALLS_WITHIN(vmm__cuda_enter_for_release, cuda, (cuda)->api->call, __VA_ARGS__)

/* ---- plain.c --------------------------------------------------------------------------------- */

/* Switches to plain memory; the remaining operations come from `ops`. device_bytes 0 selects a share of the free
 * memory. ERR_DEVICE_OOM if that is less than one granule. */
vmm_status vmm__cuda_plain_begin(struct cuda_driver *cuda, const struct driver_ops *ops,
                                 uint64_t device_bytes);

/* ---- probe.c --------------------------------------------------------------------------------- */

/* Reads the device's attributes, sets the properties of its memory, and peer_devices to those of the devices that can
 * access it. The caller has made the context current. */
vmm_status vmm__cuda_device_read(struct cuda_driver *cuda, uint64_t peer_devices);

/* Makes each memory call on one granule and leaves nothing allocated. ERR_UNSUPPORTED names the call that failed;
 * ERR_DEVICE_OOM and ERR_LOST pass through. Then maps the granule at a second address, and exports and imports another
 * one, and records an event of all work. If one of these fails with any status but ERR_LOST, clears has_aliases,
 * has_sharing or has_clock, sets alias_failure, sharing_failure or clock_failure, and still succeeds. */
vmm_status vmm__cuda_self_test(struct cuda_driver *cuda);

/* ---- memory.c, share.c, work.c ------------------------------------------------------------------------ */

#define CUDA_OP_DECLARE(name, parameters, arguments) vmm_status vmm__cuda_##name parameters;
VMM_DRIVER_MAP(CUDA_OP_DECLARE, struct driver *driver, )
#undef CUDA_OP_DECLARE
vmm_status vmm__cuda_stream_check(struct driver *driver, vmm_stream stream);

/* ERR_UNSUPPORTED, with the reason why memory cannot be shared. */
vmm_status vmm__cuda_sharing_refuse(const struct driver *driver);

/* Lists the other devices; and ends what clock_record made. The caller has made the context current. */
vmm_status vmm__cuda_clock_open(struct cuda_driver *cuda);
void vmm__cuda_clock_close(struct cuda_driver *cuda);

/* Unloads the kernels. The caller has made the context current and waited for its work. */
void vmm__cuda_kernels_unload(struct cuda_driver *cuda);

#endif
