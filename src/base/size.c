/* Sizes as people write them: see size.h. */
#include "base/size.h"

#include <stdio.h>
#include <string.h>

static const char unit_letters[] = "KMGT";

/* "", "B", "K", "KiB", "M", ... to powers of 1024. */
static bool unit_parse(const char *text, double *factor)
{
    *factor = 1;
    if (*text == '\0' || strcmp(text, "B") == 0)
        return true;
    const char *letter = strchr(unit_letters, *text);
    if (letter == NULL || (text[1] != '\0' && strcmp(text + 1, "iB") != 0))
        return false;
    for (const char *unit = unit_letters; unit <= letter; unit++)
        *factor *= 1024;
    return true;
}

static const char *digits_parse(const char *text, double *number)
{
    for (; *text >= '0' && *text <= '9'; text++)
        *number = *number * 10 + (*text - '0');
    return text;
}

/* Parses a decimal number at the start of a text, without sign, blanks or exponent. strtod() would read the locale's
 * decimal point. */
static bool number_parse(const char *text, double *number, const char **rest)
{
    *number = 0;
    *rest = digits_parse(text, number);
    if (*rest == text)
        return false;
    if (**rest != '.')
        return true;
    double fraction = 0;
    double scale = 1;
    const char *point = *rest;
    *rest = digits_parse(point + 1, &fraction);
    for (const char *digit = point + 1; digit < *rest; digit++)
        scale *= 10;
    *number += fraction / scale;
    return true;
}

static bool number_to_bytes(double number, uint64_t *bytes)
{
    if (!(number < 9.2233720368547758e18))
        return false;
    *bytes = (uint64_t)number;
    return true;
}

bool vmm__size_parse(const char *text, uint64_t *bytes)
{
    double number;
    double factor;
    const char *unit;
    if (!number_parse(text, &number, &unit) || !unit_parse(unit, &factor))
        return false;
    return number_to_bytes(number * factor, bytes);
}

bool vmm__size_or_share_parse(const char *text, uint64_t whole, uint64_t *bytes)
{
    double number;
    const char *rest;
    if (number_parse(text, &number, &rest) && strcmp(rest, "%") == 0)
        return number_to_bytes(number / 100 * (double)whole, bytes);
    return vmm__size_parse(text, bytes);
}

char *vmm__size_write(char *text, size_t text_bytes, uint64_t bytes)
{
    int power = 0;
    double number = (double)bytes;
    while (number >= 1024 && power < 4) {
        number /= 1024;
        power++;
    }
    uint64_t tenths = (uint64_t)(number * 10 + 0.5);
    if (power == 0)
        (void)snprintf(text, text_bytes, "%.0f B", number);
    else if (tenths < 1000)
        (void)snprintf(text, text_bytes, "%u.%u %ciB", (unsigned)(tenths / 10),
                       (unsigned)(tenths % 10), unit_letters[power - 1]);
    else
        (void)snprintf(text, text_bytes, "%.0f %ciB", number, unit_letters[power - 1]);
    return text;
}

struct size_text vmm__size_text(uint64_t bytes)
{
    struct size_text written;
    if (bytes >= UINT64_C(1) << 20)
        (void)snprintf(written.text, sizeof written.text, "%.1f MiB", (double)bytes / (1 << 20));
    else
        (void)snprintf(written.text, sizeof written.text, "%u KiB",
                       (unsigned)(bytes + 1023) / 1024);
    return written;
}
