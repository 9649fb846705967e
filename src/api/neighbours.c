/* Other processes on the device: see "Neighbours" in include/vmmcache/vmmcache.h. */
#define _GNU_SOURCE
#include "api/internal.h"
#include "base/arith.h"
#include "cache/idle/trim.h"
#include "cache/reclaim/answer.h"
#include "vmmcache/vmmcache.h"

#include <string.h>

static vmm_neighbour neighbour_of(const struct neighbour_slot *slot, bool is_self)
{
    vmm_neighbour neighbour = { .struct_size = sizeof neighbour,
                                .pid = slot->pid,
                                .is_self = is_self,
                                .priority = (uint32_t)slot->priority,
                                .floor_bytes = slot->floor_bytes,
                                .limit_bytes = slot->limit_bytes,
                                .live_bytes = slot->live_bytes,
                                .reserved_bytes = slot->reserved_bytes,
                                .idle_bytes = slot->idle_bytes,
                                .asleep_bytes = slot->asleep_bytes,
                                .given_bytes = slot->given_bytes,
                                .claims = slot->claims,
                                .want_bytes = slot->want_bytes };
    memcpy(neighbour.name, slot->name, sizeof neighbour.name);
    return neighbour;
}

/* Visits the slot of this cache, brought up to date, then those of the others. */
static void neighbours_visit(struct vmm_cache *cache, vmm_neighbour_visitor visit, void *context)
{
    struct neighbours *own = cache->neighbours;
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
    vmm__neighbours_show(cache);
    struct neighbour_slot self = vmm__claim_own_slot(own);
    vmm_neighbour neighbour = neighbour_of(&self, true);
    bool continues = visit(context, &neighbour) == 0;
    uint64_t others = vmm__neighbours_read(&own->record, slots);
    while (others != 0 && continues) {
        neighbour = neighbour_of(&slots[vmm__neighbour_take(&others)], false);
        continues = visit(context, &neighbour) == 0;
    }
}

vmm_status vmm_neighbours_walk(vmm_cache *cache, vmm_neighbour_visitor visit, void *context)
{
    vmm_status status = vmm__api_admit(cache, "vmm_neighbours_walk", visit, "visit");
    if (status == VMM_OK && cache->neighbours != NULL)
        neighbours_visit(cache, visit, context);
    return status;
}

/* The idle memory that others say they could give; at most what the device has, because a slot may say anything. */
static uint64_t others_spare_bytes(const struct vmm_cache *cache)
{
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
    if (cache->neighbours == NULL)
        return 0;
    uint64_t most_bytes = cache->driver->total_bytes;
    uint64_t spare_bytes = 0;
    uint64_t others = vmm__neighbours_read(&cache->neighbours->record, slots);
    while (others != 0) {
        const struct neighbour_slot *slot = &slots[vmm__neighbour_take(&others)];
        spare_bytes += vmm__min(vmm__claim_spare_bytes(slot), most_bytes);
    }
    return vmm__min(spare_bytes, most_bytes);
}

vmm_status vmm_available_get(vmm_cache *cache, uint64_t *bytes)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    vmm_status status = vmm__api_admit_work(cache, "vmm_available_get", bytes, "bytes");
    if (status == VMM_OK)
        status = vmm__driver_memory_info(cache->driver, &free_bytes, &total_bytes);
    if (status != VMM_OK)
        return status;
    uint64_t others_bytes = others_spare_bytes(cache);
    VMM_HOLD_FAIR(&cache->grow_lock);
    uint64_t reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
    uint64_t limit_bytes = cache->vm.limit_bytes != 0 ? cache->vm.limit_bytes : total_bytes;
    uint64_t room_bytes = limit_bytes - vmm__min(limit_bytes, reserved_bytes);
    uint64_t idle_bytes = vmm__trim_idle_bytes(cache);
    *bytes = vmm__min(free_bytes + others_bytes, room_bytes) + idle_bytes;
    return VMM_OK;
}
