/*
 * PyTorch's caching allocator, called from C++ as PyTorch itself calls it. The process has only one. The environment
 * at the start of the process decides whether it is native or has expandable segments
 * (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), so each kind needs a run of its own.
 */
#ifndef VMM_BENCH_PEER_TORCH_HPP
#define VMM_BENCH_PEER_TORCH_HPP

#include "allocator.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <exception>
#include <torch/version.h>

namespace bench
{

class torch
{
  public:
    static constexpr std::size_t alignment = 512;
    static constexpr bool is_slow = false, caches = true, trims = true, is_ours = false;

    static const char *name()
    {
        const char *settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
        bool is_expandable =
            settings != nullptr &&
            std::string(settings).find("expandable_segments:True") != std::string::npos;
        return is_expandable ? "torch-expandable" : "torch-native";
    }
    static device &place()
    {
        return device::cuda();
    }
    static bool available(std::string &why)
    {
        why = place().describe();
        if (!place().ok() || cudaSetDevice(0) != cudaSuccess)
            return false;
        c10::cuda::CUDACachingAllocator::init(1);
        why = "PyTorch " TORCH_VERSION;
        return true;
    }
    static void thread_begin()
    {
        (void)cudaSetDevice(0);
    }

    /* There is one allocator for all benches: empty it and reset its peaks. */
    torch()
    {
        trim();
        c10::cuda::CUDACachingAllocator::resetPeakStats(0);
        if (read().reserved != 0)
            fail_first("memory of an earlier bench is left");
    }

    void *alloc(std::size_t bytes, vmm_stream stream)
    {
        try {
            return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
                bytes, static_cast<cudaStream_t>(stream));
        } catch (const std::exception &thrown) {
            fail_first(thrown.what());
            return nullptr;
        }
    }
    void free(void *address, std::size_t, void *)
    {
        c10::cuda::CUDACachingAllocator::raw_delete(address);
    }
    void trim()
    {
        c10::cuda::CUDACachingAllocator::emptyCache();
    }
    figures read()
    {
        auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
        figures found;
        found.calls = stats.num_device_alloc + stats.num_device_free;
        found.reserved = stats.reserved_bytes[0].current;
        found.reserved_peak = stats.reserved_bytes[0].peak;
        found.live = stats.allocation[0].current;
        return found;
    }
    bool ok() const
    {
        return !failed_.load(std::memory_order_relaxed);
    }
    std::string error() const
    {
        return error_;
    }

  private:
    void fail_first(const char *text)
    {
        if (!failed_.exchange(true))
            error_ = text;
    }

    std::atomic<bool> failed_{ false };
    std::string error_;
};

} // namespace bench

#endif
