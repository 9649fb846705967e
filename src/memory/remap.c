/* Other memory under the same addresses, and two places in one memory: see memory.h. */
#include "base/error.h"
#include "memory/memory.h"

/* Maps a handle with access; on failure nothing is mapped, unless the driver refuses to undo it. */
static vmm_status place_map(struct memory *memory, uint64_t granule, uint64_t granules,
                            uint64_t handle)
{
    uint64_t address = vmm__arena_address(&memory->arena, granule);
    uint64_t bytes = granules << memory->arena.granule_shift;
    vmm_status status = vmm__driver_map(memory->driver, address, bytes, handle);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_access(memory->driver, address, bytes);
    if (status == VMM_OK)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__driver_unmap(memory->driver, address, bytes);
    vmm__error_restore(&line);
    return status;
}

/* The record that owns the handle which a record is mapped to. */
static const struct chunk *owner_of(const struct memory *memory, const struct chunk *chunk)
{
    while (chunk->is_alias)
        chunk = &memory->records[chunk->twin];
    return chunk;
}

/* Maps a chunk where it was unmapped from a moment ago. */
static void place_restore(struct memory *memory, struct chunk *chunk)
{
    uint64_t handle = owner_of(memory, chunk)->handle;
    struct error_line line;
    vmm__error_save(&line);
    chunk->is_mapped = place_map(memory, chunk->first, chunk->granules, handle) == VMM_OK;
    memory->astray += chunk->is_mapped ? 0 : 1;
    vmm__error_restore(&line);
}

/* Unmaps what a mapping that failed halfway has left in a place. Mappings go as wholes, and of these
 * nobody knows the sizes any more. */
static void place_clear(struct memory *memory, const struct chunk *chunk)
{
    unsigned shift = memory->arena.granule_shift;
    struct error_line line;
    vmm__error_save(&line);
    uint64_t end = chunk->first + chunk->granules;
    for (uint64_t first = chunk->first; first < end; first++) {
        uint64_t address = vmm__arena_address(&memory->arena, first);
        uint64_t count = 1;
        while (first + count <= end &&
               vmm__driver_unmap(memory->driver, address, count << shift) != VMM_OK)
            count++;
        first += first + count <= end ? count - 1 : 0;
    }
    vmm__error_restore(&line);
}

void vmm__memory_mend(struct memory *memory)
{
    for (uint32_t id = 1; id < memory->record_high && memory->astray > 0; id++) {
        struct chunk *chunk = &memory->records[id];
        if (chunk->state != CHUNK_HELD || chunk->is_mapped)
            continue;
        memory->astray--;
        place_restore(memory, chunk);
        if (chunk->is_mapped || vmm__driver_is_lost(memory->driver))
            continue; /* a lost device is not tried out: its first refusal is its last */
        place_clear(memory, chunk);
        memory->astray--;
        place_restore(memory, chunk);
    }
}

static vmm_status place_unmap(struct memory *memory, const struct chunk *chunk)
{
    if (!chunk->is_mapped)
        return vmm__error(VMM_ERR_DRIVER, "memory: chunk %u is astray",
                          vmm__chunk_id(memory, chunk));
    return vmm__driver_unmap(memory->driver, vmm__chunk_address(memory, chunk),
                             vmm__chunk_bytes(memory, chunk));
}

/* Maps all parts into the place of a chunk that is unmapped; on failure none. */
static vmm_status parts_map(struct memory *memory, const struct memory_part *parts, uint32_t count)
{
    vmm_status status = VMM_OK;
    uint32_t done = 0;
    while (done < count && status == VMM_OK) {
        const struct chunk *chunk = parts[done].chunk;
        status = place_map(memory, parts[done].granule, chunk->granules, chunk->handle);
        done += status == VMM_OK ? 1 : 0;
    }
    if (status == VMM_OK)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    while (done-- > 0)
        (void)vmm__driver_unmap(memory->driver,
                                vmm__arena_address(&memory->arena, parts[done].granule),
                                vmm__chunk_bytes(memory, parts[done].chunk));
    vmm__error_restore(&line);
    return status;
}

/* Puts records back into the list of unused ones. */
static void stales_drop(struct memory *memory, uint32_t id)
{
    while (id != 0) {
        struct chunk *chunk = &memory->records[id];
        id = chunk->next;
        vmm__chunk_drop(memory, chunk);
    }
}

/* Takes records for `count` stale mappings, all or none; linked by next. */
static vmm_status stales_take(struct memory *memory, uint32_t count, uint32_t *first)
{
    *first = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *chunk = vmm__chunk_take(memory);
        if (chunk == NULL) {
            stales_drop(memory, *first);
            return vmm__error(VMM_ERR_HOST_OOM, "memory: no record left for a stale mapping");
        }
        chunk->next = *first;
        *first = vmm__chunk_id(memory, chunk);
    }
    return VMM_OK;
}

/* Leaves a chunk that is unmapped to limbo, without its place. */
static void chunk_retire(struct memory *memory, struct chunk *chunk)
{
    chunk->is_mapped = false;
    vmm__limbo_put(memory, chunk, NULL, 0);
}

/* Books what parts_map() did: parts are at home in the chunk's place, the rest of it is void. */
static void parts_settle(struct memory *memory, struct chunk *chunk,
                         const struct memory_part *parts, uint32_t count, uint32_t stale)
{
    uint64_t at = chunk->first;
    vmm__chunk_place(memory, chunk, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *part = parts[i].chunk;
        struct chunk *left = &memory->records[stale];
        stale = left->next;
        vmm__chunk_leave(memory, part, left, NULL, 0);
        part->first = parts[i].granule;
        vmm__chunk_place(memory, part, vmm__chunk_id(memory, part));
        if (at < part->first)
            vmm__arena_give(&memory->arena, at, part->first - at);
        at = part->first + part->granules;
    }
    if (at < chunk->first + chunk->granules)
        vmm__arena_give(&memory->arena, at, chunk->first + chunk->granules - at);
    chunk_retire(memory, chunk);
}

vmm_status vmm__memory_swap(struct memory *memory, struct chunk *chunk,
                            const struct memory_part *parts, uint32_t count)
{
    uint32_t stale;
    vmm_status status = stales_take(memory, count, &stale);
    if (status != VMM_OK)
        return status;
    status = place_unmap(memory, chunk);
    if (status != VMM_OK)
        goto fail_unmap;
    status = parts_map(memory, parts, count);
    if (status != VMM_OK)
        goto fail_map;
    parts_settle(memory, chunk, parts, count, stale);
    return VMM_OK;

fail_map:
    place_restore(memory, chunk);
fail_unmap:
    stales_drop(memory, stale);
    return status;
}

static void ring_enter(struct memory *memory, struct chunk *host, struct chunk *twin)
{
    uint32_t id = vmm__chunk_id(memory, host);
    twin->twin = host->twin == 0 ? id : host->twin;
    host->twin = vmm__chunk_id(memory, twin);
    memory->twins++;
}

static void ring_leave(struct memory *memory, struct chunk *chunk)
{
    uint32_t id = vmm__chunk_id(memory, chunk);
    struct chunk *before = &memory->records[chunk->twin];
    while (before->twin != id)
        before = &memory->records[before->twin];
    bool was_pair = chunk->twin == vmm__chunk_id(memory, before);
    before->twin = was_pair ? 0 : chunk->twin;
    chunk->twin = 0;
    memory->twins--;
}

/* Lets the next of the ring own the handle, if this one does. */
static void handle_pass(struct memory *memory, struct chunk *chunk)
{
    struct chunk *heir = &memory->records[chunk->twin];
    if (chunk->is_alias)
        return;
    heir->handle = chunk->handle;
    heir->is_alias = false;
    chunk->is_alias = true;
}

/* The memory that a guest was alone in goes to limbo, in a record of its own. */
static void guest_retire(struct memory *memory, struct chunk *guest, struct chunk *old)
{
    *old = (struct chunk){ .handle = guest->handle,
                           .first = guest->first,
                           .granules = guest->granules,
                           .state = CHUNK_HELD };
    guest->is_alias = true;
    chunk_retire(memory, old);
}

vmm_status vmm__memory_mesh(struct memory *memory, struct chunk *host, struct chunk *guest)
{
    struct chunk *old = vmm__chunk_take(memory);
    if (old == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "memory: no record left to mesh a chunk");
    vmm_status status = place_unmap(memory, guest);
    if (status != VMM_OK)
        goto fail_unmap;
    status = place_map(memory, guest->first, guest->granules, host->handle);
    if (status != VMM_OK)
        goto fail_map;
    if (guest->twin == 0) {
        guest_retire(memory, guest, old);
    } else {
        handle_pass(memory, guest);
        ring_leave(memory, guest);
        vmm__chunk_drop(memory, old);
    }
    ring_enter(memory, host, guest);
    return VMM_OK;

fail_map:
    place_restore(memory, guest);
fail_unmap:
    vmm__chunk_drop(memory, old);
    return status;
}

void vmm__memory_unmesh(struct memory *memory, struct chunk *chunk, struct timeline *timeline,
                        uint64_t epoch)
{
    handle_pass(memory, chunk);
    ring_leave(memory, chunk);
    vmm__limbo_put(memory, chunk, timeline, epoch);
}
