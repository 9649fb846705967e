/*
 * Whether cost grows with the heap: replaces 2-MiB blocks of small and large live sets, oldest first, or at random.
 * Random replacement in a large set misses the processor's cache at each step.
 */
#ifndef VMM_BENCH_HEAP_HPP
#define VMM_BENCH_HEAP_HPP

#include "pair.hpp"

#include <algorithm>

namespace bench
{

/* Fills the heap with live blocks. Grows in large pieces first, which is faster. */
template <class A>
std::vector<block> heap_fill(A &allocator, std::size_t live_bytes, std::size_t bytes)
{
    vmm_stream stream = A::place().stream(0);
    std::vector<block> large(live_bytes / gib), live(live_bytes / bytes);
    for (block &b : large)
        b = block_alloc(allocator, gib, stream);
    blocks_free(allocator, large);
    for (block &b : live)
        b = block_alloc(allocator, bytes, stream);
    return live;
}

/* Each iteration is a round of replacements in the same heap; the result is the median of the rounds. */
template <class A> void heap(benchmark::State &state, std::size_t live_bytes, bool is_random)
{
    constexpr std::size_t bytes = 2 * mib, drawn_count = 1 << 16;
    A allocator;
    std::vector<block> live = heap_fill(allocator, live_bytes, bytes);
    std::vector<replacement> drawn = replacements_draw(drawn_count, live.size());
    for (std::size_t i = 0; i < drawn_count; i++)
        drawn[i] = { bytes, is_random ? drawn[i].index : i % live.size() };
    replacements_run(allocator, live, drawn);
    std::vector<double> rounds;
    figures before = allocator.read();
    for (auto _ : state) {
        auto start = clock::now();
        replacements_run(allocator, live, drawn);
        rounds.push_back(seconds_since(start));
        state.SetIterationTime(rounds.back());
    }
    report_calls(state, before, allocator.read());
    std::sort(rounds.begin(), rounds.end());
    state.counters["pair_ns"] = rounds[rounds.size() / 2] * 1e9 / drawn_count;
    verify_blocks(state, allocator, live);
    blocks_free(allocator, live);
    verify_empty(state, allocator);
}

template <class A> void register_heap()
{
    for (bool is_random : { false, true }) {
        std::string name = std::string(is_random ? "heap_random/" : "heap/") + A::name() + "/";
        for (std::size_t live_bytes : { gib, 16 * gib, 139 * gib })
            add(name + bytes_text(live_bytes),
                [=](benchmark::State &state) { heap<A>(state, live_bytes, is_random); })
                ->Iterations(set().quick ? 1 : 11)
                ->UseManualTime();
    }
}

} // namespace bench

#endif
