/* What both screens show: see screen.h. */
#define _GNU_SOURCE
#include "vmmtop/screen.h"
#include "vmmtop/table.h"

#include <stdlib.h>

char *screen_text(const struct processes *processes, const struct process *process)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return NULL;
    if (process == NULL) {
        table_write_all(out, processes);
        table_write_notes(out, processes);
    } else {
        table_write_process(out, process);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
