/* Writes text in lines that fit a width: see wrap.h. */
#include "fragtest/report/wrap.h"

#include <string.h>

/* Characters, not bytes: a byte that continues a UTF-8 character does not count. */
static unsigned columns_of(const char *text, size_t length)
{
    unsigned columns = 0;

    for (size_t i = 0; i < length; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

void wrap_write(FILE *out, unsigned width, unsigned used, unsigned indent, const char *text)
{
    unsigned at = used;
    bool line_has_word = false;

    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        unsigned columns = columns_of(text, length);
        if (line_has_word && width != 0 && at + 1 + columns > width) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            line_has_word = false;
        }
        (void)fprintf(out, "%s%.*s", line_has_word ? " " : "", (int)length, text);
        at += columns + line_has_word;
        line_has_word = true;
        text += length + (text[length] == ' ');
    }
    (void)fputc('\n', out);
}
