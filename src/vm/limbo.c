/* Limbo: chunks that wait for their last work before they are released. See vm.h. */
#include "base/error.h"
#include "base/hostmem.h"
#include "vm/vm.h"

/* The physical memory of a record: an alias has none, nor has a chunk that is asleep. */
static uint64_t held_bytes(const struct vm *vm, const struct chunk *chunk)
{
    return chunk->is_alias || chunk->is_asleep ? 0 : vmm__chunk_bytes(vm, chunk);
}

/* How many of an account's bytes count in the sums over all chunks: none of imported memory. */
static uint64_t own_bytes(const struct account *account, uint64_t bytes)
{
    return account->is_imported ? 0 : bytes;
}

/* Adds bytes, which may be negative (modulo 2^64), to what is in limbo. An alias has no bytes, and no account. */
static void limbo_count(struct vm *vm, struct account *account, uint64_t bytes)
{
    if (bytes == 0)
        return;
    atomic_fetch_add_explicit(&vm->counts.limbo_bytes, own_bytes(account, bytes),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&account->counts.limbo_bytes, bytes, memory_order_relaxed);
}

static void limbo_append(struct vm *vm, uint32_t id)
{
    vm->records[id].next = 0;
    vm->records[id].previous = vm->limbo_tail;
    if (vm->limbo_head == 0)
        vm->limbo_head = id;
    else
        vm->records[vm->limbo_tail].next = id;
    vm->limbo_tail = id;
}

static void limbo_remove(struct vm *vm, const struct chunk *chunk)
{
    *(chunk->previous != 0 ? &vm->records[chunk->previous].next : &vm->limbo_head) = chunk->next;
    *(chunk->next != 0 ? &vm->records[chunk->next].previous : &vm->limbo_tail) = chunk->previous;
}

void vmm__limbo_put(struct vm *vm, struct chunk *chunk, struct clock *clock, uint64_t epoch)
{
    chunk->state = CHUNK_LIMBO;
    chunk->clock = clock;
    chunk->epoch = epoch;
    limbo_append(vm, vmm__chunk_id(vm, chunk));
    limbo_count(vm, chunk->account, held_bytes(vm, chunk));
}

void vmm__limbo_cancel(struct vm *vm, struct chunk *chunk)
{
    limbo_remove(vm, chunk);
    chunk->clock = NULL;
    chunk->state = CHUNK_HELD;
    limbo_count(vm, chunk->account, -held_bytes(vm, chunk));
}

uint64_t vmm__limbo_unmapped_bytes(const struct vm *vm, const struct account *account)
{
    uint64_t bytes = 0;
    for (uint32_t id = vm->limbo_head; id != 0; id = vm->records[id].next) {
        const struct chunk *chunk = &vm->records[id];
        if (!chunk->is_mapped && chunk->account == account)
            bytes += held_bytes(vm, chunk);
    }
    return bytes;
}

/* One pass over limbo: the bytes it released, and the last epoch that it found pending. */
struct drain {
    uint64_t released_bytes;
    const struct clock *waiting;
    uint64_t waiting_epoch;
};

static vmm_status chunk_query(const struct chunk *chunk, struct drain *drain)
{
    if (chunk->clock == NULL)
        return VMM_OK;
    if (chunk->clock == drain->waiting && chunk->epoch >= drain->waiting_epoch)
        return VMM__PENDING;
    vmm_status status = vmm__clock_query(chunk->clock, chunk->epoch);
    if (status == VMM__PENDING) {
        drain->waiting = chunk->clock;
        drain->waiting_epoch = chunk->epoch;
    }
    return status;
}

/* Closes one chunk, which is not in limbo's list, if its epoch has passed; otherwise appends it
 * again. */
static vmm_status chunk_try(struct vm *vm, uint32_t id, struct drain *drain)
{
    struct chunk *chunk = &vm->records[id];
    uint64_t bytes = held_bytes(vm, chunk);
    struct account *account = chunk->account;
    vmm_status status = chunk_query(chunk, drain);
    bool is_sourced = chunk->segment != NULL;
    if (status == VMM_OK && is_sourced)
        atomic_store_explicit(&vm->segments.has_ready, true, memory_order_relaxed);
    if (status == VMM_OK && !is_sourced)
        status = vmm__chunk_close(vm, chunk);
    if (status != VMM_OK || is_sourced) {
        limbo_append(vm, id);
        return status == VMM__PENDING ? VMM_OK : status;
    }
    limbo_count(vm, account, -bytes);
    drain->released_bytes += bytes == 0 ? 0 : own_bytes(account, bytes);
    return VMM_OK;
}

vmm_status vmm__limbo_drain(struct vm *vm, uint64_t *released)
{
    struct drain drain = { .released_bytes = 0 };
    if (vmm__driver_is_lost(vm->driver))
        return vmm__lost_refuse(&vm->driver->lost);
    if (vm->remap_pending > 0)
        vmm__vm_remap_pending(vm);
    vmm_status first = VMM_OK;
    uint32_t id = vm->limbo_head;
    vm->limbo_head = 0;
    vm->limbo_tail = 0;
    while (id != 0) {
        uint32_t next = vm->records[id].next;
        vmm_status status = chunk_try(vm, id, &drain);
        first = first == VMM_OK ? status : first;
        id = next;
    }
    if (released != NULL)
        *released += drain.released_bytes;
    return first;
}

void vmm__limbo_drain_quietly(struct vm *vm)
{
    VMM_QUIET();
    (void)vmm__limbo_drain(vm, NULL);
}

/* Takes a segment, whose work has finished, out of limbo, and closes it. */
static struct sourced_segment *segment_take(struct vm *vm, struct chunk *chunk)
{
    struct sourced_segment *segment = chunk->segment;
    limbo_remove(vm, chunk);
    limbo_count(vm, chunk->account, -held_bytes(vm, chunk));
    segment->account = chunk->account;
    vmm__sourced_call_begin(segment->account);
    (void)vmm__chunk_close(vm, chunk);
    return vmm__sourced_take_closed(&vm->segments);
}

struct sourced_segment *vmm__limbo_take_segment(struct vm *vm)
{
    struct drain drain = { .released_bytes = 0 };
    for (uint32_t id = vm->limbo_head; id != 0; id = vm->records[id].next) {
        struct chunk *chunk = &vm->records[id];
        if (chunk->segment != NULL && chunk_query(chunk, &drain) == VMM_OK)
            return segment_take(vm, chunk);
    }
    atomic_store_explicit(&vm->segments.has_ready, false, memory_order_relaxed);
    return NULL;
}

/* Makes the host wait until a chunk's epoch has passed. VMM__NOTHING: it has. VMM__PENDING: a capture stops its clock,
 * as this pass may know already. */
static vmm_status chunk_wait(const struct chunk *chunk, struct drain *drain)
{
    if (chunk->clock == NULL)
        return VMM__NOTHING;
    if (chunk->clock == drain->waiting && chunk->epoch >= drain->waiting_epoch)
        return VMM__PENDING;
    if (vmm__clock_query(chunk->clock, chunk->epoch) == VMM_OK)
        return VMM__NOTHING;
    drain->waiting = chunk->clock;
    drain->waiting_epoch = chunk->epoch;
    return vmm__clock_wait(chunk->clock, chunk->epoch);
}

vmm_status vmm__limbo_wait(struct vm *vm, const struct account *account, uint64_t *released)
{
    struct drain drain = { .released_bytes = 0 };
    vmm_status status = VMM__NOTHING;
    uint64_t released_before = *released;
    uint32_t id = vm->limbo_head;
    for (; id != 0 && (status == VMM__NOTHING || status == VMM__PENDING);
         id = vm->records[id].next) {
        if (account == NULL || vm->records[id].account == account)
            status = chunk_wait(&vm->records[id], &drain);
    }
    if (status != VMM_OK && status != VMM__NOTHING && status != VMM__PENDING)
        return status;
    (void)vmm__limbo_drain(vm, released);
    return status == VMM_OK || *released > released_before ? VMM_OK : VMM__NOTHING;
}
