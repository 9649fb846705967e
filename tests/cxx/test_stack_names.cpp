// Names of C++ functions in stacks. The program exports these functions, so that dladdr() finds them.
#include "expect.hpp"

#include <string>

extern "C" {
#include "base/stack.h"
}

#define EXPORTED __attribute__((noinline, visibility("default")))

static std::string named;

// Names the function that calls it.
__attribute__((noinline)) static void caller_name()
{
    char text[256];
    vmm__stack_name(__builtin_return_address(0), text, sizeof text);
    named = text;
}

// No tail call: the caller's address must be in the function.
#define NAME_ME()                                                                                  \
    caller_name();                                                                                 \
    __asm__ volatile("" ::: "memory")

namespace sample
{

EXPORTED void plain(int)
{
    NAME_ME();
}

template <class Kind> struct holder {
    EXPORTED void member(Kind, void (*)(int)) const
    {
        NAME_ME();
    }
    EXPORTED void operator()(Kind) const
    {
        NAME_ME();
    }
};

template struct holder<double>;

} // namespace sample

extern "C" EXPORTED void of_c(int)
{
    NAME_ME();
}

static bool is_named(const std::string &function)
{
    return named.compare(0, function.size() + 3, function + "+0x") == 0 &&
           named.find(" (test_stack_names+0x") != std::string::npos;
}

// Through pointers, so that the compiler makes no copy of the function for these arguments.
int main()
{
    using held = sample::holder<double>;
    void (*volatile plain)(int) = sample::plain;
    void (held::*volatile member)(double, void (*)(int)) const = &held::member;
    void (held::*volatile call)(double) const = &held::operator();
    void (*volatile in_c)(int) = of_c;
    plain(1);
    EXPECT(is_named("sample::plain"));
    (held().*member)(1.0, sample::plain);
    EXPECT(is_named("sample::holder<double>::member"));
    (held().*call)(1.0);
    EXPECT(is_named("sample::holder<double>::operator()"));
    in_c(1);
    EXPECT(is_named("of_c"));
    return 0;
}
