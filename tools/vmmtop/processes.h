/*
 * The processes that publish: reads all segments of a folder.
 *
 * A segment is shown if it is a whole regular file of this user that others cannot open, and names a process that runs.
 * One that a process of this user is known to have left (monitor/left.h) is removed. Everything else is refused with a
 * line. Segments of other users cannot be opened, and are only counted; root reads those that belong to the user of
 * their process.
 *
 * Owns: for each process the last two states, so that rates can be computed. May be called by: vmmtop, tests. Locks:
 * none.
 */
#ifndef VMMTOP_PROCESSES_H
#define VMMTOP_PROCESSES_H

#include "vmmtop/snapshot.h"

#include <stdbool.h>

struct process {
    uint64_t pid;
    uint64_t number; /* of its segment: each copy of the library in a process has one */
    struct snapshot now;
    struct snapshot before; /* an earlier state; empty: there is none */
    double age_seconds;     /* since the process published */
    bool is_seen;           /* by the scan under way */
};

/* A file that was not shown. */
struct refused {
    char file[300];
    char why[160];
};

struct processes {
    const char *folder;
    uint64_t only;         /* the one pid to read; 0: all */
    struct process *items; /* in ascending order of pid and number */
    uint64_t capacity;
    unsigned count;
    struct refused *refused;
    uint64_t refused_capacity;
    unsigned refused_count;
    unsigned foreign; /* segments of other users */
    unsigned removed; /* by the last scan, because their process has ended */
};

/* Reads all segments anew. False: the folder cannot be read; errno says why. */
bool processes_scan(struct processes *processes);

void processes_free(struct processes *processes);

/* The rise of a counter in a second: `now` and `before` are its values in the two states of a process. Negative: the
 * process has published only once. */
double process_rate(const struct process *process, uint64_t now, uint64_t before);

#endif
