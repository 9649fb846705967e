/* Characters of UTF-8. Owns nothing. May be called by: fragtest, vmmtop. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stddef.h>

/* Bytes of the character that begins here; 0: none does. */
unsigned utf8_bytes(const char *text);

/* Replaces bytes that are no character, and control characters beyond ASCII, with '?'. */
void utf8_make(char *text);

/* How many bytes of a text, of at most `bytes`, fit into so many columns of the terminal; *used: the columns that they
 * take in the locale. */
size_t utf8_fit(const char *text, size_t bytes, int columns, int *used);

#endif
