/* Registers the benches of each kind of allocator. */
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

/* Reads this program's own options, which come first; Google Benchmark reads the rest. */
void options_read(int &argc, char **argv);

/* Runs the registered benches; returns the exit status. */
int run(int argc, char **argv);

template <class A> bool is_available()
{
    std::string why;
    bool available = A::available(why);
    if (available)
        benchmark::AddCustomContext(A::name(), why);
    else
        std::fprintf(stderr, "bench: skips %s: %s\n", A::name(), why.c_str());
    return available;
}

/* Registers every bench of device allocators, except `heap`, which is for vmmcache on sim. */
template <class A> void register_all()
{
    if (!is_available<A>())
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

/* Registers the bench that a looser footprint affects. */
template <class A> void register_loose()
{
    if (is_available<A>())
        register_trace<A>();
}

/* Registers the benches that need no device. */
template <class A> void register_host()
{
    if (!is_available<A>())
        return;
    register_pair<A>();
    register_threads<A>();
}

} // namespace bench

#endif
