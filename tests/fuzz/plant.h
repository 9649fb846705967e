/*
 * Planted bugs: a cache that is wrong once in a while, to show that what is wrong is found, replayed and
 * shortened. Stands between the engine and vmm_alloc(), vmm_free().
 *
 * May be called by: the engine. Locks: none (one thread).
 */
#ifndef FUZZ_PLANT_H
#define FUZZ_PLANT_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

/* X(name, text) */
#define PLANT_MAP(X)                                                                               \
    X(none, "no bug")                                                                              \
    X(overlap, "every fourth block of megabytes lies half in the one before")                      \
    X(forget, "every third free is forgotten")                                                     \
    X(status, "a request that fails writes its result")                                            \
    X(crash, "a free while three blocks are live ends the process")                                \
    X(hang, "a free while three blocks are live never returns")

enum plant_kind {
#define PLANT_ENUM(name, text) PLANT_##name,
    PLANT_MAP(PLANT_ENUM)
#undef PLANT_ENUM
        PLANT_KINDS
};

struct plant {
    enum plant_kind kind;
    unsigned allocations;
    unsigned frees;
    unsigned live;
    char *last; /* block of megabytes */
};

/* A new cache: nothing has happened in it. */
void plant_begin(struct plant *plant);

vmm_status plant_alloc(struct plant *plant, vmm_cache *cache, size_t bytes, vmm_stream stream,
                       void **out);
vmm_status plant_free(struct plant *plant, vmm_cache *cache, void *ptr);

bool plant_kind_read(const char *name, enum plant_kind *kind);

#endif
