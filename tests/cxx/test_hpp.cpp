// vmmcache.hpp: owners, exceptions and the std::pmr resource.
#include "hpp_support.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <type_traits>
#include <unistd.h>
#include <vector>

// The linker leads the header's vmm_free() here (--wrap). While it refuses, nothing is freed.
static vmm_status refusal = VMM_OK;

extern "C" vmm_status __real_vmm_free(vmm_cache *cache, void *data);
extern "C" vmm_status __wrap_vmm_free(vmm_cache *cache, void *data);

extern "C" vmm_status __wrap_vmm_free(vmm_cache *cache, void *data)
{
    return refusal == VMM_OK ? __real_vmm_free(cache, data) : refusal;
}

namespace
{

static_assert(!std::is_copy_constructible_v<vmm::cache> && !std::is_copy_assignable_v<vmm::cache>);
static_assert(!std::is_copy_constructible_v<vmm::block> && !std::is_copy_assignable_v<vmm::block>);
static_assert(std::is_nothrow_move_constructible_v<vmm::cache>);
static_assert(std::is_nothrow_move_assignable_v<vmm::cache>);
static_assert(std::is_nothrow_move_constructible_v<vmm::block>);
static_assert(std::is_nothrow_move_assignable_v<vmm::block>);
static_assert(std::is_base_of_v<std::runtime_error, vmm::error>);
static_assert(std::is_base_of_v<std::bad_alloc, vmm::out_of_memory>);
static_assert(std::is_nothrow_copy_constructible_v<vmm::out_of_memory>);
static_assert(noexcept(std::declval<vmm::cache &>().try_allocate(1)));

// ---- Blocks ---------------------------------------------------------------------------------

void blocks_are_freed_by_their_owner()
{
    vmm::cache cache(limited());
    {
        vmm::block block = cache.allocate(MIB, stream_named(1));
        EXPECT(block && block.data() != nullptr && block.size() == MIB);
        EXPECT(block.stream() == stream_named(1));
        EXPECT(reinterpret_cast<std::uintptr_t>(block.data()) % vmm::alignment_bytes == 0);
        if (driver == VMM_DRIVER_HOST)
            std::memset(block.data(), 1, block.size());
        EXPECT(live_blocks(cache) == 1);
    }
    EXPECT(live_blocks(cache) == 0);
    EXPECT(cache.take_error() == nullptr);
}

void a_move_takes_the_block_along()
{
    vmm::cache cache(limited());
    vmm::block first = cache.allocate(MIB);
    void *data = first.data();
    vmm::block second = std::move(first);
    EXPECT(!first && first.data() == nullptr && first.size() == 0);
    EXPECT(second.data() == data && live_blocks(cache) == 1);
    vmm::block third = cache.allocate(2 * MIB);
    third = std::move(second);
    EXPECT(third.data() == data && third.size() == MIB && live_blocks(cache) == 1);
    vmm::block &same = third;
    third = std::move(same);
    EXPECT(third.data() == data && live_blocks(cache) == 1);
}

void a_released_block_is_the_callers()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(MIB, stream_named(2));
    void *data = block.release();
    EXPECT(data != nullptr && !block && block.stream() == nullptr && live_blocks(cache) == 1);
    EXPECT(vmm_free(cache.get(), data) == VMM_OK);
    block.reset();
    EXPECT(cache.take_error() == nullptr);
}

void a_free_that_fails_is_reported()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(MIB);
    EXPECT(vmm_free(cache.get(), block.data()) == VMM_OK);
    EXPECT(thrown_by<vmm::error>([&] { block.reset(); }).status() == VMM_ERR_UNKNOWN_POINTER);
    EXPECT(!block);

    block = cache.allocate(MIB);
    EXPECT(vmm_free(cache.get(), block.data()) == VMM_OK);
    block = vmm::block(); // its owner cannot throw
    std::exception_ptr kept = cache.take_error();
    EXPECT(kept != nullptr && cache.take_error() == nullptr);
    vmm::error error = thrown_by<vmm::error>([&] { std::rethrow_exception(kept); });
    EXPECT(error.status() == VMM_ERR_UNKNOWN_POINTER);
    EXPECT(std::string(error.what()).find("vmm_free") != std::string::npos);
}

void a_block_that_stays_live_stays_owned()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(MIB);
    refusal = VMM_ERR_DRIVER;
    EXPECT(thrown_by<vmm::error>([&] { block.reset(); }).status() == VMM_ERR_DRIVER);
    refusal = VMM_ERR_HOST_OOM;
    EXPECT(thrown_by<vmm::out_of_memory>([&] { block.reset(); }).status() == VMM_ERR_HOST_OOM);
    refusal = VMM_OK;
    EXPECT(block && live_blocks(cache) == 1);
    block.reset();
    EXPECT(live_blocks(cache) == 0);
}

void a_block_is_used_by_other_streams()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(MIB, stream_named(1));
    block.record_stream(stream_named(2));
    block.reset();
    EXPECT(thrown_by<vmm::error>([&] { block.record_stream(stream_named(3)); }).status() ==
           VMM_ERR_INVALID_ARGUMENT);
    cache.end_stream(stream_named(1));
    EXPECT(thrown_by<vmm::error>([&] { cache.end_stream(nullptr); }).status() ==
           VMM_ERR_INVALID_ARGUMENT);
}

// ---- Caches ---------------------------------------------------------------------------------

void a_cache_that_cannot_be_made_throws()
{
    vmm_config config = limited();
    config.device = -1;
    vmm::error error = thrown_by<vmm::error>([&] { vmm::cache cache(config); });
    EXPECT(error.status() == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(std::string(error.what()).find("device") != std::string::npos);
}

void a_move_takes_the_cache_along()
{
    vmm::cache first(limited());
    vmm::block block = first.allocate(MIB);
    vmm::memory_resource resource(first);
    vmm_cache *handle = first.get();
    vmm::cache second = std::move(first);
    EXPECT(first.get() == nullptr && second.get() == handle);
    vmm::cache third(limited());
    third = std::move(second);
    EXPECT(third.get() == handle && live_blocks(third) == 1);
    block.reset();
    void *data = resource.allocate(MIB);
    resource.deallocate(data, MIB);
    EXPECT(live_blocks(third) == 0 && third.take_error() == nullptr);

    EXPECT(thrown_by<vmm::error>([&] { (void)first.allocate(1); }).status() ==
           VMM_ERR_INVALID_ARGUMENT);
    EXPECT(!first.try_allocate(1) && first.take_error() == nullptr);
    EXPECT(thrown_by<vmm::error>([&] { first.listen({}); }).status() == VMM_ERR_INVALID_ARGUMENT);
}

void a_closed_cache_refuses_calls()
{
    vmm::cache cache(limited());
    cache.close();
    EXPECT(cache.get() == nullptr);
    EXPECT(thrown_by<vmm::error>([&] { cache.poll(); }).status() == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(thrown_by<vmm::error>([&] { (void)cache.stats(); }).status() ==
           VMM_ERR_INVALID_ARGUMENT);
    cache.close(); // as vmm_destroy(NULL): nothing happens
}

void memory_goes_back()
{
    vmm::cache cache(limited());
    cache.allocate(8 * MIB).reset();
    EXPECT(cache.stats().reserved_bytes.current >= 8 * MIB);
    cache.wait();
    EXPECT(cache.trim() >= 8 * MIB);
    cache.poll();
    EXPECT(cache.stats().reserved_bytes.current == 0);
}

void a_compaction_releases_what_live_blocks_pin()
{
    vmm_config config = limited();
    config.footprint_permille = 1000; // large chunks
    vmm::cache cache(config);
    vmm::block blocks[16];
    for (vmm::block &block : blocks)
        block = cache.allocate(2 * MIB);
    std::uint64_t before = cache.stats().reserved_bytes.current;
    for (int i = 0; i < 16; i++) {
        if (i % 8 != 0)
            blocks[i].reset();
    }
    vmm::compaction result = cache.compact();
    EXPECT(before - result.released_bytes == cache.stats().reserved_bytes.current);
    EXPECT(result.released_bytes >= 28 * MIB);
    EXPECT(result.moved_bytes == 0 || result.moved_bytes >= 2 * MIB);
    config.nvtx = VMM_OFF;
    config.debug = VMM_DEBUG_ON;
    vmm::cache other(config);
    EXPECT(refused([&] { (void)other.compact(); }) == VMM_ERR_UNSUPPORTED);
}

void a_wait_for_a_stream_throws_what_is_wrong()
{
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(MIB, stream_named(1));
    cache.wait_stream(stream_named(1));
    EXPECT(refused([&] { cache.wait_stream(reinterpret_cast<vmm_stream>(2)); }) ==
           VMM_ERR_INVALID_ARGUMENT);
}

// ---- Recordings ------------------------------------------------------------------------------

void a_trace_is_a_file()
{
    std::string path = "test_hpp_trace_" + std::to_string(getpid()) + ".txt";
    vmm::cache cache(limited());
    cache.note_trace("no recording");
    EXPECT(refused([&] { cache.stop_trace(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { cache.start_trace("/nowhere/trace"); }) == VMM_ERR_INVALID_ARGUMENT);
    cache.start_trace(path, true);
    EXPECT(refused([&] { cache.start_trace(path); }) == VMM_ERR_INVALID_ARGUMENT);
    vmm::block block = cache.allocate(MIB);
    cache.note_trace("the second step");
    cache.stop_trace();
    std::ifstream file(path);
    std::string text{ std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>() };
    EXPECT(std::remove(path.c_str()) == 0);
    EXPECT(text.find("the second step") != std::string::npos);
    EXPECT(text.find("no recording") == std::string::npos);
}

// ---- Out of memory --------------------------------------------------------------------------

void out_of_memory_is_an_exception_or_an_empty_block()
{
    vmm::cache cache(limited());
    vmm::out_of_memory error =
        thrown_by<vmm::out_of_memory>([&] { (void)cache.allocate(LIMIT + MIB); });
    EXPECT(error.status() == VMM_ERR_DEVICE_OOM);
    EXPECT(std::string(error.what()) == vmm_last_error());
    (void)thrown_by<std::bad_alloc>([&] { (void)cache.allocate(LIMIT + MIB); });

    vmm_status status = VMM_OK;
    EXPECT(!cache.try_allocate(LIMIT + MIB, nullptr, &status));
    EXPECT(status == VMM_ERR_DEVICE_OOM);
    vmm::block block = cache.try_allocate(LIMIT, nullptr, &status);
    EXPECT(block && status == VMM_OK && block.size() == LIMIT);
    block.reset();
    cache.set_limit(LIMIT / 2);
    cache.trim();
    EXPECT(!cache.try_allocate(LIMIT));
}

void devices_get_access()
{
    vmm::cache cache(limited());
    EXPECT(cache.peers() == 0);
    cache.add_peers(6);
    EXPECT(cache.peers() == 6);
}

// ---- std::pmr -------------------------------------------------------------------------------

void the_resource_allocates_for_its_stream()
{
    vmm::cache cache(limited());
    vmm::memory_resource resource(cache, stream_named(1));
    EXPECT(resource.stream() == stream_named(1));
    void *data = resource.allocate(MIB, vmm::alignment_bytes);
    EXPECT(reinterpret_cast<std::uintptr_t>(data) % vmm::alignment_bytes == 0);
    vmm_item item = VMM_ITEM_INIT;
    EXPECT(vmm_find(cache.get(), data, &item) == VMM_OK && item.stream == stream_named(1));
    resource.deallocate(data, MIB, vmm::alignment_bytes);
    EXPECT(live_blocks(cache) == 0);
    data = resource.allocate(1, 16 * vmm::alignment_bytes);
    EXPECT(reinterpret_cast<std::uintptr_t>(data) % (16 * vmm::alignment_bytes) == 0);
    resource.deallocate(data, 1, 16 * vmm::alignment_bytes);
    (void)thrown_by<std::bad_alloc>([&] { (void)resource.allocate(LIMIT + MIB); });
    resource.deallocate(data, MIB);
    (void)thrown_by<vmm::error>([&] { std::rethrow_exception(cache.take_error()); });
}

void resources_are_equal_for_one_cache_and_stream()
{
    vmm::cache caches[] = { vmm::cache(limited()), vmm::cache(limited()) };
    vmm::memory_resource resource(caches[0], stream_named(1));
    EXPECT(resource == vmm::memory_resource(caches[0], stream_named(1)));
    EXPECT(resource != vmm::memory_resource(caches[0], stream_named(2)));
    EXPECT(resource != vmm::memory_resource(caches[1], stream_named(1)));
    EXPECT(resource != *std::pmr::new_delete_resource());
}

void containers_work_on_the_host_driver()
{
    vmm::cache cache(limited());
    vmm::memory_resource resource(cache);
    if (driver == VMM_DRIVER_HOST) {
        std::pmr::vector<int> numbers(&resource);
        for (int i = 0; i < 100000; i++)
            numbers.push_back(i);
        EXPECT(numbers[99999] == 99999 && live_blocks(cache) == 1);
    }
    EXPECT(live_blocks(cache) == 0);
}

} // namespace

int main(int argc, char **argv)
{
    read_driver(argc, argv);
    blocks_are_freed_by_their_owner();
    a_move_takes_the_block_along();
    a_released_block_is_the_callers();
    a_free_that_fails_is_reported();
    a_block_that_stays_live_stays_owned();
    a_block_is_used_by_other_streams();
    a_cache_that_cannot_be_made_throws();
    a_move_takes_the_cache_along();
    a_closed_cache_refuses_calls();
    memory_goes_back();
    a_compaction_releases_what_live_blocks_pin();
    a_wait_for_a_stream_throws_what_is_wrong();
    a_trace_is_a_file();
    out_of_memory_is_an_exception_or_an_empty_block();
    devices_get_access();
    the_resource_allocates_for_its_stream();
    resources_are_equal_for_one_cache_and_stream();
    containers_work_on_the_host_driver();
    return 0;
}
