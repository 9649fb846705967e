/* Sizes as people write them: see size.h. */
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A decimal number at the start of a text; no sign, blanks, hexadecimals or names. */
static bool number_parse(const char *text, double *number, const char **rest)
{
    if (*text < '0' || *text > '9' || strspn(text, "0123456789.") == 0 || text[1] == 'x')
        return false;
    char *end;
    *number = strtod(text, &end);
    *rest = end;
    return isfinite(*number) && (size_t)(end - text) <= strspn(text, "0123456789.");
}

static bool number_to_bytes(double number, uint64_t *bytes)
{
    if (number >= 9.2233720368547758e18)
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
    int decimals = power > 0 && number < 100 ? 1 : 0;
    if (power == 0)
        (void)snprintf(text, text_bytes, "%.0f B", number);
    else
        (void)snprintf(text, text_bytes, "%.*f %ciB", decimals, number, unit_letters[power - 1]);
    return text;
}
