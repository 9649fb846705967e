/*
 * Reclaim: what a request that finds no memory tries, one step after the other. After each step that may have freed
 * memory, the refill is tried again, and now searches all free blocks and the lanes of all streams. Reclaim then goes
 * on with the same step, or from the start where noted.
 *
 *  step_passed           Return blocks, slabs and limbo chunks whose work has finished.
 *  step_view             Let growth make views with as little new memory as possible, whatever the footprint target is.
 *  step_follow           If lanes have clocks of their own: also take other streams' idle memory whose work is
 *                        unfinished, in place or in views; the requesting stream waits for it on the device.
 *  step_idle_finished    Release just enough idle chunks of any stream whose work has finished.
 *  step_misfit           Serve a block from a hole of the lane that is for other sizes (lane.h).
 *  step_borrow           Serve a block from another stream's hole (idle/borrow.h).
 *  step_quarantine       In debug mode, empty the quarantine, with no lock held; restart.
 *  step_wait_limbo       Wait on the host until a chunk of limbo is released, the oldest whose clock no capture stops.
 *  step_wait_idle        Wait on the host for the idle memory that was freed first, of one lane if lanes have clocks
 *                        of their own; if none is unfinished, release what has finished since step_idle_finished;
 *                        restart.
 *  step_wait_uses        Wait on the host for freed blocks that other streams still use; restart.
 *  step_wait_pools       Wait on the host for pools that are leaving; restart.
 *  step_wait_borrow      Wait on the host until the work on another stream's hole has ended, and serve a block from it.
 *  step_neighbours       If the device refuses, not a limit: claim the memory from other processes on it, and wait for
 *                        it, with no lock held (claim.h); restart.
 *  step_pressure         Call the program's pressure function, with no lock held; if it freed something, restart. At
 *                        most 64 calls for each request.
 *  step_compact          Relocate live bytes and release the memory that they pinned (compact/compact.h).
 *  step_lend             Serve a block from the free memory of a pool with use_on_oom (idle/borrow.h); wait on the host
 *                        for its work if need be.
 *
 * Owns: nothing. May be called by: refill. Locks: the caller holds the grow lock and the requesting lane's lock. Steps
 * that wait for the device drop the lane's lock while they wait, but not the grow lock: other threads free and allocate
 * cached memory meanwhile, and their refills queue. Only step_compact also waits, for its copies, with all lanes locked
 * (compact/compact.h). step_quarantine, step_neighbours and step_pressure drop both locks; so does the return of
 * segments to their source, which follows a step that released some.
 */
#ifndef VMM_CACHE_RECLAIM_RECLAIM_H
#define VMM_CACHE_RECLAIM_RECLAIM_H

#include "cache/request.h"

/* The steps in order, as X(NUMBER, function, restarts). restarts: once the step has succeeded, earlier steps may
 * succeed again, so the sequence starts anew; otherwise it goes on with the same step. */
#define RECLAIM_STEP_MAP(X)                                                                        \
    X(PASSED, step_passed, false)                                                                  \
    X(VIEW, step_view, false)                                                                      \
    X(FOLLOW, step_follow, false)                                                                  \
    X(IDLE_FINISHED, step_idle_finished, false)                                                    \
    X(MISFIT, step_misfit, false)                                                                  \
    X(BORROW, step_borrow, false)                                                                  \
    X(QUARANTINE, step_quarantine, true)                                                           \
    X(WAIT_LIMBO, step_wait_limbo, false)                                                          \
    X(WAIT_IDLE, step_wait_idle, true)                                                             \
    X(WAIT_USES, step_wait_uses, true)                                                             \
    X(WAIT_POOLS, step_wait_pools, true)                                                           \
    X(WAIT_BORROW, step_wait_borrow, false)                                                        \
    X(NEIGHBOURS, step_neighbours, true)                                                           \
    X(PRESSURE, step_pressure, true)                                                               \
    X(COMPACT, step_compact, false)                                                                \
    X(LEND, step_lend, false)

/* Runs steps, from request->step on, until one may have freed memory (VMM_OK: try the refill again), one fails (its
 * error), or all are done (VMM__NOTHING). Returns no other internal outcome. */
vmm_status vmm__reclaim_next(struct vmm_cache *cache, struct request *request);

/* Writes the error line of a request that ran out of memory or addresses, and returns `status`. */
vmm_status vmm__reclaim_report(struct vmm_cache *cache, const struct request *request,
                               vmm_status status);

#endif
