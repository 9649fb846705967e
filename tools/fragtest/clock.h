/* The host's clock, in nanoseconds. Owns nothing. May be called by: everything in fragtest. */
#ifndef FRAGTEST_CLOCK_H
#define FRAGTEST_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

#endif
