/*
 * Cases of misuse, in tables: what is done, and which status and words must come of it.
 *
 * A case that leaves the cache as it was (most do) must leave its statistics so, too.
 */
#ifndef VMM_MISUSE_H
#define VMM_MISUSE_H

#include "stage.h"

struct misuse {
    const char *name;
    void (*prepare)(struct stage *stage, uint64_t value);      /* NULL: the stage is all it needs */
    vmm_status (*misuse)(struct stage *stage, uint64_t value); /* returns what the wrong call did */
    uint64_t value;
    vmm_status status;
    const char *words; /* in the last error; NULL where the status is VMM_OK */
    bool is_counted;   /* figures may change */
};

struct misuse_group {
    const char *name;
    const struct misuse *cases;
    unsigned count;
};

#define MISUSE_GROUP(variable, title)                                                              \
    const struct misuse_group variable = { title, cases, sizeof cases / sizeof cases[0] }

extern const struct misuse_group misuse_double_frees;
extern const struct misuse_group misuse_pointers;
extern const struct misuse_group misuse_sizes;
extern const struct misuse_group misuse_nulls;
extern const struct misuse_group misuse_config;
extern const struct misuse_group misuse_environment;
extern const struct misuse_group misuse_private_pools;
extern const struct misuse_group misuse_callbacks;
extern const struct misuse_group misuse_captures;
extern const struct misuse_group misuse_structs;

#endif
