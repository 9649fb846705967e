/*
 * libcuda as a program finds it: by linking (a), by dlsym() (b), by cuGetProcAddress() (c), as the CUDA runtime does.
 * The libcuda is the fake one (life/fake/fake_cuda.h), and LD_PRELOAD may put libvmmcache_preload before it.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_PRELOAD_SUPPORT_H
#define VMM_PRELOAD_SUPPORT_H

#include "life/fake/fake_cuda.h"
#include "preload/hooks.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

/* Functions of libcuda that the preload library does not know. */
#define PROGRAM_CALL_MAP(X)                                                                        \
    X(cuInit, cuInit, "cuInit", 2000, PRELOAD_LEGACY)                                              \
    X(cuMemsetD8Async, cuMemsetD8Async, "cuMemsetD8Async", 3020, PRELOAD_LEGACY)

struct calls {
#define CALL_MEMBER(name, like, asked, version, flags) __typeof__(like) *name;
    PRELOAD_HOOK_MAP(CALL_MEMBER)
    PRELOAD_USED_MAP(CALL_MEMBER)
    PROGRAM_CALL_MAP(CALL_MEMBER)
#undef CALL_MEMBER
};

static struct calls cuda;
static struct fake_cuda *fake;
static CUcontext contexts[2];

static inline void call_store(const char *name, void *found, void *member)
{
    if (found == NULL)
        (void)fprintf(stderr, "%s was not found\n", name);
    assert_non_null(found);
    memcpy(member, &found, sizeof found);
}

static inline void calls_link(void)
{
#define CALL_LINK(name, like, asked, version, flags) cuda.name = name;
    PRELOAD_HOOK_MAP(CALL_LINK)
    PRELOAD_USED_MAP(CALL_LINK)
    PROGRAM_CALL_MAP(CALL_LINK)
#undef CALL_LINK
}

static inline void calls_find(void *library)
{
#define CALL_FIND(name, like, asked, version, flags)                                               \
    call_store(#name, dlsym(library, #name), &cuda.name);
    PRELOAD_HOOK_MAP(CALL_FIND)
    PRELOAD_USED_MAP(CALL_FIND)
    PROGRAM_CALL_MAP(CALL_FIND)
#undef CALL_FIND
}

static inline void *call_ask(const char *asked, cuuint64_t flags)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult state;
    (void)cuda.cuGetProcAddress_v2(asked, &found, CUDA_VERSION, flags, &state);
    return found;
}

static inline void calls_ask(void *library)
{
    call_store("cuGetProcAddress_v2", dlsym(library, "cuGetProcAddress_v2"),
               &cuda.cuGetProcAddress_v2);
#define CALL_ASK(name, like, asked, version, flags)                                                \
    call_store(#name, call_ask(asked, flags), &cuda.name);
    PRELOAD_HOOK_MAP(CALL_ASK)
    PRELOAD_USED_MAP(CALL_ASK)
    PROGRAM_CALL_MAP(CALL_ASK)
#undef CALL_ASK
}

/* Finds the functions by one of the routes, and makes the primary context of device 0 current. */
static inline void cuda_start(const char *route)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    fake = dlsym(library, "fake_cuda");
    assert_non_null(fake);
    if (strcmp(route, "linked") == 0)
        calls_link();
    else if (strcmp(route, "dlsym") == 0)
        calls_find(library);
    else
        calls_ask(library);
    assert_int_equal(cuda.cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&contexts[i], i), CUDA_SUCCESS);
    assert_int_equal(cuda.cuCtxPushCurrent_v2(contexts[0]), CUDA_SUCCESS);
}

static inline CUdeviceptr block_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    assert_int_equal(cuda.cuMemAlloc_v2(&block, bytes), CUDA_SUCCESS);
    assert_true(block != 0 && block % 512 == 0);
    return block;
}

static inline void block_free(CUdeviceptr block)
{
    assert_int_equal(cuda.cuMemFree_v2(block), CUDA_SUCCESS);
}

static inline CUstream stream_create(void)
{
    CUstream stream = NULL;
    assert_int_equal(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

static inline size_t free_bytes(void)
{
    size_t bytes = 0;
    size_t total = 0;
    assert_int_equal(cuda.cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
    assert_true(bytes <= total);
    return bytes;
}

static inline void fault_set(const char *call, int result)
{
    fake->fail_result = result;
    fake->fail_from = 1;
    fake->fail_count = 0;
    (void)snprintf(fake->fail_call, sizeof fake->fail_call, "%s", call);
}

#endif
