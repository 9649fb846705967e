/*
 * What PYTORCH_ALLOC_CONF and torch.cuda.memory._set_allocator_settings() say. PyTorch reads and keeps the settings.
 * Owns: nothing. Locks: none.
 */
#include "torch/shim/allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>

namespace vmm_shim
{

using accelerator_config = c10::CachingAllocator::AcceleratorAllocatorConfig;

/* The two below exist since 2.10. */
template <class Config>
static auto fraction_read(int) -> decltype(Config::per_process_memory_fraction())
{
    return Config::per_process_memory_fraction();
}
template <class> static double fraction_read(long)
{
    return 1.0;
}

template <class Config>
static auto capture_reuse_read(int) -> decltype(Config::graph_capture_record_stream_reuse())
{
    return Config::graph_capture_record_stream_reuse();
}
template <class> static bool capture_reuse_read(long)
{
    return false;
}

double fraction_setting()
{
    return fraction_read<caching::CUDAAllocatorConfig>(0);
}

bool capture_reuse_setting()
{
    return capture_reuse_read<caching::CUDAAllocatorConfig>(0);
}

/* Not CUDAAllocatorConfig's function: it answers false outside of libc10_cuda. */
bool expandable_setting()
{
    return accelerator_config::use_expandable_segments();
}

/* roundup_power2_divisions: up to a multiple of a part of the power of two below, if the part has 512 bytes or more. */
size_t rounded_setting(size_t bytes)
{
    constexpr size_t part_least = 512;
    if (bytes <= 2 * part_least)
        return bytes;
    size_t divisions = accelerator_config::roundup_power2_divisions(bytes);
    if (divisions <= 1 || bytes / part_least < divisions)
        return bytes;
    size_t power_below = ~(SIZE_MAX >> 1) >> __builtin_clzll(bytes);
    size_t part = power_below / divisions;
    size_t missing = (part - bytes % part) % part;
    return bytes + missing < bytes ? bytes : bytes + missing;
}

} // namespace vmm_shim
