// vmmcache.hpp: blocks that are aligned, reserved, committed and resized.
#include "hpp_support.hpp"

#include <cstring>

namespace
{

constexpr std::size_t UNIT = 2 * MIB;

std::uintptr_t address_of(const vmm::block &block)
{
    return reinterpret_cast<std::uintptr_t>(block.data());
}

// The host can touch memory of the host driver alone.
void fill(const vmm::block &block, std::size_t bytes)
{
    if (driver == VMM_DRIVER_HOST)
        std::memset(block.data(), 77, bytes);
}

bool is_filled(const vmm::block &block, std::size_t bytes)
{
    const auto *data = static_cast<const unsigned char *>(block.data());
    return driver != VMM_DRIVER_HOST || (data[0] == 77 && data[bytes - 1] == 77);
}

void an_aligned_block_is_aligned()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block odd = cache.allocate(600, stream_named(1));
    vmm::block block = cache.allocate_aligned(9000, 64 << 10, stream_named(1));
    EXPECT(address_of(block) % (64 << 10) == 0 && block.size() == 9000);
    EXPECT(block.stream() == stream_named(1));
    vmm::block large = pool.allocate_aligned(3 * MIB, UNIT);
    EXPECT(address_of(large) % UNIT == 0);
    EXPECT(pool.stats().allocations.current == 1 && live_blocks(cache) == 3);
    EXPECT(refused([&] { (void)cache.allocate_aligned(1, 3); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { (void)pool.allocate_aligned(1, 3); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(live_blocks(cache) == 3);
}

void a_reserved_block_gets_memory_in_units()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    {
        vmm::block block = cache.reserve(4 * LIMIT);
        vmm::block other = pool.reserve(8 * UNIT, 2 * UNIT, stream_named(1));
        EXPECT(block.size() == 4 * LIMIT && other.stream() == stream_named(1));
        EXPECT(cache.stats().reserved_bytes.current == 0);
        block.commit(UNIT, UNIT);
        other.commit(0, 4 * UNIT);
        EXPECT(cache.stats().reserved_bytes.current == 5 * UNIT);
        EXPECT(refused([&] { other.commit(UNIT, UNIT); }) == VMM_ERR_INVALID_ARGUMENT);
        other.decommit(2 * UNIT, 2 * UNIT);
        cache.wait();
        cache.trim();
        EXPECT(cache.stats().reserved_bytes.current == 3 * UNIT);
    }
    cache.wait();
    cache.trim();
    EXPECT(cache.stats().reserved_bytes.current == 0 && live_blocks(cache) == 0);
}

void only_a_reserved_block_has_units()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(UNIT);
    EXPECT(refused([&] { block.commit(0, UNIT); }) == VMM_ERR_UNKNOWN_POINTER);
    EXPECT(refused([&] { block.decommit(0, UNIT); }) == VMM_ERR_UNKNOWN_POINTER);
    block.reset();
    EXPECT(refused([&] { block.commit(0, UNIT); }) == VMM_ERR_INVALID_ARGUMENT);
}

void a_resized_block_keeps_its_contents()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(MIB / 2);
    fill(block, MIB / 2);
    for (std::size_t bytes : { 3 * MIB, 20 * MIB, 2 * MIB, MIB / 4 }) {
        block.resize(bytes);
        cache.wait_stream(nullptr);
        EXPECT(block.size() == bytes && is_filled(block, MIB / 4) && live_blocks(cache) == 1);
    }
    void *data = block.data();
    EXPECT(thrown_by<vmm::out_of_memory>([&] { block.resize(2 * LIMIT); }).status() ==
           VMM_ERR_DEVICE_OOM);
    EXPECT(block.data() == data && block.size() == MIB / 4);
    block.reset();
    EXPECT(refused([&] { block.resize(1); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(live_blocks(cache) == 0 && cache.take_error() == nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    read_driver(argc, argv);
    an_aligned_block_is_aligned();
    a_reserved_block_gets_memory_in_units();
    only_a_reserved_block_has_units();
    a_resized_block_keeps_its_contents();
    return 0;
}
