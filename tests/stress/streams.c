/* Streams: they end, and their handles come back as other streams'. See stress.h. */
#include "stress.h"

void stress_stream_renew(struct stress *stress, unsigned stream)
{
    if ((stress->gone >> stream & 1) == 0 || stress->is_lost)
        return;
    stress_expect_ok(stress, "stream create",
                     vmm__driver_stream_create(stress->driver, &stress->streams[stream]));
    stress->gone &= ~STREAM_BIT(stream);
    if (stress->has_abandoned)
        stress_stream_follows(stress, stream, STRESS_HEIR);
    stress_list(stress, "stream %u is %p", stream, stress->streams[stream]);
}

/* ---- What it leaves -------------------------------------------------------------------------- */

/* Whether a live block is of the stream, so that the cache surely knows it. */
static bool stream_has_blocks(const struct stress *stress, unsigned stream)
{
    const struct model *model = &stress->model;
    for (unsigned i = 0; i < model->live; i++) {
        if (model->blocks[model->order[i]].stream == stream)
            return true;
    }
    return false;
}

/* Whether a live block that several streams use is of the stream, or used by it. */
static bool stream_shares_blocks(const struct stress *stress, unsigned stream)
{
    const struct model *model = &stress->model;
    for (unsigned i = 0; i < model->live; i++) {
        const struct model_block *block = &model->blocks[model->order[i]];
        if (block->is_shared && (block->stream == stream || (block->users >> stream & 1) != 0))
            return true;
    }
    return false;
}

/* Returns whether the block was used on the stream. */
static bool block_leave(struct model_block *block, unsigned stream, bool is_silent)
{
    bool is_own = block->stream == stream;
    bool is_user = (block->users >> stream & 1) != 0;
    if (is_own)
        block->stream = MODEL_STREAMS;
    block->is_abandoned = block->is_abandoned || (is_own && is_silent);
    block->users &= ~STREAM_BIT(stream);
    block->is_left = block->is_left || is_own || is_user;
    return is_own || is_user;
}

/* Its blocks stay live, and so do those that it used: the heir orders later work on them after its work. */
static void stream_leave(struct stress *stress, unsigned stream, bool is_silent)
{
    struct model *model = &stress->model;
    bool has_heir = false;
    for (unsigned i = 0; i < model->live; i++)
        has_heir = block_leave(&model->blocks[model->order[i]], stream, is_silent) || has_heir;
    for (unsigned i = 0; i < MODEL_POOLS; i++) {
        struct model_pool *pool = &model->pools[i];
        has_heir = has_heir || pool->launched == stream;
        pool->launched = pool->launched == stream ? STRESS_HEIR : pool->launched;
    }
    if (has_heir)
        stress_stream_follows(stress, STRESS_HEIR, stream);
    stress_undeclared_leave(stress, stream);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* An announcement that ends by itself lasts as long as the driver does not answer. */
static bool stream_tell(struct stress *stress, unsigned stream, unsigned legal)
{
    stress_enter(stress);
    vmm_status status =
        legal == STATUS_BIT(OK)
            ? control_stream_end(&stress->control, stress->cache, stress->streams[stream])
            : vmm_stream_end(stress->cache, stress->streams[stream]);
    stress_leave(stress);
    if (stress->faults.fired != 0)
        legal |= STATUS_BIT(ERR_INVALID_ARGUMENT);
    return stress_expect(stress, "vmm_stream_end", status, legal, STATUS_FAULTS);
}

void stress_stream_destroy(struct stress *stress, unsigned stream)
{
    stress_list(stress, "stream %u was %p", stream, stress->streams[stream]);
    stress_expect_ok(stress, "stream destroy",
                     vmm__driver_stream_destroy(stress->driver, stress->streams[stream]));
    stress->streams[stream] = STRESS_NO_STREAM;
    stress->gone |= STREAM_BIT(stream);
    stress->known &= ~STREAM_BIT(stream);
    stress->ended++;
    stress->sums.ends++;
}

/* Ends without a word to the cache, half of the time with work under way. The next stream with the handle gets the
 * memory as its own, so that the program must order the two. */
static void stream_abandon(struct stress *stress, unsigned stream, bool has_work)
{
    if (!has_work)
        stress_work_verify(stress);
    stress->has_strays =
        stress->has_strays || stress_is_padded(stress) || stream_shares_blocks(stress, stream);
    stress_own_follow(stress, stream);
    stress_stream_follows(stress, STRESS_HEIR, stream);
    stress->has_abandoned = true;
}

/*
 * One in four ends without a word to the cache. One that is being captured does not end; it is asked for only where the
 * cache surely knows it. The sim driver keeps the work of so many streams apart.
 */
void operation_stream_end(struct stress *stress, const struct operation *operation)
{
    enum { SILENT_ONE_IN = 4 };
    unsigned stream = 1 + operation->a % (stress->stream_count - 1);
    bool is_silent =
        stress->kind != VMM_DRIVER_CUDA && /* CUDA crashes when asked about such a stream */
        stress->config.clock_kind != VMM_CLOCK_STREAMS &&
        operation->b % SILENT_ONE_IN == SILENT_ONE_IN - 1;
    if ((stress->gone >> stream & 1) != 0 || stress->ended >= STRESS_ENDS_MOST)
        return;
    if (stress_is_captured(stress, STREAM_BIT(stream))) {
        if (stream_has_blocks(stress, stream) && stress->config.reuse != VMM_REUSE_ANY_USE)
            (void)stream_tell(stress, stream, STATUS_BIT(ERR_INVALID_ARGUMENT));
        return;
    }
    if (stress->is_lost || (is_silent && stress->captured != 0))
        return;
    if (is_silent)
        stream_abandon(stress, stream, operation->b / SILENT_ONE_IN % 2 != 0);
    else if (!stream_tell(stress, stream, STATUS_BIT(OK)) || stress->is_lost)
        return;
    if (!is_silent)
        stress->freed_under[stream] = 0; /* the next stream with its handle is another one */
    stream_leave(stress, stream, is_silent);
    stress_stream_destroy(stress, stream);
}
