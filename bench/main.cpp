/*
 * Runs every bench for every allocator that this build includes and this machine can run.
 *
 * usage: vmmcache_bench [--quick] [OPTION OF GOOGLE BENCHMARK]...
 *   --quick   for tests: one short repetition of each bench
 */
#include "all.hpp"
#include "peer_glibc.hpp"

#ifdef BENCH_WITH_CUDART
#include "peer_cuda.hpp"
#endif
#ifdef BENCH_WITH_RMM
#include "peer_rmm.hpp"
#endif

int main(int argc, char **argv)
{
    using ours_on_sim = bench::vmmcache<bench::driver_choice::sim>;
    using ours_on_cuda = bench::vmmcache<bench::driver_choice::cuda>;
    using ours_on_cuda_loose = bench::vmmcache<bench::driver_choice::cuda, 50>;

    bench::options_read(argc, argv);
    bench::register_host<bench::glibc>();
    bench::register_all<ours_on_sim>();
    bench::register_heap<ours_on_sim>();
    bench::register_all<ours_on_cuda>();
    bench::register_loose<ours_on_cuda_loose>();
#ifdef BENCH_WITH_CUDART
    bench::register_all<bench::cuda_malloc>();
    bench::register_all<bench::cuda_malloc_async>();
#endif
#ifdef BENCH_WITH_RMM
    bench::register_all<bench::rmm_pool>();
    bench::register_all<bench::rmm_arena>();
#endif
    return bench::run(argc, argv);
}
