/* TensorRT 10, as far as tensorrt_allocator uses it. */
#ifndef FAKE_NV_INFER_H
#define FAKE_NV_INFER_H

#include <cstdint>

typedef struct CUstream_st *cudaStream_t;

namespace nvinfer1
{

using AllocatorFlags = std::uint32_t;

class IGpuAsyncAllocator
{
  public:
    virtual ~IGpuAsyncAllocator() = default;
    virtual void *allocateAsync(std::uint64_t const size, std::uint64_t const alignment,
                                AllocatorFlags const flags, cudaStream_t stream) noexcept = 0;
    virtual bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept = 0;
};

} // namespace nvinfer1

#endif
