/*
 * The host's clock.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_TIME_H
#define VMM_BASE_TIME_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment in the past; never runs backwards. */
static inline uint64_t vmm__time_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

#endif
