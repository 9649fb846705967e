/* Physical memory on its way in (growth of an empty cache) and out (trim of an idle one). */
#include "bench.hpp"

#include <utility>

namespace
{

using clock = std::chrono::steady_clock;

enum class timed { growth, trim };

/* One round: grow to `bytes` in one block, free it, trim everything; times one of the two. */
void round_trip(benchmark::State &state, vmm_driver_kind kind, timed part)
{
    bench::cache cache(kind);
    auto bytes = static_cast<std::size_t>(state.range(0));
    bool grown = true, trimmed = true;
    vmm_stats before = cache.stats();

    for (auto _ : state) {
        auto start = clock::now();
        void *block = cache.alloc(bytes);
        double growth_seconds = bench::seconds_since(start);
        grown &= block != nullptr && cache.stats().reserved_bytes.current >= bytes;
        cache.free(block);

        start = clock::now();
        std::size_t released = cache.trim();
        double trim_seconds = bench::seconds_since(start);
        trimmed &= released >= bytes;
        state.SetIterationTime(part == timed::growth ? growth_seconds : trim_seconds);
    }
    vmm_stats after = cache.stats();
    bench::report_driver(state, before, after);
    bench::verify(state, cache, grown, "a block was handed out without memory under it") &&
        bench::verify(state, cache, trimmed, "trim gave back less than was idle") &&
        bench::verify(state, cache, after.reserved_bytes.current == 0, "memory is left");
}

} // namespace

void bench::register_grow(const char *driver, vmm_driver_kind kind)
{
    for (auto [bench_name, part] :
         { std::pair{ "growth", timed::growth }, { "trim", timed::trim } }) {
        benchmark::RegisterBenchmark(name(bench_name, driver).c_str(), round_trip, kind, part)
            ->Arg(2 * mib)
            ->Arg(64 * mib)
            ->Arg(1024 * mib)
            ->UseManualTime();
    }
}
