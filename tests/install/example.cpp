// The header from C++17: a cache and its blocks in the hands of owners.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vmmcache/vmmcache.h>

namespace
{

struct cache_end {
    void operator()(vmm_cache *cache) const
    {
        vmm_destroy(cache);
    }
};

struct block_end {
    vmm_cache *cache;
    void operator()(void *block) const
    {
        vmm_free(cache, block);
    }
};

} // namespace

int main()
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_HOST;
    vmm_cache *opened = nullptr;
    if (vmm_create(&config, &opened) != VMM_OK) {
        std::fprintf(stderr, "%s\n", vmm_last_error());
        return 1;
    }
    std::unique_ptr<vmm_cache, cache_end> cache(opened);

    void *memory = nullptr;
    if (vmm_alloc(cache.get(), 1 << 20, nullptr, &memory) != VMM_OK)
        return 1;
    std::unique_ptr<void, block_end> block(memory, block_end{ cache.get() });
    std::memset(block.get(), 1, 1 << 20);
    block.reset();

    std::size_t released = 0;
    if (vmm_trim(cache.get(), 0, &released) != VMM_OK || released < (1 << 20))
        return 1;
    vmm_stats stats{};
    stats.struct_size = sizeof stats;
    return vmm_stats_get(cache.get(), &stats) == VMM_OK && stats.reserved_bytes.current == 0 ? 0
                                                                                             : 1;
}
