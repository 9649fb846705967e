/*
 * The functions of libcuda that libvmmcache_preload replaces, and those that it calls.
 *
 * X(name, like, asked, version, flags): the exported name; a function with the same type; the name by which
 * cuGetProcAddress() knows it, the CUDA version of this form, and the flags that select it. cuda.h redirects some names
 * to others, so every name is written out. A name that cuda.h does not declare is declared here.
 *
 * Owns: nothing. May be included by: preload. Locks: none.
 */
#ifndef VMM_PRELOAD_HOOKS_H
#define VMM_PRELOAD_HOOKS_H

#include <cuda.h>

#undef cuGetProcAddress

/* cuGetProcAddress() before CUDA 12. */
typedef CUresult preload_proc_address_v1(const char *symbol, void **found, int version,
                                         cuuint64_t flags);

#define PRELOAD_LEGACY          CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define PRELOAD_PER_THREAD_FORM CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

/* clang-format off */

/* With a second form, NAME_ptsz, in which stream 0 is the thread's own default stream. */
#define PRELOAD_TWICE(X, name, version)                                                            \
    X(name, name, #name, version, PRELOAD_LEGACY)                                                  \
    X(name##_ptsz, name, #name, version, PRELOAD_PER_THREAD_FORM)

/* How captures begin and end. */
#define PRELOAD_CAPTURE_MAP(X)                                                                     \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, PRELOAD_LEGACY) \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, PRELOAD_PER_THREAD_FORM) \
    PRELOAD_CAPTURE_TO_GRAPH(X)                                                                    \
    PRELOAD_TWICE(X, cuStreamEndCapture, 10000)

#if CUDA_VERSION >= 12030
#define PRELOAD_CAPTURE_TO_GRAPH(X) PRELOAD_TWICE(X, cuStreamBeginCaptureToGraph, 12030)
#else
#define PRELOAD_CAPTURE_TO_GRAPH(X)
#endif

#define PRELOAD_HOOK_MAP(X)                                                                        \
    X(cuGetProcAddress, preload_proc_address_v1_like, "cuGetProcAddress", 11030, PRELOAD_LEGACY)   \
    X(cuGetProcAddress_v2, cuGetProcAddress_v2, "cuGetProcAddress", 12000, PRELOAD_LEGACY)         \
    X(cuMemAlloc_v2, cuMemAlloc_v2, "cuMemAlloc", 3020, PRELOAD_LEGACY)                            \
    X(cuMemAllocPitch_v2, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, PRELOAD_LEGACY)             \
    X(cuMemFree_v2, cuMemFree_v2, "cuMemFree", 3020, PRELOAD_LEGACY)                               \
    PRELOAD_TWICE(X, cuMemAllocAsync, 11020)                                                       \
    PRELOAD_TWICE(X, cuMemAllocFromPoolAsync, 11020)                                               \
    PRELOAD_TWICE(X, cuMemFreeAsync, 11020)                                                        \
    X(cuMemPoolCreate, cuMemPoolCreate, "cuMemPoolCreate", 11020, PRELOAD_LEGACY)                  \
    X(cuMemPoolDestroy, cuMemPoolDestroy, "cuMemPoolDestroy", 11020, PRELOAD_LEGACY)               \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, PRELOAD_LEGACY)                  \
    X(cuMemCreate, cuMemCreate, "cuMemCreate", 10020, PRELOAD_LEGACY)                              \
    X(cuMemGetInfo_v2, cuMemGetInfo_v2, "cuMemGetInfo", 3020, PRELOAD_LEGACY)                      \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, PRELOAD_LEGACY) \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, PRELOAD_LEGACY) \
    X(cuPointerGetAttribute, cuPointerGetAttribute, "cuPointerGetAttribute", 4000, PRELOAD_LEGACY) \
    X(cuPointerGetAttributes, cuPointerGetAttributes, "cuPointerGetAttributes", 7000, PRELOAD_LEGACY) \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, PRELOAD_LEGACY)             \
    X(cuStreamDestroy_v2, cuStreamDestroy_v2, "cuStreamDestroy", 4000, PRELOAD_LEGACY)             \
    PRELOAD_CAPTURE_MAP(X)                                                                         \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, PRELOAD_LEGACY)

/* Without one of these there are no caches. */
#define PRELOAD_NEEDED_MAP(X)                                                                      \
    X(cuCtxGetCurrent, cuCtxGetCurrent, "cuCtxGetCurrent", 4000, PRELOAD_LEGACY)                   \
    X(cuCtxGetDevice, cuCtxGetDevice, "cuCtxGetDevice", 2000, PRELOAD_LEGACY)                      \
    X(cuCtxPushCurrent_v2, cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000, PRELOAD_LEGACY)          \
    X(cuCtxPopCurrent_v2, cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000, PRELOAD_LEGACY)             \
    X(cuCtxSynchronize, cuCtxSynchronize, "cuCtxSynchronize", 2000, PRELOAD_LEGACY)                \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, PRELOAD_LEGACY) \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, PRELOAD_LEGACY) \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, PRELOAD_LEGACY) \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,                           \
      "cuThreadExchangeStreamCaptureMode", 10010, PRELOAD_LEGACY)                                    \
    X(cuEventCreate, cuEventCreate, "cuEventCreate", 2000, PRELOAD_LEGACY)                         \
    X(cuEventDestroy_v2, cuEventDestroy_v2, "cuEventDestroy", 4000, PRELOAD_LEGACY)                \
    X(cuEventRecord, cuEventRecord, "cuEventRecord", 2000, PRELOAD_LEGACY)                         \
    X(cuStreamCreate, cuStreamCreate, "cuStreamCreate", 2000, PRELOAD_LEGACY)                      \
    X(cuStreamIsCapturing, cuStreamIsCapturing, "cuStreamIsCapturing", 10000, PRELOAD_LEGACY)      \
    X(cuStreamSynchronize, cuStreamSynchronize, "cuStreamSynchronize", 2000, PRELOAD_LEGACY)       \
    X(cuStreamWaitEvent, cuStreamWaitEvent, "cuStreamWaitEvent", 3020, PRELOAD_LEGACY)

#define PRELOAD_USED_MAP(X)                                                                        \
    PRELOAD_NEEDED_MAP(X)                                                                          \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, "cuDeviceGetMemPool", 11020, PRELOAD_LEGACY)         \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, PRELOAD_LEGACY)

/* clang-format on */

/* Only for its type. */
preload_proc_address_v1 preload_proc_address_v1_like;

#define PRELOAD_DECLARE(name, like, asked, version, flags) __typeof__(like) name;
PRELOAD_HOOK_MAP(PRELOAD_DECLARE)
#undef PRELOAD_DECLARE

#endif
