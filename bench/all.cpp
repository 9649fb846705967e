/* See all.hpp. */
#include "all.hpp"

#include <cstring>

void bench::options_read(int &argc, char **argv)
{
    if (argc < 2 || std::strcmp(argv[1], "--quick") != 0)
        return;
    set() = { true, 0.001, 1, 1 };
    std::memmove(&argv[1], &argv[2], static_cast<std::size_t>(argc - 1) * sizeof *argv);
    argc--;
}

int bench::run(int argc, char **argv)
{
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    std::size_t ran = benchmark::RunSpecifiedBenchmarks();
    device::close_all();
    return ran > 0 && !failed() ? 0 : 1;
}
