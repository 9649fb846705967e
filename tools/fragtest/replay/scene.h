/*
 * A scene: what one command line runs and shows. Most replay traces; the others are workloads with steps of their own,
 * which run alone.
 *
 * May be called by: main, options, help, tests; scenes. Locks: none.
 */
#ifndef FRAGTEST_SCENE_H
#define FRAGTEST_SCENE_H

#include "fragtest/cli/options.h"
#include "fragtest/cli/progress.h"
#include "fragtest/report/style.h"
#include "fragtest/trace/trace.h"

/* What is asked of a scene. The outcome of each begins with it. */
struct scene_run {
    const struct options *options;
    struct driver *driver; /* NULL: the scene opens its own */
    struct progress *progress;
    FILE *text; /* for people */
    struct style style;
    char machine[320];
    uint64_t limit_bytes; /* the run sets it from --memory; 0: no limit */
    bool is_good;         /* an outcome: fragtest ends with 0 */
};

struct scene {
    const char *name;
    const char *listed; /* the name, as lists show it: with its SIZE */
    const char *note;
    const char *sizes; /* that it takes, in words; NULL: it takes none */
    uint64_t bytes;    /* without a SIZE */
    uint64_t least_bytes;
    uint64_t most_bytes;
    const char *memory; /* what --memory is if it is not given; NULL: no limit */
    bool opens_driver;  /* that of the host, in processes of its own */
    size_t run_bytes;   /* of its outcome */

    /* Reads what it replays, before anything runs. NULL: nothing. False: one line in *error. */
    bool (*open)(struct scene_run *run, struct trace_error *error);

    /* Fails with the library's error. */
    vmm_status (*run)(struct scene_run *run);
    void (*show)(const struct scene_run *run);
    void (*json_write)(FILE *out, const struct scene_run *run);
    void (*csv_write)(FILE *out, const struct scene_run *run); /* NULL: it has no timeline */

    /* Frees what it has, also after open() failed. NULL: nothing. */
    void (*close)(struct scene_run *run);
};

extern const struct scene scene_replay;

/* Those that run alone. */
#define SCENES 3

extern const struct scene scene_sleep;
extern const struct scene scene_unrecorded;
extern const struct scene scene_neighbours;

const struct scene *scene_at(unsigned index);

/* The scene of "NAME", or of "NAME:SIZE" if it takes one; NULL: there is none. */
const struct scene *scene_find(const char *text);

/* Writes the machine in a line, unless only the table is asked for. */
void scene_machine_write(const struct scene_run *run);

/* The SIZE of that text. False: the scene does not take it. */
bool scene_size(const struct scene *scene, const char *text, uint64_t *bytes);

#endif
