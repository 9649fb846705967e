/*
 * What the targets of libFuzzer share. A target ends the process where a parser has broken its promise; the
 * sanitizers do where it has done worse.
 */
#ifndef VMM_FUZZ_PARSER_H
#define VMM_FUZZ_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* An error is one line of text that says something. */
static inline bool is_one_line(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    }
    return *text != '\0';
}

/* The input as text: the caller's to free, exactly as long as it is. It ends at the first zero. */
static inline char *text_of(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    must(text != NULL);
    if (bytes > 0)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}

#endif
