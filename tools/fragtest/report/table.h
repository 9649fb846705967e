/*
 * The closing table, the reasons below it and the verdict.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_TABLE_H
#define FRAGTEST_TABLE_H

#include "fragtest/replay/result.h"

/* Columns that are shown only when there is something in them. */
struct table_columns {
    bool least;       /* the least memory was searched */
    bool trims;       /* there were trims */
    bool compacts;    /* there were compactions */
    bool lower_bound; /* work lagged behind: shown for traces of several streams */
};

/*
 * Results of one trace follow each other. A table that is wider than `width` (0: no limit) is
 * written in parts, one below the other; each begins with the policies.
 */
void table_write(FILE *out, unsigned width, const struct result *results, unsigned count,
                 const struct table_columns *columns);

/* One sentence on which policies survived. */
void verdict_write(FILE *out, unsigned width, const struct result *results, unsigned count);

/* What fragtest ends with: 0 when vmmcache (or, without it, all) survived and verified, else 1. */
int verdict_exit(const struct result *results, unsigned count);

#endif
