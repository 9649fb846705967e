/*
 * Negative controls: a cache or a driver that is wrong on purpose. The stress must find each, replay it and shorten
 * it; that shows that it looks.
 *
 * Seeded bugs stand between the operations and the cache. The others hide something from the cache, which then does
 * what it must never do: they replace calls of the driver, or leave out a call of the cache.
 *
 * May be called by: the operations. Locks: none (one thread).
 */
#ifndef STRESS_CONTROL_H
#define STRESS_CONTROL_H

#include "cache/cache.h"

/* X(name, text) */
#define CONTROL_MAP(X)                                                                             \
    X(none, "nothing is wrong")                                                                    \
    X(overlap, "every fourth block of megabytes lies half in the one before")                      \
    X(forget, "every third free is forgotten")                                                     \
    X(status, "a request that fails writes its result")                                            \
    X(crash, "a free while three blocks are live ends the process")                                \
    X(pool, "vmm_alloc_from() allocates from the default pool")                                    \
    X(align, "vmm_alloc_aligned() forgets the alignment")                                          \
    X(commit, "every third commit gives no memory")                                                \
    X(decommit, "every third decommit takes no memory")                                            \
    X(resize, "vmm_resize() loses the contents of the block")                                      \
    X(import, "vmm_share_import() allocates a block of the cache")                                 \
    X(hang, "a free while three blocks are live never returns")                                    \
    X(announce, "captures are not announced")                                                      \
    X(limbo, "memory is unmapped and released without asking whether its work has ended")          \
    X(epoch, "an epoch has passed as soon as there is an event for it")                            \
    X(stamp, "a free stamps memory with the epoch before, whose event may be recorded already")    \
    X(query, "every event has passed whenever the cache asks")                                     \
    X(follow, "streams that the cache makes wait do not wait")                                     \
    X(device, "waits of the cache for the device end at once")                                     \
    X(record, "every other event of the cache is not recorded")                                    \
    X(clock, "every other event of all work is not recorded")                                      \
    X(partial, "events of all work cover the default stream only")                                 \
    X(use, "vmm_record_stream() is not called")                                                    \
    X(end, "vmm_stream_end() is not called")

enum control_kind {
#define CONTROL_ENUM(name, text) CONTROL_##name,
    CONTROL_MAP(CONTROL_ENUM)
#undef CONTROL_ENUM
        CONTROL_KINDS
};

struct control {
    enum control_kind kind;
    unsigned allocations;
    unsigned frees;
    unsigned commits; /* and decommits */
    unsigned live;
    char *last; /* block of megabytes */
};

/* A new cache: nothing has happened in it. */
void control_begin(struct control *control);

/* Calls of the cache between these two see the driver that is wrong, and a cache whose records were made wrong. They
 * nest. cache: NULL if there is none. */
void control_enter(const struct control *control, struct driver *driver, vmm_cache *cache);
void control_leave(const struct control *control, struct driver *driver);

/* From a pool; NULL: from none in particular. */
vmm_status control_alloc(struct control *control, vmm_cache *cache, vmm_pool *pool, size_t bytes,
                         vmm_stream stream, void **out);
vmm_status control_free(struct control *control, vmm_cache *cache, void *ptr);
vmm_status control_alloc_aligned(const struct control *control, vmm_pool *pool, size_t bytes,
                                 size_t alignment, vmm_stream stream, void **out);
vmm_status control_commit(struct control *control, vmm_cache *cache, void *ptr, size_t offset,
                          size_t bytes);
vmm_status control_decommit(struct control *control, vmm_cache *cache, void *ptr, size_t offset,
                            size_t bytes);
vmm_status control_resize(const struct control *control, vmm_cache *cache, void *ptr, size_t bytes,
                          vmm_stream stream, void **out);
vmm_status control_import(const struct control *control, vmm_cache *cache, vmm_share *share,
                          size_t bytes, vmm_stream stream, void **out);
vmm_status control_use(const struct control *control, vmm_cache *cache, void *ptr,
                       vmm_stream stream);
vmm_status control_announce(const struct control *control, vmm_cache *cache, vmm_stream stream);
vmm_status control_stream_end(const struct control *control, vmm_cache *cache, vmm_stream stream);

bool control_read(const char *name, enum control_kind *kind);

#endif
