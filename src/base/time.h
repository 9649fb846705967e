/*
 * The host's clock, and pauses by it.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_TIME_H
#define VMM_BASE_TIME_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment in the past; never runs backwards. */
static inline uint64_t vmm__time_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Sleeps for the whole time, even if signals arrive. */
static inline void vmm__time_pause(uint64_t ns)
{
    struct timespec left = { .tv_sec = (time_t)(ns / 1000000000U),
                             .tv_nsec = (long)(ns % 1000000000U) };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

#endif
