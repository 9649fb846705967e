/*
 * The parts of the fake libcuda: see fake_cuda.h.
 *
 *   fake_cuda.c    start, devices, contexts
 *   fake_memory.c  memory that is mapped; copies
 *   fake_plain.c   memory that is allocated; pools
 *   fake_work.c    events, streams; finding calls by name
 *   fake_kernel.c  kernels
 */
#ifndef VMM_FAKE_INTERNAL_H
#define VMM_FAKE_INTERNAL_H

#include "fake_cuda.h"

#include "driver/cuda/internal.h"
#include "preload/hooks.h"

#define EXPORT __attribute__((visibility("default")))

/* A primary context keeps its address for ever, like CUDA's, and gets a new id each time that it is made. The memory
 * belongs to the device: it outlives the context while any of it is allocated. */
struct context {
    _Atomic bool is_made; /* the context exists */
    struct driver *memory;
    unsigned long long id;
    uint64_t mismatches; /* the counter of the kernels */
    _Atomic int broken;  /* the result of every call since a kernel failed; 0: none has */
};

extern struct fake_cuda fake_cuda;
extern struct context fake_contexts[FAKE_DEVICES];
extern bool fake_has_peers;
extern _Atomic bool fake_has_failed; /* a call was made to fail */

/* The thread's current context; NULL: none. */
struct context *fake_context(void);

/* Every call begins with this; returns CUDA_SUCCESS if the call may proceed. */
CUresult fake_call(const char *call);

/* Counts a violation of CUDA's rules, and returns `result`. */
CUresult fake_misuse(const char *call, const char *what, CUresult result);

CUresult fake_result(const char *call, vmm_status status);

#define CALL_BEGIN()                                                                               \
    CUresult begun = fake_call(__func__);                                                          \
    if (begun != CUDA_SUCCESS)                                                                     \
    return begun

/* Begins a call that needs a context; defines `context` and its `memory`. */
#define CONTEXT_CALL_BEGIN()                                                                       \
    CALL_BEGIN();                                                                                  \
    struct context *context = fake_context();                                                      \
    if (context == NULL)                                                                           \
        return fake_misuse(__func__, "no context is current", CUDA_ERROR_INVALID_CONTEXT);         \
    struct driver *memory = context->memory;                                                       \
    if (!context->is_made)                                                                         \
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;                                                    \
    if (context->broken != 0)                                                                      \
    return (CUresult)context->broken

#endif
