/*
 * A cache as the allocator of TensorRT.
 *
 *   vmm::tensorrt_allocator allocator(cache.get());
 *   runtime->setGpuAllocator(&allocator);
 *
 * Declares nothing where NvInfer.h is not found. Owns: nothing; the cache must outlive the allocator, and that the
 * engines. Threads: any.
 */
#ifndef VMMCACHE_TENSORRT_HPP
#define VMMCACHE_TENSORRT_HPP

#if __has_include(<NvInfer.h>)

#include <NvInfer.h>
#include <vmmcache/vmmcache.hpp>

namespace vmm
{

class tensorrt_allocator : public nvinfer1::IGpuAsyncAllocator
{
  public:
    explicit tensorrt_allocator(vmm_cache *cache) noexcept : cache_(cache)
    {
    }

    /* nullptr: there is no memory, or the alignment is no power of two. */
    void *allocateAsync(std::uint64_t const bytes, std::uint64_t const alignment,
                        nvinfer1::AllocatorFlags const, cudaStream_t stream) noexcept override
    {
        void *block = nullptr;
        if (bytes == 0 || detail::alloc_aligned(cache_, std::size_t(bytes), std::size_t(alignment),
                                                stream, &block) != VMM_OK)
            return nullptr;
        return block;
    }
    bool deallocateAsync(void *const block, cudaStream_t stream) noexcept override
    {
        return block == nullptr || (vmm_record_stream(cache_, block, stream) == VMM_OK &&
                                    vmm_free(cache_, block) == VMM_OK);
    }

  private:
    vmm_cache *cache_;
};

} // namespace vmm

#endif

#endif
