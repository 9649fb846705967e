/* Visitors of walks for tests of the walks' refusals: they look at nothing, and let the walk go on. */
#ifndef VMM_VISIT_SUPPORT_H
#define VMM_VISIT_SUPPORT_H

#include "vmmcache/vmmcache.h"

static inline int visit_continue(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

static inline int neighbour_continue(void *context, const vmm_neighbour *neighbour)
{
    (void)context;
    (void)neighbour;
    return 0;
}

static inline int part_continue(void *context, const vmm_part *part)
{
    (void)context;
    (void)part;
    return 0;
}

#endif
