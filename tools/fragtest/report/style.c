/* How text for people may look on a given output: see style.h. */
#include "fragtest/report/style.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MOST_WIDTH 10000U

static unsigned width_of(FILE *out)
{
    const char *columns = getenv("COLUMNS");
    unsigned long width = columns == NULL ? 0 : strtoul(columns, NULL, 10);
    struct winsize size = { 0 };

    if (width == 0 && ioctl(fileno(out), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width == 0 || width > MOST_WIDTH)
        return 0;
    return width < STYLE_LEAST_WIDTH ? STYLE_LEAST_WIDTH : (unsigned)width;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

struct style style_of(FILE *out)
{
    struct style style;

    style.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    style.escapes =
        isatty(fileno(out)) != 0 && is_set("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
    style.colour = style.escapes && !is_set("NO_COLOR");
    style.width = width_of(out);
    return style;
}
