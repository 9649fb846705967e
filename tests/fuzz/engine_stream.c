/* Streams: they end, and their handles come back as other streams'. See engine.h. */
#include "engine.h"

void engine_stream_renew(struct engine *engine, unsigned stream)
{
    if ((engine->gone >> stream & 1) == 0 || engine->is_lost)
        return;
    engine_expect_ok(engine, "stream create",
                     vmm__driver_stream_create(engine->driver, &engine->streams[stream]));
    engine->gone &= ~(1U << stream);
    engine_list(engine, "stream %u is %p", stream, engine->streams[stream]);
}

/* ---- What it leaves -------------------------------------------------------------------------- */

/* Whether a live block is of the stream, so that the cache surely knows it. */
static bool stream_has_blocks(const struct engine *engine, unsigned stream)
{
    const struct model *model = &engine->model;
    for (unsigned i = 0; i < model->live; i++) {
        if (model->blocks[model->order[i]].stream == stream)
            return true;
    }
    return false;
}

/* Returns whether the block was used on the stream. */
static bool block_left(struct model_block *block, unsigned stream)
{
    bool is_own = block->stream == stream;
    bool is_user = (block->users >> stream & 1) != 0;
    if (is_own)
        block->stream = MODEL_STREAMS;
    block->users &= ~(1U << stream);
    block->is_left = block->is_left || is_own || is_user;
    return is_own || is_user;
}

/* Its blocks stay, and so do those that it used: whoever works on them comes after its work by way of the heir. */
static void stream_leave(struct engine *engine, unsigned stream)
{
    struct model *model = &engine->model;
    bool has_heir = false;
    for (unsigned i = 0; i < model->live; i++)
        has_heir = block_left(&model->blocks[model->order[i]], stream) || has_heir;
    for (unsigned i = 0; i < MODEL_POOLS; i++) {
        struct model_pool *pool = &model->pools[i];
        has_heir = has_heir || pool->launched == stream;
        pool->launched = pool->launched == stream ? ENGINE_HEIR : pool->launched;
    }
    if (has_heir)
        engine_stream_follows(engine, ENGINE_HEIR, stream);
}

/* ---- The end --------------------------------------------------------------------------------- */

static bool stream_tell(struct engine *engine, unsigned stream, unsigned legal)
{
    engine_enter(engine);
    vmm_status status = vmm_stream_end(engine->cache, engine->streams[stream]);
    engine_leave(engine);
    return engine_expect(engine, "vmm_stream_end", status, legal, STATUS_FAULTS);
}

static void stream_destroy(struct engine *engine, unsigned stream)
{
    engine_list(engine, "stream %u was %p", stream, engine->streams[stream]);
    engine_expect_ok(engine, "stream destroy",
                     vmm__driver_stream_destroy(engine->driver, engine->streams[stream]));
    engine->streams[stream] = ENGINE_NO_STREAM;
    engine->gone |= 1U << stream;
    engine->known &= ~(1U << stream);
    engine->ended++;
}

/*
 * One in four ends without a word to the cache, once all work is done. One that is being captured does not end; it
 * is asked for only where the cache surely knows it. The sim driver keeps the work of so many streams apart.
 */
void operation_stream_end(struct engine *engine, const struct operation *operation)
{
    enum { ENDS_MOST = 200, SILENT_ONE_IN = 4 };
    unsigned stream = 1 + operation->a % (MODEL_STREAMS - 1);
    bool is_silent = operation->b % SILENT_ONE_IN == SILENT_ONE_IN - 1;
    if ((engine->gone >> stream & 1) != 0 || engine->ended == ENDS_MOST)
        return;
    if (engine_is_captured(engine, 1U << stream)) {
        if (stream_has_blocks(engine, stream))
            (void)stream_tell(engine, stream, STATUS_BIT(ERR_INVALID_ARGUMENT));
        return;
    }
    if (engine->is_lost || (is_silent && engine->captured != 0))
        return;
    if (is_silent) {
        engine_work_verify(engine);
        engine->has_strays =
            engine->config.compaction != VMM_COMPACTION_OFF || engine_is_padded(engine);
    } else if (!stream_tell(engine, stream, STATUS_BIT(OK)) || engine->is_lost)
        return;
    stream_leave(engine, stream);
    stream_destroy(engine, stream);
}
