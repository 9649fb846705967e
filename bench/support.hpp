/*
 * What the benches share: settings, failures, time, sizes drawn ahead, and the check that blocks are
 * what an allocator promises.
 *
 * Every bench is a template over an allocator, so that all are measured by the same code; allocator.hpp
 * says what an allocator has. Names are BENCH/ALLOCATOR/ARGUMENTS. A bench that fails its check is an
 * error, and ends the program with 1.
 */
#ifndef VMM_BENCH_SUPPORT_HPP
#define VMM_BENCH_SUPPORT_HPP

#include "allocator.hpp"

#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace bench
{

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::size_t gib = 1024 * mib;

/* How long to measure. quick is for the tests: that the benches run and hold. */
struct settings {
    bool quick = false;
    double seconds = 0.05;     /* of a repetition */
    int repetitions = 5;       /* of benches that take no longer than that */
    int heavy_repetitions = 3; /* of traces, growth and latency */
};
settings &set();

using clock = std::chrono::steady_clock;
double seconds_since(clock::time_point start);

/* Ends a bench with an error; failed() tells whether any did. Returns false. */
bool fail(benchmark::State &state, const std::string &text);
bool failed();

/* "512B", "64KiB", "2.5MiB", "1GiB" */
std::string bytes_text(std::size_t bytes);

/* Sizes of 512 B to 8 MiB, as many of each power of two, and which of `live` blocks they replace. */
struct replacement {
    std::size_t bytes;
    std::size_t index;
};
std::vector<replacement> replacements_draw(std::size_t count, std::size_t live);

/* "" if the blocks are there, aligned and apart, and keep their bytes; else what is wrong. */
std::string blocks_fault(const std::vector<block> &blocks, std::size_t alignment, device &place);

/* Fails unless the allocator met no error, and its blocks are as promised. */
template <class A>
bool verify_blocks(benchmark::State &state, const A &allocator, const std::vector<block> &blocks)
{
    if (!allocator.ok())
        return fail(state, allocator.error());
    std::string fault = blocks_fault(blocks, A::alignment, A::place());
    return fault.empty() || fail(state, fault);
}

/* Fails unless nothing is left live, as far as the allocator knows. */
template <class A> bool verify_empty(benchmark::State &state, A &allocator)
{
    std::int64_t live = allocator.read().live;
    if (!allocator.ok())
        return fail(state, allocator.error());
    return live <= 0 || fail(state, "blocks are left");
}

/*
 * The compiler may not leave out an allocation that nobody looks at. Google Benchmark's DoNotOptimize is
 * not for this: with GCC some versions of it change the variable.
 */
inline void *seen(void *address)
{
    __asm__ volatile("" : "+r"(address) : : "memory");
    return address;
}

template <class A> block block_alloc(A &allocator, std::size_t bytes, void *stream)
{
    return { static_cast<char *>(allocator.alloc(bytes, stream)), bytes, stream };
}

template <class A> void block_free(A &allocator, block &b)
{
    if (b.address != nullptr)
        allocator.free(b.address, b.bytes, b.stream);
    b.address = nullptr;
}

template <class A> void blocks_free(A &allocator, std::vector<block> &blocks)
{
    for (block &b : blocks)
        block_free(allocator, b);
}

/* Driver calls between two readings, where the allocator knows them, each iteration. */
void report_calls(benchmark::State &state, const figures &before, const figures &after);

template <class F> auto *add(const std::string &name, F body)
{
    return benchmark::RegisterBenchmark(name.c_str(), body);
}

} // namespace bench

#endif
