/* Environment variables: see variable.h. */
#define _GNU_SOURCE
#include "base/variable.h"

#include <stdlib.h>
#include <string.h>

const char *vmm__variable(const char *name)
{
    const char *text = secure_getenv(name);
    return text == NULL || *text == '\0' ? NULL : text;
}

bool vmm__variable_is(const char *text, const char *word)
{
    return strcmp(text, word) == 0 || (strcmp(text, "1") == 0 && strcmp(word, "on") == 0) ||
           (strcmp(text, "0") == 0 && strcmp(word, "off") == 0);
}
