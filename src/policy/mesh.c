/* Two places share one chunk: see mesh.h. */
#include "policy/mesh.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "policy/ring.h"

#include <stdlib.h>

/* Candidates looked at: the emptiest. Each is compared with each in the worst case. */
enum { CANDIDATES_MOST = 2048 };

struct candidate {
    struct chunk *chunk;
    struct occupancy occupancy; /* over all places of its ring */
    unsigned parts;             /* of those */
    struct candidate *host;     /* where its bytes were copied to; NULL: it is no guest */
    bool is_host;               /* and stays where it is, as it also does if pinned */
};

struct meshing {
    struct vmm_cache *cache;
    struct candidate *candidates; /* rising by parts */
    uint64_t count;
    uint64_t capacity;
};

/* ---- Candidates --------------------------------------------------------------------------- */

static int by_parts(const void *a, const void *b)
{
    const struct candidate *left = a;
    const struct candidate *right = b;
    return left->parts < right->parts ? -1 : left->parts > right->parts;
}

/* Only owners: the other places of a ring go where it goes. */
static vmm_status candidates_find(struct meshing *meshing, const struct survey *survey)
{
    meshing->capacity = survey->count;
    if (survey->count == 0)
        return VMM_OK;
    meshing->candidates = vmm__host_alloc(survey->count, sizeof *meshing->candidates);
    if (meshing->candidates == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "mesh: no host memory for %llu candidates",
                          (unsigned long long)survey->count);
    for (uint64_t i = 0; i < survey->count; i++) {
        struct chunk *chunk = survey->chunks[i].chunk;
        if (chunk->granules != 1 || chunk->is_alias)
            continue;
        struct candidate candidate = { .chunk = chunk };
        candidate.is_host = vmm__ring_is_pinned(meshing->cache, chunk);
        vmm__ring_occupancy(meshing->cache, chunk, &candidate.occupancy);
        candidate.parts = vmm__occupancy_count(&candidate.occupancy);
        meshing->candidates[meshing->count++] = candidate;
    }
    qsort(meshing->candidates, meshing->count, sizeof *meshing->candidates, by_parts);
    meshing->count = vmm__min(meshing->count, CANDIDATES_MOST); /* hint: a bound on the effort */
    return VMM_OK;
}

/* The fullest other place that has room for a guest. */
static struct candidate *host_find(struct meshing *meshing, const struct candidate *guest)
{
    for (uint64_t i = meshing->count; i-- > 0;) {
        struct candidate *host = &meshing->candidates[i];
        if (host->parts + guest->parts <= OCCUPANCY_PARTS && host != guest && host->host == NULL &&
            !vmm__occupancy_meets(&host->occupancy, &guest->occupancy))
            return host;
    }
    return NULL;
}

/* ---- Pairs -------------------------------------------------------------------------------- */

/* Copies what is live in one place to the same parts of the host's memory. */
static vmm_status place_copy(struct meshing *meshing, const struct chunk *place,
                             const struct chunk *host)
{
    const struct memory *memory = &meshing->cache->memory;
    uint64_t part_bytes = vmm__occupancy_part_bytes(&memory->arena);
    uint64_t from = vmm__chunk_address(memory, place);
    uint64_t to = vmm__chunk_address(memory, host);
    struct occupancy live;
    vmm__occupancy_read(vmm__ring_heap(meshing->cache, place), place->first, &live);
    unsigned first = 0;
    unsigned count;
    for (; vmm__occupancy_run(&live, true, &first, &count); first += count) {
        vmm_status status = vmm__driver_copy(memory->driver, to + first * part_bytes,
                                             from + first * part_bytes, count * part_bytes, NULL);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}

static vmm_status guest_copy(struct meshing *meshing, const struct candidate *guest,
                             const struct candidate *host)
{
    vmm_status status = VMM_OK;
    for (const struct chunk *place = guest->chunk; place != NULL && status == VMM_OK;
         place = vmm__ring_next(&meshing->cache->memory, guest->chunk, place))
        status = place_copy(meshing, place, host->chunk);
    return status;
}

/* Finds pairs, emptiest guests first, and starts their copies. */
static vmm_status pairs_copy(struct meshing *meshing, uint64_t wanted, uint64_t *found)
{
    vmm_status status = VMM_OK;
    for (uint64_t i = 0; i < meshing->count && *found < wanted && status == VMM_OK; i++) {
        struct candidate *guest = &meshing->candidates[i];
        struct candidate *host = guest->is_host ? NULL : host_find(meshing, guest);
        if (host == NULL)
            continue;
        status = guest_copy(meshing, guest, host);
        if (status != VMM_OK)
            break;
        guest->host = host;
        host->is_host = true;
        vmm__occupancy_add(&host->occupancy, &guest->occupancy);
        host->parts += guest->parts;
        (*found)++;
    }
    return status;
}

/* A ring that lost some of its places, its owner perhaps among them: what these had is nobody's now. */
static void rest_settle(struct vmm_cache *cache, struct chunk *place)
{
    while (place->is_alias)
        place = &cache->memory.records[place->twin];
    vmm__ring_settle(cache, place);
}

/* The guest's bytes are in the host's memory already. Places that were moved stay moved when a later
 * one fails: what is live in each is where it is mapped to. */
static vmm_status pair_mesh(struct meshing *meshing, const struct candidate *guest)
{
    struct vmm_cache *cache = meshing->cache;
    struct chunk *host = guest->host->chunk;
    vmm_status status = vmm__ring_records_keep(cache, host, guest->chunk);
    if (status != VMM_OK)
        return status;
    struct chunk *place = guest->chunk;
    while (status == VMM_OK && place != NULL) {
        uint32_t left = place->twin;
        status = vmm__memory_mesh(&cache->memory, host, place);
        if (status == VMM_OK)
            place = left != 0 ? &cache->memory.records[left] : NULL;
    }
    vmm__ring_settle(cache, host);
    if (place != NULL)
        rest_settle(cache, place);
    return status;
}

static vmm_status pairs_mesh(struct meshing *meshing)
{
    vmm_status status = VMM_OK;
    for (uint64_t i = 0; i < meshing->count && status == VMM_OK; i++) {
        if (meshing->candidates[i].host != NULL)
            status = pair_mesh(meshing, &meshing->candidates[i]);
    }
    return status;
}

vmm_status vmm__mesh(struct vmm_cache *cache, const struct survey *survey, uint64_t bytes)
{
    struct meshing meshing = { .cache = cache };
    uint64_t found = 0;
    uint64_t granule_bytes = cache->memory.arena.granule_bytes;
    uint64_t wanted = bytes / granule_bytes + (bytes % granule_bytes != 0 ? 1 : 0);
    vmm_status status = candidates_find(&meshing, survey);
    if (status == VMM_OK)
        status = pairs_copy(&meshing, wanted, &found);
    vmm_status waited = VMM_OK;
    if (found > 0 || status != VMM_OK)
        waited = vmm__cache_copies_wait(cache);
    if (waited == VMM_OK && found > 0) {
        vmm_status meshed = pairs_mesh(&meshing);
        status = status == VMM_OK ? meshed : status;
    }
    vmm__host_free(meshing.candidates, meshing.capacity * sizeof *meshing.candidates);
    return status == VMM_OK ? waited : status;
}
