/*
 * What every test uses: cmocka with the headers that it asks for, and checks of statuses that tell
 * what was wrong; and whether the build is slow on purpose.
 *
 *   TEST(a_freed_block_is_reused)
 *   {
 *       ...
 *   }
 *
 * cmocka runs the tests of a program in the order of their lines. A program without a main() gets that of
 * test_main.c. Fixtures have macros of their own, such as SIM_TEST, which name what the test gets.
 */
#ifndef VMM_TEST_SUPPORT_H
#define VMM_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sanitizer.h"
#include "vmmcache/vmmcache.h"

/* Whether times mean little: the library is not optimized, as a test's own file never is, or has a sanitizer. */
#if !defined(VMM_TEST_OF_OPTIMIZED) || defined(__SANITIZE_ADDRESS__) ||                            \
    defined(VMM_THREAD_SANITIZER)
enum { IS_SLOW_BUILD = 1 };
#else
enum { IS_SLOW_BUILD = 0 };
#endif

/* A test between a set-up and a teardown; either may be NULL. */
#define TEST_BETWEEN(name, setup, teardown)                                                        \
    static void name(void);                                                                        \
    static void run_##name(void **state)                                                           \
    {                                                                                              \
        (void)state;                                                                               \
        name();                                                                                    \
    }                                                                                              \
    TEST_ADD(name, setup, teardown)                                                                \
    static void name(void)

/* The same for a test that gets what its set-up stored in *state, as a parameter. */
#define TEST_WITH(name, setup, teardown, parameter)                                                \
    static void name(parameter __attribute__((unused)));                                           \
    static void run_##name(void **state)                                                           \
    {                                                                                              \
        name(*state);                                                                              \
    }                                                                                              \
    TEST_ADD(name, setup, teardown)                                                                \
    static void name(parameter __attribute__((unused)))

#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

#define TEST_ADD(name, setup, teardown)                                                            \
    __attribute__((constructor)) static void add_##name(void)                                      \
    {                                                                                              \
        test_add(#name, run_##name, setup, teardown, __LINE__);                                    \
    }

#ifdef __cplusplus
extern "C" {
#endif
void test_add(const char *name, CMUnitTestFunction run, CMFixtureFunction setup,
              CMFixtureFunction teardown, int line);
/* Runs all tests; returns main()'s exit status: 0 if there are tests and none failed. */
int tests_run(CMFixtureFunction group_setup, CMFixtureFunction group_teardown);
#ifdef __cplusplus
}
#endif

/* A configuration with these fields: CONFIG(.driver = VMM_DRIVER_SIM, .decay_ms = 1). */
#define CONFIG(...) ((vmm_config){ .struct_size = sizeof(vmm_config), __VA_ARGS__ })

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

static inline void assert_status_at(vmm_status got, vmm_status wanted, const char *call,
                                    const char *file, int line)
{
    if (got == wanted)
        return;
    print_error("%s: %s, not %s; last error: %s\n", call, vmm_status_name(got),
                vmm_status_name(wanted), vmm_last_error());
    _fail(file, line);
}

#define assert_status(call, wanted) assert_status_at((call), (wanted), #call, __FILE__, __LINE__)
#define assert_ok(call)             assert_status(call, VMM_OK)

#endif
