/* The class that the shim derives from, as each version of PyTorch has it: see c10/fake.h. */
#ifndef VMM_TEST_CUDA_CACHING_ALLOCATOR_H
#define VMM_TEST_CUDA_CACHING_ALLOCATOR_H

#include "c10/fake.h"

/* From 2.11 on, these types belong to every device. */
#if VMM_TEST_TORCH >= 212
namespace c10::CachingDeviceAllocator
{
using trace_stream = void *;
#else
namespace c10::cuda::CUDACachingAllocator
{
using trace_stream = cudaStream_t;
#endif

using CreateContextFn = std::shared_ptr<GatheredContext> (*)();
enum struct RecordContext { NEVER = 0, STATE = 1, ALLOC = 2, ALL = 3 };

struct BlockInfo {
    size_t size = 0, requested_size = 0;
    int32_t gc_counter = 0;
    bool allocated = false, active = false;
    std::shared_ptr<GatheredContext> context_when_allocated;
};

struct SegmentInfo {
    DeviceIndex device = 0;
    size_t address = 0, total_size = 0, requested_size = 0, allocated_size = 0, active_size = 0;
    trace_stream stream = nullptr;
    bool is_large = false, is_expandable = false;
    MempoolId_t owner_private_pool_id = { 0, 0 };
    std::vector<BlockInfo> blocks;
    std::shared_ptr<GatheredContext> context_when_allocated;
#if VMM_TEST_TORCH >= 211
    int64_t registration_counter = -1;
#endif
};

union trace_time_ {
    time_t t_;
    approx_time_t approx_t_;
};

struct TraceEntry {
    enum Action {
        ALLOC,
        FREE_REQUESTED,
        FREE_COMPLETED,
        SEGMENT_ALLOC,
        SEGMENT_FREE,
        SEGMENT_MAP,
        SEGMENT_UNMAP,
        SNAPSHOT,
        OOM
    };
    TraceEntry(Action action, DeviceIndex device, size_t addr, size_t size, trace_stream stream,
               MempoolId_t mempool, approx_time_t time,
               std::shared_ptr<GatheredContext> context = nullptr, std::string compile_context = "")
        : action_(action), device_(device), addr_(addr), context_(std::move(context)),
          stream_(stream), size_(size), mempool_(std::move(mempool)),
          compile_context_(std::move(compile_context))
    {
        time_.approx_t_ = time;
    }
    Action action_;
    DeviceIndex device_;
    size_t addr_;
    std::shared_ptr<GatheredContext> context_;
    trace_stream stream_;
    size_t size_;
    MempoolId_t mempool_;
    trace_time_ time_{};
    std::string compile_context_;
#if VMM_TEST_TORCH >= 210
    std::string user_metadata_;
#endif
};

struct AnnotationEntry {
    AnnotationEntry(DeviceIndex device, approx_time_t time) : device_(device)
    {
        time_.approx_t_ = time;
    }
    void recordUserMetadata(const std::string &name, std::string value)
    {
        metadata_[name] = std::move(value);
    }
    DeviceIndex device_;
    trace_time_ time_{};
    std::unordered_map<std::string, std::string> metadata_;
};

using AllocatorTraceTracker = std::function<void(const TraceEntry &)>;

#if VMM_TEST_TORCH >= 212
} // namespace c10::CachingDeviceAllocator
namespace c10::cuda::CUDACachingAllocator
{
using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
#endif

using c10::CachingDeviceAllocator::DeviceStats;

struct AllocatorState {
    virtual ~AllocatorState() = default;
};

struct AllocatorConfigInfo {
    double garbage_collection_threshold;
    size_t max_split_size, pinned_num_register_threads;
    bool expandable_segments;
    std::string last_allocator_settings;
};

struct SnapshotInfo {
    std::vector<SegmentInfo> segments;
    std::vector<std::vector<TraceEntry>> device_traces;
#if VMM_TEST_TORCH >= 212
    std::vector<CachingDeviceAllocator::AnnotationEntry> external_annotations;
#else
    std::vector<AnnotationEntry> external_annotations;
#endif
    AllocatorConfigInfo config_metadata;
};

struct CheckpointDelta {
    std::vector<void *> ptrs_freed;
    std::vector<at::DataPtr> dataptrs_allocd;
};

using OutOfMemoryObserver =
    std::function<void(int64_t device, size_t allocated, size_t device_total, size_t device_free)>;
#if VMM_TEST_TORCH >= 212
using OomRejectionObserver =
    std::function<void(int64_t device, size_t size, size_t allocated, size_t device_total)>;
#endif

struct ShareableHandle {
    ptrdiff_t offset;
    std::string handle;
};

struct StreamSegmentSize {
    StreamSegmentSize(cudaStream_t s, bool small, size_t size)
        : stream(s), is_small_pool(small), total_size(size)
    {
    }
    cudaStream_t stream;
    bool is_small_pool;
    size_t total_size;
};

/* What a function that is not pure does by default. */
#define VMM_TEST_REFUSE(name) TORCH_CHECK(false, "does not yet support " #name)

class CUDAAllocator : public DeviceAllocator
{
  public:
    virtual void *raw_alloc(size_t bytes) = 0;
    virtual void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) = 0;
    virtual void raw_delete(void *ptr) = 0;
    virtual void init(int count) = 0;
    virtual double getMemoryFraction(DeviceIndex device) = 0;
    virtual void setMemoryFraction(double fraction, DeviceIndex device) = 0;
    virtual std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) = 0;
    virtual void enable(bool value) = 0;
    virtual bool isEnabled() const = 0;
    virtual void cacheInfo(DeviceIndex device, size_t *largest) = 0;
    virtual void *getBaseAllocation(void *ptr, size_t *size) = 0;
    virtual void recordStream(const DataPtr &ptr, CUDAStream stream) = 0;
    void recordStream(const DataPtr &ptr, Stream stream) override
    {
        recordStream(ptr, CUDAStream(stream));
    }
#if VMM_TEST_TORCH >= 211
    virtual SnapshotInfo snapshot(MempoolId_t id = { 0, 0 }, bool include_traces = true) = 0;
#else
    virtual SnapshotInfo snapshot(MempoolId_t id = { 0, 0 }) = 0;
#endif
    virtual void beginAllocateToPool(DeviceIndex device, MempoolId_t id,
                                     std::function<bool(cudaStream_t)> filter) = 0;
    virtual void endAllocateToPool(DeviceIndex device, MempoolId_t id) = 0;
    virtual void releasePool(DeviceIndex device, MempoolId_t id) = 0;
    virtual int getPoolUseCount(DeviceIndex, MempoolId_t)
    {
        VMM_TEST_REFUSE(getPoolUseCount);
    }
#if VMM_TEST_TORCH >= 211
    virtual void createOrIncrefPool(DeviceIndex, MempoolId_t,
                                    std::shared_ptr<CUDAAllocator> = nullptr)
#else
    virtual void createOrIncrefPool(DeviceIndex, MempoolId_t, CUDAAllocator * = nullptr)
#endif
    {
        VMM_TEST_REFUSE(createOrIncrefPool);
    }
#if VMM_TEST_TORCH >= 210
    virtual void setUseOnOOM(DeviceIndex, MempoolId_t, bool)
#else
    virtual void setUseOnOOM(DeviceIndex, MempoolId_t)
#endif
    {
        VMM_TEST_REFUSE(setUseOnOOM);
    }
    virtual void setNoSplit(DeviceIndex, MempoolId_t)
    {
        VMM_TEST_REFUSE(setNoSplit);
    }
    virtual bool checkPoolLiveAllocations(DeviceIndex, MempoolId_t,
                                          const std::unordered_set<void *> &)
    {
        VMM_TEST_REFUSE(checkPoolLiveAllocations);
    }
    virtual ShareableHandle shareIpcHandle(void *ptr) = 0;
    virtual std::shared_ptr<void> getIpcDevPtr(std::string handle) = 0;
    virtual bool isHistoryEnabled()
    {
        VMM_TEST_REFUSE(isHistoryEnabled);
    }
#if VMM_TEST_TORCH >= 212
    virtual std::shared_ptr<GatheredContext> getContextForPointer(const void *)
    {
        return nullptr;
    }
#endif
#if VMM_TEST_TORCH >= 210
    virtual void recordHistory(bool enabled, CreateContextFn recorder, size_t entries,
                               RecordContext when, bool clear,
                               const std::vector<std::string> &skip_actions) = 0;
#else
    virtual void recordHistory(bool enabled, CreateContextFn recorder, size_t entries,
                               RecordContext when, bool clear) = 0;
#endif
    virtual void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &)
    {
    }
    virtual void pushCompileContext(std::string &)
    {
    }
    virtual void popCompileContext()
    {
    }
#if VMM_TEST_TORCH >= 210
    virtual void setUserMetadata(const std::string &)
    {
    }
    virtual std::string getUserMetadata()
    {
        return "";
    }
#endif
    virtual void attachOutOfMemoryObserver(OutOfMemoryObserver observer) = 0;
#if VMM_TEST_TORCH >= 212
    virtual void attachOomRejectionObserver(OomRejectionObserver observer) = 0;
#endif
    virtual void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) = 0;
    virtual void enablePeerAccess(DeviceIndex device, DeviceIndex owner) = 0;
    virtual cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                                    size_t bytes, cudaStream_t stream, bool p2p_enabled) = 0;
    virtual std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device,
                                                               MempoolId_t id) = 0;
    virtual CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                                   std::shared_ptr<AllocatorState> state) = 0;
    virtual std::string name() = 0;
};

C10_EXPORT extern std::atomic<CUDAAllocator *> allocator;

inline CUDAAllocator *get()
{
    return allocator.load();
}

} // namespace c10::cuda::CUDACachingAllocator

#endif
