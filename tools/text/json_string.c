/* Writes strings of JSON: see json_string.h. */
#include "text/json_string.h"

#include "text/utf8.h"

void json_string_write(FILE *out, const char *string)
{
    (void)fputc('"', out);
    for (const char *text = string; *text != '\0';) {
        unsigned char first = (unsigned char)*text;
        unsigned bytes = utf8_bytes(text);
        if (*text == '"' || *text == '\\')
            (void)fprintf(out, "\\%c", *text);
        else if (first < 0x20 || first == 0x7F)
            (void)fprintf(out, "\\u%04x", first);
        else if (bytes == 0)
            (void)fputs("\\ufffd", out);
        else
            (void)fwrite(text, 1, bytes, out);
        text += bytes == 0 ? 1 : bytes;
    }
    (void)fputc('"', out);
}
