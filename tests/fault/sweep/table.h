/* The closing table of a sweep: what was injected, and which pairs of call and code were hit. */
#ifndef SWEEP_TABLE_H
#define SWEEP_TABLE_H

#include "point.h"

#include <stdio.h>

void table_write(FILE *out, const struct sweep_order *order, double seconds);

#endif
