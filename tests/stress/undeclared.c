/*
 * Undeclared uses: a stream, maybe one that the cache never sees, works on a block, and the cache cannot know of
 * it. See stress.h.
 *
 * The block may be freed while the work is under way. Until it has ended, only the block's own stream may get the
 * memory again, which is stream order: the program has to order that, as any program does. It does so as late as it
 * can, before the stream's next request, so that no event of the stream covers the use before that. What keeps all
 * other streams, and the driver, away from the memory is the cache's clock alone.
 *
 * Workers share streams, and others' requests on these are not theirs to order: only a worker's own stream waits so
 * late.
 */
#include "stress.h"

void stress_all_follow(struct stress *stress, unsigned later, uint64_t earlier)
{
    for (uint64_t left = earlier; left != 0; left &= left - 1)
        stress_stream_follows(stress, later, (unsigned)__builtin_ctzll(left));
}

/* What it frees while it is being captured is ordered when the capture ends: until then it takes no work. */
void stress_own_follow(struct stress *stress, unsigned stream)
{
    if (stress_is_captured(stress, STREAM_BIT(stream)))
        return;
    stress_all_follow(stress, stream, stress->freed_under[stream]);
    stress->freed_under[stream] = 0;
}

/* The memory of a stream that has ended is no stream's own, unless the cache was not told: then it is that of the next
 * stream with the handle. */
void stress_undeclared_give(struct stress *stress, const struct model_block *block)
{
    if (block->stream != MODEL_STREAMS) {
        stress->freed_under[block->stream] |= block->undeclared;
        return;
    }
    for (unsigned i = 0; i < stress->stream_count; i++) {
        bool is_heir = block->is_abandoned && stress->streams[i] == block->handle;
        stress->freed_under[i] |= is_heir ? STREAM_BIT(STRESS_HEIR) : 0;
    }
    if (block->is_abandoned)
        stress_all_follow(stress, STRESS_HEIR, block->undeclared);
}

/* While the block's own stream is being captured, nothing gets the block's memory that has to be ordered. */
void stress_undeclared_join(struct stress *stress, struct model_block *block)
{
    unsigned keeper = stress_block_keeper(block);
    if (stress_is_captured(stress, STREAM_BIT(keeper)))
        return;
    stress_all_follow(stress, keeper, block->undeclared);
    block->undeclared = 0;
    block->writer = 0;
}

static bool heir_replace(uint64_t *streams, unsigned stream)
{
    if ((*streams >> stream & 1) == 0)
        return false;
    *streams = (*streams & ~STREAM_BIT(stream)) | STREAM_BIT(STRESS_HEIR);
    return true;
}

void stress_undeclared_leave(struct stress *stress, unsigned stream)
{
    struct model *model = &stress->model;
    bool has_heir = false;
    for (unsigned i = 0; i < model->live; i++) {
        struct model_block *block = &model->blocks[model->order[i]];
        has_heir = heir_replace(&block->undeclared, stream) || has_heir;
        (void)heir_replace(&block->writer, stream);
    }
    for (unsigned i = 0; i < stress->stream_count; i++)
        has_heir = heir_replace(&stress->freed_under[i], stream) || has_heir;
    if (has_heir)
        stress_stream_follows(stress, STRESS_HEIR, stream);
}

/* ---- The operation --------------------------------------------------------------------------- */

/* What an undeclared use does besides reading: bits of `way`. */
enum { WAY_WRITES = 1, WAY_DELAYS = 2, WAY_FREES = 12, WAY_ENDS = 48 };

/* One in four is a stranger. */
static unsigned user_draw(struct stress *stress, uint8_t value)
{
    enum { STRANGERS_FROM = 192 };
    if (value < STRANGERS_FROM)
        return operand_stream(stress, value);
    unsigned stranger = stress->stream_count + value % STRESS_STRANGERS;
    stress_stream_renew(stress, stranger);
    return stranger;
}

/* Whether the cache promises something of an undeclared use by a stream. Points may have the driver say that a capture
 * was spoiled, as if one had not been announced: from then on the clock covers known streams only. */
static bool is_promised(const struct stress *stress, unsigned user)
{
    bool covers_all = stress->config.clock_kind != VMM_CLOCK_STREAMS && stress->points == NULL;
    return stress->config.reuse == VMM_REUSE_ANY_USE && !stress_is_padded(stress) &&
           (covers_all || (stress->known >> user & 1) != 0);
}

static bool may_use(const struct stress *stress, const struct model_block *block, unsigned user)
{
    uint64_t streams = block->users | STREAM_BIT(stress_block_keeper(block)) | STREAM_BIT(user);
    return is_promised(stress, user) && block->graph == 0 && user != block->stream &&
           (unsigned)(block - stress->model.blocks) != stress->taking &&
           !stress_is_unusable(stress) && !stress_is_captured(stress, streams);
}

/* Reads; or writes, and reads that. */
static void block_use(struct stress *stress, struct model_block *block, unsigned user, bool writes)
{
    stress_stream_follows(stress, user, stress_block_keeper(block));
    if (writes) {
        stress_users_follow(stress, block, user);
        stress_block_write(stress, block, user);
        block->writer = STREAM_BIT(user);
    }
    stress_block_read(stress, block, user);
    block->undeclared |= STREAM_BIT(user);
    stress->has_undeclared = true;
    stress->sums.undeclared++;
}

static void stranger_end(struct stress *stress, unsigned stranger)
{
    if (stranger < stress->stream_count || stress->ended >= STRESS_ENDS_MOST || stress->is_lost)
        return;
    stress_undeclared_leave(stress, stranger);
    stress_stream_destroy(stress, stranger);
}

/* The first block from a slot on that the user may use; NULL: there is none. */
static struct model_block *block_draw(struct stress *stress, uint8_t slot, unsigned user)
{
    for (unsigned i = 0; i < OPERATION_SLOTS; i++) {
        struct model_block *block = operand_block(stress, (uint8_t)(slot + i));
        if (block != NULL && may_use(stress, block, user))
            return block;
    }
    return NULL;
}

void operation_undeclared(struct stress *stress, const struct operation *operation)
{
    unsigned user = user_draw(stress, operation->b);
    struct model_block *block = block_draw(stress, operation->a, user);
    if (block == NULL)
        return;
    if ((operation->c & WAY_DELAYS) != 0)
        stress_expect_ok(
            stress, "delay",
            vmm__driver_delay(stress->driver, operation->number, stress->streams[user]));
    block_use(stress, block, user, (operation->c & WAY_WRITES) != 0 && block->share == 0);
    if (stress->shared != NULL && block->stream != stress->stream_count - 1)
        stress_undeclared_join(stress, block);
    if ((operation->c & WAY_FREES) == 0)
        stress_block_give(stress, block);
    if ((operation->c & WAY_ENDS) == 0)
        stranger_end(stress, user);
}
