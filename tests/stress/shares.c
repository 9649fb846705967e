/*
 * Shares: blocks are exported, imported into the same cache, and closed, in either order. See stress.h.
 *
 * Several blocks of the model are then the same memory, which nothing writes until the share is closed. Imports are
 * blocks of the model as others are.
 */
#include "stress.h"
#include "support/tcp_support.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Results that no call may write when it fails. */
#define NO_SHARE ((vmm_share *)(uintptr_t)0x5a5a5a5a5a5a5a58)
#define NO_BLOCK ((void *)(uintptr_t)0x5a5a5a5a5a5a5a5a)

static struct stress_share *operand_share(struct stress *stress, uint8_t value)
{
    return &stress->share_records[value % STRESS_SHARES];
}

static unsigned number_of(const struct stress *stress, const struct stress_share *share)
{
    return 1 + (unsigned)(share - stress->share_records);
}

static void result_verify(struct stress *stress, const char *call, bool is_ok, bool is_written)
{
    if (is_ok != is_written)
        stress_trouble(stress, "%s: its result was %s", call, is_ok ? "not written" : "written");
}

/* The live block of a share that was exported, or one that was imported; NULL: there is none. */
static struct model_block *block_of(struct stress *stress, unsigned number, bool is_imported)
{
    struct model *model = &stress->model;
    for (unsigned i = 0; i < model->live; i++) {
        struct model_block *block = &model->blocks[model->order[i]];
        if (block->share == number && block->is_imported == is_imported)
            return block;
    }
    return NULL;
}

/* Whether the work of all streams that use a block can be followed. */
static bool can_follow(const struct stress *stress, const struct model_block *block)
{
    uint64_t streams = block->users | STREAM_BIT(stress_block_keeper(block));
    return !stress_is_captured(stress, streams);
}

static void work_follows(struct stress *stress, const struct model_block *block, unsigned later)
{
    stress_stream_follows(stress, later, stress_block_keeper(block));
    stress_users_follow(stress, block, later);
    stress_all_follow(stress, later, block->writer);
}

/* ---- Export -------------------------------------------------------------------------------- */

/* A block is exported as one share at a time. Blocks of other pools, and imported ones, are refused. */
void operation_share_export(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_block(stress, operation->a);
    struct stress_share *share = operand_share(stress, operation->b);
    vmm_share *handle = NO_SHARE;
    if (block == NULL || share->handle != NULL || block->graph != 0 ||
        (block->share != 0 && !block->is_imported))
        return;
    stress_enter(stress);
    vmm_status status = vmm_share_export(stress->cache, (void *)(uintptr_t)block->address, &handle);
    stress_leave(stress);
    unsigned legal = STATUS_BIT(ERR_INVALID_ARGUMENT);
    if (block->is_shareable)
        legal = STATUS_BIT(OK);
    bool is_ok = stress_expect(stress, "vmm_share_export", status, legal, STATUS_FAULTS);
    result_verify(stress, "vmm_share_export", is_ok, handle != NO_SHARE);
    if (!is_ok)
        return;
    *share = (struct stress_share){ .handle = handle,
                                    .requested_bytes = block->requested_bytes,
                                    .block_bytes = block->block_bytes,
                                    .has_fabric = block->has_fabric,
                                    .is_whole = stress->config.shareable != VMM_ON,
                                    .word = block->word };
    model_export(&stress->model, block, number_of(stress, share));
}

void stress_shared_give(struct stress *stress, const struct model_block *block)
{
    if (block->share == 0 || block->is_imported)
        return;
    struct stress_share *share = &stress->share_records[block->share - 1];
    if (can_follow(stress, block))
        work_follows(stress, block, STRESS_HEIR);
    else
        share->word = 0; /* what is in there is unknown until the capture ends */
}

/* ---- Import -------------------------------------------------------------------------------- */

/* What arrives at the other end of a socket; NULL: a fault has happened. */
static vmm_share *share_pass(struct stress *stress, struct stress_share *share, bool is_tcp)
{
    int sockets[2];
    vmm_share *received = NO_SHARE;
    if (is_tcp ? !tcp_pair(sockets) : socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        return NULL;
    stress_enter(stress);
    vmm_status status = vmm_share_send(share->handle, sockets[0]);
    stress_leave(stress);
    bool is_ok = stress_expect(stress, "vmm_share_send", status, STATUS_BIT(OK), STATUS_FAULTS);
    share->was_sent = share->was_sent || is_ok;
    share->was_tried = true;
    if (is_ok) {
        stress_enter(stress);
        status = vmm_share_receive(sockets[1], &received);
        stress_leave(stress);
        is_ok = stress_expect(stress, "vmm_share_receive", status, STATUS_BIT(OK), STATUS_FAULTS);
        result_verify(stress, "vmm_share_receive", is_ok, received != NO_SHARE);
    }
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    return is_ok ? received : NULL;
}

static void import_note(struct stress *stress, const struct stress_share *share, unsigned slot,
                        unsigned stream, const void *address)
{
    unsigned number = number_of(stress, share);
    const struct model_block *source = block_of(stress, number, false);
    struct model_block block = { .address = (uintptr_t)address,
                                 .requested_bytes = share->requested_bytes,
                                 .block_bytes = stress_item_find(stress, address).bytes,
                                 .stream = stream,
                                 .handle = stress->streams[stream],
                                 .pool = MODEL_POOLS,
                                 .share = number,
                                 .is_imported = true,
                                 .is_of_pool_surely = true };
    bool can_read = source == NULL || can_follow(stress, source);
    block.word = can_read ? share->word : 0;
    if (block.block_bytes < share->requested_bytes ||
        (share->is_whole && block.block_bytes != share->block_bytes))
        stress_trouble(stress, "vmm_share_import: a block of %" PRIu64 " bytes, not %" PRIu64,
                       block.block_bytes, share->block_bytes);
    if (model_overlap(&stress->model, block.address, block.block_bytes) != NULL)
        stress_trouble(stress, "vmm_share_import: a live block has its addresses");
    if (stress_is_troubled(stress))
        return;
    stress->known |= STREAM_BIT(stream);
    model_add(&stress->model, slot, &block);
    if (source != NULL && can_read)
        work_follows(stress, source, stream);
    else
        stress_stream_follows(stress, stream, STRESS_HEIR);
    stress_block_read(stress, &block, stream);
}

/* Imports through the exporter's share, or through one that was sent and received. */
void operation_share_import(struct stress *stress, const struct operation *operation)
{
    struct stress_share *share = operand_share(stress, operation->c);
    unsigned slot = operation->a;
    unsigned stream = operand_stream(stress, operation->b);
    void *address = NO_BLOCK;
    if (share->handle == NULL || stress->model.blocks[slot].is_live || stress->taking == slot ||
        stress_is_captured(stress, STREAM_BIT(stream)))
        return;
    bool is_passed = operation->number % 2 != 0;
    bool is_tcp = share->has_fabric && operation->number / 2 % 2 != 0;
    vmm_share *handle = is_passed ? share_pass(stress, share, is_tcp) : share->handle;
    if (handle == NULL || stress_is_troubled(stress))
        return;
    stress_enter(stress);
    vmm_status status = control_import(&stress->control, stress->cache, handle,
                                       share->requested_bytes, stress->streams[stream], &address);
    stress_leave(stress);
    unsigned legal = STATUS_BIT(OK);
    legal |= stress->config.arena_bytes != 0 ? STATUS_BIT(ERR_ADDRESS_SPACE) : 0;
    bool is_ok =
        stress_expect(stress, "vmm_share_import", status, legal, STATUS_FAULTS | STATUS_OOM);
    result_verify(stress, "vmm_share_import", is_ok, address != NO_BLOCK);
    if (is_passed)
        stress_expect_ok(stress, "vmm_share_close", vmm_share_close(handle, 0));
    if (is_ok)
        import_note(stress, share, slot, stream, address);
}

/* ---- Close --------------------------------------------------------------------------------- */

static void share_close(struct stress *stress, struct stress_share *share, bool is_forced)
{
    bool may_refuse = share->was_tried && !is_forced && stress->cache != NULL;
    stress_enter(stress);
    vmm_status status = vmm_share_close(share->handle, is_forced);
    stress_leave(stress);
    unsigned legal = may_refuse ? STATUS_BIT(ERR_INVALID_ARGUMENT) : STATUS_BIT(OK);
    if (may_refuse && !share->was_sent) /* a send that failed may have sent a part */
        legal |= STATUS_BIT(OK);
    if (!stress_expect(stress, "vmm_share_close", status, legal, 0))
        return;
    model_export_end(&stress->model, number_of(stress, share), share->block_bytes);
    share->handle = NULL;
}

/* Only after the end of all work on what was imported, as the contract wants. */
void operation_share_close(struct stress *stress, const struct operation *operation)
{
    struct stress_share *share = operand_share(stress, operation->a);
    struct model_block *import = NULL;
    if (share->handle == NULL || stress->captured != 0 || stress_is_unusable(stress))
        return;
    while ((import = block_of(stress, number_of(stress, share), true)) != NULL) {
        stress_block_give(stress, import);
        if (import->is_live)
            return;
    }
    stress_work_verify(stress);
    if (!stress_is_troubled(stress))
        share_close(stress, share, operation->b % 2 != 0);
}

void stress_shares_end(struct stress *stress)
{
    bool has_shares = false;
    for (unsigned i = 0; i < STRESS_SHARES; i++)
        has_shares = has_shares || stress->share_records[i].handle != NULL;
    if (has_shares && stress->cache != NULL && !stress->is_lost)
        stress_work_verify(stress);
    for (unsigned i = 0; i < STRESS_SHARES; i++) {
        struct stress_share *share = &stress->share_records[i];
        if (share->handle != NULL)
            share_close(stress, share, stress->cache != NULL);
    }
}
