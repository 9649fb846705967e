/* libc10_cuda.so of the tests: see c10.hpp. */
#include "torch/c10.hpp"

namespace c10
{

void memory_error_throw(const char *text)
{
    throw OutOfMemoryError(text, nullptr, nullptr);
}

} // namespace c10
