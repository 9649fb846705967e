// vmmcache.hpp: pools that sleep, and the tickets of those that do so on a thread of the library.
#include "hpp_support.hpp"

#include <cstring>
#include <thread>
#include <type_traits>

namespace
{

static_assert(!std::is_copy_constructible_v<vmm::ticket>);
static_assert(!std::is_copy_assignable_v<vmm::ticket>);
static_assert(std::is_nothrow_move_constructible_v<vmm::ticket>);
static_assert(std::is_nothrow_move_assignable_v<vmm::ticket>);

constexpr std::size_t BYTES = 4 * MIB;

vmm::block filled(vmm::pool &pool)
{
    vmm::block block = pool.allocate(BYTES);
    if (driver == VMM_DRIVER_HOST)
        std::memset(block.data(), 77, BYTES);
    return block;
}

bool is_filled(const void *data)
{
    return driver != VMM_DRIVER_HOST || static_cast<const unsigned char *>(data)[BYTES - 1] == 77;
}

void a_pool_sleeps_and_wakes()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block block = filled(pool);
    EXPECT(pool.phase() == VMM_POOL_AWAKE);
    EXPECT(refused([&] { (void)pool.find_backup(block.data()); }) == VMM_ERR_INVALID_ARGUMENT);
    pool.sleep();
    EXPECT(pool.phase() == VMM_POOL_ASLEEP && cache.stats().asleep_bytes >= BYTES);
    EXPECT(refused([&] { (void)pool.allocate(1); }) == VMM_ERR_ASLEEP);
    EXPECT(refused([&] { pool.drop_backup(); }) == VMM_ERR_ASLEEP);
    EXPECT(is_filled(pool.find_backup(block.data())));
    pool.wake();
    EXPECT(pool.phase() == VMM_POOL_AWAKE && is_filled(block.data()));
    EXPECT(cache.stats().backup_bytes >= BYTES);
    pool.drop_backup();
    EXPECT(cache.stats().backup_bytes == 0);
}

void options_reach_a_sleep()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block block = pool.allocate(BYTES);
    vmm_sleep_options options = vmm::make_sleep_options();
    options.on_sleep = VMM_ON_SLEEP_DISCARD;
    pool.sleep(options);
    EXPECT(cache.stats().backup_bytes == 0);
    EXPECT(refused([&] { (void)pool.find_backup(block.data()); }) == VMM_ERR_UNKNOWN_POINTER);
    pool.wake();
}

void a_ticket_tells_the_end()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block block = filled(pool);
    vmm::ticket sleep = pool.begin_sleep();
    vmm::ticket ticket(std::move(sleep));
    EXPECT(refused([&] { (void)sleep.done(); }) == VMM_ERR_INVALID_ARGUMENT);
    while (!ticket.done())
        std::this_thread::yield();
    ticket.wait();
    EXPECT(pool.phase() == VMM_POOL_ASLEEP);
    EXPECT(refused([&] { ticket.wait(); }) == VMM_ERR_INVALID_ARGUMENT);
    ticket = pool.begin_wake();
    ticket.wait();
    EXPECT(pool.phase() == VMM_POOL_AWAKE && is_filled(block.data()));
}

void the_destructor_of_a_ticket_waits_and_keeps_a_failure()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::block block = filled(pool);
    {
        vmm::ticket ticket = pool.begin_sleep();
    }
    EXPECT(pool.phase() == VMM_POOL_ASLEEP && cache.take_error() == nullptr);
    vmm::block other = cache.allocate(LIMIT);
    {
        vmm::ticket ticket = pool.begin_wake();
    }
    EXPECT(pool.phase() == VMM_POOL_ASLEEP);
    std::exception_ptr kept = cache.take_error();
    EXPECT(kept != nullptr);
    EXPECT(thrown_by<vmm::out_of_memory>([&] { std::rethrow_exception(kept); }).status() ==
           VMM_ERR_DEVICE_OOM);
    other.reset();
    pool.wake();
    EXPECT(is_filled(block.data()));
}

void a_pool_that_moved_neither_sleeps_nor_wakes()
{
    vmm::cache cache(limited());
    vmm::pool pool(cache);
    vmm::pool moved(std::move(pool));
    EXPECT(refused([&] { pool.sleep(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { pool.wake(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { (void)pool.begin_sleep(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { (void)pool.begin_wake(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(refused([&] { (void)pool.phase(); }) == VMM_ERR_INVALID_ARGUMENT);
    EXPECT(cache.take_error() == nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    read_driver(argc, argv);
    a_pool_sleeps_and_wakes();
    options_reach_a_sleep();
    a_ticket_tells_the_end();
    the_destructor_of_a_ticket_waits_and_keeps_a_failure();
    a_pool_that_moved_neither_sleeps_nor_wakes();
    return 0;
}
