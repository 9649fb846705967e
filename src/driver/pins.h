/*
 * Pinned ranges of host memory, for the drivers without a GPU.
 *
 * Owns: the list; its records belong to the driver, which embeds them. Invariant: pinned ranges are not empty and do
 * not overlap.
 * May be called by: sim, host. Locks: the caller holds the lock that guards its memory.
 */
#ifndef VMM_DRIVER_PINS_H
#define VMM_DRIVER_PINS_H

#include "driver/driver.h"

struct pin {
    struct pin *next;
    uint64_t address;
    uint64_t bytes;
};

struct pins {
    struct pin *first;
};

/* Records the range in `pin` and lists it. Fails, with a line, if the range is empty, wraps, or overlaps a pinned
 * one. */
vmm_status vmm__pins_add(struct pins *pins, struct pin *pin, const void *host, uint64_t bytes);

/* Takes the record of exactly this range off the list. Returns NULL, with a line, if there is none. */
struct pin *vmm__pins_take(struct pins *pins, const void *host, uint64_t bytes);

/* Takes any record off the list; NULL if it is empty. */
struct pin *vmm__pins_take_any(struct pins *pins);

/* Returns the record of the range that contains this one, or NULL. */
struct pin *vmm__pins_find(const struct pins *pins, const void *host, uint64_t bytes);

/* Fails, with a line that names the call, unless every piece lies in one pinned range. */
vmm_status vmm__pins_check(const struct pins *pins, const char *call,
                           const struct driver_piece *pieces, unsigned count);

#endif
