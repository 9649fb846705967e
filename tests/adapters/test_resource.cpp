/*
 * vmm::device_resource, rmm_resource and tensorrt_allocator on the driver that is named, with the least of RMM and
 * TensorRT that they use (rmm_26/, fake/); test_resource_rmm_24 has RMM's headers where they were before 25.12.
 * Where CCCL is installed, test_resource_cccl is the same program with CCCL's streams and concepts.
 */
#include "cxx/hpp_support.hpp"

#include <cstring>
#include <type_traits>
#include <vmmcache/memory_resource.hpp>
#ifndef VMM_HAS_CUDA_MR
#include <vmmcache/tensorrt.hpp>
#endif

namespace
{

#ifdef VMM_HAS_CUDA_MR
using stream_type = cuda::stream_ref;

stream_type stream_of(std::uintptr_t number)
{
    return stream_type(reinterpret_cast<CUstream_st *>(number));
}

static_assert(cuda::has_property<vmm::device_resource, cuda::mr::device_accessible>);
#if CCCL_VERSION < 3001000
static_assert(cuda::mr::resource<vmm::device_resource>);
static_assert(cuda::mr::async_resource<vmm::device_resource>);
static_assert(cuda::mr::async_resource_with<vmm::device_resource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::synchronous_resource<vmm::device_resource>);
static_assert(cuda::mr::resource<vmm::device_resource>);
static_assert(cuda::mr::resource_with<vmm::device_resource, cuda::mr::device_accessible>);
#endif
#else
struct stream_type {
    vmm_stream value;
    vmm_stream get() const
    {
        return value;
    }
};

stream_type stream_of(std::uintptr_t number)
{
    return { reinterpret_cast<vmm_stream>(number) };
}
#endif

/* What the concepts of CCCL 3.0 and of 3.2 ask for. */
using resource = vmm::device_resource;
static_assert(std::is_same_v<decltype(std::declval<resource &>().allocate(1u, 1u)), void *>);
static_assert(std::is_same_v<decltype(std::declval<resource &>().allocate_sync(1u, 1u)), void *>);
static_assert(
    std::is_same_v<decltype(std::declval<resource &>().allocate(stream_of(0), 1u, 1u)), void *>);
static_assert(std::is_same_v<
              decltype(std::declval<resource &>().allocate_async(1u, 1u, stream_of(0))), void *>);
static_assert(noexcept(std::declval<resource &>().deallocate(std::declval<const stream_type &>(),
                                                             nullptr, 1u, 1u)));
static_assert(std::is_copy_constructible_v<resource>);

std::uint64_t live_bytes(const vmm::cache &cache)
{
    return cache.stats().requested_bytes.current;
}

void test_sizes_of_any_type_are_no_streams()
{
    vmm::cache cache(limited());
    vmm::device_resource memory(cache.get());
    void *block = memory.allocate(1024, 256);
    memory.deallocate(block, 1024, 256);
    block = memory.allocate(1024u, 256u);
    memory.deallocate(block, 1024u);
    EXPECT(live_bytes(cache) == 0);
}

void test_streams_allocate_and_free()
{
    vmm::cache cache(limited());
    vmm::device_resource memory(cache.get());
    void *one = memory.allocate(stream_of(16), MIB, 256);
    void *two = memory.allocate_async(2 * MIB, 512, stream_of(32));
    void *three = memory.allocate_async(100, stream_of(32));
    EXPECT(live_bytes(cache) == 3 * MIB + 100);
    if (driver == VMM_DRIVER_HOST)
        std::memset(one, 1, MIB);
    memory.deallocate(stream_of(32), one, MIB, 256); /* on another stream */
    memory.deallocate_async(two, 2 * MIB, 512, stream_of(32));
    memory.deallocate_async(three, 100, stream_of(32));
    memory.deallocate(stream_of(32), nullptr, 0);
    void *aligned = memory.allocate(stream_of(16), 100, 4096);
    EXPECT(reinterpret_cast<std::uintptr_t>(aligned) % 4096 == 0);
    memory.deallocate(stream_of(16), aligned, 100, 4096);
    EXPECT(live_bytes(cache) == 0);
}

void test_memory_without_a_stream()
{
    vmm::cache cache(limited());
    vmm::device_resource memory(cache.get());
    void *one = memory.allocate_sync(MIB, 8);
    void *two = memory.allocate(MIB, 8);
    EXPECT(live_bytes(cache) == 2 * MIB);
    memory.deallocate_sync(one, MIB, 8);
    memory.deallocate(two, MIB, 8);
    EXPECT(live_bytes(cache) == 0);
}

void test_failures_are_exceptions()
{
    vmm::cache cache(limited());
    vmm::device_resource memory(cache.get());
    (void)thrown_by<vmm::out_of_memory>([&] { (void)memory.allocate(stream_of(0), 65 * MIB, 8); });
    (void)thrown_by<std::bad_alloc>([&] { (void)memory.allocate_sync(65 * MIB); });
    (void)thrown_by<vmm::error>([&] { (void)memory.allocate(stream_of(0), MIB, 1025); });
    EXPECT(live_bytes(cache) == 0);
}

void test_resources_of_one_cache_are_equal()
{
    vmm::cache cache(limited()), other(limited());
    vmm::device_resource memory(cache.get()), copy = memory;
    EXPECT(memory == copy && memory != vmm::device_resource(other.get()));
    EXPECT(memory.cache() == cache.get());
}

#ifndef VMM_HAS_CUDA_MR
void test_rmm()
{
    vmm::cache cache(limited()), other(limited());
    vmm::rmm_resource memory(cache.get()), same(cache.get()), different(other.get());
    rmm::mr::device_memory_resource &base = memory;
    rmm::cuda_stream_view stream(stream_of(16).get());
    void *block = base.allocate(MIB, stream);
    EXPECT(live_bytes(cache) == MIB);
    base.deallocate(block, MIB, stream);
    EXPECT(base.allocate(0, stream) == nullptr);
    base.deallocate(nullptr, 0, stream);
    EXPECT(live_bytes(cache) == 0);
    EXPECT(base.is_equal(same) && !base.is_equal(different));
    (void)thrown_by<rmm::out_of_memory>([&] { (void)base.allocate(65 * MIB, stream); });
}

void test_tensorrt()
{
    vmm::cache cache(limited());
    vmm::tensorrt_allocator memory(cache.get());
    nvinfer1::IGpuAsyncAllocator &base = memory;
    void *block = base.allocateAsync(MIB, 256, 0, stream_of(16).get());
    EXPECT(block != nullptr && live_bytes(cache) == MIB);
    EXPECT(base.deallocateAsync(block, stream_of(32).get()));
    EXPECT(!base.deallocateAsync(block, stream_of(32).get()));
    EXPECT(base.deallocateAsync(nullptr, nullptr));
    block = base.allocateAsync(MIB, 4096, 0, nullptr);
    EXPECT(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
    EXPECT(base.deallocateAsync(block, nullptr));
    EXPECT(base.allocateAsync(MIB, 1025, 0, nullptr) == nullptr);
    EXPECT(base.allocateAsync(65 * MIB, 256, 0, nullptr) == nullptr);
    EXPECT(live_bytes(cache) == 0);
}
#endif

} // namespace

int main(int count, char **arguments)
{
    read_driver(count, arguments);
    test_sizes_of_any_type_are_no_streams();
    test_streams_allocate_and_free();
    test_memory_without_a_stream();
    test_failures_are_exceptions();
    test_resources_of_one_cache_are_equal();
#ifndef VMM_HAS_CUDA_MR
    test_rmm();
    test_tensorrt();
#endif
    return 0;
}
