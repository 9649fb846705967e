/*
 * Stream names for the drivers without a GPU. As with CUDA's handles, a new stream gets the name of a destroyed one,
 * the most recent first; until then the name is invalid.
 *
 * Owns: the names of destroyed streams.
 * May be called by: sim, host. Locks: the caller holds the lock that guards its streams.
 */
#ifndef VMM_DRIVER_STREAM_NAMES_H
#define VMM_DRIVER_STREAM_NAMES_H

#include "base/map.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>

struct stream_names {
    uint64_t generated;
    struct map names;          /* of streams that were destroyed, also those in use again */
    struct stream_name *stale; /* destroyed ones, the most recent first */
};

/* Returns a name for a new stream. */
vmm_stream vmm__stream_names_take(struct stream_names *names);

/* Records that the stream was destroyed, whether its name was generated or the caller's. False: out of host memory,
 * nothing changed. */
bool vmm__stream_names_drop(struct stream_names *names, vmm_stream name);

/* Returns ERR_INVALID_ARGUMENT, with a line that names the call, if the stream was destroyed. */
vmm_status vmm__stream_names_check(const struct stream_names *names, const char *call,
                                   vmm_stream name);

void vmm__stream_names_fini(struct stream_names *names);

#endif
