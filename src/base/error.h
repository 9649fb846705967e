/*
 * The calling thread's last error: one line of text beside the status that a call returns.
 *
 * Owns: one buffer for each thread. May be called by: everything. Locks: none (thread-local).
 */
#ifndef VMM_BASE_ERROR_H
#define VMM_BASE_ERROR_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

/* Keeps the line and returns `status`, so that a failing function ends in one statement. */
vmm_status vmm__error(vmm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Makes one line of a text that may quote others': no line ends, nor what steers a terminal. */
void vmm__line_make(char *text);

/* Whether a call failed for want of what others may give up: memory of the device, or addresses. */
static inline bool vmm__is_shortage(vmm_status status)
{
    return status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
}

/*
 * A call that may fail inside and succeed all the same keeps the line from before and puts it back
 * in the end: vmm_last_error() speaks of calls that failed.
 */
struct error_line {
    char text[512];
};

void vmm__error_save(struct error_line *line);
void vmm__error_restore(const struct error_line *line);

#endif
