/* The hot path: no driver call at all. One size over and over; a mixed set of live blocks. */
#include "bench.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace
{

constexpr std::size_t live_blocks = 1000;
constexpr std::size_t alignment = 512;

struct block {
    char *address;
    std::size_t bytes;
};

void pair(benchmark::State &state, vmm_driver_kind kind)
{
    bench::cache cache(kind);
    auto bytes = static_cast<std::size_t>(state.range(0));
    void *first = cache.alloc(bytes);
    cache.free(first);
    vmm_stats before = cache.stats();

    void *last = first;
    for (auto _ : state) {
        last = cache.alloc(bytes);
        benchmark::DoNotOptimize(last);
        cache.free(last);
    }
    vmm_stats after = cache.stats();
    bench::report_driver(state, before, after);
    bool aligned = last != nullptr && reinterpret_cast<std::uintptr_t>(last) % alignment == 0;
    bench::verify(state, cache, aligned, "the block is not aligned") &&
        bench::verify(state, cache, after.allocations.current == 0, "a block is left") &&
        bench::verify(state, cache, bench::memory_calls(after) == bench::memory_calls(before),
                      "the hot path called the driver");
}

/* As programs ask: many small blocks, some of megabytes; as many of each power of two. */
std::size_t random_bytes(std::mt19937_64 &random)
{
    std::uniform_int_distribution<unsigned> shift(9, 24);
    std::size_t base = std::size_t{ 1 } << shift(random);
    return base + std::uniform_int_distribution<std::size_t>(0, base - 1)(random);
}

bool overlap(std::vector<block> blocks)
{
    std::sort(blocks.begin(), blocks.end(),
              [](const block &a, const block &b) { return a.address < b.address; });
    for (std::size_t i = 1; i < blocks.size(); i++) {
        if (blocks[i - 1].address + blocks[i - 1].bytes > blocks[i].address)
            return true;
    }
    return false;
}

block block_new(bench::cache &cache, std::mt19937_64 &random)
{
    std::size_t bytes = random_bytes(random);
    return { static_cast<char *>(cache.alloc(bytes)), bytes };
}

void mixed(benchmark::State &state, vmm_driver_kind kind)
{
    bench::cache cache(kind);
    std::mt19937_64 random(1);
    std::vector<block> live(live_blocks);
    for (block &b : live)
        b = block_new(cache, random);
    vmm_stats before = cache.stats();

    for (auto _ : state) {
        block &b = live[random() % live_blocks];
        cache.free(b.address);
        b = block_new(cache, random);
    }
    vmm_stats after = cache.stats();
    bench::report_driver(state, before, after);
    bench::verify(state, cache, after.allocations.current == live_blocks, "blocks are missing") &&
        bench::verify(state, cache, !overlap(live), "two live blocks overlap");
}

} // namespace

void bench::register_hot(const char *driver, vmm_driver_kind kind)
{
    benchmark::RegisterBenchmark(name("pair", driver).c_str(), pair, kind)
        ->Arg(512)
        ->Arg(64 * kib)
        ->Arg(2 * mib)
        ->Arg(100 * mib);
    benchmark::RegisterBenchmark(name("mixed", driver).c_str(), mixed, kind);
}
