/* Registers every bench on every driver that opens on this machine, and runs them. */
#include "bench.hpp"

#include <cstdio>

namespace
{

bool driver_opens(vmm_driver_kind kind)
{
    return bench::cache(kind).ok();
}

void register_all(const char *driver, vmm_driver_kind kind)
{
    if (!driver_opens(kind)) {
        std::fprintf(stderr, "bench: no benches on %s: %s\n", driver, vmm_last_error());
        return;
    }
    bench::register_hot(driver, kind);
    bench::register_grow(driver, kind);
    bench::register_replay(driver, kind);
}

} // namespace

int main(int argc, char **argv)
{
    register_all("sim", VMM_DRIVER_SIM);
    register_all("cuda", VMM_DRIVER_CUDA);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    std::size_t ran = benchmark::RunSpecifiedBenchmarks();
    return ran > 0 && !bench::failed() ? 0 : 1;
}
