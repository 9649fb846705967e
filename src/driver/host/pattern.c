/*
 * The memory patterns of the host driver's fill and check.
 *
 * A block consists of units of 512 bytes, the smallest block of the library. The first 8 bytes of a unit hold a stamp
 * computed from the word and the unit's number. fill stamps every unit in the first and last 64 KiB of the block, where
 * overlapping blocks must meet, and one unit of each 16 KiB between, 128 in each granule that is mapped. The rest stays
 * unwritten and takes no memory, so a replay of a real trace verifies hundreds of GiB of blocks within seconds; the sim
 * driver checks every byte. A last unit shorter than 8 bytes holds the bytes of the stamp that fit.
 *
 * Owns nothing. Called by: workers, without locks.
 */
#include "driver/host/internal.h"
#include "driver/host/seen.h"

#include <string.h>

enum { UNIT_BYTES = 512, STAMP_BYTES = 8, EDGE_UNITS = 128, INNER_UNITS = 32 };

/* Spreads the word over all 64 bits first, so that nearby words and units never give the same stamp. */
static inline uint64_t stamp_seed(uint32_t word)
{
    return (word + UINT64_C(1)) * UINT64_C(0xD6E8FEB86659FD93);
}

static inline uint64_t stamp_of(uint64_t seed, uint64_t unit)
{
    uint64_t mixed = (seed + unit) * UINT64_C(0x9E3779B97F4A7C15);
    return mixed ^ (mixed >> 32);
}

/* Number of units with room for a whole stamp. */
static inline uint64_t whole_units(uint64_t bytes)
{
    return (bytes + UNIT_BYTES - STAMP_BYTES) / UNIT_BYTES;
}

static inline uint64_t tail_bytes(uint64_t bytes, uint64_t units)
{
    return bytes > units * UNIT_BYTES ? bytes - units * UNIT_BYTES : 0;
}

/* Returns the next unit to stamp. */
static inline uint64_t next_unit(uint64_t unit, uint64_t units)
{
    bool within = unit >= EDGE_UNITS && unit + EDGE_UNITS + INNER_UNITS < units;
    return unit + (within ? INNER_UNITS : 1);
}

/* Writes the stamp, or returns 1 if a check does not find it there. */
HOST_UNSEEN static inline uint64_t stamp_pass(unsigned char *place, uint64_t stamp, size_t bytes,
                                              bool is_check)
{
    uint64_t found = stamp;
    if (!is_check)
        memcpy(place, &stamp, bytes);
    memcpy(&found, place, bytes);
    return found != stamp;
}

HOST_UNSEEN uint64_t vmm__host_pattern_pass(uint64_t address, uint64_t bytes, uint32_t word,
                                            bool is_check)
{
    unsigned char *place = vmm__host_pointer(address);
    uint64_t seed = stamp_seed(word);
    uint64_t units = whole_units(bytes);
    uint64_t mismatches = 0;
    for (uint64_t unit = 0; unit < units; unit = next_unit(unit, units))
        mismatches +=
            stamp_pass(place + unit * UNIT_BYTES, stamp_of(seed, unit), STAMP_BYTES, is_check);
    return mismatches + stamp_pass(place + units * UNIT_BYTES, stamp_of(seed, units),
                                   tail_bytes(bytes, units), is_check);
}
