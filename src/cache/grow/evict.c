/* Unmaps rows of views that chunks at their bound can do without: see evict.h. */
#include "cache/grow/evict.h"

/* The place of a chunk that no block uses and that was used the longest ago; NO_GRANULE: none. */
static uint64_t place_oldest(const struct views *views, const struct chunk *chunk)
{
    uint64_t oldest = NO_GRANULE;
    for (uint64_t at = chunk->place; at != NO_GRANULE; at = views->vm->next_places[at]) {
        const struct view_place *place = &views->places[at];
        bool is_unused = place->chunk != 0 && place->users == 0;
        if (is_unused && (oldest == NO_GRANULE || place->turn < views->places[oldest].turn))
            oldest = at;
    }
    return oldest;
}

/* Whether a place belongs to the heap, and neither a block, unfinished work nor a captured graph needs it. */
static bool place_is_evictable(const struct vmm_cache *cache, const struct heap *heap,
                               uint64_t granule)
{
    const struct view_place *place = &cache->views.places[granule];
    uint64_t address = vmm__arena_address(&cache->vm.arena, granule);
    struct lane *lane = heap->lane;
    return vmm__directory_heap(&cache->directory, address) == heap && place->users == 0 &&
           !vmm__lane_is_retained(lane) && vmm__clock_query(lane->clock, place->epoch) == VMM_OK;
}

/* The last place of the row that contains a place. */
static uint64_t row_last(const struct views *views, uint64_t granule)
{
    while (!vmm__views_is_last(views, granule))
        granule += views->vm->records[views->places[granule].chunk].granules;
    return granule;
}

bool vmm__evict_may(const struct vmm_cache *cache, const struct heap *heap,
                    const struct chunk *chunk)
{
    uint64_t oldest = place_oldest(&cache->views, chunk);
    return oldest != NO_GRANULE && place_is_evictable(cache, heap, oldest);
}

bool vmm__evict(struct vmm_cache *cache, struct heap *heap, struct chunk *chunk, bool is_finished)
{
    const struct views *views = &cache->views;
    uint64_t oldest = place_oldest(views, chunk);
    uint64_t places = cache->vm.counts.places;
    uint32_t before = chunk->places;
    if (oldest == NO_GRANULE || !(is_finished || place_is_evictable(cache, heap, oldest)))
        return false;
    for (uint64_t at = row_last(views, oldest); at != NO_GRANULE;) {
        uint64_t left = views->places[at].left;
        if (at == oldest || place_is_evictable(cache, heap, at))
            (void)vmm__views_place_unmap(heap, vmm__vm_chunk(&cache->vm, at), at);
        at = left;
    }
    vmm__count(&cache->counts.evictions, places - cache->vm.counts.places);
    return chunk->places < before;
}
