/*
 * A scene: a workload with steps of its own. It is no trace: it runs alone, and shows its outcome itself.
 *
 * May be called by: main, options, help, tests; scenes. Locks: none.
 */
#ifndef FRAGTEST_SCENE_H
#define FRAGTEST_SCENE_H

#include "fragtest/cli/progress.h"
#include "fragtest/policies/policy.h"
#include "fragtest/report/style.h"

/* What is asked of a scene. The outcome of each begins with it. */
struct scene_run {
    struct driver *driver; /* NULL: the scene opens its own */
    uint64_t bytes;        /* its SIZE; 0: it takes none */
    const char *memory;    /* its limit: see policy_limit() */
    const bool *policies;
    struct policy_settings settings;
    struct progress *progress;
    bool quiet;
    uint64_t limit_bytes; /* an outcome: what `memory` comes to; 0: no limit */
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

    /* Fails with the library's error. */
    vmm_status (*run)(struct scene_run *run);
    void (*show)(FILE *out, struct style style, const struct scene_run *run);
    void (*json_write)(FILE *out, const char *machine, const struct scene_run *run);
};

#define SCENES 3

extern const struct scene scene_sleep;
extern const struct scene scene_unrecorded;
extern const struct scene scene_neighbours;

const struct scene *scene_at(unsigned index);

/* The scene of "NAME", or of "NAME:SIZE" if it takes one; NULL: there is none. */
const struct scene *scene_find(const char *text);

/* The SIZE of that text. False: the scene does not take it. */
bool scene_size(const struct scene *scene, const char *text, uint64_t *bytes);

#endif
