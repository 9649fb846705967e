/* Limbo: chunks that wait for their last work before they go back. See memory.h. */
#include "base/error.h"
#include "memory/memory.h"

/* The physical memory that a record stands for: an alias has none. */
static uint64_t held_bytes(const struct memory *memory, const struct chunk *chunk)
{
    return chunk->is_alias ? 0 : vmm__chunk_bytes(memory, chunk);
}

static void limbo_append(struct memory *memory, uint32_t id)
{
    memory->records[id].next = 0;
    if (memory->limbo_head == 0)
        memory->limbo_head = id;
    else
        memory->records[memory->limbo_tail].next = id;
    memory->limbo_tail = id;
}

void vmm__limbo_put(struct memory *memory, struct chunk *chunk, struct timeline *timeline,
                    uint64_t epoch)
{
    chunk->state = CHUNK_LIMBO;
    chunk->timeline = timeline;
    chunk->epoch = epoch;
    limbo_append(memory, (uint32_t)(chunk - memory->records));
    atomic_fetch_add_explicit(&memory->limbo_bytes, held_bytes(memory, chunk),
                              memory_order_relaxed);
}

/* One pass over limbo: what it released, and the last moment that it found not to have passed. */
struct drain {
    uint64_t released_bytes;
    const struct timeline *waiting;
    uint64_t waiting_epoch;
};

static vmm_status chunk_query(const struct chunk *chunk, struct drain *drain)
{
    if (chunk->timeline == NULL)
        return VMM_OK;
    if (chunk->timeline == drain->waiting && chunk->epoch >= drain->waiting_epoch)
        return VMM_NOT_READY;
    vmm_status status = vmm__timeline_query(chunk->timeline, chunk->epoch);
    if (status == VMM_NOT_READY) {
        drain->waiting = chunk->timeline;
        drain->waiting_epoch = chunk->epoch;
    }
    return status;
}

/* Closes one chunk, taken out of limbo's list, if its time has passed; else appends it again. */
static vmm_status chunk_try(struct memory *memory, uint32_t id, struct drain *drain)
{
    struct chunk *chunk = &memory->records[id];
    uint64_t bytes = held_bytes(memory, chunk);
    vmm_status status = chunk_query(chunk, drain);
    if (status == VMM_OK)
        status = vmm__chunk_close(memory, chunk);
    if (status != VMM_OK) {
        limbo_append(memory, id);
        return status == VMM_NOT_READY ? VMM_OK : status;
    }
    atomic_fetch_sub_explicit(&memory->limbo_bytes, bytes, memory_order_relaxed);
    drain->released_bytes += bytes;
    return VMM_OK;
}

vmm_status vmm__limbo_drain(struct memory *memory, uint64_t *released)
{
    struct drain drain = { .released_bytes = 0 };
    if (vmm__driver_is_lost(memory->driver))
        return vmm__lost_refuse(&memory->driver->lost);
    if (memory->astray > 0)
        vmm__memory_mend(memory);
    vmm_status first = VMM_OK;
    uint32_t id = memory->limbo_head;
    memory->limbo_head = 0;
    memory->limbo_tail = 0;
    while (id != 0) {
        uint32_t next = memory->records[id].next;
        vmm_status status = chunk_try(memory, id, &drain);
        first = first == VMM_OK ? status : first;
        id = next;
    }
    if (released != NULL)
        *released += drain.released_bytes;
    return first;
}

/* Waits for a chunk's time, unless this pass knows that a capture forbids it. */
static vmm_status chunk_wait(const struct chunk *chunk, struct drain *drain)
{
    if (chunk->timeline == NULL)
        return VMM_OK;
    if (chunk->timeline == drain->waiting && chunk->epoch >= drain->waiting_epoch)
        return VMM_NOT_READY;
    drain->waiting = chunk->timeline;
    drain->waiting_epoch = chunk->epoch;
    return vmm__timeline_wait(chunk->timeline, chunk->epoch);
}

vmm_status vmm__limbo_wait(struct memory *memory, uint64_t *released)
{
    struct drain drain = { .released_bytes = 0 };
    vmm_status status = VMM_NOT_READY;
    uint32_t id = memory->limbo_head;
    for (; id != 0 && status == VMM_NOT_READY; id = memory->records[id].next)
        status = chunk_wait(&memory->records[id], &drain);
    return status == VMM_OK ? vmm__limbo_drain(memory, released) : status;
}
