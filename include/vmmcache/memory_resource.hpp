/*
 * A cache as a memory resource of CCCL (cuda::mr), which RMM 26.06 and all of RAPIDS take, and as a
 * rmm::mr::device_memory_resource of earlier RMM.
 *
 *   vmm::cache cache;
 *   vmm::device_resource resource(cache.get());
 *   rmm::mr::set_current_device_resource(resource);              // RMM from 26.06 on
 *
 *   vmm::rmm_resource classic(cache.get());                       // RMM before 26.06
 *   rmm::mr::set_current_device_resource(&classic);
 *
 * CCCL has changed the names of these functions: up to 3.0 a resource allocates with allocate(bytes, alignment) and
 * allocate_async(bytes, alignment, stream), from 3.1 with allocate_sync(bytes, alignment) and allocate(stream, bytes,
 * alignment). device_resource has all of them. Without CCCL's headers it works with any type of stream that has get();
 * without RMM's there is no rmm_resource.
 *
 * Errors. vmm::out_of_memory (a std::bad_alloc), vmm::error; rmm_resource throws rmm::out_of_memory and
 * rmm::bad_alloc. A free that fails leaves the block live: the cache reports it as a leak.
 *
 * Streams. A free on another stream than that of the allocation is in the order of both. Call vmm_stream_end() before
 * you destroy a stream: rmm::cuda_stream does not.
 *
 * Owns: nothing. The cache must outlive the resource and its blocks. Threads: any.
 */
#ifndef VMMCACHE_MEMORY_RESOURCE_HPP
#define VMMCACHE_MEMORY_RESOURCE_HPP

#include <cstddef>
#include <utility>
#include <vmmcache/vmmcache.hpp>

#if __has_include(<cuda/memory_resource>)
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/memory_resource>
#define VMM_HAS_CUDA_MR 1
#endif

/* The second place is that of RMM before 25.12. */
#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#define VMM_HAS_RMM 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/error.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#define VMM_HAS_RMM 1
#endif

namespace vmm
{

/* Two resources are equal if they have the same cache. */
class device_resource
{
    /* Exists for streams alone: a size is none, of whatever type it is. */
    template <typename Stream> using if_stream = decltype(std::declval<Stream &>().get());

  public:
    explicit device_resource(vmm_cache *cache) noexcept : cache_(cache)
    {
    }
    vmm_cache *cache() const noexcept
    {
        return cache_;
    }

    /* In the order of a stream. */
    template <typename Stream, typename = if_stream<Stream>>
    [[nodiscard]] void *allocate(Stream stream, std::size_t bytes,
                                 std::size_t alignment = alignment_bytes) const
    {
        return allocate_on(stream.get(), bytes, alignment);
    }
    template <typename Stream, typename = if_stream<Stream>>
    void deallocate(Stream stream, void *block, std::size_t,
                    std::size_t = alignment_bytes) const noexcept
    {
        deallocate_on(stream.get(), block);
    }
    template <typename Stream>
    [[nodiscard]] void *allocate_async(std::size_t bytes, std::size_t alignment,
                                       Stream stream) const
    {
        return allocate_on(stream.get(), bytes, alignment);
    }
    template <typename Stream>
    [[nodiscard]] void *allocate_async(std::size_t bytes, Stream stream) const
    {
        return allocate_on(stream.get(), bytes, alignment_bytes);
    }
    template <typename Stream>
    void deallocate_async(void *block, std::size_t, std::size_t, Stream stream) const noexcept
    {
        deallocate_on(stream.get(), block);
    }
    template <typename Stream>
    void deallocate_async(void *block, std::size_t, Stream stream) const noexcept
    {
        deallocate_on(stream.get(), block);
    }

    /* Without a stream: the memory can be used on any at once, so an allocation waits for the work of all streams that
     * the cache knows; and work on a block has ended when it is freed. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes,
                                      std::size_t alignment = alignment_bytes) const
    {
        void *block = allocate_on(nullptr, bytes, alignment);
        vmm_status status = vmm_wait(cache_);
        if (status != VMM_OK)
            (void)vmm_free(cache_, block);
        throw_on_error(status);
        return block;
    }
    void deallocate_sync(void *block, std::size_t, std::size_t = alignment_bytes) const noexcept
    {
        (void)vmm_free(cache_, block);
    }
    [[nodiscard]] void *allocate(std::size_t bytes, std::size_t alignment = alignment_bytes) const
    {
        return allocate_sync(bytes, alignment);
    }
    void deallocate(void *block, std::size_t bytes,
                    std::size_t alignment = alignment_bytes) const noexcept
    {
        deallocate_sync(block, bytes, alignment);
    }

    friend bool operator==(const device_resource &left, const device_resource &right) noexcept
    {
        return left.cache_ == right.cache_;
    }
    friend bool operator!=(const device_resource &left, const device_resource &right) noexcept
    {
        return !(left == right);
    }
#ifdef VMM_HAS_CUDA_MR
    friend constexpr void get_property(const device_resource &,
                                       cuda::mr::device_accessible) noexcept
    {
    }
#endif

  private:
    void *allocate_on(vmm_stream stream, std::size_t bytes, std::size_t alignment) const
    {
        void *block = nullptr;
        throw_on_error(detail::alloc_aligned(cache_, bytes, alignment, stream, &block));
        return block;
    }
    void deallocate_on(vmm_stream stream, void *block) const noexcept
    {
        if (block != nullptr && vmm_record_stream(cache_, block, stream) == VMM_OK)
            (void)vmm_free(cache_, block);
    }

    vmm_cache *cache_;
};

#ifdef VMM_HAS_RMM
/* The interface of RMM before 26.06. */
class rmm_resource final : public rmm::mr::device_memory_resource
{
  public:
    explicit rmm_resource(vmm_cache *cache) noexcept : resource_(cache)
    {
    }

  private:
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
    {
        try {
            return bytes == 0 ? nullptr
                              : resource_.allocate_async(bytes, stream_of{ stream.value() });
        } catch (const out_of_memory &error) {
            throw rmm::out_of_memory(error.what());
        } catch (const error &error) {
            throw rmm::bad_alloc(error.what());
        }
    }
    void do_deallocate(void *block, std::size_t bytes,
                       rmm::cuda_stream_view stream) noexcept override
    {
        resource_.deallocate_async(block, bytes, stream_of{ stream.value() });
    }
    bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override
    {
        auto *same = dynamic_cast<const rmm_resource *>(&other);
        return same != nullptr && same->resource_ == resource_;
    }

    struct stream_of {
        vmm_stream value;
        vmm_stream get() const noexcept
        {
            return value;
        }
    };
    device_resource resource_;
};
#endif

} // namespace vmm

#endif
