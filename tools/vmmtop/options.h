/* The command line of vmmtop. Owns nothing: texts are argv's. May be called by: vmmtop, tests. Locks: none. */
#ifndef VMMTOP_OPTIONS_H
#define VMMTOP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum vmmtop_mode {
    MODE_SCREEN,
    MODE_ONCE,
    MODE_JSON,
    MODE_PROMETHEUS,
    MODE_NEIGHBOURS,
    MODE_HELP,
    MODE_VERSION
};

struct vmmtop_options {
    enum vmmtop_mode mode;
    uint64_t pid; /* 0: all */
    const char *folder;
    const char *address; /* of --prometheus */
    unsigned period_ms;
};

struct vmmtop_error {
    char text[160];
};

/* False: one line in *error says what is wrong. */
bool vmmtop_options_parse(int argc, char **argv, struct vmmtop_options *options,
                          struct vmmtop_error *error);

void vmmtop_help_write(FILE *out);

#endif
