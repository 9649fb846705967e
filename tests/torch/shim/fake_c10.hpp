/*
 * What tests set and see of the PyTorch that is not there: see include/c10/fake.h. fake_c10.cpp is both libc10.so and
 * libc10_cuda.so of a fake PyTorch.
 */
#ifndef VMM_TEST_FAKE_C10_HPP
#define VMM_TEST_FAKE_C10_HPP

#include "c10/fake.h"

struct fake_profiler {
    bool is_enabled;
    int64_t bytes; /* sum of what was reported */
    size_t allocated, reserved;
    int64_t oom_bytes;
};

struct fake_copy {
    const char *function; /* the last function of CUDA that copied */
    size_t bytes;
};

struct fake_gpu_trace {
    uintptr_t allocated, freed; /* the last ones */
};

/* A node of a graph that is being captured, and where its streams are. */
struct CUgraphNode_st {
    std::vector<cudaGraphNode_t> after;
};
struct fake_capture {
    unsigned long long id;
    std::vector<cudaGraphNode_t> last;
};

struct fake_c10 {
    c10::DeviceIndex device;
    cudaStream_t stream;
    bool has_interpreter;
    fake_profiler profiler;
    fake_copy copy;
    int blocks; /* of cudaMalloc() */
    fake_gpu_trace trace;
    int ipc_opened;        /* handles of CUDA that are open */
    cudaError_t ipc_error; /* of CUDA, for memory that it cannot share */
    int peer;              /* the last device that CUDA was asked to give access to; -1: none */
    cudaError_t peer_error;
    c10::Allocator *registered;
    uint8_t priority;
    double memory_fraction = 1.0; /* of PYTORCH_ALLOC_CONF */
    bool reuses_in_captures;      /* the same */
    bool is_expandable;           /* the same */
    /* the same, of sizes from each power of two on; without an entry 0 */
    std::map<size_t, size_t> divisions;
    std::map<cudaStream_t, fake_capture> captures;
};

C10_EXPORT fake_c10 &fake();

#endif
