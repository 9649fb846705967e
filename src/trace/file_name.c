/* The names of the files of VMM_TRACE: see file_name.h. */
#include "trace/file_name.h"
#include "base/error.h"
#include "trace/gzip.h"

#include <string.h>
#include <unistd.h>

enum { NUMBER_BYTES = 24 };

vmm_status vmm__trace_file_name(char path[TRACE_PATH_BYTES], const char *file, unsigned number)
{
    const char *mark = strstr(file, "%p");
    const char *stem_end = file + vmm__gzip_stem(file);
    const char *before_end = mark == NULL ? stem_end : mark;
    const char *after = mark == NULL ? stem_end : mark + strlen("%p");
    char process[NUMBER_BYTES] = "";
    char end[NUMBER_BYTES] = "";
    if (mark != NULL)
        (void)snprintf(process, sizeof process, "%ld", (long)getpid());
    if (number > 1)
        (void)snprintf(end, sizeof end, ".%u", number);
    int length = stem_end - file >= TRACE_PATH_BYTES
                     ? -1
                     : snprintf(path, TRACE_PATH_BYTES, "%.*s%s%.*s%s%s", (int)(before_end - file),
                                file, process, (int)(stem_end - after), after, end, stem_end);
    if (length < 0 || length >= TRACE_PATH_BYTES)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_TRACE: the name is too long");
    return VMM_OK;
}
