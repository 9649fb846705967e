/* Which benches an allocator takes part in. */
#ifndef VMM_BENCH_ALL_HPP
#define VMM_BENCH_ALL_HPP

#include "growth.hpp"
#include "heap.hpp"
#include "latency.hpp"
#include "pair.hpp"
#include "threads.hpp"
#include "trace.hpp"

#include <cstdio>

namespace bench
{

/* Reads the options that are ours, which must come first; the rest is Google Benchmark's. */
void options_read(int &argc, char **argv);

/* Runs what is registered; what main() returns. */
int run(int argc, char **argv);

template <class A> bool begins()
{
    std::string why;
    bool available = A::available(why);
    if (available)
        benchmark::AddCustomContext(A::name(), why);
    else
        std::fprintf(stderr, "bench: no benches of %s: %s\n", A::name(), why.c_str());
    return available;
}

/* All that allocators of device memory can do; heap is for ours on sim. */
template <class A> void register_all()
{
    if (!begins<A>())
        return;
    register_pair<A>();
    if constexpr (!A::is_slow) {
        register_threads<A>();
        register_trace<A>();
    }
    if constexpr (A::trims)
        register_latency<A>();
    register_growth<A>();
}

/* What a looser footprint is for. */
template <class A> void register_loose()
{
    if (begins<A>())
        register_trace<A>();
}

/* What does not need a device. */
template <class A> void register_host()
{
    if (!begins<A>())
        return;
    register_pair<A>();
    register_threads<A>();
}

} // namespace bench

#endif
