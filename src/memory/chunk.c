/* Chunks: physical memory from the driver and its mappings. See memory.h. */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "memory/memory.h"

/* More chunks than this a cache does not hold: 8 TiB in granules of 2 MiB. */
enum { RECORD_LIMIT = 1 << 22 };

struct chunk *vmm__chunk_take(struct memory *memory)
{
    uint32_t id = memory->unused;
    if (id != 0)
        memory->unused = memory->records[id].next;
    else if (memory->record_high < memory->record_limit)
        id = memory->record_high++;
    return id == 0 ? NULL : &memory->records[id];
}

void vmm__chunk_drop(struct memory *memory, struct chunk *chunk)
{
    *chunk = (struct chunk){ .state = CHUNK_UNUSED, .next = memory->unused };
    memory->unused = vmm__chunk_id(memory, chunk);
}

void vmm__chunk_place(struct memory *memory, const struct chunk *chunk, uint32_t id)
{
    for (uint64_t granule = 0; granule < chunk->granules; granule++)
        memory->pages[chunk->first + granule] = id;
}

void vmm__chunk_leave(struct memory *memory, const struct chunk *chunk, struct chunk *stale,
                      struct timeline *timeline, uint64_t epoch)
{
    *stale = (struct chunk){ .first = chunk->first,
                             .granules = chunk->granules,
                             .state = CHUNK_HELD,
                             .is_mapped = true,
                             .is_alias = true };
    vmm__chunk_place(memory, stale, vmm__chunk_id(memory, stale));
    vmm__limbo_put(memory, stale, timeline, epoch);
}

/*
 * Creates one chunk and maps it, without access yet. A handle that could not be mapped goes to
 * limbo; its addresses stay the caller's.
 */
static vmm_status chunk_open(struct memory *memory, uint64_t granule, uint32_t granules)
{
    struct chunk *chunk = vmm__chunk_take(memory);
    if (chunk == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "memory: no record left for another chunk");
    *chunk = (struct chunk){ .first = granule, .granules = granules, .state = CHUNK_HELD };
    uint64_t bytes = vmm__chunk_bytes(memory, chunk);
    vmm_status status = vmm__driver_create(memory->driver, bytes, &chunk->handle);
    if (status != VMM_OK) {
        vmm__chunk_drop(memory, chunk);
        return status;
    }
    vmm__figure_add(&memory->reserved_bytes, bytes);
    vmm__figure_add(&memory->chunks, 1);
    status =
        vmm__driver_map(memory->driver, vmm__chunk_address(memory, chunk), bytes, chunk->handle);
    if (status != VMM_OK) {
        vmm__limbo_put(memory, chunk, NULL, 0);
        return status;
    }
    chunk->is_mapped = true;
    vmm__chunk_place(memory, chunk, vmm__chunk_id(memory, chunk));
    return VMM_OK;
}

vmm_status vmm__chunk_close(struct memory *memory, struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(memory, chunk);
    if (chunk->is_mapped) {
        vmm_status status =
            vmm__driver_unmap(memory->driver, vmm__chunk_address(memory, chunk), bytes);
        if (status != VMM_OK)
            return status;
        chunk->is_mapped = false;
        vmm__chunk_place(memory, chunk, 0);
        vmm__arena_give(&memory->arena, chunk->first, chunk->granules);
    }
    if (chunk->is_alias) {
        vmm__chunk_drop(memory, chunk);
        return VMM_OK;
    }
    vmm_status status = vmm__driver_release(memory->driver, chunk->handle, bytes);
    if (status != VMM_OK)
        return status;
    vmm__figure_subtract(&memory->reserved_bytes, bytes);
    vmm__figure_subtract(&memory->chunks, 1);
    vmm__chunk_drop(memory, chunk);
    return VMM_OK;
}

/* A request that can never be met must not take all of the device before it fails. */
static vmm_status limit_check(const struct memory *memory, uint64_t bytes)
{
    uint64_t limit = memory->driver->total_bytes;
    if (memory->limit_bytes != 0)
        limit = vmm__min(limit, memory->limit_bytes);
    uint64_t reserved = vmm__figure_now(&memory->reserved_bytes);
    if (bytes <= limit && reserved <= limit - bytes)
        return VMM_OK;
    return vmm__error(
        VMM_ERR_DEVICE_OOM, "limit of %llu bytes: %llu are reserved, %llu more were needed",
        (unsigned long long)limit, (unsigned long long)reserved, (unsigned long long)bytes);
}

void vmm__memory_discard(struct memory *memory, uint64_t granule, uint64_t count,
                         struct timeline *timeline, uint64_t epoch)
{
    for (uint64_t at = 0; at < count;) {
        struct chunk *chunk = vmm__memory_chunk(memory, granule + at);
        at += chunk->granules;
        if (chunk->twin == 0)
            vmm__limbo_put(memory, chunk, timeline, epoch);
        else
            vmm__memory_unmesh(memory, chunk, timeline, epoch);
    }
}

/* Undoes the first `done` of `count` granules of a mapping that failed. */
static void map_undo(struct memory *memory, uint64_t granule, uint64_t done, uint64_t count)
{
    vmm__memory_discard(memory, granule, done, NULL, 0);
    if (done < count)
        vmm__arena_give(&memory->arena, granule + done, count - done);
}

vmm_status vmm__memory_map(struct memory *memory, uint64_t granule, uint64_t count,
                           uint32_t chunk_granules)
{
    vmm_status status = limit_check(memory, count << memory->arena.granule_shift);
    uint64_t done = 0;
    while (done < count && status == VMM_OK) {
        uint32_t granules = (uint32_t)vmm__min(chunk_granules, count - done);
        status = chunk_open(memory, granule + done, granules);
        done += status == VMM_OK ? granules : 0;
    }
    if (status != VMM_OK)
        map_undo(memory, granule, done, count);
    return status;
}

vmm_status vmm__memory_move(struct memory *memory, struct chunk *chunk, uint64_t granule,
                            struct timeline *timeline, uint64_t epoch)
{
    if (!chunk->is_mapped)
        return vmm__error(VMM_ERR_DRIVER, "memory: chunk %u is astray: it cannot be moved",
                          vmm__chunk_id(memory, chunk));
    struct chunk *stale = vmm__chunk_take(memory);
    if (stale == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "memory: no record left for a stale mapping");
    vmm_status status = vmm__driver_map(memory->driver, vmm__arena_address(&memory->arena, granule),
                                        vmm__chunk_bytes(memory, chunk), chunk->handle);
    if (status != VMM_OK) {
        vmm__chunk_drop(memory, stale);
        return status;
    }
    vmm__chunk_leave(memory, chunk, stale, timeline, epoch);
    chunk->first = granule;
    vmm__chunk_place(memory, chunk, vmm__chunk_id(memory, chunk));
    return VMM_OK;
}

vmm_status vmm__memory_access(struct memory *memory, uint64_t granule, uint64_t count)
{
    return vmm__driver_access(memory->driver, vmm__arena_address(&memory->arena, granule),
                              count << memory->arena.granule_shift);
}

vmm_status vmm__memory_init(struct memory *memory, struct driver *driver, uint64_t arena_bytes,
                            uint64_t limit_bytes)
{
    *memory = (struct memory){ .driver = driver, .limit_bytes = limit_bytes, .record_high = 1 };
    vmm_status status = vmm__arena_init(&memory->arena, driver, arena_bytes);
    if (status != VMM_OK)
        return status;
    memory->record_limit = vmm__min(RECORD_LIMIT, memory->arena.granules + 1);
    memory->pages = vmm__host_table_alloc(memory->arena.granules * sizeof *memory->pages);
    memory->records = vmm__host_table_alloc(memory->record_limit * sizeof *memory->records);
    if (memory->pages == NULL || memory->records == NULL) {
        (void)vmm__memory_fini(memory);
        return vmm__error(VMM_ERR_HOST_OOM, "memory: no host memory for the page map");
    }
    return VMM_OK;
}

static vmm_status chunks_close(struct memory *memory)
{
    vmm_status first = VMM_OK;
    for (uint32_t id = 1; id < memory->record_high; id++) {
        struct chunk *chunk = &memory->records[id];
        vmm_status status = chunk->state == CHUNK_UNUSED ? VMM_OK : vmm__chunk_close(memory, chunk);
        first = first == VMM_OK ? status : first;
    }
    return first;
}

vmm_status vmm__memory_fini(struct memory *memory)
{
    if (memory->astray > 0)
        vmm__memory_mend(memory);
    vmm_status first = chunks_close(memory);
    if (first != VMM_OK)
        first = chunks_close(memory); /* what the driver refused is tried once more */
    vmm__host_table_free(memory->records, memory->record_limit * sizeof *memory->records);
    vmm__host_table_free(memory->pages, memory->arena.granules * sizeof *memory->pages);
    vmm_status status = vmm__arena_fini(&memory->arena);
    return first == VMM_OK ? status : first;
}
