/* The exceptions of RMM, which the resource does not include in each version. */
#ifndef FAKE_RMM_ERROR_HPP
#define FAKE_RMM_ERROR_HPP

#include <new>
#include <string>

namespace rmm
{

class bad_alloc : public std::bad_alloc
{
  public:
    explicit bad_alloc(const char *what) : what_(what)
    {
    }
    const char *what() const noexcept override
    {
        return what_.c_str();
    }

  private:
    std::string what_;
};

class out_of_memory : public bad_alloc
{
  public:
    using bad_alloc::bad_alloc;
};

} // namespace rmm

#endif
