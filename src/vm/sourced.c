/* Segments, memory of sources: see vm.h. */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "vm/vm.h"

/* What the blocks of a cache are aligned to, and so the segments in which they lie. */
enum { SEGMENT_ALIGNMENT = 512 };

void vmm__sourced_init(struct sourced_segments *segments)
{
    vmm__mutex_init(&segments->lock);
    (void)pthread_cond_init(&segments->call_ended, NULL);
}

void vmm__sourced_fini(struct sourced_segments *segments)
{
    vmm__host_free(segments->sorted, segments->capacity * sizeof(struct sourced_segment *));
    segments->sorted = NULL;
    segments->capacity = 0;
    (void)pthread_cond_destroy(&segments->call_ended);
    vmm__mutex_fini(&segments->lock);
}

static uint64_t count_of(const struct sourced_segments *segments)
{
    return atomic_load_explicit(&segments->count, memory_order_acquire);
}

/* The number of segments that begin at an address or before it. */
static uint64_t position_of(const struct sourced_segments *segments, uint64_t address)
{
    uint64_t low = 0;
    uint64_t high = count_of(segments);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (segments->sorted[middle]->outer <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- Open and close ------------------------------------------------------------------------ */

static bool ranges_meet(uint64_t address, uint64_t bytes, uint64_t other, uint64_t other_bytes)
{
    return address < other ? other - address < bytes : address - other < other_bytes;
}

static bool is_in_arena(const struct arena *arena, const struct sourced_segment *memory)
{
    bool meets = false;
    for (uint32_t i = 0; i < arena->reservation_count && !meets; i++) {
        const struct reservation *at = &arena->reservations[i];
        meets = ranges_meet(memory->outer, memory->bytes, at->address, at->bytes);
    }
    return meets;
}

/* Sorted segments do not overlap, so only the neighbours can. */
static bool is_in_segment(const struct sourced_segments *segments,
                          const struct sourced_segment *memory)
{
    uint64_t position = position_of(segments, memory->outer);
    bool meets = false;
    if (position > 0) {
        const struct sourced_segment *before = segments->sorted[position - 1];
        meets = ranges_meet(memory->outer, memory->bytes, before->outer, before->bytes);
    }
    if (position < count_of(segments))
        meets = meets || segments->sorted[position]->outer - memory->outer < memory->bytes;
    return meets;
}

static vmm_status memory_check(const struct vm *vm, const struct account *account,
                               const struct sourced_segment *memory)
{
    const char *why = NULL;
    if (memory->outer % SEGMENT_ALIGNMENT != 0)
        why = "which is no multiple of 512";
    else if (memory->outer + memory->bytes < memory->outer)
        why = "where so many bytes do not fit";
    else if (is_in_arena(&vm->arena, memory))
        why = "which is an address of this cache";
    else if (is_in_segment(&vm->segments, memory))
        why = "which overlaps memory that it gave before";
    if (why == NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "pool %s: its source gave %llu bytes at 0x%llx, %s",
                      account->name, (unsigned long long)memory->bytes,
                      (unsigned long long)memory->outer, why);
}

static void sorted_insert(struct sourced_segments *segments, struct sourced_segment *segment)
{
    uint64_t count = count_of(segments);
    uint64_t position = position_of(segments, segment->outer);
    vmm__mutex_lock(&segments->lock);
    for (uint64_t i = count; i > position; i--)
        segments->sorted[i] = segments->sorted[i - 1];
    segments->sorted[position] = segment;
    atomic_store_explicit(&segments->count, count + 1, memory_order_release);
    vmm__mutex_unlock(&segments->lock);
}

static void sorted_remove(struct sourced_segments *segments, const struct sourced_segment *segment)
{
    uint64_t count = count_of(segments);
    vmm__mutex_lock(&segments->lock);
    for (uint64_t i = position_of(segments, segment->outer); i < count; i++)
        segments->sorted[i - 1] = segments->sorted[i];
    atomic_store_explicit(&segments->count, count - 1, memory_order_release);
    vmm__mutex_unlock(&segments->lock);
}

static bool sorted_grow(struct sourced_segments *segments)
{
    void *items = segments->sorted;
    vmm__mutex_lock(&segments->lock); /* the array may move */
    bool has_room = vmm__host_array_grow(&items, &segments->capacity, count_of(segments),
                                         sizeof(struct sourced_segment *));
    segments->sorted = items;
    vmm__mutex_unlock(&segments->lock);
    return has_room;
}

static vmm_status segment_make(struct vm *vm, const struct account *account, uint64_t granule,
                               const struct sourced_segment *memory, struct sourced_segment **out)
{
    struct sourced_segment *segment = NULL;
    vmm_status status = memory_check(vm, account, memory);
    if (status != VMM_OK)
        return status;
    if (sorted_grow(&vm->segments))
        segment = vmm__host_alloc(1, sizeof *segment);
    if (segment == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "pool %s: no host memory for the record of a segment",
                          account->name);
    *segment = *memory;
    segment->inner = vmm__arena_address(&vm->arena, granule);
    *out = segment;
    return VMM_OK;
}

vmm_status vmm__sourced_open(struct vm *vm, struct account *account, uint64_t granule,
                             const struct sourced_segment *memory)
{
    uint32_t granules = (uint32_t)(memory->bytes >> vm->arena.granule_shift);
    struct sourced_segment *segment = NULL;
    struct chunk *chunk = NULL;
    vmm_status status = segment_make(vm, account, granule, memory, &segment);
    if (status == VMM_OK)
        chunk = vmm__chunk_take(vm);
    if (status == VMM_OK && chunk == NULL)
        status = vmm__error(VMM_ERR_HOST_OOM, "vm: no record left for another chunk");
    if (status != VMM_OK) {
        vmm__host_free(segment, sizeof *segment);
        vmm__arena_give(&vm->arena, granule, granules);
        return status;
    }
    *chunk = (struct chunk){ .first = granule,
                             .place = NO_GRANULE,
                             .granules = granules,
                             .state = CHUNK_HELD,
                             .is_mapped = true,
                             .segment = segment };
    vmm__account_enter(vm, chunk, account);
    vmm__account_book(vm, chunk);
    vmm__chunk_page_home(vm, chunk, vmm__chunk_id(vm, chunk));
    sorted_insert(&vm->segments, segment);
    return VMM_OK;
}

void vmm__sourced_close(struct vm *vm, struct sourced_segment *segment)
{
    struct sourced_segments *segments = &vm->segments;
    sorted_remove(segments, segment);
    segment->next = segments->closed;
    segments->closed = segment;
}

struct sourced_segment *vmm__sourced_take_closed(struct sourced_segments *segments)
{
    struct sourced_segment *segment = segments->closed;
    segments->closed = segment == NULL ? NULL : segment->next;
    return segment;
}

void vmm__sourced_free(struct sourced_segment *segment)
{
    vmm__host_free(segment, sizeof *segment);
}

/* ---- Calls --------------------------------------------------------------------------------- */

bool vmm__sourced_is_called(const struct account *account)
{
    return atomic_load_explicit(&account->source_calls, memory_order_acquire) > 0;
}

void vmm__sourced_call_begin(struct account *account)
{
    atomic_fetch_add_explicit(&account->source_calls, 1, memory_order_relaxed);
}

/* The account may be gone as soon as it counts none. */
void vmm__sourced_call_end(struct vm *vm, struct account *account)
{
    struct sourced_segments *segments = &vm->segments;
    vmm__mutex_lock(&segments->lock);
    atomic_fetch_sub_explicit(&account->source_calls, 1, memory_order_release);
    (void)pthread_cond_broadcast(&segments->call_ended);
    vmm__mutex_unlock(&segments->lock);
}

void vmm__sourced_calls_wait(struct vm *vm, const struct account *account)
{
    struct sourced_segments *segments = &vm->segments;
    vmm__mutex_lock(&segments->lock);
    while (vmm__sourced_is_called(account))
        (void)vmm__mutex_wait(&segments->lock, &segments->call_ended, NULL);
    vmm__mutex_unlock(&segments->lock);
}

/* ---- Addresses ----------------------------------------------------------------------------- */

uint64_t vmm__sourced_inner(struct vm *vm, uint64_t address)
{
    struct sourced_segments *segments = &vm->segments;
    uint64_t inner = address;
    if (count_of(segments) == 0)
        return address;
    vmm__mutex_lock(&segments->lock);
    uint64_t position = position_of(segments, address);
    if (position > 0) {
        const struct sourced_segment *segment = segments->sorted[position - 1];
        if (address - segment->outer < segment->bytes)
            inner = segment->inner + (address - segment->outer);
    }
    vmm__mutex_unlock(&segments->lock);
    return inner;
}

uint64_t vmm__sourced_outer(const struct vm *vm, uint64_t address)
{
    if (count_of(&vm->segments) == 0 || !vmm__arena_contains(&vm->arena, address))
        return address;
    const struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, address));
    if (chunk == NULL || chunk->segment == NULL)
        return address;
    return chunk->segment->outer + (address - chunk->segment->inner);
}

/* ---- Check --------------------------------------------------------------------------------- */

static vmm_status segment_check(const struct vm *vm, const struct sourced_segment *segment)
{
    uint64_t granule = vmm__arena_granule(&vm->arena, segment->inner);
    const struct chunk *chunk = vmm__vm_chunk(vm, granule);
    if (chunk != NULL && chunk->segment == segment && chunk->first == granule &&
        chunk->places == 0 && vmm__chunk_bytes(vm, chunk) == segment->bytes)
        return VMM_OK;
    return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 7: the segment at 0x%llx has no chunk",
                      (unsigned long long)segment->outer);
}

vmm_status vmm__sourced_check(const struct vm *vm)
{
    const struct sourced_segments *segments = &vm->segments;
    uint64_t end = 0;
    for (uint64_t i = 0; i < count_of(segments); i++) {
        const struct sourced_segment *segment = segments->sorted[i];
        vmm_status status = segment_check(vm, segment);
        if (status == VMM_OK && (segment->outer < end || is_in_arena(&vm->arena, segment)))
            status = vmm__error(VMM_ERR_INTERNAL, "vm: invariant 7: the segment at 0x%llx overlaps",
                                (unsigned long long)segment->outer);
        if (status != VMM_OK)
            return status;
        end = segment->outer + segment->bytes;
    }
    return VMM_OK;
}
