/* What PYTORCH_ALLOC_CONF says: see c10/fake.h. 2.9 does not know the fraction. */
#ifndef VMM_TEST_CUDA_ALLOCATOR_CONFIG_H
#define VMM_TEST_CUDA_ALLOCATOR_CONFIG_H

#include "c10/fake.h"

namespace c10::cuda::CUDACachingAllocator
{

class C10_EXPORT CUDAAllocatorConfig
{
#if VMM_TEST_TORCH >= 210
  public:
    static double per_process_memory_fraction();
    static bool graph_capture_record_stream_reuse();
#endif
};

} // namespace c10::cuda::CUDACachingAllocator

#endif
