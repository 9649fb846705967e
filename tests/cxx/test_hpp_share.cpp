// vmmcache.hpp: shares of blocks, within one process.
#include "hpp_support.hpp"

#include <cstring>
#include <optional>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>

namespace
{

static_assert(!std::is_copy_constructible_v<vmm::share> && !std::is_copy_assignable_v<vmm::share>);
static_assert(std::is_nothrow_move_constructible_v<vmm::share>);
static_assert(std::is_nothrow_move_assignable_v<vmm::share>);

constexpr std::size_t BYTES = 3 * MIB;

struct sockets {
    int ends[2];
    sockets()
    {
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    }
    ~sockets()
    {
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
};

vmm_pool_options shareable()
{
    vmm_pool_options options = vmm::make_pool_options();
    options.shareable = VMM_SHARE_MACHINE;
    return options;
}

bool is_imported(const vmm::cache &cache, const vmm::block &block)
{
    vmm_item item = VMM_ITEM_INIT;
    EXPECT(vmm_find(cache.get(), block.data(), &item) == VMM_OK);
    return item.is_imported != 0;
}

void parts_are_walked_and_exported()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache, shareable());
    vmm::block block = pool.allocate(BYTES);
    std::size_t bytes = 0;
    block.walk_parts([&](const vmm_part &part) {
        bytes += part.bytes;
        return true;
    });
    EXPECT(bytes == 4 * MIB);
    EXPECT(refused([&] { (void)block.export_dmabuf(0, bytes); }) == VMM_ERR_INVALID_ARGUMENT);
    block.pin();
    if (driver == VMM_DRIVER_HOST)
        EXPECT(close(block.export_dmabuf(0, bytes)) == 0);
    else if (driver == VMM_DRIVER_SIM)
        EXPECT(refused([&] { (void)block.export_dmabuf(0, bytes); }) == VMM_ERR_UNSUPPORTED);
    block.unpin();
    EXPECT(thrown_by<int>([&] { block.walk_parts([](const vmm_part &) -> bool { throw 7; }); }) ==
           7);
}

void a_block_is_imported_through_a_socket()
{
    sockets pair;
    vmm::cache cache(limited());
    vmm::pool pool(cache, shareable());
    vmm::block block = pool.allocate(BYTES);
    if (driver == VMM_DRIVER_HOST)
        std::memset(block.data(), 77, BYTES);
    vmm::share exported = block.export_share();
    exported.send(pair.ends[0]);
    vmm::share received = vmm::share::receive(pair.ends[1]);
    {
        vmm::block imported = cache.import_share(received, stream_named(1));
        received.close();
        EXPECT(imported.size() == BYTES && imported.stream() == stream_named(1));
        EXPECT(imported.data() != block.data() && is_imported(cache, imported));
        const auto *bytes = static_cast<const unsigned char *>(imported.data());
        EXPECT(driver != VMM_DRIVER_HOST || bytes[BYTES - 1] == 77);
    }
    EXPECT(refused([&] { exported.close(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(exported.get() != nullptr);
    exported.close(true);
    EXPECT(exported.get() == nullptr);
    EXPECT(refused([&] { exported.send(pair.ends[0]); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { (void)cache.import_share(exported); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(cache.take_error() == nullptr);
}

// Exported blocks do not move: unmovable_bytes tells whether a share is open.
void the_destructor_ends_a_share_that_was_not_sent()
{
    sockets pair;
    vmm::cache cache(limited());
    vmm::pool pool(cache, shareable());
    vmm::block block = pool.allocate(BYTES);
    {
        vmm::share first = block.export_share();
        vmm::share second(std::move(first));
        EXPECT(first.get() == nullptr && cache.stats().unmovable_bytes >= BYTES);
    }
    EXPECT(cache.stats().unmovable_bytes == 0);
    vmm_share *left = nullptr;
    {
        vmm::share sent = block.export_share();
        sent.send(pair.ends[0]);
        left = sent.get();
    }
    EXPECT(cache.stats().unmovable_bytes >= BYTES);
    EXPECT(vmm_share_close(left, 1) == VMM_OK && cache.stats().unmovable_bytes == 0);
}

void what_cannot_be_shared_throws()
{
    sockets pair;
    vmm::cache cache(limited());
    vmm::block block = cache.allocate(BYTES);
    EXPECT(refused([&] { (void)block.export_share(); }) == VMM_ERR_INVALID_ARGUMENT);
    block.reset();
    EXPECT(refused([&] { (void)block.export_share(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(shutdown(pair.ends[0], SHUT_WR) == 0);
    EXPECT(refused([&] { (void)vmm::share::receive(pair.ends[1]); }) == VMM_ERR_INVALID_ARGUMENT);
}

void a_share_outlives_its_cache()
{
    std::optional<vmm::share> left;
    {
        vmm::cache cache(limited());
        vmm::pool pool(cache, shareable());
        vmm::block block = pool.allocate(BYTES);
        left.emplace(block.export_share());
    }
    if (driver == VMM_DRIVER_HOST) { // memory of the sim driver ends with it
        vmm::cache cache(limited());
        vmm::block imported = cache.import_share(*left);
        EXPECT(imported.size() == BYTES && is_imported(cache, imported));
    }
    left->close();
    EXPECT(left->get() == nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    read_driver(argc, argv);
    parts_are_walked_and_exported();
    a_block_is_imported_through_a_socket();
    the_destructor_ends_a_share_that_was_not_sent();
    what_cannot_be_shared_throws();
    a_share_outlives_its_cache();
    return 0;
}
