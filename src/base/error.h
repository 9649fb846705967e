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

/* Stores the line and returns `status`, so that a function can fail in one statement. An argument may be
 * vmm_last_error(). */
vmm_status vmm__error(vmm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Replaces line ends and terminal control characters by '?', because the text may quote input. */
void vmm__line_make(char *text);

/* Returns whether a call failed because device memory or addresses ran out, which a reclaim may free. */
static inline bool vmm__is_oom(vmm_status status)
{
    return status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
}

/* vmm_last_error() describes calls that failed, so a step whose failure does not fail the call leaves the line as it
 * was. */
struct error_line {
    char text[ERROR_LINE_BYTES];
};

void vmm__error_save(struct error_line *line);
void vmm__error_restore(const struct error_line *line);

/* Keeps the line as it is now, whatever fails before the block ends. */
#define VMM_QUIET()                                                                                \
    __attribute__((cleanup(vmm__error_restore))) struct error_line quiet_line;                     \
    vmm__error_save(&quiet_line)

/* Restores the line that a call found when it began, if the call succeeds. Returns `status`. */
vmm_status vmm__error_end(const struct error_line *line, vmm_status status);

#endif
