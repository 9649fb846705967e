/* Blocks that grow: with an alignment, reserved, committed and decommitted, and of another size. See stress.h. */
#include "stress.h"

#include "base/arith.h"
#include "cache/cache.h"

#include <inttypes.h>

#define MIB (UINT64_C(1) << 20)

/* A result that no call may write when it fails. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a5a5a5a5a)

enum { UNITS_MOST = 64 };

/* The pool that a call names: one in two times a general pool, if it exists; NULL: the default pool. */
static const struct model_tenant *operand_pool(const struct stress *stress, uint8_t value)
{
    const struct model_tenant *tenant = &stress->model.tenants[value % MODEL_TENANTS];
    return value / MODEL_TENANTS % 2 != 0 && tenant->handle != NULL ? tenant : NULL;
}

static vmm_pool *handle_of(const struct stress *stress, const struct model_tenant *tenant)
{
    return tenant == NULL ? vmm_cache_pool(stress->cache) : tenant->handle;
}

static void result_verify(struct stress *stress, const char *call, bool is_ok, const void *result)
{
    if (is_ok == (result == UNTOUCHED))
        stress_trouble(stress, "%s: its result was %s", call, is_ok ? "not written" : "written");
}

/* Whether so much more would be more than the run may have live. */
static bool is_too_much(const struct stress *stress, uint64_t bytes)
{
    const struct model *model = &stress->model;
    return stress->live_most != 0 && model->requested_bytes.current + bytes > stress->live_most;
}

/* A request that ran out of memory has been counted, unless the call needed none. */
static void ooms_note(struct stress *stress, vmm_status status)
{
    bool is_refused = status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
    stress->sums.refused += is_refused;
    if (stress->shared == NULL && is_refused)
        stress->model.ooms = stress_stats(stress).ooms;
}

enum { PLAIN_ALIGNMENT = 512 };

/* ---- Alignment ----------------------------------------------------------------------------- */

/* The least bytes of a block above an alignment of 512: it is no object of a slab. */
static uint64_t aligned_bytes(struct stress *stress, const struct model_tenant *tenant,
                              uint64_t bytes, uint64_t alignment)
{
    bool has_own_chunks = tenant != NULL && tenant->has_own_chunks;
    if (alignment > PLAIN_ALIGNMENT && !has_own_chunks)
        bytes = vmm__max(bytes, OBJECT_MOST_BYTES + 1);
    return stress_block_bytes(stress, bytes, has_own_chunks);
}

static void aligned_note(struct stress *stress, const struct operation *operation,
                         const struct model_tenant *tenant, unsigned stream, uint64_t alignment,
                         const void *address)
{
    uint64_t bytes = operation->number;
    struct model_block block = stress_block_make(stress, stream, bytes, tenant, address);
    uint64_t item_bytes = stress_item_find(stress, address).bytes;
    block.block_bytes =
        stress_is_padded(stress) ? item_bytes : aligned_bytes(stress, tenant, bytes, alignment);
    if (!stress_block_from_lender(stress, &block, tenant) && alignment <= PLAIN_ALIGNMENT)
        stress_block_misfit(stress, &block);
    if (block.block_bytes != item_bytes)
        stress_trouble(stress, "vmm_alloc_aligned: a block of %" PRIu64 " bytes for %" PRIu64,
                       item_bytes, bytes);
    if (block.address % alignment != 0)
        stress_trouble(stress, "vmm_alloc_aligned: %#" PRIx64 " is not a multiple of %" PRIu64,
                       block.address, alignment);
    stress_block_note(stress, operation->a, &block);
}

/* The lower five bits of c are the alignment's, up to 8 MiB; the others choose the pool. */
void operation_alloc_aligned(struct stress *stress, const struct operation *operation)
{
    enum { SHIFTS = 24, HUGE_SHIFT = 36 };
    struct model *model = &stress->model;
    const struct model_tenant *tenant = operand_pool(stress, operation->c >> 5);
    uint64_t alignment = UINT64_C(1) << (operation->c & 31) % SHIFTS;
    unsigned stream = operand_stream(stress, operation->b);
    uint64_t bytes = operation->number;
    void *address = UNTOUCHED;
    if (model->blocks[operation->a].is_live || stress->taking == operation->a ||
        bytes >> HUGE_SHIFT != 0 || is_too_much(stress, bytes + alignment))
        return;
    /* what the alignment skips may be needed, too */
    unsigned legal = stress_alloc_statuses(stress, bytes + alignment);
    legal |= stress_alloc_statuses(stress, bytes) & STATUS_BIT(OK);
    bool has_own_chunks = tenant != NULL && tenant->has_own_chunks;
    if (has_own_chunks && alignment > stress->driver->granule_bytes)
        legal = STATUS_BIT(ERR_UNSUPPORTED);
    if (tenant != NULL && tenant->has_source && alignment > PLAIN_ALIGNMENT)
        legal = STATUS_BIT(ERR_UNSUPPORTED);
    unsigned taking = stress->taking;
    stress->taking = operation->a;
    stress_own_follow(stress, stream);
    stress_enter(stress);
    vmm_status status = control_alloc_aligned(&stress->control, handle_of(stress, tenant), bytes,
                                              alignment, stress->streams[stream], &address);
    stress_leave(stress);
    stress->taking = taking;
    stress->sums.allocations++;
    bool is_ok =
        stress_expect(stress, "vmm_alloc_aligned", status, legal, STATUS_FAULTS | STATUS_OOM);
    ooms_note(stress, status);
    result_verify(stress, "vmm_alloc_aligned", is_ok, address);
    if (is_ok)
        aligned_note(stress, operation, tenant, stream, alignment, address);
}

/* ---- Reserved blocks ----------------------------------------------------------------------- */

/* Of 2, 4 or 8 MiB, up to 64 of them. */
void operation_reserve(struct stress *stress, const struct operation *operation)
{
    const struct model_tenant *tenant = operand_pool(stress, operation->c >> 5);
    unsigned stream = operand_stream(stress, operation->b);
    uint64_t unit_bytes = stress->driver->granule_bytes << operation->c % 3;
    uint64_t bytes = 1 + operation->number % (unit_bytes * UNITS_MOST);
    void *address = UNTOUCHED;
    if (stress->model.blocks[operation->a].is_live || stress->taking == operation->a)
        return;
    stress_enter(stress);
    vmm_status status = vmm_reserve(handle_of(stress, tenant), bytes, unit_bytes,
                                    stress->streams[stream], &address);
    stress_leave(stress);
    unsigned legal = STATUS_BIT(OK);
    legal |= stress->config.arena_bytes != 0 || !stress_is_sim(stress)
                 ? STATUS_BIT(ERR_ADDRESS_SPACE)
                 : 0;
    if (tenant != NULL && tenant->has_source)
        legal = STATUS_BIT(ERR_UNSUPPORTED);
    bool is_ok = stress_expect(stress, "vmm_reserve", status, legal,
                               STATUS_FAULTS | STATUS_BIT(ERR_ADDRESS_SPACE));
    result_verify(stress, "vmm_reserve", is_ok, address);
    if (!is_ok)
        return;
    struct model_block block = stress_block_make(stress, stream, bytes, tenant, address);
    block.is_shareable = false;
    block.may_borrow = false;
    block.unit_bytes = unit_bytes;
    block.block_bytes = vmm__align_up(bytes, unit_bytes);
    stress_block_note(stress, operation->a, &block);
}

/* The first live reserved block from a slot on; NULL: there is none, or a call on it is under way. */
static struct model_block *operand_reserved(struct stress *stress, uint8_t slot)
{
    for (unsigned i = 0; i < OPERATION_SLOTS; i++) {
        unsigned number = (slot + i) % OPERATION_SLOTS;
        struct model_block *block = operand_block(stress, (uint8_t)number);
        if (block != NULL && block->unit_bytes != 0)
            return number == stress->taking ? NULL : block;
    }
    return NULL;
}

/* A part of a reserved block, as bits of its units. */
struct part {
    uint64_t offset;
    uint64_t bytes;
    uint64_t units;
};

static struct part part_draw(const struct model_block *block, const struct operation *operation)
{
    uint64_t units = block->block_bytes / block->unit_bytes;
    uint64_t first = operation->b % units;
    uint64_t count = vmm__min(1 + operation->c % 16, units - first);
    return (struct part){ .offset = first * block->unit_bytes,
                          .bytes = count * block->unit_bytes,
                          .units = model_units(count) << first };
}

/* The stream on which the cache clears and copies a block: its own, or if that has ended the one that has its handle
 * now, which the cache may never have seen; MODEL_STREAMS: none. */
static unsigned stream_of(const struct stress *stress, const struct model_block *block)
{
    unsigned stream = 0;
    unsigned count = stress_streams(stress);
    if (block->stream != MODEL_STREAMS)
        return block->stream;
    while (stream < count && (stress->streams[stream] != block->handle ||
                              stress_is_captured(stress, STREAM_BIT(stream))))
        stream++;
    return stream == count ? MODEL_STREAMS : stream;
}

/* The block is about to get memory, maybe what its stream freed, and to be copied or cleared. A reserved block
 * keeps its memory. */
static void memory_follow(struct stress *stress, struct model_block *block)
{
    unsigned stream = stream_of(stress, block);
    if (stream != MODEL_STREAMS)
        stress_own_follow(stress, stream);
    if (block->unit_bytes == 0 || stress->config.zero != 0)
        stress_undeclared_join(stress, block);
}

/* New units are zeros, if the cache promises that. */
static void units_verify(struct stress *stress, const struct model_block *block, uint64_t units)
{
    struct model_block unit = *block;
    unsigned cleaner = stream_of(stress, block);
    if (stress->config.zero != 0 && cleaner != MODEL_STREAMS && cleaner != block->stream)
        stress_stream_follows(stress, stress_block_keeper(block), cleaner);
    if (block->stream == MODEL_STREAMS || stress_is_captured(stress, STREAM_BIT(block->stream)))
        return;
    unit.requested_bytes = block->unit_bytes;
    for (unsigned i = 0; i < UNITS_MOST; i++) {
        unit.address = block->address + i * block->unit_bytes;
        if ((units >> i & 1) != 0)
            stress_zeros_verify(stress, &unit);
    }
}

void operation_commit(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_reserved(stress, operation->a);
    if (block == NULL)
        return;
    struct part part = part_draw(block, operation);
    uint64_t gained = part.units & ~block->committed;
    uint64_t bytes = (uint64_t)__builtin_popcountll(gained) * block->unit_bytes;
    if (is_too_much(stress, bytes))
        return;
    unsigned taking = stress->taking;
    stress->taking = (unsigned)(block - stress->model.blocks);
    memory_follow(stress, block);
    stress_enter(stress);
    vmm_status status = control_commit(&stress->control, stress->cache,
                                       (void *)(uintptr_t)block->address, part.offset, part.bytes);
    stress_leave(stress);
    stress->taking = taking;
    unsigned legal = stress_alloc_statuses(stress, bytes) & ~STATUS_BIT(ERR_ADDRESS_SPACE);
    if (block->stream == MODEL_STREAMS)
        legal |= STATUS_BIT(ERR_INVALID_ARGUMENT); /* nothing clears the memory, or orders it */
    bool may_capture = stress->captured != 0 || stress->shared != NULL; /* others, too */
    if (block->is_shared && (may_capture || stress_has_met_a_capture(stress)))
        legal |= STATUS_BIT(ERR_INVALID_ARGUMENT); /* nothing orders it after other streams */
    bool is_ok = stress_expect(stress, "vmm_commit", status, legal, STATUS_FAULTS | STATUS_OOM);
    ooms_note(stress, status);
    if (!is_ok)
        return;
    stress->sums.commits++;
    model_commit(&stress->model, block, block->committed | part.units);
    units_verify(stress, block, gained);
}

/* Whether a graph may use the addresses of a block. */
static bool is_retained(const struct stress *stress, const struct model_block *block)
{
    return block->tenant != 0 && stress->model.tenants[block->tenant - 1].uses > 0;
}

void operation_decommit(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_reserved(stress, operation->a);
    if (block == NULL)
        return;
    struct part part = part_draw(block, operation);
    bool is_refused = block->is_pinned || is_retained(stress, block);
    stress_enter(stress);
    vmm_status status =
        control_decommit(&stress->control, stress->cache, (void *)(uintptr_t)block->address,
                         part.offset, part.bytes);
    stress_leave(stress);
    unsigned legal = is_refused ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    legal |= stress->model.was_retained ? STATUS_BIT(ERR_INVALID_ARGUMENT) : 0;
    if (stress_expect(stress, "vmm_decommit", status, legal, STATUS_BIT(ERR_HOST_OOM)))
        model_commit(&stress->model, block, block->committed & ~part.units);
}

/* ---- Size ---------------------------------------------------------------------------------- */

/* What vmm_resize() may return when no fault happens. A block that cannot stay must move or be copied. */
static unsigned resize_statuses(const struct stress *stress, const struct model_block *block,
                                uint64_t bytes)
{
    unsigned legal = stress_alloc_statuses(stress, bytes);
    bool is_stuck = block->is_pinned || block->stream == MODEL_STREAMS ||
                    stress_is_captured(stress, STREAM_BIT(block->stream));
    if (block->is_imported || bytes == 0)
        return STATUS_BIT(ERR_INVALID_ARGUMENT);
    if (block->unit_bytes != 0) {
        legal = STATUS_BIT(OK) | (legal & STATUS_BIT(ERR_ADDRESS_SPACE));
        is_stuck = block->is_pinned || stress->model.was_retained;
    }
    return legal | (is_stuck ? STATUS_BIT(ERR_INVALID_ARGUMENT) : 0);
}

/* The block as it is afterwards. One that other streams use does not move: it is copied to a block that they do not
 * use. */
static struct model_block resized_make(struct stress *stress, const struct model_block *block,
                                       uint64_t bytes, const void *address)
{
    struct model_block next = *block;
    vmm_item item = stress_item_find(stress, address);
    next.address = (uintptr_t)address;
    next.requested_bytes = bytes;
    next.block_bytes = item.bytes;
    if (item.requested_bytes != bytes || item.bytes < bytes)
        stress_trouble(stress,
                       "vmm_resize: a block of %" PRIu64 " for %" PRIu64 " bytes, not %" PRIu64,
                       item.bytes, item.requested_bytes, bytes);
    if (block->unit_bytes != 0 && item.bytes != vmm__align_up(bytes, block->unit_bytes))
        stress_trouble(stress, "vmm_resize: %" PRIu64 " bytes of addresses for %" PRIu64,
                       item.bytes, bytes);
    if (next.address == block->address || block->unit_bytes != 0)
        return next;
    next.users = 0;
    next.is_shared = false;
    next.is_left = false;
    next.may_borrow = stress_may_borrow(stress);
    return next;
}

/* Whether the block's own stream takes work. */
static bool can_work(const struct stress *stress, const struct model_block *block)
{
    return block->stream != MODEL_STREAMS &&
           !stress_is_captured(stress, block->users | STREAM_BIT(block->stream));
}

static void block_fill(struct stress *stress, struct model_block *block)
{
    if (!can_work(stress, block)) {
        block->word = block->unit_bytes != 0 ? block->word : 0;
        return;
    }
    stress_users_follow(stress, block, block->stream);
    stress_block_write(stress, block, block->stream);
}

/* Fills what both sizes have, because a pattern depends on the size. Units have patterns of their own. */
static struct model_block part_fill(struct stress *stress, const struct model_block *block,
                                    uint64_t bytes)
{
    struct model_block part = *block;
    part.requested_bytes = vmm__min(block->requested_bytes, bytes);
    if (block->unit_bytes == 0)
        block_fill(stress, &part);
    return part;
}

/* What both sizes have must be what it was; then the block is filled anew. */
static void contents_verify(struct stress *stress, struct model_block *block,
                            const struct model_block *before)
{
    struct model_block part = *block;
    part.requested_bytes = before->requested_bytes;
    part.word = before->word;
    if (can_work(stress, block))
        stress_block_read(stress, &part, block->stream);
    block_fill(stress, block);
}

static void resize_note(struct stress *stress, struct model_block *block, uint64_t bytes,
                        const struct model_block *part, const void *address, bool is_copy)
{
    struct model_block next = resized_make(stress, block, bytes, address);
    stress_list(stress, "%#" PRIx64 ", %" PRIu64 " bytes for %" PRIu64 "%s", next.address,
                next.block_bytes, bytes, is_copy ? ", a copy" : "");
    if (stress_is_troubled(stress))
        return;
    stress->sums.resizes++;
    stress_undeclared_give(stress, block);
    if (is_copy && block->tenant == 0) /* in the default pool, also if it was adopted */
        next.is_shareable = stress->config.shareable == VMM_ON;
    if (block->tenant == 0)
        next.has_fabric = false;
    model_replace(&stress->model, block, &next, is_copy);
    stress_pin_note(stress, block);
    if (model_overlap_other(&stress->model, block) != NULL)
        stress_trouble(stress, "vmm_resize: a live block has its addresses");
    else
        contents_verify(stress, block, part);
}

/* Blocks of graphs keep their addresses; what is exported, or was imported, is not written. */
static bool may_resize(const struct stress *stress, const struct model_block *block)
{
    return block != NULL && block->graph == 0 && (block->share == 0 || block->is_imported) &&
           !stress_is_unusable(stress) &&
           (unsigned)(block - stress->model.blocks) != stress->taking;
}

/* Counts how many more blocks the cache has allocated than the model. */
static uint64_t copies_of(struct stress *stress)
{
    if (stress->shared != NULL)
        return 0;
    return stress_stats(stress).allocations.allocated - stress->model.allocations.allocated;
}

/* Lets the copy come between the work on a block so far and later work. Its own stream does so anyway. */
static void copy_order(struct stress *stress, unsigned copier, const struct model_block *block,
                       bool is_before)
{
    unsigned keeper = stress_block_keeper(block);
    if (copier == MODEL_STREAMS || copier == keeper)
        return;
    stress_stream_follows(stress, is_before ? copier : keeper, is_before ? keeper : copier);
}

void operation_resize(struct stress *stress, const struct operation *operation)
{
    enum { HUGE_SHIFT = 36 };
    struct model_block *block = operand_block(stress, operation->a);
    if (!may_resize(stress, block) || operation->number >> HUGE_SHIFT != 0 ||
        is_too_much(stress, operation->number))
        return;
    uint64_t bytes = operation->number;
    if (block->unit_bytes != 0)
        bytes = 1 + bytes % (block->unit_bytes * UNITS_MOST);
    void *address = UNTOUCHED;
    unsigned legal = resize_statuses(stress, block, bytes);
    uint64_t copies = copies_of(stress);
    stress->has_resized = true;
    const struct model_block part = part_fill(stress, block, bytes);
    unsigned copier = stream_of(stress, block);
    memory_follow(stress, block);
    copy_order(stress, copier, block, true);
    unsigned taking = stress->taking;
    stress->taking = operation->a;
    stress_enter(stress);
    vmm_status status =
        control_resize(&stress->control, stress->cache, (void *)(uintptr_t)block->address, bytes,
                       stress->streams[copier % stress->stream_count], &address);
    stress_leave(stress);
    stress->taking = taking;
    copy_order(stress, copier, block, false);
    bool is_ok = stress_expect(stress, "vmm_resize", status, legal, STATUS_FAULTS | STATUS_OOM);
    ooms_note(stress, status);
    result_verify(stress, "vmm_resize", is_ok, address);
    if (is_ok)
        resize_note(stress, block, bytes, &part, address, copies_of(stress) != copies);
    else if (!stress_is_unusable(stress))
        block_fill(stress, block);
}
