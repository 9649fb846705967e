/* See trace.hpp. */
#include "trace.hpp"

#include <map>

namespace
{

struct trace_deleter {
    void operator()(struct trace *trace) const
    {
        trace_free(trace);
        delete trace;
    }
};
using trace_ptr = std::unique_ptr<struct trace, trace_deleter>;

} // namespace

const struct trace *bench::trace_find(const char *name, std::string &why)
{
    static std::map<std::string, trace_ptr> loaded;
    trace_ptr &slot = loaded[name];
    if (slot != nullptr)
        return slot.get();
    auto *read = new struct trace();
    struct trace_error error = {};
    std::string path = std::string(BENCH_TRACES_DIR "/") + name + ".trace.gz";
    if (!trace_read(path.c_str(), read, &error)) {
        delete read;
        why = error.text;
        return nullptr;
    }
    slot.reset(read);
    return read;
}

std::vector<std::uint32_t> bench::trace_live(const struct trace &trace, std::uint32_t operations)
{
    std::vector<bool> is_live(trace.block_count);
    for (std::uint32_t i = 0; i < operations; i++)
        is_live[trace_op_block(trace.ops[i])] = !trace_op_frees(trace.ops[i]);
    std::vector<std::uint32_t> live;
    for (std::uint32_t number = 0; number < trace.block_count; number++) {
        if (is_live[number])
            live.push_back(number);
    }
    return live;
}
