/* libc10_cuda.so of the fake PyTorch. Its libc10.so has everything: see fake_c10.hpp. */
#include "torch/shim/fake_c10.hpp"

/* Makes the library need the other one, as PyTorch's does. */
C10_EXPORT fake_c10 *fake_of_cuda()
{
    return &fake();
}
