/*
 * Starts threads at the same moment and measures the time until the last one finishes. The calling thread waits.
 */
#ifndef VMM_BENCH_WORKERS_HPP
#define VMM_BENCH_WORKERS_HPP

#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace bench
{

/* Runs body(0) to body(count - 1), each on its own thread; returns seconds. */
template <class A, class F> double threads_run(unsigned count, F body)
{
    std::atomic<unsigned> ready{ 0 };
    std::atomic<bool> go{ false };
    clock::time_point start;
    std::vector<clock::time_point> ends(count);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; i++) {
        threads.emplace_back([&, i] {
            A::thread_begin();
            ready++;
            while (!go.load(std::memory_order_acquire))
                std::this_thread::yield();
            body(i);
            ends[i] = clock::now();
        });
    }
    while (ready.load() < count)
        std::this_thread::yield();
    start = clock::now();
    go.store(true, std::memory_order_release);
    for (std::thread &thread : threads)
        thread.join();
    return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - start)
        .count();
}

/*
 * Returns how many operations make run(operations) take as long as a repetition should. Calls run() with growing
 * numbers of them, which also warms up.
 */
template <class F> std::size_t batch_find(F run)
{
    constexpr std::size_t most = std::size_t{ 1 } << 24;
    for (std::size_t operations = 64;; operations *= 8) {
        double seconds = std::min(run(operations), run(operations)); /* one may be disturbed */
        if (seconds * 8 < set().seconds && operations < most)
            continue;
        double fitting = static_cast<double>(operations) * set().seconds / seconds;
        return std::clamp(static_cast<std::size_t>(fitting), std::size_t{ 64 }, most);
    }
}

} // namespace bench

#endif
