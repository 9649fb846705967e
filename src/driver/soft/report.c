/* Reports of violations and mismatches, and the lines of refused calls. */
#include "base/error.h"
#include "driver/soft/soft.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void vmm__soft_report_add(struct soft_report *report, uint64_t count, const char *format, ...)
{
    if (atomic_fetch_add(&report->count, count) != 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(report->first, sizeof report->first, format, arguments);
    va_end(arguments);
}

uint64_t vmm__soft_violations(struct driver *driver, const char **text)
{
    const struct soft *soft = (const struct soft *)driver;
    if (text != NULL)
        *text = soft->violations.first;
    return atomic_load(&soft->violations.count);
}

vmm_status vmm__soft_refuse(const struct soft *soft, vmm_status status, const char *verb,
                            uint64_t bytes, const char *why)
{
    return vmm__error(status, "%s: %s of %" PRIu64 " bytes: %s", soft->driver.ops->name, verb,
                      bytes, why);
}

vmm_status vmm__soft_range_refuse(const struct soft *soft, const char *verb, uint64_t address,
                                  uint64_t bytes, const char *why)
{
    return vmm__error(VMM_ERR_DRIVER, "%s: %s of %" PRIu64 " bytes at %#" PRIx64 ": %s",
                      soft->driver.ops->name, verb, bytes, address, why);
}
