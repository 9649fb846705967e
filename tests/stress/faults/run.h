/*
 * Scenarios under faults: sequences of operations, each on a driver and a cache of its own.
 *
 * A scenario is a file of operations as stress.h has them. Nothing that it draws depends on time or addresses, so it
 * makes the same calls each time until something fails. Then it goes on from its beginning until enough operations
 * have worked.
 *
 * May be called by: sweep.c. One thread.
 */
#ifndef FAULTS_RUN_H
#define FAULTS_RUN_H

#include "sequence.h"
#include "stress.h"

/* Adds a scenario; false: *error (of `bytes` bytes) says what is wrong with the file. */
bool scenario_add(const char *path, bool is_host, char *error, size_t bytes);

unsigned scenario_count(void);
bool scenario_is_host(unsigned scenario);

/* Runs a scenario, counted from 1, to its end; in a child it does not return. */
void scenario_run(unsigned scenario);

/* ---- reach.c --------------------------------------------------------------------------------- */

/* After each operation, where points are counted. */
void reach_note(struct stress *stress, const struct operation *operation);

/* Whether a relocation has been tried since this was last asked. */
bool reach_relocated(void);

/* Writes what was reached; false if something was not. */
bool reach_write(FILE *out);

#endif
