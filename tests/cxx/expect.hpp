// Assertions for tests of the C++ header; they hold in every build type.
#ifndef VMM_TEST_EXPECT_HPP
#define VMM_TEST_EXPECT_HPP

#include <cstdio>
#include <cstdlib>

inline void expect(bool is_true, const char *condition, const char *file, int line)
{
    if (is_true)
        return;
    (void)std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    std::exit(EXIT_FAILURE);
}

#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)

// Runs the statement, which must throw an exception of the type; returns it.
template <typename Exception, typename Function> Exception thrown_by(Function &&function)
{
    try {
        function();
    } catch (const Exception &exception) {
        return exception;
    }
    (void)std::fprintf(stderr, "nothing was thrown\n");
    std::exit(EXIT_FAILURE);
}

#endif
