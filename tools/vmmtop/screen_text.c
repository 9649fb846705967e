/* What the screen shows, as text: see screen.h. */
#define _GNU_SOURCE
#include "vmmtop/screen.h"
#include "vmmtop/table.h"

#include <stdlib.h>
#include <string.h>

char *screen_text(const struct processes *processes, uint64_t pid)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return NULL;
    if (pid == 0) {
        table_write_all(out, processes);
        table_write_notes(out, processes);
    }
    for (unsigned i = 0; i < processes->count && pid != 0; i++) {
        if (processes->items[i].pid == pid)
            table_write_process(out, &processes->items[i]);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

void screen_print(const struct processes *processes)
{
    char *text = screen_text(processes, processes->only);
    for (const char *line = text; line != NULL && *line != '\0'; line += strcspn(line, "\n") + 1)
        (void)printf("%.*s\n", (int)strcspn(line, "\n") - 1, line + 1);
    free(text);
}
