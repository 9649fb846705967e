/* Finds what someone who mistyped a name probably meant: see nearest.h. */
#include "fragtest/cli/nearest.h"

#include <stdio.h>
#include <string.h>

#define MOST_CHARACTERS 31U

static unsigned least_of(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

/* Characters to insert, delete or replace (Levenshtein); both texts have at most MOST_CHARACTERS. */
static unsigned distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned row[MOST_CHARACTERS + 1];

    for (unsigned j = 0; j <= b_length; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a_length; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b_length; j++) {
            unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least_of(row[j] + 1, row[j - 1] + 1, replaced);
        }
    }
    return row[b_length];
}

/* How far a name is; more than the typed characters when it is out of the question. */
static unsigned name_distance(const char *typed, size_t length, const char *name)
{
    size_t name_length = strlen(name);

    if (length > 0 && strncmp(name, typed, length) == 0)
        return 0;
    if (name_length > MOST_CHARACTERS)
        return MOST_CHARACTERS;
    return distance(typed, length, name, name_length);
}

static void names_list(struct nearest_text *out, const char *const *names, unsigned count)
{
    size_t used = (size_t)snprintf(out->text, sizeof(out->text), "choose from ");

    for (unsigned i = 0; i < count; i++) {
        if (used + strlen(names[i]) + sizeof(", ...") >= sizeof(out->text)) {
            (void)snprintf(out->text + used, sizeof(out->text) - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out->text + used, sizeof(out->text) - used, "%s%s",
                                 i == 0 ? "" : ", ", names[i]);
    }
}

struct nearest_text nearest_name(const char *typed, size_t length, const char *const *names,
                                 unsigned count)
{
    struct nearest_text out;
    unsigned best = (unsigned)length / 3 + 1; /* a third of the name, and one more, may be wrong */
    const char *name = NULL;

    for (unsigned i = 0; length <= MOST_CHARACTERS && i < count; i++) {
        unsigned far = name_distance(typed, length, names[i]);
        if (far < best || (far == best && name == NULL)) {
            best = far;
            name = names[i];
        }
    }
    if (name != NULL)
        (void)snprintf(out.text, sizeof(out.text), "did you mean %s?", name);
    else
        names_list(&out, names, count);
    return out;
}
