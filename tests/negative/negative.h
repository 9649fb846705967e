/*
 * Tables of wrong calls: each case makes a call and requires a status and words of the error.
 *
 * A case that leaves the cache unchanged (most do) must leave its statistics unchanged too.
 */
#ifndef VMM_NEGATIVE_H
#define VMM_NEGATIVE_H

#include "stage.h"

struct negative_case {
    const char *name;
    void (*prepare)(struct stage *stage, uint64_t value);    /* NULL: not needed */
    vmm_status (*call)(struct stage *stage, uint64_t value); /* returns the call's status */
    uint64_t value;
    vmm_status status;
    const char *words; /* in the last error; NULL if the status is VMM_OK */
    bool is_counted;   /* statistics may change */
};

struct negative_group {
    const char *name;
    const struct negative_case *cases;
    unsigned count;
};

/* A row of a table: a call that is refused with VMM_ERR_INVALID_ARGUMENT. */
#define WRONG(name, call, value, words) WRONG_AFTER(NULL, name, call, value, words)
#define WRONG_AFTER(prepare, name, call, value, words)                                             \
    {                                                                                              \
        name, prepare, call, value, VMM_ERR_INVALID_ARGUMENT, words, false                         \
    }

#define NEGATIVE_GROUP(variable, title)                                                            \
    const struct negative_group variable = { title, cases, sizeof cases / sizeof cases[0] }

extern const struct negative_group negative_double_frees;
extern const struct negative_group negative_pointers;
extern const struct negative_group negative_sizes;
extern const struct negative_group negative_nulls;
extern const struct negative_group negative_config;
extern const struct negative_group negative_environment;
extern const struct negative_group negative_graph_pools;
extern const struct negative_group negative_pools;
extern const struct negative_group negative_handles;
extern const struct negative_group negative_callbacks;
extern const struct negative_group negative_captures;
extern const struct negative_group negative_structs;

#endif
