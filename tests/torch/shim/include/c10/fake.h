/*
 * The shape of the part of PyTorch's C++ interface that the shim uses, without PyTorch: types, virtual functions and
 * macros, and no behaviour beyond what the tests need. VMM_TEST_TORCH is the version: 209, 210, 211, or 212 for what
 * follows. The headers that PyTorch has are beside it and include this one.
 */
#ifndef VMM_TEST_FAKE_C10_H
#define VMM_TEST_FAKE_C10_H

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#ifndef VMM_TEST_TORCH
#define VMM_TEST_TORCH 211
#endif

/* Some functions of the runtime have other parameters since CUDA 13. */
#if VMM_TEST_TORCH >= 211
#define CUDART_VERSION 13000
#else
#define CUDART_VERSION 12080
#endif

#define C10_EXPORT      __attribute__((visibility("default")))
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))

/* ---- CUDA's runtime ------------------------------------------------------------------------- */

struct CUstream_st;
using cudaStream_t = CUstream_st *;
struct CUgraph_st;
using cudaGraph_t = CUgraph_st *;
struct CUgraphNode_st;
using cudaGraphNode_t = CUgraphNode_st *;
struct cudaGraphEdgeData;
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaError_t { cudaSuccess = 0, cudaErrorPeerAccessAlreadyEnabled = 704 };
struct cudaIpcMemHandle_t {
    char reserved[64];
};
constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };

extern "C" {
C10_EXPORT cudaError_t cudaMalloc(void **out, size_t bytes);
C10_EXPORT cudaError_t cudaFree(void *ptr);
C10_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr);
C10_EXPORT cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags);
C10_EXPORT cudaError_t cudaIpcCloseMemHandle(void *ptr);
C10_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
C10_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                       cudaMemcpyKind kind, cudaStream_t stream);
C10_EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from,
                                           int from_device, size_t bytes, cudaStream_t stream);
C10_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
C10_EXPORT cudaError_t cudaGetLastError();
C10_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);
#if CUDART_VERSION >= 13000
C10_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                cudaStreamCaptureStatus *status,
                                                unsigned long long *id, cudaGraph_t *graph,
                                                const cudaGraphNode_t **last,
                                                const cudaGraphEdgeData **edges, size_t *count);
C10_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out,
                                                    cudaGraphEdgeData *edges, size_t *count);
#else
C10_EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                   cudaStreamCaptureStatus *status,
                                                   unsigned long long *id, cudaGraph_t *graph,
                                                   const cudaGraphNode_t **last, size_t *count);
C10_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out,
                                                    size_t *count);
#endif
}

namespace c10
{

/* ---- Errors --------------------------------------------------------------------------------- */

class C10_EXPORT Error : public std::exception
{
  public:
    explicit Error(std::string text); /* its symbol has the C++ ABI in its name */
    ~Error() override;
    const char *what() const noexcept override;

  private:
    std::string text_;
};
class C10_EXPORT OutOfMemoryError : public Error
{
    using Error::Error;
};
class C10_EXPORT NotImplementedError : public Error
{
    using Error::Error;
};

template <class... Parts> std::string text_join(const Parts &...parts)
{
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

#define TORCH_CHECK_WITH(type, condition, ...)                                                     \
    if (!(condition))                                                                              \
    throw ::c10::type(::c10::text_join(__VA_ARGS__))
#define TORCH_CHECK(condition, ...) TORCH_CHECK_WITH(Error, condition, __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...)                                                \
    TORCH_CHECK_WITH(NotImplementedError, condition, __VA_ARGS__)
#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess, "a call of CUDA failed")

/* ---- Devices, streams, pointers ------------------------------------------------------------- */

using DeviceIndex = int8_t;
enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCUDA = DeviceType::CUDA;

class Device
{
  public:
    Device(DeviceType type, DeviceIndex index) : type_(type), index_(index)
    {
    }
    DeviceType type() const
    {
        return type_;
    }
    DeviceIndex index() const
    {
        return index_;
    }

  private:
    DeviceType type_;
    DeviceIndex index_;
};

/* PyTorch's has a device and a number; the tests' has the handle of CUDA. */
class Stream
{
  public:
    explicit Stream(cudaStream_t handle) : handle_(handle)
    {
    }
    cudaStream_t handle() const
    {
        return handle_;
    }

  private:
    cudaStream_t handle_;
};

using DeleterFnPtr = void (*)(void *);

class DataPtr
{
  public:
    DataPtr() : data_(nullptr), context_(nullptr, nullptr), device_(DeviceType::CPU, -1)
    {
    }
    DataPtr(void *data, void *context, DeleterFnPtr deleter, Device device)
        : data_(data), context_(context, deleter), device_(device)
    {
    }
    void *get() const
    {
        return data_;
    }
    void *get_context() const
    {
        return context_.get();
    }
    void *release_context()
    {
        return context_.release();
    }
    DeleterFnPtr get_deleter() const
    {
        return context_.get_deleter();
    }
    bool compare_exchange_deleter(DeleterFnPtr expected, DeleterFnPtr deleter)
    {
        if (get_deleter() != expected)
            return false;
        context_ = { context_.release(), deleter };
        return true;
    }
    Device device() const
    {
        return device_;
    }

  private:
    void *data_;
    std::unique_ptr<void, DeleterFnPtr> context_;
    Device device_;
};

/* ---- Allocators ----------------------------------------------------------------------------- */

struct C10_EXPORT Allocator {
    virtual ~Allocator();
    virtual DataPtr allocate(size_t bytes) = 0;
    virtual DeleterFnPtr raw_deleter() const;
    virtual void copy_data(void *to, const void *from, std::size_t bytes) const = 0;
};

C10_EXPORT void SetAllocator(DeviceType type, Allocator *allocator, uint8_t priority = 0);
C10_EXPORT Allocator *GetAllocator(const DeviceType &type);

C10_EXPORT bool memoryProfilingEnabled();
C10_EXPORT void reportMemoryUsageToProfiler(void *ptr, int64_t bytes, size_t allocated,
                                            size_t reserved, Device device);
C10_EXPORT void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved,
                                            Device device);

struct C10_EXPORT GatheredContext {
    virtual ~GatheredContext();
};

using CaptureId_t = unsigned long long;
using MempoolId_t = std::pair<CaptureId_t, CaptureId_t>;
using approx_time_t = long long;

namespace CachingAllocator
{
struct Stat {
    int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
using StatArray = std::array<Stat, 3>;
} // namespace CachingAllocator

namespace CachingDeviceAllocator
{
using namespace c10::CachingAllocator;
struct DeviceStats {
    StatArray allocation, segment, active, inactive_split;
    StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
    int64_t num_alloc_retries = 0, num_ooms = 0;
    Stat oversize_allocations, oversize_segments;
    int64_t num_sync_all_streams = 0, num_device_alloc = 0, num_device_free = 0, max_split_size = 0;
};
} // namespace CachingDeviceAllocator

struct C10_EXPORT DeviceAllocator : Allocator {
    DeviceAllocator();
    ~DeviceAllocator() override;
    virtual bool initialized() = 0;
    virtual void emptyCache(MempoolId_t id = { 0, 0 }) = 0;
    virtual void recordStream(const DataPtr &ptr, Stream stream) = 0;
    virtual CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) = 0;
    virtual void resetAccumulatedStats(DeviceIndex device) = 0;
    virtual void resetPeakStats(DeviceIndex device) = 0;
#if VMM_TEST_TORCH >= 210
    virtual std::pair<size_t, size_t> getMemoryInfo(DeviceIndex)
    {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "getMemoryInfo");
    }
#endif
};

/* ---- Registry of functions that free memory ------------------------------------------------- */

class C10_EXPORT FreeMemoryCallback
{
  public:
    virtual ~FreeMemoryCallback();
    virtual bool Execute() = 0;
};

class FreeMemoryRegistry
{
  public:
    std::vector<std::string> Keys() const
    {
        std::vector<std::string> keys;
        for (const auto &entry : entries)
            keys.push_back(entry.first);
        return keys;
    }
    std::unique_ptr<FreeMemoryCallback> Create(const std::string &key)
    {
        return entries.at(key)();
    }

    std::map<std::string, std::function<std::unique_ptr<FreeMemoryCallback>()>> entries;
};
C10_EXPORT FreeMemoryRegistry *FreeCudaMemoryCallbacksRegistry();

/* ---- Python's view of the GPU --------------------------------------------------------------- */

namespace impl
{
struct PyInterpreterVTable {
    virtual ~PyInterpreterVTable() = default;
    virtual void trace_gpu_memory_allocation(DeviceType type, uintptr_t ptr) const = 0;
    virtual void trace_gpu_memory_deallocation(DeviceType type, uintptr_t ptr) const = 0;
};
struct PyInterpreter {
    const PyInterpreterVTable *vtable;
    const PyInterpreterVTable *operator->() const
    {
        return vtable;
    }
};
struct C10_EXPORT GPUTrace {
    static const PyInterpreter *get_trace();
};
} // namespace impl

/* ---- CUDA ----------------------------------------------------------------------------------- */

namespace cuda
{

class CUDAStream
{
  public:
    explicit CUDAStream(Stream stream) : stream_(stream)
    {
    }
    cudaStream_t stream() const
    {
        return stream_.handle();
    }

  private:
    Stream stream_;
};

C10_EXPORT DeviceIndex current_device();
C10_EXPORT CUDAStream getCurrentCUDAStream(DeviceIndex device = -1);

class C10_EXPORT CUDAGuard
{
  public:
    explicit CUDAGuard(DeviceIndex device);
    ~CUDAGuard();

  private:
    DeviceIndex before_;
};

class CUDAStreamCaptureModeGuard
{
  public:
    explicit CUDAStreamCaptureModeGuard(cudaStreamCaptureMode mode) : mode_(mode)
    {
        (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    }
    ~CUDAStreamCaptureModeGuard()
    {
        (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    }

  private:
    cudaStreamCaptureMode mode_;
};

} // namespace cuda
} // namespace c10

namespace at
{
using c10::DataPtr;
}

#endif
