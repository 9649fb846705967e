/*
 * libcuda for programs that submit work of their own to a device beside a cache, and kernels for it:
 *
 *   test_write(address, bytes, value): sets each of `bytes` bytes to the low byte of the 32-bit `value`
 *   test_read(address, bytes): reads each byte
 *   test_spin(ns): one thread reads the device's clock until ns nanoseconds have passed
 *   test_trap(), test_assert(), test_misaligned(address): break the context, each with a different result
 *
 * One file of a program includes this, and has its own `cuda`. Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_TEST_LIBCUDA_H
#define VMM_TEST_LIBCUDA_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(name, exported name) */
#define LIBCUDA_CALL_MAP(X)                                                                        \
    X(cuInit, "cuInit")                                                                            \
    X(cuDeviceGet, "cuDeviceGet")                                                                  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                        \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")                                   \
    X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset_v2")                                       \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2")                                                     \
    X(cuCtxGetCurrent, "cuCtxGetCurrent")                                                          \
    X(cuCtxDestroy, "cuCtxDestroy_v2")                                                             \
    X(cuCtxSynchronize, "cuCtxSynchronize")                                                        \
    X(cuMemAddressReserve, "cuMemAddressReserve")                                                  \
    X(cuMemAddressFree, "cuMemAddressFree")                                                        \
    X(cuMemGetInfo, "cuMemGetInfo_v2")                                                             \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2")                                                             \
    X(cuStreamCreate, "cuStreamCreate")                                                            \
    X(cuModuleLoadData, "cuModuleLoadData")                                                        \
    X(cuModuleGetFunction, "cuModuleGetFunction")                                                  \
    X(cuLaunchKernel, "cuLaunchKernel")

enum { LIBCUDA_SKIPPED = 77, LIBCUDA_FAILED = 1, LIBCUDA_THREADS = 64 };

/* clang-format off */
/* The body of a kernel: thread n executes the instruction on bytes n, n + threads, n + 2 * threads, ... */
#define LIBCUDA_EACH_BYTE(instruction)         \
    "    .reg .pred more;\n"                   \
    "    .reg .u32 thread, threads;\n"         \
    "    .reg .u64 address, bytes, place, step, at;\n" \
    "    ld.param.u64 address, [address_];\n"  \
    "    ld.param.u64 bytes, [bytes_];\n"      \
    "    cvta.to.global.u64 address, address;\n" \
    "    mov.u32 thread, %tid.x;\n"            \
    "    mov.u32 threads, %ntid.x;\n"          \
    "    cvt.u64.u32 place, thread;\n"         \
    "    cvt.u64.u32 step, threads;\n"         \
    "next:\n"                                  \
    "    setp.lt.u64 more, place, bytes;\n"    \
    "    @!more bra done;\n"                   \
    "    add.u64 at, address, place;\n"        \
    "    " instruction ";\n"                   \
    "    add.u64 place, place, step;\n"        \
    "    bra next;\n"                          \
    "done:\n"                                  \
    "    ret;\n"                               \
    "}\n"

static const char libcuda_kernels[] =
    ".version 6.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".extern .func __assertfail(.param .b64 text, .param .b64 file, .param .b32 line, .param .b64 where,"
    " .param .b64 width);\n"
    ".global .align 1 .b8 words[8] = { 119, 114, 111, 110, 103, 0, 0, 0 };\n"
    ".visible .entry test_write(.param .u64 address_, .param .u64 bytes_, .param .u32 value_)\n"
    "{\n"
    "    .reg .u32 value;\n"
    "    ld.param.u32 value, [value_];\n"
    LIBCUDA_EACH_BYTE("st.global.u8 [at], value")
    ".visible .entry test_read(.param .u64 address_, .param .u64 bytes_)\n"
    "{\n"
    "    .reg .u32 value;\n"
    LIBCUDA_EACH_BYTE("ld.volatile.global.u8 value, [at]")
    ".visible .entry test_spin(.param .u64 ns_)\n"
    "{\n"
    "    .reg .pred more;\n"
    "    .reg .u64 ns, start, now;\n"
    "    ld.param.u64 ns, [ns_];\n"
    "    mov.u64 start, %globaltimer;\n"
    "again:\n"
    "    mov.u64 now, %globaltimer;\n"
    "    sub.u64 now, now, start;\n"
    "    setp.lt.u64 more, now, ns;\n"
    "    @more bra again;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry test_trap()\n"
    "{\n"
    "    trap;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry test_misaligned(.param .u64 address_)\n"
    "{\n"
    "    .reg .u64 address;\n"
    "    ld.param.u64 address, [address_];\n"
    "    cvta.to.global.u64 address, address;\n"
    "    st.global.u32 [address+1], 7;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry test_assert()\n"
    "{\n"
    "    .reg .u64 text;\n"
    "    mov.u64 text, words;\n"
    "    cvta.global.u64 text, text;\n"
    "    {\n"
    "    .param .b64 message;\n"
    "    .param .b64 file;\n"
    "    .param .b32 line;\n"
    "    .param .b64 where;\n"
    "    .param .b64 width;\n"
    "    st.param.b64 [message], text;\n"
    "    st.param.b64 [file], text;\n"
    "    st.param.b32 [line], 1;\n"
    "    st.param.b64 [where], text;\n"
    "    st.param.b64 [width], 1;\n"
    "    call.uni __assertfail, (message, file, line, where, width);\n"
    "    }\n"
    "    ret;\n"
    "}\n";
/* clang-format on */

static struct {
    void *library;
#define LIBCUDA_MEMBER(name, exported) __typeof__(name) *name;
    LIBCUDA_CALL_MAP(LIBCUDA_MEMBER)
#undef LIBCUDA_MEMBER
} cuda;

/* Finds a function; returns false and sets `member` to NULL if libcuda does not have it. */
static inline bool libcuda_find(const char *exported, void *member)
{
    void *found = dlsym(cuda.library, exported);
    memcpy(member, &found, sizeof found);
    return found != NULL;
}

/* Ends the program if there is no GPU: skipped, or failed if VMM_REQUIRE_GPU=1. */
static inline _Noreturn void libcuda_missing(const char *program, const char *why)
{
    const char *required = getenv("VMM_REQUIRE_GPU");
    bool is_required = required != NULL && strcmp(required, "1") == 0;
    (void)fprintf(stderr, "%s: %s: no GPU: %s\n", program, is_required ? "FAILED" : "SKIPPED", why);
    exit(is_required ? LIBCUDA_FAILED : LIBCUDA_SKIPPED);
}

/* Starts libcuda; returns its first device. */
static inline CUdevice libcuda_start(const char *program)
{
    CUdevice device = 0;
    cuda.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda.library == NULL)
        libcuda_missing(program, "libcuda.so.1 cannot be opened");
#define LIBCUDA_FIND(name, exported)                                                               \
    if (!libcuda_find(exported, &cuda.name))                                                       \
        libcuda_missing(program, "libcuda has no " exported);
    LIBCUDA_CALL_MAP(LIBCUDA_FIND)
#undef LIBCUDA_FIND
    if (cuda.cuInit(0) != CUDA_SUCCESS || cuda.cuDeviceGet(&device, 0) != CUDA_SUCCESS)
        libcuda_missing(program, "cuInit or cuDeviceGet failed");
    return device;
}

/* Launches one block of LIBCUDA_THREADS threads. */
static inline CUresult libcuda_launch(CUfunction kernel, CUstream stream, void **parameters)
{
    return cuda.cuLaunchKernel(kernel, 1, 1, 1, LIBCUDA_THREADS, 1, 1, 0, stream, parameters, NULL);
}

static inline CUresult libcuda_write(CUfunction kernel, void *address, uint64_t bytes,
                                     uint32_t value, CUstream stream)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    void *parameters[] = { &at, &bytes, &value };
    return libcuda_launch(kernel, stream, parameters);
}

#endif
