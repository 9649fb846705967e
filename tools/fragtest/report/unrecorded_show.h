/*
 * Shows the outcomes of an undeclared use: a table, a closing sentence, and JSON.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_UNRECORDED_SHOW_H
#define FRAGTEST_UNRECORDED_SHOW_H

#include "fragtest/replay/unrecorded.h"
#include "fragtest/report/style.h"

/* `driver` is its name. */
void unrecorded_show(FILE *out, struct style style, const char *driver,
                     const struct unrecorded *unrecorded);

/* Whether all of it was written. */
bool unrecorded_json_write(FILE *out, const char *machine, const char *driver,
                           const struct unrecorded *unrecorded);

#endif
