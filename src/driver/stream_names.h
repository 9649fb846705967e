/*
 * Names that the drivers without a GPU make up for streams: as with CUDA's handles, one that was destroyed
 * comes back as another stream's, the last one first, and until then means nothing.
 *
 * Owns: the list of destroyed names.
 * May be called by: sim, host; under the lock that guards their streams.
 */
#ifndef VMM_DRIVER_STREAM_NAMES_H
#define VMM_DRIVER_STREAM_NAMES_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stdint.h>

struct stream_names {
    uint64_t made;
    vmm_stream *gone;
    uint32_t gone_count;
    uint32_t gone_capacity;
};

/* The name for a new stream. */
vmm_stream vmm__stream_names_take(struct stream_names *names);

/* Notes that a stream was destroyed, whoever named it. False: no host memory, and nothing changed. */
bool vmm__stream_names_drop(struct stream_names *names, vmm_stream name);

/* ERR_INVALID_ARGUMENT for the name of a stream that was destroyed, and a line that says which call had it. */
vmm_status vmm__stream_names_check(const struct stream_names *names, const char *call,
                                   vmm_stream name);

void vmm__stream_names_fini(struct stream_names *names);

#endif
