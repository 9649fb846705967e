/*
 * Replays requests through the allocator of this process's PyTorch and takes the time of each step. inside.py compiles
 * and calls it.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace
{

enum kind : std::uint64_t { ALLOCATE, FREE, STEP };

/* block: an index into blocks; stream: one into streams. */
struct request {
    std::uint64_t kind, block, bytes, stream;
};

std::uint64_t now_ns()
{
    using namespace std::chrono;
    return static_cast<std::uint64_t>(
        duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

} // namespace

/*
 * Makes the requests in order. A step lasts until the next STEP or the end: its nanoseconds go to step_ns, which has a
 * place for each. What lies before the first step is not timed. Frees all blocks at the end. Throws what the allocator
 * throws: out of memory ends the process.
 */
extern "C" void replay(const request *requests, std::size_t count, void **blocks,
                       std::size_t block_count, void *const *streams, std::uint64_t *step_ns)
{
    c10::cuda::CUDACachingAllocator::CUDAAllocator *allocator =
        c10::cuda::CUDACachingAllocator::get();
    std::uint64_t *step = nullptr;
    std::uint64_t began = 0;
    for (const request *each = requests; each != requests + count; ++each) {
        if (each->kind == ALLOCATE) {
            blocks[each->block] =
                allocator->raw_alloc_with_stream(static_cast<std::size_t>(each->bytes),
                                                 static_cast<cudaStream_t>(streams[each->stream]));
        } else if (each->kind == FREE) {
            allocator->raw_delete(blocks[each->block]);
            blocks[each->block] = nullptr;
        } else {
            const std::uint64_t now = now_ns();
            if (step != nullptr)
                *step = now - began;
            step = step == nullptr ? step_ns : step + 1;
            began = now;
        }
    }
    if (step != nullptr)
        *step = now_ns() - began;
    for (std::size_t i = 0; i < block_count; ++i)
        if (blocks[i] != nullptr)
            allocator->raw_delete(blocks[i]);
}
