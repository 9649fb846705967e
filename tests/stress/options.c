/* Arguments of the stress programs: see options.h. */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *out >= least &&
           *out <= most;
}

bool seconds_read(const char *text, void *out)
{
    char *end;
    double seconds = strtod(text, &end);
    *(double *)out = seconds;
    return *text >= '0' && *text <= '9' && *end == '\0' && seconds > 0 && seconds < 1e9;
}

bool text_read(const char *text, void *out)
{
    *(const char **)out = text;
    return true;
}

static bool value_read(const struct option_row *row, const char *text)
{
    if (text == NULL)
        return false;
    return row->number != NULL ? number_read(text, row->least, row->most, row->number)
                               : row->read(text, row->out);
}

bool options_read(int argc, char **argv, const struct option_row *rows, size_t count, int *others)
{
    *others = 0;
    for (int i = 1; i < argc; i++) {
        size_t at = 0;
        while (at < count && strcmp(rows[at].name, argv[i]) != 0)
            at++;
        if (argv[i][0] != '-')
            argv[++*others] = argv[i];
        else if (at == count)
            return false;
        else if (rows[at].flag != NULL)
            *rows[at].flag = true;
        else if (!value_read(&rows[at], argv[++i]))
            return false;
    }
    return true;
}
