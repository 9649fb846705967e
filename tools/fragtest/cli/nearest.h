/*
 * Finds what someone who mistyped a name probably meant.
 *
 * Owns: nothing. May be called by: options, runner. Locks: none.
 */
#ifndef FRAGTEST_NEAREST_H
#define FRAGTEST_NEAREST_H

#include <stddef.h>

#define NEAREST_TEXT_BYTES 160

struct nearest_text {
    char text[NEAREST_TEXT_BYTES];
};

/*
 * "did you mean A?" with the name that takes the fewest changes, or the first one that the typed
 * characters begin, if that is near enough; else "choose from A, B, C", cut short if there are many.
 */
struct nearest_text nearest_name(const char *typed, size_t length, const char *const *names,
                                 unsigned count);

#endif
