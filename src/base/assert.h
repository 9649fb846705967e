/*
 * Assertions of the library's own invariants, for builds with VMM_CHECK >= 1.
 *
 * In such a build a failed assertion writes file, line and condition to stderr and aborts the process. In all other
 * builds an assertion compiles to nothing, and the library neither prints nor aborts.
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_ASSERT_H
#define VMM_BASE_ASSERT_H

#ifndef VMM_CHECK
#define VMM_CHECK 0
#endif

#if VMM_CHECK >= 1
__attribute__((noreturn)) void vmm__assert_fail(const char *file, int line, const char *condition);
#define VMM_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : vmm__assert_fail(__FILE__, __LINE__, #condition))
#else
#define VMM_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

#endif
