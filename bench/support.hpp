/*
 * Shared by the benches: settings, failures, time, sizes drawn in advance, and a check that blocks are aligned,
 * disjoint and keep their contents.
 *
 * Every bench is a template over an allocator, so that the same code measures all of them; allocator.hpp describes
 * that interface. Names are BENCH/ALLOCATOR/ARGUMENTS. A bench whose check fails is an error, and the program exits
 * with 1.
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

/* How long to measure. quick is for tests, which only check that the benches run. */
struct settings {
    bool quick = false;
    double seconds = 0.05;     /* of a repetition */
    int repetitions = 5;       /* of benches whose repetitions take `seconds` */
    int heavy_repetitions = 3; /* of traces, growth and latency */
};
settings &set();

using clock = std::chrono::steady_clock;
double seconds_since(clock::time_point start);

/* Fails a bench with an error message; returns false. failed(): whether any bench failed. */
bool fail(benchmark::State &state, const std::string &text);
bool failed();

/* "512B", "64KiB", "2.5MiB", "1GiB" */
std::string bytes_text(std::size_t bytes);

/* A size of 512 B to 8 MiB, uniform over powers of two, and the index of the live block that it replaces. */
struct replacement {
    std::size_t bytes;
    std::size_t index;
};
std::vector<replacement> replacements_draw(std::size_t count, std::size_t live);

/* Returns "" if the blocks are aligned, disjoint and keep their contents; else the fault. */
std::string blocks_fault(const std::vector<block> &blocks, std::size_t alignment, device &place);

/* Fails the bench if the allocator reported an error or a block is faulty. */
template <class A>
bool verify_blocks(benchmark::State &state, const A &allocator, const std::vector<block> &blocks)
{
    if (!allocator.ok())
        return fail(state, allocator.error());
    std::string fault = blocks_fault(blocks, A::alignment, A::place());
    return fault.empty() || fail(state, fault);
}

/* Fails the bench if the allocator reports live blocks. */
template <class A> bool verify_empty(benchmark::State &state, A &allocator)
{
    std::int64_t live = allocator.read().live;
    if (!allocator.ok())
        return fail(state, allocator.error());
    return live <= 0 || fail(state, "live blocks are left");
}

/*
 * Keeps the compiler from removing an allocation whose result is unused. Google Benchmark's DoNotOptimize does not
 * serve here: with GCC some versions of it change the variable.
 */
inline void *keep(void *address)
{
    __asm__ volatile("" : "+r"(address) : : "memory");
    return address;
}

template <class A> block block_alloc(A &allocator, std::size_t bytes, vmm_stream stream)
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

/* Reports the driver calls per iteration between two readings, if the allocator counts them. */
void report_calls(benchmark::State &state, const figures &before, const figures &after);

template <class F> auto *add(const std::string &name, F body)
{
    return benchmark::RegisterBenchmark(name.c_str(), body);
}

} // namespace bench

#endif
