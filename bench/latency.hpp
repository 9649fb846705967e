/*
 * Latency of single allocations of one thread while another thread grows and trims on its own stream: pairs of
 * 512 bytes, or replacements in a mixed live set. Includes the clock's own time, about 20 ns.
 */
#ifndef VMM_BENCH_LATENCY_HPP
#define VMM_BENCH_LATENCY_HPP

#include "pair.hpp"
#include "workers.hpp"

namespace bench
{

/* Repeats: allocates 1 GiB in pieces, frees it and trims. Returns the number of rounds. */
template <class A> std::size_t grow_and_trim(A &allocator, const std::atomic<bool> &stop)
{
    std::vector<block> blocks(16);
    std::size_t rounds = 0;
    for (; !stop.load(std::memory_order_relaxed) && allocator.ok(); rounds++) {
        for (block &b : blocks)
            b = block_alloc(allocator, 64 * mib, A::place().stream(1));
        blocks_free(allocator, blocks);
        allocator.trim();
    }
    return rounds;
}

/* Replaces blocks of a live set for a while; returns the nanoseconds of each allocation, sorted. */
template <class A>
std::vector<float> latencies(A &allocator, std::vector<block> &live,
                             const std::vector<replacement> &drawn)
{
    constexpr std::size_t most = std::size_t{ 1 } << 22;
    std::vector<float> taken;
    taken.reserve(most);
    auto start = clock::now();
    for (std::size_t i = 0; taken.size() < most; i = (i + 1) % drawn.size()) {
        block &b = live[drawn[i].index];
        allocator.free(b.address, b.bytes, b.stream);
        auto before = clock::now();
        b.address = static_cast<char *>(allocator.alloc(drawn[i].bytes, b.stream));
        auto after = clock::now();
        b.bytes = drawn[i].bytes;
        taken.push_back(std::chrono::duration<float, std::nano>(after - before).count());
        if (after - start > std::chrono::duration<double>(4 * set().seconds))
            break;
    }
    std::sort(taken.begin(), taken.end());
    return taken;
}

inline void report_latencies(benchmark::State &state, const std::vector<float> &sorted)
{
    auto at = [&sorted](double share) {
        auto place = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
        return static_cast<double>(sorted[std::min(place, sorted.size() - 1)]);
    };
    state.counters["p50_ns"] = at(0.5);
    state.counters["p99_ns"] = at(0.99);
    state.counters["p999_ns"] = at(0.999);
    state.counters["max_ns"] = at(1);
    state.counters["allocations"] = static_cast<double>(sorted.size());
}

template <class A> void latency(benchmark::State &state, bool is_mixed)
{
    const std::size_t live_count = is_mixed ? 2000 : 1;
    std::vector<replacement> drawn = replacements_draw(1 << 16, live_count);
    if (!is_mixed)
        drawn.assign(1 << 10, { 512, 0 });
    A allocator;
    std::vector<block> live = live_set(allocator, live_count, A::place().stream(0), drawn);
    for (auto _ : state) {
        std::atomic<bool> stop{ false };
        std::vector<float> sorted;
        std::size_t rounds = 0;
        double seconds = threads_run<A>(2, [&](unsigned thread) {
            if (thread == 0) {
                sorted = latencies(allocator, live, drawn);
                stop = true;
            } else
                rounds = grow_and_trim(allocator, stop);
        });
        state.SetIterationTime(seconds);
        report_latencies(state, sorted);
        state.counters["rounds"] = static_cast<double>(rounds);
    }
    verify_blocks(state, allocator, live);
    blocks_free(allocator, live);
    verify_empty(state, allocator);
}

template <class A> void register_latency()
{
    for (bool is_mixed : { false, true })
        add(std::string("latency/") + A::name() + (is_mixed ? "/mixed" : "/512B"),
            [=](benchmark::State &state) { latency<A>(state, is_mixed); })
            ->Iterations(1)
            ->UseManualTime()
            ->Repetitions(set().heavy_repetitions);
}

} // namespace bench

#endif
