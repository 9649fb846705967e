/*
 * What the operating system can still give to a device that has no memory of its own: cuMemGetInfo() reports there what
 * no program uses, without the page cache, which the system gives up when memory is asked for. /proc/meminfo says more.
 *
 * Counted is MemAvailable, or the free huge pages if the system has set aside more of those: NVIDIA's estimate for such
 * devices names both. It adds free swap, which is not counted here: to fill it, programs are pushed out to the disc.
 *
 * Invariants:
 *  1. SYSTEM_SHARE of the memory stays the system's: it counts as free nowhere, and no driver gives it.
 * Owns: nothing. May be called by: driver. Locks: none.
 */
#ifndef VMM_DRIVER_SYSTEM_MEMORY_H
#define VMM_DRIVER_SYSTEM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* One in so many bytes. A machine that runs out of this memory hangs, so programs on those with 128 GB keep 8 free. */
enum { SYSTEM_SHARE = 16 };

/* "/proc/meminfo"; tests may name another file. */
extern const char *vmm__system_memory_file;

/* What the system can give, says the text of /proc/meminfo. False if it does not. */
bool vmm__system_memory_parse(const char *text, uint64_t *bytes);

/* The same of the system that this runs on. */
bool vmm__system_memory_read(uint64_t *bytes);

/* What is left of it for a device whose memory has `total_bytes`, without the system's share. */
uint64_t vmm__system_memory_left(uint64_t bytes, uint64_t total_bytes);

#endif
