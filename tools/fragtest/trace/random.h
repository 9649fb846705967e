/*
 * Small seeded random numbers (splitmix64): the same seed gives the same workload on every machine.
 *
 * Owns: nothing; the state is the caller's. May be called by: everything in fragtest.
 */
#ifndef FRAGTEST_RANDOM_H
#define FRAGTEST_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t mixed = (*state += 0x9E3779B97F4A7C15U);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
}

/* A number in low..high, both included; low <= high. */
static inline uint64_t random_between(uint64_t *state, uint64_t low, uint64_t high)
{
    return low + random_next(state) % (high - low + 1);
}

#endif
