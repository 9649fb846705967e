/*
 * Statistics: figures and numbers of a cache, read. Changes nothing but peaks.
 * May be called by: report, entry. Locks: takes the grow lock and pools' locks.
 */
#ifndef VMM_REPORT_STATS_H
#define VMM_REPORT_STATS_H

#include "policy/cache.h"

void vmm__stats_read(struct vmm_cache *cache, vmm_stats *out);

#endif
