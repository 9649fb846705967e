// A library that has a class of the name and with the virtual function that PyTorch has, and one that calls
// it as PyTorch does. Built as libtorch_cuda.so of the tests.
#include <cstddef>
#include <cstdint>

namespace torch
{
namespace cuda
{
namespace CUDAPluggableAllocator
{

struct CUDAPluggableAllocator {
    virtual ~CUDAPluggableAllocator() = default;
    virtual int before();
    virtual void cacheInfo(int8_t device, size_t *largest);
    virtual int after();
};

int CUDAPluggableAllocator::before()
{
    return 1;
}

void CUDAPluggableAllocator::cacheInfo(int8_t, size_t *largest)
{
    *largest = 12345;
}

int CUDAPluggableAllocator::after()
{
    return 2;
}

} // namespace CUDAPluggableAllocator
} // namespace cuda
} // namespace torch

using torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

extern "C" {

CUDAPluggableAllocator *volatile object = new CUDAPluggableAllocator;

size_t ask_cache_info(int device)
{
    size_t largest = 0;
    object->cacheInfo(static_cast<int8_t>(device), &largest);
    return largest;
}

int ask_others()
{
    return object->before() * 10 + object->after();
}
}
