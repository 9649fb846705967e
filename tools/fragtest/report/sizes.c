/* Sizes as text: see sizes.h. */
#include "fragtest/report/sizes.h"

#include <stdio.h>

struct size_text size_format(uint64_t bytes)
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    struct size_text out;
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1000 && unit + 1 < sizeof(names) / sizeof(names[0])) {
        value /= 1024;
        unit++;
    }
    int places = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    (void)snprintf(out.text, sizeof(out.text), "%.*f %s", places, value, names[unit]);
    return out;
}
