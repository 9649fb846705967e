/* The table of all calls: see calls.h. */
#include "calls.h"

#include "support/visit_support.h"

#include <stdio.h>
#include <string.h>

enum { UNWRITTEN = 0xa5 };

#define OK      VMM_OK
#define INVALID VMM_ERR_INVALID_ARGUMENT
#define UNKNOWN VMM_ERR_UNKNOWN_POINTER

const struct call_about call_abouts[CALLS] = {
#define ABOUT_CACHE(function, status, arguments) { #function, false, status },
#define ABOUT_POOL(function, arguments)          { #function, true, OK },
    CALL_MAP(ABOUT_CACHE, ABOUT_CACHE, ABOUT_POOL)
};

static vmm_status call_dispatch(enum call call, const struct call_target *to,
                                struct call_results *out)
{
    switch (call) {
#define CASE_CACHE(function, status, arguments) CASE_POOL(function, arguments)
#define CASE_POOL(function, arguments)                                                             \
    case CALL_##function:                                                                          \
        return function arguments;
        CALL_MAP(CASE_CACHE, CASE_CACHE, CASE_POOL)
    default:
        return VMM_ERR_INTERNAL;
    }
}

vmm_status call_make(enum call call, const struct call_target *to)
{
    struct call_results before;
    struct call_results out;
    memset(&before, UNWRITTEN, sizeof before);
    before.stats.struct_size = sizeof before.stats;
    before.item.struct_size = sizeof before.item;
    memcpy(&out, &before, sizeof out); /* with the bytes between fields */
    vmm_status status = call_dispatch(call, to, &out);
    must(status == VMM_OK || memcmp(&before, &out, sizeof out) == 0);
    return status;
}
