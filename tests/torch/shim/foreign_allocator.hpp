/*
 * An allocator as CUDAPluggableAllocator is, for pools with an allocator of their own: memory of the host, counted.
 * Nothing but raw_alloc_with_stream() and raw_delete() may be called.
 */
#ifndef VMM_TEST_FOREIGN_ALLOCATOR_HPP
#define VMM_TEST_FOREIGN_ALLOCATOR_HPP

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>

struct foreign_counts {
    int allocs = 0;
    int frees = 0;
    size_t last_bytes = 0;
    bool throws = false;
    bool is_relaxed = true; /* all calls so far may be made while a graph is captured */
    bool is_ended = false;  /* the allocator is destroyed */
    char *arena = nullptr;  /* segments lie here, side by side; nullptr: anywhere */
    std::function<void()> on_alloc;
    std::function<void(void *)> on_free;
};

namespace foreign
{
namespace caching = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

[[noreturn]] inline void refuse()
{
    throw std::logic_error("a function that no pool needs was called");
}

class allocator final : public caching::CUDAAllocator
{
  public:
    explicit allocator(foreign_counts *counts) : counts_(counts)
    {
    }
    ~allocator() override
    {
        counts_->is_ended = true;
    }
    void *raw_alloc_with_stream(size_t bytes, cudaStream_t) override
    {
        if (counts_->throws)
            throw std::runtime_error("no segment");
        mode_note();
        if (counts_->on_alloc)
            counts_->on_alloc();
        counts_->allocs++;
        counts_->last_bytes = bytes;
        if (counts_->arena == nullptr)
            return std::aligned_alloc(512, bytes);
        counts_->arena += bytes;
        return counts_->arena - bytes;
    }
    void raw_delete(void *ptr) override
    {
        mode_note();
        counts_->frees++;
        if (counts_->on_free)
            counts_->on_free(ptr);
        if (counts_->arena == nullptr)
            std::free(ptr);
    }

    /* clang-format off */
    c10::DataPtr allocate(size_t) override { refuse(); }
    void copy_data(void *, const void *, std::size_t) const override { refuse(); }
    bool initialized() override { refuse(); }
    void emptyCache(MempoolId_t) override { refuse(); }
    using caching::CUDAAllocator::recordStream;
    void recordStream(const c10::DataPtr &, c10::cuda::CUDAStream) override { refuse(); }
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override { refuse(); }
    void resetAccumulatedStats(DeviceIndex) override { refuse(); }
    void resetPeakStats(DeviceIndex) override { refuse(); }
    void *raw_alloc(size_t) override { refuse(); }
    void init(int) override { refuse(); }
    double getMemoryFraction(DeviceIndex) override { refuse(); }
    void setMemoryFraction(double, DeviceIndex) override { refuse(); }
    std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override { refuse(); }
    void enable(bool) override { refuse(); }
    bool isEnabled() const override { refuse(); }
    void cacheInfo(DeviceIndex, size_t *) override { refuse(); }
    void *getBaseAllocation(void *, size_t *) override { refuse(); }
    void beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>) override { refuse(); }
    void endAllocateToPool(DeviceIndex, MempoolId_t) override { refuse(); }
    void releasePool(DeviceIndex, MempoolId_t) override { refuse(); }
    caching::ShareableHandle shareIpcHandle(void *) override { refuse(); }
    std::shared_ptr<void> getIpcDevPtr(std::string) override { refuse(); }
    void attachOutOfMemoryObserver(caching::OutOfMemoryObserver) override { refuse(); }
    void attachAllocatorTraceTracker(caching::AllocatorTraceTracker) override { refuse(); }
    void enablePeerAccess(DeviceIndex, DeviceIndex) override { refuse(); }
    cudaError_t memcpyAsync(void *, int, const void *, int, size_t, cudaStream_t, bool) override { refuse(); }
    std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) override { refuse(); }
    caching::CheckpointDelta setCheckpointPoolState(DeviceIndex,
                                                    std::shared_ptr<caching::AllocatorState>) override { refuse(); }
    std::string name() override { return "foreign"; }
#if VMM_TEST_TORCH >= 211
    caching::SnapshotInfo snapshot(MempoolId_t, bool) override { refuse(); }
#else
    caching::SnapshotInfo snapshot(MempoolId_t) override { refuse(); }
#endif
#if VMM_TEST_TORCH >= 210
    void recordHistory(bool, caching::CreateContextFn, size_t, caching::RecordContext, bool,
                       const std::vector<std::string> &) override { refuse(); }
#else
    void recordHistory(bool, caching::CreateContextFn, size_t, caching::RecordContext, bool) override { refuse(); }
#endif
#if VMM_TEST_TORCH >= 212
    void attachOomRejectionObserver(caching::OomRejectionObserver) override { refuse(); }
#endif
    /* clang-format on */

  private:
    void mode_note()
    {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
        counts_->is_relaxed = counts_->is_relaxed && mode == cudaStreamCaptureModeRelaxed;
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    }

    foreign_counts *counts_;
};

/* As PyTorch hands an allocator to a pool. */
#if VMM_TEST_TORCH >= 211
using handle = std::shared_ptr<caching::CUDAAllocator>;
inline handle handle_of(const std::shared_ptr<caching::CUDAAllocator> &of)
{
    return of;
}
#else
using handle = caching::CUDAAllocator *;
inline handle handle_of(const std::shared_ptr<caching::CUDAAllocator> &of)
{
    return of.get();
}
#endif

/* Makes a pool that gets its segments from an allocator like this. */
inline std::shared_ptr<caching::CUDAAllocator> pool_make(const MempoolId_t &pool,
                                                         foreign_counts *counts)
{
    std::shared_ptr<caching::CUDAAllocator> own = std::make_shared<allocator>(counts);
    caching::allocator.load()->createOrIncrefPool(0, pool, handle_of(own));
    return own;
}
} // namespace foreign

#endif
