/*
 * Shows tenants that took turns: a table with a bar of reserved memory, a verdict, and JSON.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_TURNS_SHOW_H
#define FRAGTEST_TURNS_SHOW_H

#include "fragtest/replay/turns.h"
#include "fragtest/report/style.h"

void turns_show(FILE *out, struct style style, const struct turns *turns);

/* Whether all of it was written. */
bool turns_json_write(FILE *out, const char *machine, const struct turns *turns);

#endif
