/* Writes strings of JSON: see json_string.h. */
#include "text/json_string.h"

/* Bytes of the UTF-8 character that begins here; 0: none does. Names of files may hold anything. */
static unsigned character_bytes(const unsigned char *text)
{
    unsigned bytes = text[0] < 0x80   ? 1
                     : text[0] < 0xC2 ? 0
                     : text[0] < 0xE0 ? 2
                     : text[0] < 0xF0 ? 3
                     : text[0] < 0xF5 ? 4
                                      : 0;
    for (unsigned i = 1; i < bytes; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return bytes;
}

void json_string_write(FILE *out, const char *string)
{
    const unsigned char *text = (const unsigned char *)string;

    (void)fputc('"', out);
    while (*text != '\0') {
        unsigned bytes = character_bytes(text);
        if (*text == '"' || *text == '\\')
            (void)fprintf(out, "\\%c", *text);
        else if (*text < 0x20 || *text == 0x7F)
            (void)fprintf(out, "\\u%04x", *text);
        else if (bytes == 0)
            (void)fputs("\\ufffd", out);
        else
            (void)fwrite(text, 1, bytes, out);
        text += bytes == 0 ? 1 : bytes;
    }
    (void)fputc('"', out);
}
