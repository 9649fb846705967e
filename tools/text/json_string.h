/* Writes strings of JSON. Owns nothing. May be called by: fragtest, vmmtop. */
#ifndef TEXT_JSON_STRING_H
#define TEXT_JSON_STRING_H

#include <stdio.h>

/* Writes a text as a string of JSON. Bytes that are not UTF-8 become U+FFFD. */
void json_string_write(FILE *out, const char *text);

#endif
