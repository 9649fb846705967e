/*
 * The CUDA runtime's allocators: cudaMalloc, which calls the driver each time, and cudaMallocAsync with a pool
 * that keeps all memory until a trim.
 */
#ifndef VMM_BENCH_PEER_CUDA_HPP
#define VMM_BENCH_PEER_CUDA_HPP

#include "allocator.hpp"

#include <cuda_runtime_api.h>

namespace bench
{

/* The device and the first error, for both. */
class cuda_peer
{
  public:
    static constexpr std::size_t alignment = 256;

    static device &place()
    {
        return device::cuda();
    }
    static bool available(std::string &why)
    {
        int version = 0;
        why = place().describe();
        if (!place().ok() || cudaSetDevice(0) != cudaSuccess ||
            cudaRuntimeGetVersion(&version) != cudaSuccess)
            return false;
        why = "CUDA runtime " + std::to_string(version / 1000) + "." +
              std::to_string(version % 1000 / 10);
        return true;
    }
    static void thread_begin()
    {
        (void)cudaSetDevice(0);
    }
    bool ok() const
    {
        return first_.load(std::memory_order_relaxed) == cudaSuccess;
    }
    std::string error() const
    {
        return cudaGetErrorString(first_.load());
    }

  protected:
    bool check(cudaError_t result)
    {
        if (result != cudaSuccess)
            first_ = result;
        return result == cudaSuccess;
    }

  private:
    std::atomic<cudaError_t> first_{ cudaSuccess };
};

class cuda_malloc : public cuda_peer
{
  public:
    static constexpr bool is_slow = true, caches = false, trims = false, is_ours = false;

    static const char *name()
    {
        return "cudaMalloc";
    }
    void *alloc(std::size_t bytes, void *)
    {
        void *address = nullptr;
        return check(cudaMalloc(&address, bytes)) ? address : nullptr;
    }
    void free(void *address, std::size_t, void *)
    {
        check(cudaFree(address));
    }
    void trim()
    {
    }
    figures read()
    {
        return {};
    }
};

class cuda_malloc_async : public cuda_peer
{
  public:
    static constexpr bool is_slow = false, caches = true, trims = true, is_ours = false;

    static const char *name()
    {
        return "cudaMallocAsync";
    }
    cuda_malloc_async()
    {
        cudaMemPoolProps properties = {};
        std::uint64_t all = UINT64_MAX;
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        if (check(cudaMemPoolCreate(&pool_, &properties)))
            check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all));
    }
    ~cuda_malloc_async()
    {
        (void)cudaDeviceSynchronize();
        (void)cudaMemPoolDestroy(pool_);
    }
    cuda_malloc_async(const cuda_malloc_async &) = delete;
    cuda_malloc_async &operator=(const cuda_malloc_async &) = delete;

    void *alloc(std::size_t bytes, vmm_stream stream)
    {
        void *address = nullptr;
        auto handle = static_cast<cudaStream_t>(stream);
        return check(cudaMallocFromPoolAsync(&address, bytes, pool_, handle)) ? address : nullptr;
    }
    void free(void *address, std::size_t, vmm_stream stream)
    {
        check(cudaFreeAsync(address, static_cast<cudaStream_t>(stream)));
    }
    void trim()
    {
        check(cudaMemPoolTrimTo(pool_, 0));
    }
    figures read()
    {
        std::uint64_t now = 0, peak = 0;
        check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &now));
        check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &peak));
        figures found;
        found.reserved = static_cast<std::int64_t>(now);
        found.reserved_peak = static_cast<std::int64_t>(peak);
        return found;
    }

  private:
    cudaMemPool_t pool_ = nullptr;
};

} // namespace bench

#endif
