/* The fake PyTorch: see fake_c10.hpp. */
#include "torch/shim/fake_c10.hpp"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

fake_c10 &fake()
{
    static fake_c10 state = {};
    return state;
}

/* ---- CUDA's runtime ------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = std::malloc(bytes);
    fake().blocks++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    std::free(ptr);
    fake().blocks--;
    return cudaSuccess;
}

/* In this process: a handle is the address. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
    *handle = {};
    std::memcpy(handle->reserved, &ptr, sizeof ptr);
    return fake().ipc_error;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned)
{
    std::memcpy(out, handle.reserved, sizeof *out);
    fake().ipc_opened++;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *)
{
    fake().ipc_opened--;
    return cudaSuccess;
}

static cudaError_t copy_note(const char *function, size_t bytes)
{
    fake().copy = { function, bytes };
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *, const void *, size_t bytes, cudaMemcpyKind)
{
    return copy_note("cudaMemcpy", bytes);
}

cudaError_t cudaMemcpyAsync(void *, const void *, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    return copy_note("cudaMemcpyAsync", bytes);
}

cudaError_t cudaMemcpyPeerAsync(void *, int, const void *, int, size_t bytes, cudaStream_t)
{
    return copy_note("cudaMemcpyPeerAsync", bytes);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    fake().peer = peer;
    return fake().peer_error;
}

cudaError_t cudaGetLastError()
{
    return fake().peer_error;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    static thread_local cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
    std::swap(now, *mode);
    return cudaSuccess;
}

static cudaError_t capture_tell(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                unsigned long long *id, const cudaGraphNode_t **last, size_t *count)
{
    auto found = fake().captures.find(stream);
    *status = cudaStreamCaptureStatusNone;
    if (found == fake().captures.end())
        return cudaSuccess;
    *status = cudaStreamCaptureStatusActive;
    *id = found->second.id;
    *last = found->second.last.data();
    *count = found->second.last.size();
    return cudaSuccess;
}

static cudaError_t dependencies_tell(cudaGraphNode_t node, cudaGraphNode_t *out, size_t *count)
{
    if (out != nullptr)
        std::copy(node->after.begin(), node->after.end(), out);
    *count = node->after.size();
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *,
                                     const cudaGraphNode_t **last, const cudaGraphEdgeData **,
                                     size_t *count)
{
    return capture_tell(stream, status, id, last, count);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out,
                                         cudaGraphEdgeData *, size_t *count)
{
    return dependencies_tell(node, out, count);
}
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *,
                                        const cudaGraphNode_t **last, size_t *count)
{
    return capture_tell(stream, status, id, last, count);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out, size_t *count)
{
    return dependencies_tell(node, out, count);
}
#endif

namespace c10
{

Error::Error(std::string text) : text_(std::move(text))
{
}

Error::~Error() = default;

const char *Error::what() const noexcept
{
    return text_.c_str();
}

Allocator::~Allocator() = default;

DeleterFnPtr Allocator::raw_deleter() const
{
    return nullptr;
}

DeviceAllocator::DeviceAllocator() = default;
DeviceAllocator::~DeviceAllocator() = default;
GatheredContext::~GatheredContext() = default;
FreeMemoryCallback::~FreeMemoryCallback() = default;

void SetAllocator(DeviceType, Allocator *allocator, uint8_t priority)
{
    if (priority < fake().priority)
        return;
    fake().registered = allocator;
    fake().priority = priority;
}

Allocator *GetAllocator(const DeviceType &)
{
    return fake().registered;
}

bool memoryProfilingEnabled()
{
    return fake().profiler.is_enabled;
}

void reportMemoryUsageToProfiler(void *, int64_t bytes, size_t allocated, size_t reserved, Device)
{
    fake().profiler.bytes += bytes;
    fake().profiler.allocated = allocated;
    fake().profiler.reserved = reserved;
}

void reportOutOfMemoryToProfiler(int64_t bytes, size_t, size_t, Device)
{
    fake().profiler.oom_bytes = bytes;
}

FreeMemoryRegistry *FreeCudaMemoryCallbacksRegistry()
{
    static FreeMemoryRegistry registry;
    return &registry;
}

namespace impl
{

struct fake_vtable final : PyInterpreterVTable {
    void trace_gpu_memory_allocation(DeviceType, uintptr_t ptr) const override
    {
        fake().trace.allocated = ptr;
    }
    void trace_gpu_memory_deallocation(DeviceType, uintptr_t ptr) const override
    {
        fake().trace.freed = ptr;
    }
};

const PyInterpreter *GPUTrace::get_trace()
{
    static const fake_vtable vtable;
    static const PyInterpreter interpreter = { &vtable };
    return fake().has_interpreter ? &interpreter : nullptr;
}

} // namespace impl

namespace cuda
{

DeviceIndex current_device()
{
    return fake().device;
}

CUDAStream getCurrentCUDAStream(DeviceIndex)
{
    return CUDAStream(Stream(fake().stream));
}

CUDAGuard::CUDAGuard(DeviceIndex device) : before_(fake().device)
{
    fake().device = device;
}

CUDAGuard::~CUDAGuard()
{
    fake().device = before_;
}

namespace CUDACachingAllocator
{

std::atomic<CUDAAllocator *> allocator{ nullptr };

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

/* ---- For Python's tests --------------------------------------------------------------------- */

extern "C" {

/* The name of the allocator in use; NULL: none was installed. */
C10_EXPORT const char *fake_allocator_name()
{
    static std::string name;
    auto *current = c10::cuda::CUDACachingAllocator::allocator.load();
    if (current == nullptr)
        return nullptr;
    name = current->name();
    return name.c_str();
}

C10_EXPORT void fake_init(int count)
{
    c10::cuda::CUDACachingAllocator::allocator.load()->init(count);
}

C10_EXPORT void *fake_alloc(size_t bytes)
{
    return c10::cuda::CUDACachingAllocator::allocator.load()->raw_alloc(bytes);
}

C10_EXPORT void fake_free(void *ptr)
{
    c10::cuda::CUDACachingAllocator::allocator.load()->raw_delete(ptr);
}

static uint64_t tracked_bytes;

/* Attaches a tracker that counts mapped bytes. Returns what is wrong; NULL: nothing. */
C10_EXPORT const char *fake_track()
{
    using c10::cuda::CUDACachingAllocator::TraceEntry;
    static std::string wrong;
    try {
        c10::cuda::CUDACachingAllocator::allocator.load()->attachAllocatorTraceTracker(
            [](const TraceEntry &entry) {
                if (entry.action_ == TraceEntry::SEGMENT_MAP)
                    tracked_bytes += entry.size_;
                if (entry.action_ == TraceEntry::SEGMENT_UNMAP)
                    tracked_bytes -= entry.size_;
            });
    } catch (const std::exception &error) {
        wrong = error.what();
        return wrong.c_str();
    }
    return nullptr;
}

C10_EXPORT uint64_t fake_tracked_bytes()
{
    return tracked_bytes;
}
}

bool c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments()
{
    return fake().is_expandable;
}

size_t c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions(size_t bytes)
{
    auto next = fake().divisions.upper_bound(bytes);
    return next == fake().divisions.begin() ? 0 : std::prev(next)->second;
}

#if VMM_TEST_TORCH >= 210
bool c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::graph_capture_record_stream_reuse()
{
    return fake().reuses_in_captures;
}

double c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::per_process_memory_fraction()
{
    return fake().memory_fraction;
}
#endif
