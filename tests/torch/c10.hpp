/*
 * The classes that libvmmcache_torch looks up in PyTorch's libraries, under the same names. This directory's
 * libc10.so and libc10_cuda.so define them.
 */
#ifndef VMM_TEST_C10_HPP
#define VMM_TEST_C10_HPP

#include <exception>
#include <memory>
#include <string>
#include <vector>

#define C10_API __attribute__((visibility("default")))

namespace c10
{

template <class T> class LazyValue
{
  public:
    virtual ~LazyValue() = default;
};
using Backtrace = std::shared_ptr<const LazyValue<std::string>>;

class C10_API Error : public std::exception
{
  public:
    Error(std::string message, Backtrace backtrace, const void *caller);
    const char *what() const noexcept override;

    static int alive; /* number of live objects */

  private:
    std::string message_;
    std::vector<std::string> context_;
    Backtrace backtrace_;
    const void *caller_;

  public:
    Error(const Error &other);
    ~Error() override;
};

class C10_API OutOfMemoryError : public Error
{
    using Error::Error;
};

/* Its definition makes the library that contains it emit the class's type information. */
C10_API void memory_error_throw(const char *text);

} // namespace c10

#endif
