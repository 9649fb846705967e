/*
 * The calling thread's last error: one line of text for the status that a call returns.
 *
 * Owns: one buffer per thread. May be called by: everything. Locks: none (thread-local).
 */
#ifndef VMM_BASE_ERROR_H
#define VMM_BASE_ERROR_H

#include "base/outcome.h"

#include <stdbool.h>

/* Holds the longest line that the library writes: that of a request which ran out of memory in a pool. */
enum { ERROR_LINE_BYTES = 768 };

/* Stores the line and returns `status`, so that a function can fail in one statement. */
vmm_status vmm__error(vmm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Replaces line ends and terminal control characters by '?', because the text may quote input. */
void vmm__line_make(char *text);

/* Returns whether a call failed because device memory or addresses ran out, which a reclaim may free. */
static inline bool vmm__is_oom(vmm_status status)
{
    return status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
}

/* vmm_last_error() describes calls that failed. A call that succeeds although a step inside it failed saves the line
 * before that step and restores it afterwards. */
struct error_line {
    char text[ERROR_LINE_BYTES];
};

void vmm__error_save(struct error_line *line);
void vmm__error_restore(const struct error_line *line);

#endif
