/*
 * All lanes of a cache.
 *
 * A lane lives until the cache ends, so a reader may keep the lane that it found. The lane of a
 * closed stream is hidden until another stream takes it over. A reader that races with hiding or
 * showing may miss a lane; it then searches again under the lock. The cost of finding, adding,
 * hiding and showing does not depend on the number of lanes: each touches one bucket. Searches
 * for memory visit only the stocked lanes.
 *
 * Owns: the lanes. Invariants:
 *  1. a lane is in at most one list; every lane that has memory is in `stocked`, and leaves it soon
 *     after its last memory;
 *  2. of the lanes that are not in `stocked`, those whose stream has ended are in `vacant_pooled` if
 *     owner.is_pooled is set, else in `vacant_detached`; all others are in no list;
 *  3. `pooled_streams` has each lane with owner.is_pooled.
 * May be called by: lane, cache, api. Locks: finding needs none; the grow lock guards everything else.
 */
#ifndef VMM_LANE_LANES_H
#define VMM_LANE_LANES_H

#include "lane/lane.h"

struct lane_list {
    struct lane *first; /* linked by list_next */
    struct lane *last;
    uint64_t count;
};

/* The lanes whose streams the clock asks about captures: see cache/streams.h. */
enum { LANES_RECENT = 64 };

struct lanes {
    struct map pooled_streams;    /* lanes with owner.is_pooled; a stream may have several */
    _Atomic(struct lane *) first; /* all, in order of creation */
    struct lane *last;
    struct lane_list stocked; /* lanes that have memory; a refill rotates it */
    struct lane_list vacant_detached;
    struct lane_list vacant_pooled;
    _Atomic(struct lane *) recent[LANES_RECENT]; /* that refilled last; read without a lock */
    uint64_t recent_count;
};

/* ---- The table of a pool -------------------------------------------------------------------- */

/* ERR_HOST_OOM. */
vmm_status vmm__lane_table_init(struct lane_table *table, unsigned bits);
void vmm__lane_table_fini(struct lane_table *table);

/* NULL if the stream has no lane. */
struct lane *vmm__lane_table_find(const struct lane_table *table, vmm_stream stream);

void vmm__lane_table_enter(struct lane_table *table, struct lane *lane);
void vmm__lane_table_leave(struct lane_table *table, struct lane *lane);

/* ---- All lanes ------------------------------------------------------------------------------ */

/* Closes all lanes. Returns the first driver error. */
vmm_status vmm__lanes_fini(struct lanes *lanes);

/* Adds a lane of the default pool whose stream has none yet. */
void vmm__lanes_add(struct lanes *lanes, struct lane *lane);

/* Adds a lane of another pool than the default one, or one that joins it later. */
void vmm__lanes_add_pooled(struct lanes *lanes, struct lane *lane);

/* The lanes of other pools that are or were a stream's; NULL: there is no other. */
struct lane *vmm__lanes_pooled_first(const struct lanes *lanes, vmm_stream stream);
struct lane *vmm__lanes_pooled_next(const struct lane *lane);

/* Hides a lane, whose stream has ended, from all streams. */
void vmm__lanes_hide(struct lanes *lanes, struct lane *lane);

/* Show a hidden lane to its new stream: show, if it was made for the default pool; pooled_give, if for another one. */
void vmm__lanes_show(struct lanes *lanes, struct lane *lane);
void vmm__lanes_pooled_give(struct lanes *lanes, struct lane *lane);

/* Notes that a lane refills. */
void vmm__lanes_note(struct lanes *lanes, struct lane *lane);

/* Makes a lane stocked: it is about to get memory, or addresses that may get some. */
void vmm__lanes_touch(struct lanes *lanes, struct lane *lane);

/* Flushes the counters of all stocked lanes; the caller has locked `held` (NULL: none). The peaks of the totals are
 * exact only if this comes before blocks stop waiting. */
void vmm__lanes_counters_flush(const struct lanes *lanes, const struct lane *held);

/* Moves a lane without memory to the list that invariant 2 names. */
void vmm__lanes_vacate(struct lanes *lanes, struct lane *lane);

/* Moves the first lane of a list to its end, and returns it; NULL if the list is empty. */
struct lane *vmm__lane_list_rotate(struct lane_list *list);

#endif
