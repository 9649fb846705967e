/*
 * What libvmmcache_torch looks for in PyTorch's libraries, under the very names: classes that this
 * directory's libc10.so and libc10_cuda.so define.
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

    static int alive; /* how many there are */

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

/* Has the classes' records put into the library that defines it. */
C10_API void memory_error_throw(const char *text);

} // namespace c10

#endif
