/*
 * Memory, devices and limits: see allocator.h.
 * Locks: `imports_lock` guards the memory of other processes, and is held while the library opens such memory.
 * `raw_lock` guards the raw blocks that bypass the library.
 */
#include "torch/shim/allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace vmm_shim
{

const vmm_torch_functions *library;

/* ---- Failures ------------------------------------------------------------------------------- */

void failure_throw(const char *what, vmm_status status)
{
    TORCH_CHECK_NOT_IMPLEMENTED(status != VMM_ERR_UNSUPPORTED, "vmmcache: ", what, ": ",
                                library->last_error());
    TORCH_CHECK(false, "vmmcache: ", what, ": ", library->last_error());
}

static bool is_oom(vmm_status status)
{
    return status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
}

/* What the profiler records with each change; zeros if the library cannot tell. */
static vmm_stats stats_now(int device)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_torch_stats kinds = {};
    (void)library->stats_get(device, &stats, &kinds);
    return stats;
}

static c10::Device cuda_device(int device)
{
    return c10::Device(c10::DeviceType::CUDA, static_cast<DeviceIndex>(device));
}

[[noreturn]] static void allocation_fail(size_t bytes, int device, vmm_status status)
{
    char text[VMM_TORCH_FAILURE_BYTES];
    library->failure_write(device, bytes, status, text, sizeof text);
    if (is_oom(status) && c10::memoryProfilingEnabled()) {
        vmm_stats now = stats_now(device);
        c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), now.allocated_bytes.current,
                                         now.reserved_bytes.current, cuda_device(device));
    }
    TORCH_CHECK_WITH(OutOfMemoryError, !is_oom(status), text);
    TORCH_CHECK(false, text);
}

/* ---- Allocating and freeing ----------------------------------------------------------------- */

/* Tells what Python has registered, such as torch.cuda._sanitizer, of a block that was allocated or is about to be
 * freed. */
static void interpreter_tell(void *ptr, bool is_taken)
{
    const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace();
    auto address = reinterpret_cast<uintptr_t>(ptr);
    if (!C10_UNLIKELY(interpreter != nullptr))
        return;
    if (is_taken)
        (*interpreter)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, address);
    else
        (*interpreter)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, address);
}

/* bytes: negative for a free. */
static void profiler_tell(int device, void *ptr, int64_t bytes)
{
    if (!C10_UNLIKELY(c10::memoryProfilingEnabled()))
        return;
    vmm_stats now = stats_now(device);
    c10::reportMemoryUsageToProfiler(ptr, bytes, now.allocated_bytes.current,
                                     now.reserved_bytes.current, cuda_device(device));
}

static constexpr size_t small_bytes_most = 1 << 20; /* as the library counts */

static void *block_take(size_t bytes, int device, cudaStream_t stream)
{
    void *ptr = nullptr;
    size_t rounded = rounded_setting(bytes);
    captured_waits_end(device, stream);
    vmm_status status = library->allocate(rounded, device, stream, &ptr);
    if (status != VMM_OK)
        allocation_fail(bytes, device, status);
    rounded_note(ptr, { rounded - bytes, device, rounded <= small_bytes_most });
    if (ptr == nullptr)
        return ptr;
    interpreter_tell(ptr, true);
    allocation_trace(ptr);
    profiler_tell(device, ptr, static_cast<int64_t>(rounded));
    return ptr;
}

static vmm_status block_free(void *ptr)
{
    if (ptr == nullptr)
        return VMM_OK;
    interpreter_tell(ptr, false);
    free_trace trace(ptr);
    vmm_torch_freed freed = {};
    rounded_block rounded = rounded_take(ptr);
    vmm_status status = library->release(ptr, &freed);
    if (status != VMM_OK && status != VMM_ERR_CORRUPTED) { /* a corrupted block was freed */
        rounded_put_back(ptr, rounded);
        return status;
    }
    trace.complete();
    captured_wait_note(freed.device, ptr);
    if (freed.bytes > 0)
        profiler_tell(freed.device, ptr, -static_cast<int64_t>(freed.bytes));
    return status;
}

void block_delete(void *ptr)
{
    vmm_status status = block_free(ptr);
    if (status != VMM_OK)
        library->log_failure("free", status);
}

/* ---- Tensors that bypass the library -------------------------------------------------------- */

/* As PyTorch's own allocator does: requests then take memory of cudaMalloc(). The environment decides for good. */
static const bool is_bypassed = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr;
static std::atomic<bool> caches{ true };

static bool bypasses()
{
    return is_bypassed || !caches.load(std::memory_order_relaxed);
}

static void bypass_delete(void *ptr)
{
    interpreter_tell(ptr, false);
    if (cudaFree(ptr) != cudaSuccess)
        library->log_failure("cudaFree", VMM_ERR_DRIVER);
}

/* In relaxed mode: CUDA otherwise refuses cudaMalloc() while a graph is captured. */
static void *bypass_take(size_t bytes)
{
    void *ptr = nullptr;
    c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
    C10_CUDA_CHECK(cudaMalloc(&ptr, bytes));
    interpreter_tell(ptr, true);
    return ptr;
}

void allocator::enable(bool value)
{
    caches.store(value);
}

bool allocator::isEnabled() const
{
    return caches.load();
}

/* ---- PyTorch's calls ------------------------------------------------------------------------ */

c10::DataPtr allocator::allocate(size_t bytes)
{
    DeviceIndex device = c10::cuda::current_device();
    if (C10_UNLIKELY(bypasses())) {
        void *direct = bypass_take(bytes);
        return { direct, direct, &bypass_delete, cuda_device(device) };
    }
    void *ptr = block_take(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream());
    return { ptr, ptr, &block_delete, cuda_device(device) };
}

c10::DeleterFnPtr allocator::raw_deleter() const
{
    return bypasses() ? &bypass_delete : &block_delete;
}

/* Raw blocks that bypass the library: raw_delete() gets no deleter. */
static std::mutex raw_lock;
static auto &raw_bypassed = *new std::set<void *>;
static std::atomic<bool> has_raw_bypassed{ false };

static void *raw_bypass_take(size_t bytes)
{
    if (bytes == 0)
        return nullptr;
    void *ptr = bypass_take(bytes);
    std::lock_guard<std::mutex> guard(raw_lock);
    raw_bypassed.insert(ptr);
    has_raw_bypassed.store(true);
    return ptr;
}

static bool raw_bypass_drop(void *ptr)
{
    if (!has_raw_bypassed.load(std::memory_order_relaxed))
        return false;
    std::lock_guard<std::mutex> guard(raw_lock);
    return raw_bypassed.erase(ptr) > 0;
}

void *allocator::raw_alloc(size_t bytes)
{
    DeviceIndex device = c10::cuda::current_device();
    return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(device).stream());
}

void *allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream)
{
    if (C10_UNLIKELY(bypasses()))
        return raw_bypass_take(bytes);
    return block_take(bytes, c10::cuda::current_device(), stream);
}

void allocator::raw_delete(void *ptr)
{
    if (raw_bypass_drop(ptr))
        bypass_delete(ptr);
    else
        check("free", block_free(ptr));
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* Memory of other allocators, such as that of another process, has other deleters. */
void allocator::recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream)
{
    if (ptr.get() == nullptr || ptr.get_deleter() != &block_delete)
        return;
    check("record_stream", library->stream_record(ptr.get(), stream.stream()));
}

void *allocator::getBaseAllocation(void *ptr, size_t *bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    int device = 0;
    check("getBaseAllocation", library->find(ptr, &item, &device));
    if (bytes != nullptr)
        *bytes = static_cast<size_t>(item.bytes);
    return reinterpret_cast<void *>(static_cast<uintptr_t>(item.address));
}

void allocator::copy_data(void *to, const void *from, std::size_t bytes) const
{
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

/* Whether a device can access the library's memory of another one. */
static bool is_mapped(int device, int owner)
{
    return device < device_count() && owner < device_count() &&
           (library->peers_get(owner) >> device & 1) != 0;
}

/* A copy runs on the device that has the source: it must be able to write to the other one. CUDA's own access, which
 * PyTorch asks for, does not include the library's memory. */
cudaError_t allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device,
                                   size_t bytes, cudaStream_t stream, bool has_peer_access)
{
    if (to_device == from_device || (has_peer_access && is_mapped(from_device, to_device)))
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

/* PyTorch calls this before it lets a device access the memory of another one. CUDA's own peer access covers memory of
 * cudaMalloc(), which other libraries use. */
void allocator::enablePeerAccess(DeviceIndex device, DeviceIndex owner)
{
    TORCH_CHECK(device >= 0 && device < device_count(), "vmmcache: enablePeerAccess: no device ",
                static_cast<int>(device));
    check("enablePeerAccess", library->peers_add(owner, uint64_t{ 1 } << device));
    c10::cuda::CUDAGuard guard(device);
    cudaError_t error = cudaDeviceEnablePeerAccess(owner, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
    else
        C10_CUDA_CHECK(error);
}

/* ---- Other processes ------------------------------------------------------------------------ */

constexpr size_t handle_bytes_most = 4096;

static std::mutex imports_lock;
static auto &imports = *new std::map<std::string, std::weak_ptr<void>>; /* by handle */

/* Memory of a pool's own allocator is not the library's: CUDA can share it, if it is of cudaMalloc(). Its handles come
 * behind this mark. */
static const auto &cuda_mark = *new std::string("vmmcache: cudaIpcMemHandle_t ");

static caching::ShareableHandle segment_share(void *segment, const void *ptr)
{
    cudaIpcMemHandle_t handle;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, segment));
    return { static_cast<const char *>(ptr) - static_cast<const char *>(segment),
             cuda_mark + std::string(handle.reserved, sizeof handle.reserved) };
}

static bool is_of_cuda(const std::string &handle)
{
    return handle.size() == cuda_mark.size() + sizeof(cudaIpcMemHandle_t) &&
           handle.compare(0, cuda_mark.size(), cuda_mark) == 0;
}

static std::shared_ptr<void> segment_open(const std::string &text)
{
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, text.data() + cuda_mark.size(), sizeof handle);
    void *ptr = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess));
    return { ptr, [device = c10::cuda::current_device()](void *segment) {
                try {
                    c10::cuda::CUDAGuard guard(device);
                    (void)cudaIpcCloseMemHandle(segment);
                } catch (...) { /* the device is lost */
                }
            } };
}

caching::ShareableHandle allocator::shareIpcHandle(void *ptr)
{
    if (void *segment = segment_find(ptr))
        return segment_share(segment, ptr);
    char handle[handle_bytes_most];
    size_t bytes = sizeof handle;
    uint64_t offset = 0;
    check("shareIpcHandle", library->share(ptr, handle, &bytes, &offset));
    return { static_cast<ptrdiff_t>(offset), std::string(handle, bytes) };
}

/* Drops the handles of memory that is no longer in use. */
static void imports_forget_locked()
{
    for (auto entry = imports.begin(); entry != imports.end();)
        entry = entry->second.expired() ? imports.erase(entry) : std::next(entry);
}

static void import_close(void *ptr)
{
    vmm_status status = library->share_close(ptr);
    if (status != VMM_OK)
        library->log_failure("close shared memory", status);
}

static std::shared_ptr<void> block_open(const std::string &handle)
{
    void *ptr = nullptr;
    check("getIpcDevPtr",
          library->share_open(handle.data(), handle.size(), c10::cuda::current_device(), &ptr));
    return { ptr, import_close };
}

std::shared_ptr<void> allocator::getIpcDevPtr(std::string handle)
{
    std::lock_guard<std::mutex> guard(imports_lock);
    imports_forget_locked();
    auto known = imports.find(handle);
    if (known != imports.end())
        if (std::shared_ptr<void> memory = known->second.lock())
            return memory;
    std::shared_ptr<void> opened = is_of_cuda(handle) ? segment_open(handle) : block_open(handle);
    imports[handle] = opened;
    return opened;
}

/* ---- Devices and limits --------------------------------------------------------------------- */

static std::atomic<int> count_of_devices{ 0 };

int device_count()
{
    return count_of_devices.load();
}

void allocator::init(int count)
{
    library->init(count);
    library->fraction_begin(fraction_setting());
    count_of_devices.store(count);
}

bool allocator::initialized()
{
    return device_count() > 0;
}

/* PyTorch does it in the destructor of a MemPool, which must not fail. False in a child of fork(): it has no pools, and
 * the locks of this class may never be free there. */
static bool pool_empty(const MempoolId_t &id)
{
    vmm_status status = VMM_OK;
    for (int device = 0; device < device_count() && status != VMM_ERR_FORKED; device++) {
        status = library->pool_trim(device, id_of(id));
        if (status != VMM_OK)
            library->log_failure("empty_cache", status);
    }
    return status != VMM_ERR_FORKED;
}

void allocator::emptyCache(MempoolId_t id)
{
    if (id == MempoolId_t{ 0, 0 })
        check("empty_cache", library->empty());
    else if (!pool_empty(id))
        return;
    pools_purge();
}

double allocator::getMemoryFraction(DeviceIndex device)
{
    double fraction = 1.0;
    check("getMemoryFraction", library->fraction_get(device, &fraction));
    return fraction;
}

void allocator::setMemoryFraction(double fraction, DeviceIndex device)
{
    check("setMemoryFraction", library->fraction_set(device, fraction));
}

std::pair<size_t, size_t> allocator::getMemoryInfo(DeviceIndex device)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    check("getMemoryInfo", library->memory_get(device, &free_bytes, &total_bytes));
    return { static_cast<size_t>(free_bytes), static_cast<size_t>(total_bytes) };
}

void allocator::cacheInfo(DeviceIndex device, size_t *largest_bytes)
{
    uint64_t bytes = 0;
    check("cacheInfo", library->largest_get(device, &bytes));
    *largest_bytes = static_cast<size_t>(bytes);
}

std::string allocator::name()
{
    return "vmmcache";
}

/* ---- Memory that PyTorch holds -------------------------------------------------------------- */

/* Whether it freed anything. One that throws does not keep others from their turn. */
static bool callback_run(const std::string &key)
{
    try {
        return c10::FreeCudaMemoryCallbacksRegistry()->Create(key)->Execute();
    } catch (...) {
        return false;
    }
}

/* Runs what PyTorch has registered to free memory, such as blocks that other processes no longer use. */
static int reclaim()
{
    bool is_freed = false;
    try {
        for (const std::string &key : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
            is_freed = callback_run(key) || is_freed;
    } catch (...) { /* no host memory: nothing may leave this function */
    }
    return is_freed ? 1 : 0;
}

void reclaim_install()
{
    check("install", library->reclaim_watch(reclaim));
}

} // namespace vmm_shim
