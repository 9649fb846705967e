/* Status names and texts, and the calling thread's last error: see error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct error_line last;

void vmm__line_make(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

vmm_status vmm__error(vmm_status status, const char *format, ...)
{
    struct error_line line; /* the arguments may quote the last one */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line.text, sizeof line.text, format, arguments);
    va_end(arguments);
    vmm__line_make(line.text);
    vmm__error_restore(&line);
    return status;
}

const char *vmm_last_error(void)
{
    return last.text;
}

void vmm__error_save(struct error_line *line)
{
    memcpy(line->text, last.text, strlen(last.text) + 1); /* mostly it is empty */
}

void vmm__error_restore(const struct error_line *line)
{
    memcpy(last.text, line->text, strlen(line->text) + 1);
}

vmm_status vmm__error_end(const struct error_line *line, vmm_status status)
{
    if (status == VMM_OK)
        vmm__error_restore(line);
    return status;
}

const char *vmm_status_name(vmm_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case VMM_##name:                                                                               \
        return "VMM_" #name;
        VMM_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "VMM_UNKNOWN_STATUS";
}

const char *vmm_status_text(vmm_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case VMM_##name:                                                                               \
        return text;
        VMM_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "not a status of this library";
}

#define VERSION_STRING_OF(major, minor, patch) #major "." #minor "." #patch
#define VERSION_STRING(major, minor, patch)    VERSION_STRING_OF(major, minor, patch)

const char *vmm_version(void)
{
    return VERSION_STRING(VMM_VERSION_MAJOR, VMM_VERSION_MINOR, VMM_VERSION_PATCH);
}
