/*
 * Breaks a record in one place: its check must find that, say which invariant it is, and find nothing once the record
 * is whole again.
 */
#ifndef VMM_BREAK_SUPPORT_H
#define VMM_BREAK_SUPPORT_H

#include "support/test_support.h"

#include <string.h>

static inline void found_broken(vmm_status status, const char *words, const char *file, int line)
{
    if (status == VMM_ERR_INTERNAL && strstr(vmm_last_error(), words) != NULL)
        return;
    print_error("%s: %s, not VMM_ERR_INTERNAL with '%s'\n", vmm_status_name(status),
                vmm_last_error(), words);
    _fail(file, line);
}

#define assert_found(check, field, value, words)                                                   \
    do {                                                                                           \
        __typeof__(field) whole = (field);                                                         \
        (field) = (value);                                                                         \
        found_broken((check), (words), __FILE__, __LINE__);                                        \
        (field) = whole;                                                                           \
        assert_ok(check);                                                                          \
    } while (0)

#endif
