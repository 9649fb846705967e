/*
 * vmm::device_resource with CCCL and kernels, for tools/preload/check.py: blocks on two streams, freed on the other
 * one.
 */
#include <cstdio>
#include <cuda_runtime.h>
#include <vmmcache/memory_resource.hpp>

#ifndef VMM_HAS_CUDA_MR
#error "CCCL was not found"
#endif

static_assert(cuda::has_property<vmm::device_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource<vmm::device_resource>);

namespace
{

__global__ void fill(unsigned *words, size_t count, unsigned value)
{
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x)
        words[i] = value;
}

__global__ void count_wrong(const unsigned *words, size_t count, unsigned value, unsigned *wrong)
{
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x)
        if (words[i] != value)
            atomicAdd(wrong, 1u);
}

} // namespace

int main()
{
    vmm::cache cache;
    vmm::device_resource memory(cache.get());
    cudaStream_t streams[2];
    unsigned *wrong = nullptr;
    cudaEvent_t event;
    (void)cudaMallocManaged(&wrong, sizeof *wrong);
    (void)cudaEventCreate(&event);
    for (cudaStream_t &stream : streams)
        (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (unsigned round = 0; round < 500; round++) {
        size_t count = 1 + round * 7919 % 4000000;
        cuda::stream_ref first(streams[round % 2]), second(streams[1 - round % 2]);
        auto *words = static_cast<unsigned *>(memory.allocate_async(4 * count, 256, first));
        fill<<<64, 256, 0, first.get()>>>(words, count, round);
        (void)cudaEventRecord(event, first.get());
        (void)cudaStreamWaitEvent(second.get(), event, 0);
        count_wrong<<<64, 256, 0, second.get()>>>(words, count, round, wrong);
        memory.deallocate_async(words, 4 * count, 256, second);
    }
    auto *words = static_cast<unsigned *>(memory.allocate_sync(4000, 256));
    fill<<<1, 256, 0, streams[0]>>>(words, 1000, 1);
    cudaError_t result = cudaDeviceSynchronize();
    memory.deallocate_sync(words, 4000, 256);
    std::printf("%s, %u words are wrong\n", cudaGetErrorName(result), *wrong);
    for (cudaStream_t stream : streams) {
        vmm::throw_on_error(vmm_stream_end(cache.get(), stream));
        (void)cudaStreamDestroy(stream);
    }
    return result != cudaSuccess || *wrong != 0;
}
