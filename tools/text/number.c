/* Numbers of a command line: see number.h. */
#include "text/number.h"

#include <errno.h>
#include <stdlib.h>

bool number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    bool is_number = *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
    if (!is_number || value < least || value > most)
        return false;
    *number = value;
    return true;
}
