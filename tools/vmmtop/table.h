/*
 * The tables of vmmtop, as text: one line for each cache of each process, or everything about one process.
 *
 * Owns nothing. May be called by: vmmtop, tests. Locks: none.
 */
#ifndef VMMTOP_TABLE_H
#define VMMTOP_TABLE_H

#include "vmmtop/processes.h"

#include <stdio.h>

/* The first character of a line says how to show the line. */
enum table_style { TABLE_TEXT = ' ', TABLE_TITLE = '#', TABLE_PROCESS = '>', TABLE_SILENT = '!' };

/* Writes the table of all processes: one title, then lines with the styles TABLE_PROCESS and TABLE_SILENT in the order
 * of the caches of processes->items. */
void table_write_all(FILE *out, const struct processes *processes);

/* Writes what is known of one process. */
void table_write_process(FILE *out, const struct process *process);

/* Writes what was refused, removed, or is another user's. */
void table_write_notes(FILE *out, const struct processes *processes);

#endif
