/*
 * The values of a cache, a pool or a stream in a segment: their names, kinds and places. Those of statistics follow
 * from vmm_stat_describe(), so vmmtop has no list of them: it exports each but those of VMM_STAT_SCAN, which no segment
 * has.
 *
 * Owns nothing. May be called by: vmmtop, tests. Locks: none.
 */
#ifndef VMMTOP_METRIC_H
#define VMMTOP_METRIC_H

#include "monitor/format.h"

enum {
    METRIC_NAME_BYTES = 48,
    METRICS_MOST = sizeof(vmm_stats) / sizeof(uint64_t) /* each value is in vmm_stats */
};

struct metric {
    char name[METRIC_NAME_BYTES];
    const char *text;
    const char *part; /* of the statistic over time; "": it is all of it */
    vmm_stat_unit unit;
    int is_counter; /* it never falls */
    size_t offset;  /* in vmm_stats, or in struct monitor_lane */
};

struct metrics {
    unsigned count;
    struct metric items[METRICS_MOST];
};

/* The values of all statistics, or of those that pools have, too; those of a stream. */
void metrics_of_stats(struct metrics *metrics, int of_pools);
void metrics_of_lane(struct metrics *metrics);

/* The value in a record. */
uint64_t metric_value(const struct metric *metric, const void *record);

#endif
