/*
 * What fragtest says about itself: --help, --version, --workload list.
 *
 * Owns: nothing. May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_HELP_H
#define FRAGTEST_HELP_H

#include <stdio.h>

/* Lines are at most `width` columns wide; 0: 80. */
void help_write(FILE *out, unsigned width);
void help_workloads(FILE *out, unsigned width);
void help_version(FILE *out);

#endif
