/* Characters of UTF-8: see utf8.h. */
#define _GNU_SOURCE
#include "text/utf8.h"

#include <stdbool.h>
#include <string.h>
#include <wchar.h>

/* Whether a second byte can follow a first one: not if a shorter form exists, for half of a pair of UTF-16, nor above
 * U+10FFFF. */
static bool is_second(unsigned char first, unsigned char second)
{
    unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return second >= least && second <= most;
}

unsigned utf8_bytes(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned bytes = at[0] < 0x80   ? 1
                     : at[0] < 0xC2 ? 0
                     : at[0] < 0xE0 ? 2
                     : at[0] < 0xF0 ? 3
                     : at[0] < 0xF5 ? 4
                                    : 0;
    if (bytes > 1 && !is_second(at[0], at[1]))
        return 0;
    for (unsigned i = 2; i < bytes; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return bytes;
}

void utf8_make(char *text)
{
    while (*text != '\0') {
        unsigned bytes = utf8_bytes(text);
        bool is_control =
            bytes == 2 && (unsigned char)text[0] == 0xC2 && (unsigned char)text[1] < 0xA0;
        if (bytes == 0 || is_control)
            memset(text, '?', is_control ? 2 : 1);
        text += bytes == 0 ? 1 : bytes;
    }
}

size_t utf8_fit(const char *text, size_t bytes, int columns, int *used)
{
    mbstate_t state = { 0 };
    size_t at = 0;
    for (*used = 0; at < bytes;) {
        wchar_t character;
        size_t length = mbrtowc(&character, text + at, bytes - at, &state);
        bool is_character = length != 0 && length <= bytes - at;
        int width = is_character ? wcwidth(character) : 1;
        width = width < 0 ? 1 : width;
        if (*used + width > columns)
            break;
        *used += width;
        at += is_character ? length : 1;
        if (!is_character)
            state = (mbstate_t){ 0 };
    }
    return at;
}
