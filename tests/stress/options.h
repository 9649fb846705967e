/*
 * Arguments of the stress programs: a table of options each.
 *
 * Owns nothing. May be called by: the programs' main files. One thread.
 */
#ifndef STRESS_OPTIONS_H
#define STRESS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One of flag, number and read is set. */
struct option_row {
    const char *name; /* with its dashes */
    bool *flag;       /* set: the option has no value */
    uint64_t *number; /* from least to most */
    uint64_t least;
    uint64_t most;
    bool (*read)(const char *text, void *out); /* false: the value is wrong */
    void *out;
};

/* Moves what is no option to argv[1] and behind, and says how many those are. False: an option or its value is
 * wrong. */
bool options_read(int argc, char **argv, const struct option_row *rows, size_t count, int *others);

bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* A time above 0, to a double. */
bool seconds_read(const char *text, void *out);

/* A text as it is, to a const char *. */
bool text_read(const char *text, void *out);

#endif
