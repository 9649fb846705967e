/* The pool and the arena of RAPIDS Memory Manager, over cudaMalloc. */
#ifndef VMM_BENCH_PEER_RMM_HPP
#define VMM_BENCH_PEER_RMM_HPP

#include "peer_cuda.hpp"

#include <exception>
#include <memory>
#include <rmm/cuda_stream_view.hpp>
#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#else
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#endif

namespace bench
{

using rmm_upstream = rmm::mr::cuda_memory_resource;

/* Both start almost empty and grow on demand. They release no memory before their end. */
inline auto rmm_make(rmm::mr::pool_memory_resource<rmm_upstream> *, rmm_upstream *upstream)
{
    return std::make_unique<rmm::mr::pool_memory_resource<rmm_upstream>>(upstream, 0);
}
inline auto rmm_make(rmm::mr::arena_memory_resource<rmm_upstream> *, rmm_upstream *upstream)
{
    return std::make_unique<rmm::mr::arena_memory_resource<rmm_upstream>>(upstream);
}

template <class Resource> class rmm_peer : public cuda_peer
{
  public:
    static constexpr bool is_slow = false, caches = true, trims = false, is_ours = false;

    static const char *name();

    rmm_peer() : resource_(rmm_make(static_cast<Resource *>(nullptr), &upstream_))
    {
    }
    void *alloc(std::size_t bytes, vmm_stream stream)
    {
        try {
            return resource_->allocate(bytes, view(stream));
        } catch (const std::exception &) {
            check(cudaErrorMemoryAllocation);
            return nullptr;
        }
    }
    void free(void *address, std::size_t bytes, vmm_stream stream)
    {
        resource_->deallocate(address, bytes, view(stream));
    }
    void trim()
    {
    }
    figures read()
    {
        return {};
    }

  private:
    static rmm::cuda_stream_view view(vmm_stream stream)
    {
        return rmm::cuda_stream_view(static_cast<cudaStream_t>(stream));
    }

    rmm_upstream upstream_;
    std::unique_ptr<Resource> resource_;
};

using rmm_pool = rmm_peer<rmm::mr::pool_memory_resource<rmm_upstream>>;
using rmm_arena = rmm_peer<rmm::mr::arena_memory_resource<rmm_upstream>>;

template <> inline const char *rmm_pool::name()
{
    return "rmm-pool";
}
template <> inline const char *rmm_arena::name()
{
    return "rmm-arena";
}

} // namespace bench

#endif
