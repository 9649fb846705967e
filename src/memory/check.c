/* The numbered invariants of memory: see memory.h. */
#include "base/error.h"
#include "memory/memory.h"

/* What the records add up to. */
struct tally {
    uint64_t bytes;
    uint64_t limbo_bytes;
    uint64_t taken_granules;
    uint32_t twins;
    uint32_t astray;
    uint32_t records[CHUNK_STATES]; /* by state */
};

static vmm_status place_check(const struct memory *memory, uint32_t id)
{
    const struct chunk *chunk = &memory->records[id];
    for (uint64_t granule = 0; granule < chunk->granules; granule++) {
        if (memory->pages[chunk->first + granule] != id)
            return vmm__error(VMM_ERR_INTERNAL,
                              "memory: invariant 1: chunk %u is not in the page "
                              "map at its granule %llu",
                              id, (unsigned long long)granule);
    }
    return VMM_OK;
}

/* Follows the ring of a chunk that has twins: it ends where it began, with one owner on the way. */
static vmm_status ring_check(const struct memory *memory, uint32_t id)
{
    uint32_t owners = 0;
    uint32_t length = 0;
    uint32_t at = id;
    do {
        const struct chunk *chunk = &memory->records[at];
        bool fits = chunk->state == CHUNK_HELD && chunk->granules == memory->records[id].granules &&
                    chunk->twin != 0;
        if (!fits || ++length > memory->record_high)
            return vmm__error(VMM_ERR_INTERNAL, "memory: invariant 4: the ring of chunk %u breaks",
                              id);
        owners += chunk->is_alias ? 0 : 1;
        at = chunk->twin;
    } while (at != id);
    if (owners != 1 || length < 2)
        return vmm__error(VMM_ERR_INTERNAL,
                          "memory: invariant 4: chunk %u shares its memory with %u others, and %u "
                          "of them own it",
                          id, length - 1, owners);
    return VMM_OK;
}

static vmm_status chunk_check(const struct memory *memory, uint32_t id, struct tally *tally)
{
    const struct chunk *chunk = &memory->records[id];
    bool is_held = chunk->state == CHUNK_HELD;
    uint64_t bytes = chunk->is_alias ? 0 : vmm__chunk_bytes(memory, chunk);
    tally->bytes += bytes;
    tally->limbo_bytes += is_held ? 0 : bytes;
    tally->taken_granules += chunk->is_mapped || is_held ? chunk->granules : 0;
    tally->twins += is_held && chunk->is_alias ? 1 : 0;
    tally->astray += is_held && !chunk->is_mapped ? 1 : 0;
    if (is_held && chunk->is_alias && chunk->twin == 0)
        return vmm__error(VMM_ERR_INTERNAL, "memory: invariant 4: chunk %u has no memory", id);
    vmm_status status = is_held && chunk->twin != 0 ? ring_check(memory, id) : VMM_OK;
    if (status != VMM_OK || !(chunk->is_mapped || is_held))
        return status;
    return place_check(memory, id);
}

/* A list is as long as there are records of its state, and holds no others. */
static bool list_is_whole(const struct memory *memory, uint32_t first, enum chunk_state state,
                          uint32_t count)
{
    uint32_t id = first;
    for (; id != 0 && count > 0 && memory->records[id].state == state; count--)
        id = memory->records[id].next;
    return id == 0 && count == 0;
}

vmm_status vmm__memory_check(const struct memory *memory)
{
    struct tally tally = { .bytes = 0 };
    for (uint32_t id = 1; id < memory->record_high; id++) {
        tally.records[memory->records[id].state]++;
        if (memory->records[id].state == CHUNK_UNUSED)
            continue;
        vmm_status status = chunk_check(memory, id, &tally);
        if (status != VMM_OK)
            return status;
    }
    if (tally.taken_granules + memory->arena.fences + memory->arena.free_granules !=
        memory->arena.granules)
        return vmm__error(VMM_ERR_INTERNAL, "memory: invariant 2: addresses taken without a chunk");
    if (tally.bytes != vmm__figure_now(&memory->reserved_bytes) ||
        tally.limbo_bytes != memory->limbo_bytes)
        return vmm__error(VMM_ERR_INTERNAL, "memory: invariant 3: chunks do not add up");
    if (tally.twins != memory->twins || tally.astray != memory->astray)
        return vmm__error(VMM_ERR_INTERNAL,
                          "memory: invariants 4 and 5: %u twins and %u astray, not %u and %u",
                          tally.twins, tally.astray, memory->twins, memory->astray);
    if (!list_is_whole(memory, memory->unused, CHUNK_UNUSED, tally.records[CHUNK_UNUSED]) ||
        !list_is_whole(memory, memory->limbo_head, CHUNK_LIMBO, tally.records[CHUNK_LIMBO]))
        return vmm__error(VMM_ERR_INTERNAL, "memory: invariant 6: a record is in no list");
    return vmm__arena_check(&memory->arena);
}
