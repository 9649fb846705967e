/*
 * Many threads: pairs on 1 to 16 threads, each with a stream of its own or all on one stream; and pairs of threads
 * where one allocates and the other frees, each pair with a stream of its own or all on one stream.
 */
#ifndef VMM_BENCH_THREADS_HPP
#define VMM_BENCH_THREADS_HPP

#include "workers.hpp"

#include <array>

namespace bench
{

/*
 * A queue from one thread to another. Each side reads the other's count only when the queue seems full or empty, so
 * that the queue costs little beside the allocators.
 */
class queue
{
  public:
    void push(void *address)
    {
        std::size_t at = pushed_.load(std::memory_order_relaxed);
        while (at - popped_seen_ == capacity)
            popped_seen_ = other_read(popped_, popped_seen_);
        slots_[at % capacity] = address;
        pushed_.store(at + 1, std::memory_order_release);
    }
    void *pop()
    {
        std::size_t at = popped_.load(std::memory_order_relaxed);
        while (pushed_seen_ == at)
            pushed_seen_ = other_read(pushed_, pushed_seen_);
        void *address = slots_[at % capacity];
        popped_.store(at + 1, std::memory_order_release);
        return address;
    }

    static constexpr std::size_t capacity = 256;

  private:
    static std::size_t other_read(const std::atomic<std::size_t> &other, std::size_t seen)
    {
        std::size_t now = other.load(std::memory_order_acquire);
        if (now == seen)
            std::this_thread::yield();
        return now;
    }

    alignas(64) std::atomic<std::size_t> pushed_{ 0 };
    std::size_t popped_seen_ = 0; /* by the thread that pushes */
    alignas(64) std::atomic<std::size_t> popped_{ 0 };
    std::size_t pushed_seen_ = 0; /* by the thread that pops */
    alignas(64) std::array<void *, capacity> slots_{};
};

template <class A> std::vector<vmm_stream> streams_of(unsigned count, bool shared)
{
    std::vector<vmm_stream> streams(count);
    for (unsigned i = 0; i < count; i++)
        streams[i] = A::place().stream(shared ? 0 : i);
    return streams;
}

/* Allocates `each` blocks of every stream, on all threads at once. */
template <class A>
std::vector<block> concurrent_alloc(A &allocator, std::size_t each, std::size_t bytes,
                                    const std::vector<vmm_stream> &streams)
{
    std::vector<block> blocks(each * streams.size());
    threads_run<A>(static_cast<unsigned>(streams.size()), [&](unsigned thread) {
        for (std::size_t i = 0; i < each; i++)
            blocks[thread * each + i] = block_alloc(allocator, bytes, streams[thread]);
    });
    return blocks;
}

/* Fails the bench if blocks that threads allocate at once overlap. Frees none until all are allocated. */
template <class A>
void verify_concurrent(benchmark::State &state, A &allocator, std::size_t bytes,
                       const std::vector<vmm_stream> &streams)
{
    std::vector<block> blocks = concurrent_alloc(allocator, 16, bytes, streams);
    verify_blocks(state, allocator, blocks);
    blocks_free(allocator, blocks);
    verify_empty(state, allocator);
}

/* Times one batch of run(operations), in which each of `width` threads, or pairs of threads, makes all of them. */
template <class A, class F>
void batch_time(benchmark::State &state, A &allocator, unsigned width, F run)
{
    std::size_t batch = batch_find(run);
    figures before = allocator.read();
    for (auto _ : state)
        state.SetIterationTime(run(batch));
    report_calls(state, before, allocator.read());
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch * width));
    state.counters["operations"] = static_cast<double>(batch);
}

template <class A>
void threads(benchmark::State &state, std::size_t bytes, unsigned count, bool shared)
{
    A allocator;
    std::vector<vmm_stream> streams = streams_of<A>(count, shared);
    batch_time(state, allocator, count, [&](std::size_t operations) {
        return threads_run<A>(count, [&](unsigned thread) {
            for (std::size_t i = 0; i < operations; i++) {
                void *address = keep(allocator.alloc(bytes, streams[thread]));
                allocator.free(address, bytes, streams[thread]);
            }
        });
    });
    verify_concurrent(state, allocator, bytes, streams);
}

template <class A>
void handoff(benchmark::State &state, std::size_t bytes, unsigned pairs, bool shared)
{
    A allocator;
    std::vector<vmm_stream> streams = streams_of<A>(pairs, shared);
    std::vector<queue> queues(pairs);
    /* Grows to the largest number of blocks under way, so that the batch makes no driver calls. */
    std::vector<block> most = concurrent_alloc(allocator, queue::capacity + 2, bytes, streams);
    blocks_free(allocator, most);
    batch_time(state, allocator, pairs, [&](std::size_t operations) {
        return threads_run<A>(2 * pairs, [&](unsigned thread) {
            queue &queue = queues[thread / 2];
            vmm_stream stream = streams[thread / 2];
            for (std::size_t i = 0; i < operations; i++) {
                if (thread % 2 == 0)
                    queue.push(allocator.alloc(bytes, stream));
                else if (void *address = queue.pop(); address != nullptr)
                    allocator.free(address, bytes, stream);
            }
        });
    });
    verify_concurrent(state, allocator, bytes, streams);
}

template <class A> void register_threads()
{
    auto begin = [](const std::string &name, auto body) {
        add(name, body)->Iterations(1)->UseManualTime()->Repetitions(set().repetitions);
    };
    for (std::size_t bytes : { 512 * std::size_t{ 1 }, 2 * mib }) {
        std::string tail = std::string("/") + A::name() + "/" + bytes_text(bytes) + "/";
        for (bool shared : { false, true }) {
            for (unsigned count : { 1U, 2U, 4U, 8U, 16U })
                begin((shared ? "shared" : "threads") + tail + std::to_string(count),
                      [=](benchmark::State &state) { threads<A>(state, bytes, count, shared); });
        }
        for (bool shared : { false, true }) {
            for (unsigned pairs : { 1U, 2U, 4U, 8U })
                begin((shared ? "handoff_shared" : "handoff") + tail + std::to_string(2 * pairs),
                      [=](benchmark::State &state) { handoff<A>(state, bytes, pairs, shared); });
        }
    }
}

} // namespace bench

#endif
