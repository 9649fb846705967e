/*
 * Records what PyTorch's meta device allocates and frees, as a trace (docs/trace-format.md). A meta tensor has a size
 * and a lifetime but no memory. So a program of any size runs on it without a GPU, and makes the requests that it would
 * make on one.
 *
 * PyTorch has no call that replaces the allocator of this device: the recorder puts its own virtual functions under the
 * object that PyTorch registered.
 *
 * Owns: the open trace. May be called by: trace.py. Locks: none: one thread runs the program and its backward passes.
 */
#include <c10/core/Allocator.h>

#include <cinttypes>
#include <cstdio>

namespace
{

std::FILE *trace;
std::uint64_t blocks;
int stream;

/* Frees the number of a block; 0: the trace does not have it. */
void block_free(void *context)
{
    auto *number = static_cast<std::uint64_t *>(context);
    if (trace != nullptr && *number != 0)
        std::fprintf(trace, "- %" PRIu64 "\n", *number);
    delete number;
}

struct recorder final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) const override
    {
        auto *number = new std::uint64_t(0);
        if (trace != nullptr && bytes > 0) {
            *number = ++blocks;
            std::fprintf(trace, "+ %" PRIu64 " %zu %d\n", *number, bytes, stream);
        }
        return { number, number, block_free, c10::Device(c10::DeviceType::Meta) };
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return block_free;
    }
};

recorder replacement;

} // namespace

extern "C" {

/* Call it before the first meta tensor. */
void recorder_install(void)
{
    c10::Allocator *registered = c10::GetAllocator(c10::DeviceType::Meta);
    *reinterpret_cast<void **>(registered) = *reinterpret_cast<void **>(&replacement);
}

/* Begins a trace; returns whether the file could be created. */
bool recorder_begin(const char *path)
{
    trace = std::fopen(path, "w");
    blocks = 0;
    stream = 0;
    return trace != nullptr;
}

/* The stream of the requests that follow. */
void recorder_stream(int number)
{
    stream = number;
}

/* Ends the trace; returns whether all of it was written. */
bool recorder_end(void)
{
    bool is_ok = std::ferror(trace) == 0;
    is_ok = std::fclose(trace) == 0 && is_ok;
    trace = nullptr;
    return is_ok;
}
}
