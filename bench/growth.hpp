/*
 * Throughput of growing and trimming: an empty allocator takes 32 GiB in blocks of one size and releases all of
 * it; the trim is also measured while a kernel runs on another stream.
 */
#ifndef VMM_BENCH_GROWTH_HPP
#define VMM_BENCH_GROWTH_HPP

#include "support.hpp"

namespace bench
{

constexpr std::size_t growth_bytes = 32 * gib;

inline double milliseconds(double seconds)
{
    return seconds * 1e3;
}

/* Seconds to allocate all blocks. "own" time is the time outside driver calls. */
template <class A>
double growth_time(benchmark::State &state, A &allocator, std::vector<block> &blocks,
                   std::size_t bytes)
{
    vmm_stream stream = A::place().stream(0);
    figures before = allocator.read();
    auto start = clock::now();
    for (block &b : blocks)
        b = block_alloc(allocator, bytes, stream);
    double seconds = seconds_since(start);
    figures after = allocator.read();
    report_calls(state, before, after);
    if (after.driver_ns >= 0) {
        double driver = static_cast<double>(after.driver_ns - before.driver_ns) / 1e9;
        state.counters["own_percent"] = 100 * (seconds - driver) / driver;
        state.counters["driver_ms"] = milliseconds(driver);
    }
    return seconds;
}

/* Reports the memory left after a trim; vmmcache must leave none. */
template <class A> void report_kept(benchmark::State &state, A &allocator)
{
    std::int64_t kept = allocator.read().reserved;
    if (!allocator.ok())
        fail(state, allocator.error());
    else if (kept > 0 && A::is_ours)
        fail(state, "trim did not release all idle memory");
    state.counters["kept_gib"] = static_cast<double>(kept) / static_cast<double>(gib);
}

/* Seconds to release all memory. */
template <class A> double trim_time(benchmark::State &state, A &allocator)
{
    A::place().wait();
    auto start = clock::now();
    allocator.trim();
    double seconds = seconds_since(start);
    report_kept(state, allocator);
    return seconds;
}

template <class A> void growth(benchmark::State &state, std::size_t bytes)
{
    constexpr double amount = static_cast<double>(growth_bytes) / static_cast<double>(gib);
    std::vector<block> blocks(growth_bytes / bytes);
    for (auto _ : state) {
        A allocator;
        double grown = growth_time(state, allocator, blocks, bytes);
        state.SetIterationTime(grown);
        verify_blocks(state, allocator, blocks);
        blocks_free(allocator, blocks);
        verify_empty(state, allocator);
        state.counters["growth_gib_s"] = amount / grown;
        if (!A::trims)
            continue;
        double trimmed = trim_time(state, allocator);
        state.counters["trim_gib_s"] = amount / trimmed;
        state.counters["trim_ms"] = milliseconds(trimmed);
    }
}

/* A kernel of 200 ms runs on a stream without blocks: a trim that waits for it takes as long. What the kernel may read
 * goes back after it. */
template <class A> void trim_busy(benchmark::State &state, std::size_t bytes)
{
    constexpr std::uint64_t kernel_ns = 200 * 1000 * 1000;
    std::vector<block> blocks(growth_bytes / bytes);
    device &place = A::place();
    for (auto _ : state) {
        A allocator;
        for (block &b : blocks)
            b = block_alloc(allocator, bytes, place.stream(0));
        blocks_free(allocator, blocks);
        place.delay(1, place.stream(1)); /* loads the kernel, so that it is not measured */
        place.wait();
        auto start = clock::now();
        place.delay(kernel_ns, place.stream(1));
        allocator.trim();
        double trimmed = seconds_since(start);
        place.wait();
        if (seconds_since(start) * 1e9 < static_cast<double>(kernel_ns))
            fail(state, "the kernel ran for less time than requested");
        if constexpr (A::is_ours)
            allocator.poll();
        report_kept(state, allocator);
        state.SetIterationTime(trimmed);
        state.counters["trim_ms"] = milliseconds(trimmed);
    }
}

template <class A> void register_growth()
{
    auto begin = [](const std::string &name, auto body) {
        add(name, body)
            ->Iterations(1)
            ->UseManualTime()
            ->Repetitions(A::is_slow ? 1 : set().heavy_repetitions);
    };
    for (std::size_t bytes : { gib, 32 * mib, 2 * mib }) {
        if (A::is_slow && bytes < 32 * mib)
            continue;
        std::string tail = std::string("/") + A::name() + "/" + bytes_text(bytes);
        begin("growth" + tail, [bytes](benchmark::State &state) { growth<A>(state, bytes); });
        if (A::trims && !A::place().is_sim())
            begin("trim_busy" + tail,
                  [bytes](benchmark::State &state) { trim_busy<A>(state, bytes); });
    }
}

} // namespace bench

#endif
