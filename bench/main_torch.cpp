/* The benches of PyTorch's allocator, in a separate program: see peer_torch.hpp. */
#include "all.hpp"
#include "peer_torch.hpp"

int main(int argc, char **argv)
{
    bench::options_read(argc, argv);
    bench::register_all<bench::torch>();
    return bench::run(argc, argv);
}
