#include <cstdio>
#include <cstring>
#include <vmmcache/vmmcache.hpp>

int main()
{
    vmm_config config = vmm::make_config();
    config.driver = VMM_DRIVER_HOST; // runs anywhere; VMM_DRIVER_CUDA is the GPU
    try {
        vmm::cache cache(config);
        vmm::block block = cache.allocate(64 << 20); // freed by its destructor
        std::memset(block.data(), 1, block.size());  // on a GPU: launch kernels
        if (!cache.try_allocate(std::size_t(1) << 50))
            std::puts(vmm_last_error()); // no exception
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
