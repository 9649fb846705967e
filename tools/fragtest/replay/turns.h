/*
 * Two tenants take turns on one device: each is a pool of one cache that sleeps while the other one works, in memory
 * that need not hold both. Beside it, what a policy does with both tenants at once, because it has no sleep.
 *
 * May be called by: turns_show, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_TURNS_H
#define FRAGTEST_TURNS_H

#include "fragtest/replay/scene.h"

#define TURNS          8
#define TURNS_TENANTS  2
#define TURNS_POLICIES (POLICY_COUNT - 1) /* those without sleep */

/* One tenant goes to sleep, the other one wakes and checks its contents. */
struct turn {
    unsigned sleeper;
    uint64_t slept_bytes;
    uint64_t sleep_ns;
    uint64_t woken_bytes;
    uint64_t wake_ns;
    uint64_t checked_bytes;
    uint64_t reserved_bytes;
};

/* A policy that gets the requests of both tenants. */
struct turns_rival {
    const char *name;
    bool holds_both;
    uint64_t live_bytes; /* before the first request that failed */
};

struct turns {
    struct scene_run run; /* SIZE: live bytes of each tenant */
    struct turn turns[TURNS];
    unsigned count;
    uint64_t peak_bytes; /* most that was reserved */
    uint64_t mismatches; /* places with wrong contents */
    struct turns_rival rivals[TURNS_POLICIES];
    unsigned rival_count;
};

/* Runs the turns, then the policies that are chosen. Fails with the library's error. */
vmm_status turns_run(struct scene_run *run);

#endif
