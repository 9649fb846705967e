/* See bench.hpp. */
#include "bench.hpp"

namespace
{
bool any_failed; /* Google Benchmark ends with 0 even so */
}

namespace bench
{

cache::cache(vmm_driver_kind kind)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = kind;
    status_ = vmm_create(&config, &cache_);
}

cache::~cache()
{
    vmm_destroy(cache_);
}

std::size_t cache::trim()
{
    std::size_t released = 0;
    if (status_ == VMM_OK)
        status_ = vmm_trim(cache_, 0, &released);
    return released;
}

vmm_stats cache::stats()
{
    vmm_stats stats{};
    stats.struct_size = sizeof stats;
    if (status_ == VMM_OK)
        status_ = vmm_stats_get(cache_, &stats);
    return stats;
}

void fail(benchmark::State &state, const char *text)
{
    any_failed = true;
    state.SkipWithError(text);
}

bool failed()
{
    return any_failed;
}

bool verify(benchmark::State &state, const cache &used, bool holds, const char *text)
{
    if (!used.ok())
        fail(state, vmm_last_error());
    else if (!holds)
        fail(state, text);
    return used.ok() && holds;
}

void report_driver(benchmark::State &state, const vmm_stats &before, const vmm_stats &after)
{
    auto report = [&state](const char *label, std::uint64_t first, std::uint64_t last) {
        state.counters[label] = benchmark::Counter(static_cast<double>(last - first),
                                                   benchmark::Counter::kAvgIterations);
    };
    report("create", before.create_calls, after.create_calls);
    report("map", before.map_calls, after.map_calls);
    report("access", before.access_calls, after.access_calls);
    report("unmap", before.unmap_calls, after.unmap_calls);
    report("release", before.release_calls, after.release_calls);
    report("driver_ns", before.driver_ns, after.driver_ns);
}

std::uint64_t memory_calls(const vmm_stats &stats)
{
    return stats.create_calls + stats.map_calls + stats.access_calls + stats.unmap_calls +
           stats.release_calls;
}

double seconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string name(const char *bench, const char *driver)
{
    return std::string(bench) + "/" + driver;
}

} // namespace bench
