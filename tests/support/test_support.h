/*
 * What every test uses: cmocka with the headers that it asks for, and checks of statuses that tell
 * what was wrong; and whether the build is slow on purpose.
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

/* Whether times mean little: without optimisation, or with a sanitizer. */
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(VMM_THREAD_SANITIZER)
enum { IS_SLOW_BUILD = 1 };
#else
enum { IS_SLOW_BUILD = 0 };
#endif

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
