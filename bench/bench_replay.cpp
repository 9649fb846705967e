/*
 * A recorded program, replayed whole: the figure that counts. Iterations after the first find the
 * cache as the one before left it, as the steps of a training loop do.
 *
 * Traces of one stream only: a cuda stream has to be made with CUDA, which benches do not need.
 */
#include "bench.hpp"

#include <utility>
#include <vector>

extern "C" {
#include "fragtest/trace.h"
}

namespace
{

class trace_file
{
  public:
    explicit trace_file(const std::string &path) : opened(trace_read(path.c_str(), &trace, &error))
    {
    }
    ~trace_file()
    {
        if (opened)
            trace_free(&trace);
    }
    trace_file(const trace_file &) = delete;
    trace_file &operator=(const trace_file &) = delete;

    struct trace trace = {};
    struct trace_error error = {};
    bool opened;
};

/* One pass; frees what the trace leaves live, so that the next one starts afresh. */
void pass(bench::cache &cache, const struct trace &trace, std::vector<void *> &blocks)
{
    for (std::uint32_t i = 0; i < trace.op_count && cache.ok(); i++) {
        std::uint32_t block = trace_op_block(trace.ops[i]);
        if (trace_op_frees(trace.ops[i]))
            cache.free(std::exchange(blocks[block], nullptr));
        else
            blocks[block] = cache.alloc(trace.blocks[block].bytes);
    }
    for (void *&block : blocks) {
        if (block != nullptr)
            cache.free(std::exchange(block, nullptr));
    }
}

void replay(benchmark::State &state, vmm_driver_kind kind, const char *trace_name)
{
    trace_file file(std::string(BENCH_TRACES_DIR "/") + trace_name + ".trace.gz");
    if (!file.opened) {
        bench::fail(state, file.error.text);
        return;
    }
    bench::cache cache(kind);
    std::vector<void *> blocks(file.trace.block_count);
    vmm_stats before = cache.stats();
    for (auto _ : state)
        pass(cache, file.trace, blocks);

    vmm_stats after = cache.stats();
    bench::report_driver(state, before, after);
    state.SetItemsProcessed(state.iterations() * file.trace.op_count);
    state.counters["footprint"] = static_cast<double>(after.reserved_bytes.peak) /
                                  static_cast<double>(file.trace.peak_live_bytes);
    bench::verify(state, cache, after.requested_bytes.peak == file.trace.peak_live_bytes,
                  "the peak of live bytes is not the trace's") &&
        bench::verify(state, cache, after.allocations.current == 0, "a block is left");
}

} // namespace

void bench::register_replay(const char *driver, vmm_driver_kind kind)
{
    for (const char *trace_name : { "gnn", "detection", "llm_train_varlen", "llm_generate" }) {
        benchmark::RegisterBenchmark((name("replay", driver) + "/" + trace_name).c_str(), replay,
                                     kind, trace_name)
            ->Unit(benchmark::kMillisecond);
    }
}
