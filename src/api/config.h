/*
 * Reads the configuration of a cache from the program and the environment, and checks it.
 * Owns: nothing. May be called by: api. Locks: none.
 */
#ifndef VMM_API_CONFIG_H
#define VMM_API_CONFIG_H

#include "cache/cache.h"

/* A structure that begins with struct_size, and that may be of an older or newer version in the program. */
struct options_kind {
    const char *what; /* for errors */
    const char *init; /* the macro that initializes it */
    size_t least_bytes;
    size_t bytes; /* that this version knows */
};

/* Copies what the program set over *out, which has the defaults; options NULL: nothing. ERR_INVALID_ARGUMENT;
 * ERR_UNSUPPORTED: a field of a newer version is set. */
vmm_status vmm__options_read(const struct options_kind *kind, const void *options, void *out);

/* Copies a caller's vmm_config, whose version may be older or newer. ERR_INVALID_ARGUMENT; ERR_UNSUPPORTED: a field of
 * a newer version is set. */
vmm_status vmm__config_read(const vmm_config *config, vmm_config *out);

/* Sets fields that are at their default from VMM_DRIVER, VMM_NO_CACHING, VMM_FOOTPRINT, VMM_REUSE, VMM_COMPACTION,
 * VMM_DECAY_MS, VMM_ZERO, VMM_DEBUG, VMM_NVTX, VMM_SHAREABLE, VMM_VIEWS, VMM_CLOCK, VMM_ANNOUNCES_CAPTURES,
 * VMM_NEIGHBOURS and the variables whose names begin with VMM_NEIGHBOURS_, but for VMM_NEIGHBOURS_DIR.
 * ERR_INVALID_ARGUMENT. */
vmm_status vmm__config_environment(vmm_config *config);

/* Call it last: replaces the defaults of switches and other enumerations but the driver, of decay and of neighbours by
 * the values in effect, and checks combinations of fields. ERR_INVALID_ARGUMENT. */
vmm_status vmm__config_settle(vmm_config *config);

/* A limit as the program gives it, in bytes; 0: none. */
static inline uint64_t vmm__limit_bytes(uint64_t limit_bytes)
{
    return limit_bytes == VMM_NO_LIMIT ? 0 : limit_bytes;
}

/* Reads the limit from the environment if the program sets none: VMM_LIMIT, else on cuda the limit of MPS. Call it
 * after opening the driver. ERR_INVALID_ARGUMENT, or the driver's error. */
vmm_status vmm__config_limit(struct driver *driver, vmm_config *config);

/* The name of the variable that vmm__config_limit() reads. */
const char *vmm__limit_variable(void);

/* The bytes that a text like "0=4G,1=2G" has for a device, which it names by ordinal or UUID; 0: none. */
uint64_t vmm__limit_of_mps(const char *text, int device,
                           const unsigned char uuid[DRIVER_UUID_BYTES]);

/* Reads VMM_LOG, which may be a file to open. ERR_INVALID_ARGUMENT. */
vmm_status vmm__config_log(struct vmm_cache *cache);

#endif
