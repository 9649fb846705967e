/* libc10.so of the tests: see c10.hpp. */
#include "torch/c10.hpp"

#include <utility>

namespace c10
{

int Error::alive;

Error::Error(std::string message, Backtrace backtrace, const void *caller)
    : message_(std::move(message)), backtrace_(std::move(backtrace)), caller_(caller)
{
    alive++;
}

Error::Error(const Error &other)
    : std::exception(other), message_(other.message_), context_(other.context_),
      backtrace_(other.backtrace_), caller_(other.caller_)
{
    alive++;
}

Error::~Error()
{
    alive--;
}

const char *Error::what() const noexcept
{
    return caller_ == nullptr && backtrace_ == nullptr && context_.empty()
               ? message_.c_str()
               : "changed since construction";
}

} // namespace c10
