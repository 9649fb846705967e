/* What an output can show: see style.h. */
#include "style.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct style style_of(FILE *out)
{
    const char *no_colour = getenv("NO_COLOR");
    struct style style;

    style.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    style.colour = isatty(fileno(out)) != 0 && (no_colour == NULL || no_colour[0] == '\0');
    return style;
}
