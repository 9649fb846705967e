/*
 * Looks for the smallest memory limit in which a trace survives.
 *
 * May be called by: main, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_SEARCH_H
#define FRAGTEST_SEARCH_H

#include "fragtest/replay/replay.h"

/*
 * Bisects to 0.2 % of the peak live bytes, which are the lower end; one pass a trial, without trims,
 * compactions and verification, the rest as the request says. Returns a limit that survived; 0 when none did.
 */
uint64_t search_least(const struct replay_request *request);

#endif
