/*
 * The parts of the fake libcuda: see fake_cuda.h.
 *
 *   fake_cuda.c    start, devices, contexts
 *   fake_memory.c  memory
 *   fake_work.c    events, streams; finding calls by name
 *   fake_kernel.c  kernels
 */
#ifndef VMM_FAKE_INTERNAL_H
#define VMM_FAKE_INTERNAL_H

#include "fake_cuda.h"

#include "driver/cuda_internal.h"

#define EXPORT __attribute__((visibility("default")))

/* A primary context keeps its address for ever, like CUDA's, and has a new id each time that it is made. The memory
 * is the device's: it outlives the context while any of it is taken. */
struct context {
    _Atomic bool is_made; /* there is one now */
    struct driver *memory;
    unsigned long long id;
    uint64_t mismatches; /* where the kernels count them: the only memory that is not virtual */
    _Atomic int
        broken; /* what a kernel has made every call give until the context ends; 0: nothing */
};

extern struct fake_cuda fake_cuda;
extern struct context fake_contexts[FAKE_DEVICES];
extern bool fake_has_peers;
extern _Atomic bool fake_has_failed; /* some call was made to, so far */

/* The context that is current on this thread; NULL: none. */
struct context *fake_context(void);

/* What every call does first: CUDA_SUCCESS if it may go on. */
CUresult fake_call(const char *call);

/* Counts what a careful program does not do, and returns `result`. */
CUresult fake_misuse(const char *call, const char *what, CUresult result);

CUresult fake_result(const char *call, vmm_status status);

#define CALL_BEGIN()                                                                               \
    CUresult begun = fake_call(__func__);                                                          \
    if (begun != CUDA_SUCCESS)                                                                     \
    return begun

/* For calls in a context: `context` and its `memory`. */
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
