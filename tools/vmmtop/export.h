/*
 * What vmmtop says to programs: JSON, and the text format of Prometheus. Every value of monitor/format.h is in both,
 * under its name there.
 *
 * Owns nothing. May be called by: vmmtop, tests. Locks: none.
 */
#ifndef VMMTOP_EXPORT_H
#define VMMTOP_EXPORT_H

#include "vmmtop/processes.h"

#include <stdio.h>

/* Writes one object and a newline. */
void export_json(FILE *out, const struct processes *processes);

/* Writes metrics vmmcache_NAME of caches, vmmcache_pool_NAME and vmmcache_stream_NAME. Counters end with _total; times
 * are in seconds. */
void export_prometheus(FILE *out, const struct processes *processes);

#endif
