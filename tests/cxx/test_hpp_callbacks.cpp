// vmmcache.hpp: callbacks whose exceptions never reach the C library.
#include "hpp_support.hpp"

#include <optional>
#include <thread>
#include <vector>

namespace
{

struct program_error {
    int number;
};

int number_of(std::exception_ptr thrown)
{
    EXPECT(thrown != nullptr);
    return thrown_by<program_error>([&] { std::rethrow_exception(thrown); }).number;
}

// ---- Callbacks ------------------------------------------------------------------------------

void the_program_is_asked_for_memory()
{
    vmm::block spare;
    std::size_t wanted = 0;
    vmm::callbacks functions;
    functions.pressure = [&](vmm_pool *, std::size_t bytes) {
        wanted = bytes;
        bool has_spare = bool(spare);
        spare.reset();
        return has_spare;
    };
    vmm::cache cache(limited(), functions);
    spare = cache.allocate(LIMIT);
    vmm::block block = cache.allocate(LIMIT);
    EXPECT(block && !spare && wanted > 0);
    EXPECT(!cache.try_allocate(LIMIT));
    EXPECT(cache.take_error() == nullptr);
}

void what_the_pressure_function_throws_is_kept()
{
    int calls = 0;
    vmm::callbacks functions;
    functions.pressure = [&](vmm_pool *, std::size_t) -> bool { throw program_error{ ++calls }; };
    vmm::cache cache(limited(), functions);
    EXPECT(!cache.try_allocate(LIMIT + MIB));
    (void)thrown_by<vmm::out_of_memory>([&] { (void)cache.allocate(LIMIT + MIB); });
    EXPECT(calls >= 2);
    EXPECT(number_of(cache.take_error()) == 1); // the first
    EXPECT(cache.take_error() == nullptr);
    EXPECT(bool(cache.allocate(LIMIT))); // nothing stayed locked
}

void what_the_log_throws_is_kept()
{
    int lines = 0;
    vmm::callbacks functions;
    functions.log = [&](const char *line) {
        EXPECT(line != nullptr);
        lines++;
        throw program_error{ 4 };
    };
    {
        vmm::cache cache(limited(), functions);
        EXPECT(bool(cache.allocate(8 * MIB)));
        EXPECT(lines > 0);
        EXPECT(number_of(cache.take_error()) == 4);
        EXPECT(bool(cache.allocate(8 * MIB)));
    }
}

void a_misuse_is_reported_once()
{
    std::string line;
    vmm::callbacks functions;
    functions.debug = [&](const char *found) {
        line = found;
        throw program_error{ 5 };
    };
    vmm_config config = limited();
    config.debug = VMM_DEBUG_RECORD;
    vmm::cache cache(config, functions);
    void *data = cache.allocate(4000).release();
    EXPECT(vmm_free(cache.get(), data) == VMM_OK);
    EXPECT(vmm_free(cache.get(), data) == VMM_ERR_UNKNOWN_POINTER);
    EXPECT(line.find("freed before") != std::string::npos);
    EXPECT(number_of(cache.take_error()) == 5);
}

void a_walk_passes_exceptions_on()
{
    vmm::cache cache(limited());
    vmm::block blocks[] = { cache.allocate(3 * MIB), cache.allocate(5 * MIB) };
    std::uint64_t live_bytes = 0;
    cache.walk([&](const vmm_item &item) {
        if (item.kind == VMM_ITEM_BLOCK && item.state == VMM_ITEM_LIVE)
            live_bytes += item.requested_bytes;
        return true;
    });
    EXPECT(live_bytes == 8 * MIB);

    int visited = 0;
    cache.walk([&](const vmm_item &) { return ++visited < 2; });
    EXPECT(visited == 2);
    auto throwing = [](const vmm_item &) -> bool { throw program_error{ 6 }; };
    EXPECT(thrown_by<program_error>([&] { cache.walk(throwing); }).number == 6);
    EXPECT(cache.take_error() == nullptr);
    EXPECT(bool(cache.allocate(MIB))); // nothing stayed locked
}

void a_listener_hears_of_changes()
{
    vmm::cache cache(limited());
    std::uint64_t mapped = 0;
    cache.listen([&](const vmm_change &change) {
        if (change.kind == VMM_CHANGE_MAP)
            mapped += change.bytes;
    });
    vmm::block block = cache.allocate(8 * MIB);
    EXPECT(mapped >= 8 * MIB);
    cache.listen([](const vmm_change &) { throw program_error{ 7 }; });
    vmm::block second = cache.allocate(16 * MIB);
    EXPECT(number_of(cache.take_error()) == 7);
    cache.listen({});
    vmm::block third = cache.allocate(24 * MIB);
    EXPECT(third && cache.take_error() == nullptr);
}

// A cache that ends inside its own callback is refused, and nothing is freed under the callback.
void a_cache_outlives_its_callback()
{
    std::optional<vmm::cache> cache;
    static vmm_cache *handle; // static: a leak checker finds the cache from here
    vmm_status status = VMM_OK;
    vmm::callbacks functions;
    functions.pressure = [&](vmm_pool *, std::size_t) {
        if (cache) {
            status = thrown_by<vmm::error>([&] { cache->close(); }).status();
            cache.reset();
        }
        return false;
    };
    cache.emplace(limited(), functions);
    handle = cache->get();
    EXPECT(!cache->try_allocate(LIMIT + MIB));
    EXPECT(!cache && status == VMM_ERR_INVALID_ARGUMENT);
    vmm_stats stats = VMM_STATS_INIT;
    EXPECT(vmm_stats_get(handle, &stats) == VMM_OK && stats.ooms == 1);
}

// ---- Threads --------------------------------------------------------------------------------

void threads_share_a_cache()
{
    constexpr int threads = 4;
    constexpr int rounds = 500;
    vmm::callbacks functions;
    functions.log = [](const char *) { throw program_error{ 8 }; };
    vmm::cache cache(limited(), functions);
    auto work = [&cache](int number) {
        for (int i = 0; i < rounds; i++) {
            vmm::block block = cache.allocate(MIB, stream_named(number));
            EXPECT(!cache.try_allocate(LIMIT + MIB, stream_named(number)));
            if (i % 16 == 0)
                cache.trim();
        }
    };
    std::vector<std::thread> workers;
    for (int number = 0; number < threads; number++)
        workers.emplace_back(work, number + 1);
    for (std::thread &worker : workers)
        worker.join();
    EXPECT(live_blocks(cache) == 0);
    EXPECT(number_of(cache.take_error()) == 8);
}

} // namespace

int main(int argc, char **argv)
{
    read_driver(argc, argv);
    the_program_is_asked_for_memory();
    what_the_pressure_function_throws_is_kept();
    what_the_log_throws_is_kept();
    a_misuse_is_reported_once();
    a_walk_passes_exceptions_on();
    a_listener_hears_of_changes();
    a_cache_outlives_its_callback();
    threads_share_a_cache();
    return 0;
}
