/*
 * Takes the time that a process spends in the allocator of its PyTorch, in place. inside.py compiles and calls it.
 *
 * While it measures, three entries of the allocator's virtual table are replaced, and blocks carry a deleter that takes
 * the time as well. PyTorch compares deleters: raw_deleter() returns the one that blocks carry, and recordStream() gets
 * the one that the allocator knows. Trees of graphs get blocks with the allocator's own deleter: do not measure those.
 * Entries are found as the Itanium C++ ABI lays them out.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace
{

using allocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

std::atomic<std::uint64_t> spent_ns, requests;

/* Adds the time until its end. */
class timer
{
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();

  public:
    timer() = default;
    timer(const timer &) = delete;
    ~timer()
    {
        auto spent = std::chrono::steady_clock::now() - began;
        spent_ns += static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
        requests++;
    }
};

/* What was in the table before. */
struct {
    c10::DataPtr (*allocate)(allocator *, std::size_t);
    void (*record_stream)(allocator *, const c10::DataPtr &, c10::cuda::CUDAStream);
    c10::DeleterFnPtr (*raw_deleter)(const allocator *);
    c10::DeleterFnPtr deleter;
} original;

void delete_timed(void *ptr)
{
    timer taken;
    original.deleter(ptr);
}

c10::DataPtr allocate_timed(allocator *self, std::size_t bytes)
{
    c10::DataPtr data;
    {
        timer taken;
        data = original.allocate(self, bytes);
    }
    (void)data.compare_exchange_deleter(original.deleter, delete_timed);
    return data;
}

c10::DeleterFnPtr raw_deleter_timed(const allocator *)
{
    return delete_timed;
}

/* Shows the block with the allocator's own deleter, without owning it. */
void record_stream_timed(allocator *self, const c10::DataPtr &data, c10::cuda::CUDAStream stream)
{
    struct shown {
        c10::DataPtr data;
        ~shown()
        {
            data.release_context();
        }
    } plain = { { data.get(), data.get_context(),
                  data.get_deleter() == delete_timed ? original.deleter : data.get_deleter(),
                  data.device() } };
    original.record_stream(self, plain.data, stream);
}

/* The entry of a virtual function in the table. */
template <typename method> void **entry_of(method function)
{
    std::ptrdiff_t parts[2];
    static_assert(sizeof parts == sizeof function);
    std::memcpy(parts, &function, sizeof parts);
    char *table = *reinterpret_cast<char **>(c10::cuda::CUDACachingAllocator::get());
    return reinterpret_cast<void **>(table + parts[0] - 1);
}

void **const *entries()
{
    using record = void (allocator::*)(const c10::DataPtr &, c10::cuda::CUDAStream);
    static void **const found[] = { entry_of(&allocator::allocate),
                                    entry_of(static_cast<record>(&allocator::recordStream)),
                                    entry_of(&allocator::raw_deleter) };
    return found;
}

/* The table is read-only memory of the library; it stays writable from then on. */
bool entry_write(void **entry, void *function)
{
    std::uintptr_t page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    std::uintptr_t start = reinterpret_cast<std::uintptr_t>(entry) & ~(page - 1);
    if (mprotect(reinterpret_cast<void *>(start), page, PROT_READ | PROT_WRITE) != 0)
        return false;
    *entry = function;
    return true;
}

} // namespace

/* Begins to measure; returns 0 if it cannot. */
extern "C" int inside_begin()
{
    void **const *found = entries();
    original.deleter = c10::cuda::CUDACachingAllocator::get()->raw_deleter();
    original.allocate = reinterpret_cast<decltype(original.allocate)>(*found[0]);
    original.record_stream = reinterpret_cast<decltype(original.record_stream)>(*found[1]);
    original.raw_deleter = reinterpret_cast<decltype(original.raw_deleter)>(*found[2]);
    return entry_write(found[0], reinterpret_cast<void *>(allocate_timed)) &&
           entry_write(found[1], reinterpret_cast<void *>(record_stream_timed)) &&
           entry_write(found[2], reinterpret_cast<void *>(raw_deleter_timed));
}

/* Ends it. Blocks that live on still carry the deleter, and end well with it. */
extern "C" void inside_end()
{
    void **const *found = entries();
    *found[0] = reinterpret_cast<void *>(original.allocate);
    *found[1] = reinterpret_cast<void *>(original.record_stream);
    *found[2] = reinterpret_cast<void *>(original.raw_deleter);
}

/* Nanoseconds in allocations and frees of all threads, and how many there were. */
extern "C" void inside_read(std::uint64_t *ns, std::uint64_t *count)
{
    *ns = spent_ns;
    *count = requests;
}
