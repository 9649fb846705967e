/* Planted bugs: see plant.h. */
#include "plant.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OVERLAP_EVERY = 4, FORGET_EVERY = 3, LIVE_MANY = 3 };
#define OVERLAP_LEAST ((size_t)1 << 20)

void plant_begin(struct plant *plant)
{
    *plant = (struct plant){ .kind = plant->kind };
}

vmm_status plant_alloc(struct plant *plant, vmm_cache *cache, size_t bytes, vmm_stream stream,
                       void **out)
{
    vmm_status status = vmm_alloc(cache, bytes, stream, out);
    if (plant->kind == PLANT_none)
        return status;
    if (status != VMM_OK && plant->kind == PLANT_status)
        *out = NULL;
    if (status != VMM_OK)
        return status;
    plant->live++;
    if (bytes < OVERLAP_LEAST)
        return VMM_OK;
    bool overlaps = plant->kind == PLANT_overlap && ++plant->allocations % OVERLAP_EVERY == 0;
    if (overlaps)
        *out = plant->last + OVERLAP_LEAST / 2;
    plant->last = *out;
    return VMM_OK;
}

vmm_status plant_free(struct plant *plant, vmm_cache *cache, void *ptr)
{
    bool is_crowded = plant->live >= LIVE_MANY;
    if (plant->kind == PLANT_forget && ++plant->frees % FORGET_EVERY == 0)
        return VMM_OK;
    if (plant->kind == PLANT_crash && is_crowded)
        abort();
    while (plant->kind == PLANT_hang && is_crowded)
        (void)pause();
    vmm_status status = vmm_free(cache, ptr);
    if (status == VMM_OK && ptr != NULL && plant->live > 0)
        plant->live--;
    return status;
}

bool plant_kind_read(const char *name, enum plant_kind *kind)
{
    static const char *const names[] = {
#define PLANT_NAME(name, text) #name,
        PLANT_MAP(PLANT_NAME)
#undef PLANT_NAME
    };
    for (unsigned i = 0; i < PLANT_KINDS; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        *kind = (enum plant_kind)i;
        return true;
    }
    return false;
}
