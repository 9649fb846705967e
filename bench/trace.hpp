/*
 * Replays recorded programs: a first pass with an empty allocator, passes that warm it up, and later passes, which
 * find it in the state that the steps of a training loop do. No kernels run, so the time is that of the allocator
 * and its driver calls.
 */
#ifndef VMM_BENCH_TRACE_HPP
#define VMM_BENCH_TRACE_HPP

#include "support.hpp"

#include <memory>

extern "C" {
#include "fragtest/trace/trace.h"
}

namespace bench
{

/* Returns the bundled trace of a name, read at its first use; NULL with the error in `why`. */
const struct trace *trace_find(const char *name, std::string &why);

/* The numbers of the blocks that are live after the first `operations`. */
std::vector<std::uint32_t> trace_live(const struct trace &trace, std::uint32_t operations);

/* Replays one trace with one allocator. */
template <class A> class replay
{
  public:
    explicit replay(const struct trace &trace) : trace_(trace), blocks_(trace.block_count)
    {
        for (std::uint32_t i = 0; i < trace.block_count; i++) {
            blocks_[i].bytes = trace.blocks[i].bytes;
            blocks_[i].stream = stream_of(trace.blocks[i].stream);
        }
    }

    /* Returns the seconds of the operations; frees the blocks that the trace leaves live afterwards. */
    double pass(A &allocator)
    {
        auto start = clock::now();
        run(allocator, trace_.op_count);
        double seconds = seconds_since(start);
        blocks_free(allocator, blocks_);
        A::place().wait();
        return seconds;
    }

    /* Stops halfway and checks the live blocks. */
    void verify(benchmark::State &state, A &allocator)
    {
        std::vector<block> live;
        run(allocator, trace_.op_count / 2);
        for (std::uint32_t number : trace_live(trace_, trace_.op_count / 2))
            live.push_back(blocks_[number]);
        verify_blocks(state, allocator, live);
        blocks_free(allocator, blocks_);
        verify_empty(state, allocator);
    }

  private:
    /* Stream 0 of a trace is the default stream. */
    vmm_stream stream_of(std::uint32_t dense) const
    {
        return trace_.stream_numbers[0] == dense + 1 ? nullptr : A::place().stream(dense);
    }

    void run(A &allocator, std::uint32_t operations)
    {
        for (std::uint32_t i = 0; i < operations; i++) {
            block &b = blocks_[trace_op_block(trace_.ops[i])];
            if (trace_op_frees(trace_.ops[i])) {
                allocator.free(b.address, b.bytes, b.stream);
                b.address = nullptr;
            } else
                b.address = static_cast<char *>(allocator.alloc(b.bytes, b.stream));
        }
    }

    const struct trace &trace_;
    std::vector<block> blocks_;
};

/* Times a pass and reports the driver's part of it, in counters whose names begin with `which`. */
template <class A>
double pass_report(benchmark::State &state, A &allocator, replay<A> &replay, const char *which,
                   double operations)
{
    std::string name = which;
    figures before = allocator.read();
    double seconds = replay.pass(allocator);
    figures after = allocator.read();
    state.counters[name + "_ns"] = seconds * 1e9 / operations;
    if (after.calls >= 0)
        state.counters[name + "_calls"] = static_cast<double>(after.calls - before.calls);
    if (after.driver_ns >= 0)
        state.counters[name + "_driver_ms"] =
            static_cast<double>(after.driver_ns - before.driver_ns) / 1e6;
    return seconds;
}

template <class A> void trace(benchmark::State &state, const char *name)
{
    constexpr int warm_passes = 5;
    std::string why;
    const struct trace *found = trace_find(name, why);
    if (found == nullptr) {
        fail(state, why);
        return;
    }
    auto operations = static_cast<double>(found->op_count);
    for (auto _ : state) {
        A allocator;
        replay<A> replay(*found);
        pass_report(state, allocator, replay, "first", operations);
        if (std::int64_t reserved = allocator.read().reserved_peak; reserved >= 0)
            state.counters["footprint"] =
                static_cast<double>(reserved) / static_cast<double>(found->peak_live_bytes);
        for (int i = 0; i < (set().quick ? 0 : warm_passes); i++)
            replay.pass(allocator);
        state.SetIterationTime(pass_report(state, allocator, replay, "later", operations));
        replay.verify(state, allocator);
    }
    state.counters["operations"] = operations;
}

template <class A> void register_trace()
{
    for (const char *name :
         { "gnn", "detection", "llm_train_varlen", "llm_generate", "encoder_streams" })
        add(std::string("trace/") + A::name() + "/" + name,
            [name](benchmark::State &state) { trace<A>(state, name); })
            ->Iterations(1)
            ->UseManualTime()
            ->Repetitions(set().heavy_repetitions);
}

} // namespace bench

#endif
