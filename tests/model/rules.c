/*
 * Which operations the rules allow. A rule that is switched off allows more; nothing else decides.
 *
 * Where the design leaves a choice (which of several free runs, which idle chunk), every choice is
 * an operation of its own.
 */
#include "model.h"

enum { FIRST_SLOT = SLOTS / 2 }; /* of a new view: there is room to grow on both sides */

struct offer {
    const struct records *records;
    const struct rules *rules;
    operation_fn each;
    void *context;
};

static void offer_operation(const struct offer *offer, struct operation operation)
{
    offer->each(offer->context, &operation);
}

static bool half_exists(const struct records *records)
{
    return records->views[0].is_half || records->views[1].is_half;
}

/* Requests of the default pool may use the chunk. */
static bool chunk_is_usable(const struct offer *offer, unsigned chunk)
{
    const struct chunk *found = &offer->records->chunks[chunk];
    return found->exists && (!found->retained || offer->rules->off[RULE_POOLS_APART]);
}

/* ---- Allocations ----------------------------------------------------------------------------- */

static bool granule_is_free(const struct offer *offer, unsigned chunk, unsigned granule)
{
    return chunk_is_usable(offer, chunk) && !offer->records->chunks[chunk].granules[granule].used;
}

static void offer_home_allocs(const struct offer *offer)
{
    for (uint8_t chunk = 0; chunk < CHUNKS; chunk++) {
        for (uint8_t first = 0; first < GRANULES; first++) {
            for (uint8_t end = first; end < GRANULES && granule_is_free(offer, chunk, end); end++) {
                offer_operation(
                    offer, (struct operation){ .kind = OPERATION_HOME_ALLOC,
                                               .stream = offer->records->chunks[chunk].owner,
                                               .range = { .view = HOME,
                                                          .chunk = chunk,
                                                          .first = first,
                                                          .count = (uint8_t)(end + 1 - first) } });
            }
        }
    }
}

/* A run of granules [first, end) of a row, as the stream sees it. */
static bool run_serves(const struct offer *offer, const struct view *view, unsigned first,
                       unsigned end, unsigned stream)
{
    bool has_own = false;
    for (unsigned at = first; at < end; at++) {
        unsigned chunk = view->row[at / GRANULES].chunk;
        if (chunk == NONE || !granule_is_free(offer, chunk, at % GRANULES))
            return false;
        const struct chunk *found = &offer->records->chunks[chunk];
        bool is_own = found->owner == stream;
        if (!is_own && !offer->rules->off[chunk_is_idle(found) ? RULE_OWNERSHIP_OF_IDLE
                                                               : RULE_OWNERSHIP_OF_ENDS])
            return false;
        has_own = has_own || is_own;
    }
    return has_own;
}

static void offer_run(const struct offer *offer, const struct operation *model,
                      const struct view *view, unsigned first, unsigned end)
{
    for (uint8_t stream = 0; stream < STREAMS; stream++) {
        if (!run_serves(offer, view, first, end, stream))
            continue;
        struct operation operation = *model;
        operation.stream = stream;
        operation.range = (struct range){ .view = model->view,
                                          .first = (uint8_t)(view->base * GRANULES + first),
                                          .count = (uint8_t)(end - first) };
        offer_operation(offer, operation);
    }
}

/* What fits into one granule is served at home. */
static void offer_view_allocs(const struct offer *offer)
{
    for (uint8_t v = 0; v < VIEWS; v++) {
        const struct view *view = &offer->records->views[v];
        struct operation model = { .kind = OPERATION_VIEW_ALLOC, .view = v };
        if (view->is_half)
            continue;
        for (unsigned first = 0; first < (unsigned)view->count * GRANULES; first++) {
            for (unsigned end = first + 2; end <= (unsigned)view->count * GRANULES; end++)
                offer_run(offer, &model, view, first, end);
        }
    }
}

/* ---- Views ----------------------------------------------------------------------------------- */

/* The block of a new view reaches from its first chunk to its last. */
static void offer_stitch(const struct offer *offer, struct operation model, const struct view *view)
{
    unsigned whole = (unsigned)view->count * GRANULES;
    model.kind = OPERATION_STITCH;
    for (unsigned first = 0; first < GRANULES; first++) {
        for (unsigned end = whole - GRANULES + 1; end <= whole; end++) {
            if (end >= first + 2)
                offer_run(offer, &model, view, first, end);
        }
    }
}

/* A row may take the chunk: a plan serves one stream. */
static bool row_takes(const struct offer *offer, const struct view *row, unsigned chunk)
{
    if (row->count == ROW || !chunk_is_usable(offer, chunk))
        return false;
    if (view_position(row, chunk) < row->count)
        return offer->rules->off[RULE_ONCE_IN_VIEW];
    return row->count == 0 || offer->rules->off[RULE_OWNERSHIP_OF_ENDS] ||
           offer->rules->off[RULE_OWNERSHIP_OF_IDLE] ||
           offer->records->chunks[chunk].owner == offer->records->chunks[row->row[0].chunk].owner;
}

/* A half-made view has one chunk: its rule is about the mappings of one handle. */
static void offer_rows(const struct offer *offer, struct operation model, struct view row)
{
    for (uint8_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (!row_takes(offer, &row, chunk))
            continue;
        struct view longer = row;
        struct operation operation = model;
        view_place(&longer, row.count, chunk);
        operation.row[row.count] = chunk;
        operation.count = longer.count;
        offer_stitch(offer, operation, &longer);
        operation.kind = OPERATION_HALF;
        if (longer.count == 1)
            offer_operation(offer, operation);
        offer_rows(offer, operation, longer);
    }
}

static void offer_views(const struct offer *offer)
{
    uint8_t v = 0;
    while (v < VIEWS && offer->records->views[v].count > 0)
        v++;
    if (v < VIEWS)
        offer_rows(offer, (struct operation){ .view = v }, (struct view){ .base = FIRST_SLOT });
}

static void offer_half(const struct offer *offer)
{
    for (uint8_t v = 0; v < VIEWS; v++) {
        if (!offer->records->views[v].is_half)
            continue;
        offer_operation(offer, (struct operation){ .kind = OPERATION_WHOLE, .view = v });
        offer_operation(offer, (struct operation){ .kind = OPERATION_UNDO, .view = v });
    }
}

static bool extend_is_allowed(const struct offer *offer, const struct view *view, int position,
                              unsigned chunk)
{
    if (!chunk_is_usable(offer, chunk))
        return false;
    if (view_position(view, chunk) < view->count && !offer->rules->off[RULE_ONCE_IN_VIEW])
        return false;
    int slot = view->base + position;
    bool is_outside = position < 0 || position == view->count;
    if (is_outside && (view->count == ROW || slot < 0 || slot >= SLOTS))
        return false;
    return is_outside || view->row[position].chunk == NONE;
}

static void offer_extends(const struct offer *offer)
{
    for (uint8_t v = 0; v < VIEWS; v++) {
        const struct view *view = &offer->records->views[v];
        for (int position = -1; view->count > 0 && position <= view->count; position++) {
            for (uint8_t chunk = 0; chunk < CHUNKS; chunk++) {
                if (extend_is_allowed(offer, view, position, chunk))
                    offer_operation(offer, (struct operation){ .kind = OPERATION_EXTEND,
                                                               .view = v,
                                                               .position = (int8_t)position,
                                                               .chunk = chunk });
            }
        }
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Every used granule of the block's chunks is the block's own. */
static bool block_is_alone(const struct offer *offer, const struct block *block)
{
    struct records copy = *offer->records;
    copy.blocks[block - offer->records->blocks].state = BLOCK_NONE;
    records_vacate(&copy, offer->rules, block->range, (struct stamp){ 0 });
    for (unsigned i = 0; i < block->range.count; i++) {
        const struct chunk *chunk = &copy.chunks[records_spot(&copy, block->range, i).chunk];
        if (!chunk->exists || !chunk_is_idle(chunk))
            return false;
    }
    return true;
}

static void offer_block(const struct offer *offer, uint8_t index)
{
    const struct block *block = &offer->records->blocks[index];
    if (block->state != BLOCK_LIVE)
        return;
    offer_operation(offer, (struct operation){ .kind = OPERATION_FREE, .block = index });
    for (uint8_t stream = 0; stream < STREAMS && !block->is_graph; stream++) {
        struct operation operation = { .kind = OPERATION_USE, .block = index, .stream = stream };
        if (stream == block->stream || (block->users & 1U << stream) != 0)
            continue;
        if (!block->is_read)
            offer_operation(offer, operation);
        operation.reads = true;
        offer_operation(offer, operation);
    }
    if (!offer->records->graph.exists && block->users == 0 && block_is_alone(offer, block))
        offer_operation(offer, (struct operation){ .kind = OPERATION_RETAIN, .block = index });
}

static void offer_misuses(const struct offer *offer)
{
    for (unsigned i = 0; i < BLOCKS && offer->rules->off[RULE_ONE_ADDRESS]; i++) {
        const struct block *block = &offer->records->blocks[i];
        struct records copy = *offer->records;
        if (block->state != BLOCK_LIVE || block->range.view == HOME)
            continue;
        for (unsigned at = 0; at < block->range.count; at++) {
            struct spot spot = records_spot(&copy, block->range, at);
            if (copy.chunks[spot.chunk].granules[spot.granule].used)
                offer_operation(offer, (struct operation){ .kind = OPERATION_MISUSE,
                                                           .range = { .view = HOME,
                                                                      .chunk = spot.chunk,
                                                                      .first = spot.granule,
                                                                      .count = 1 } });
        }
    }
}

static void offer_finishes(const struct offer *offer)
{
    for (uint8_t stream = 0; stream < STREAMS; stream++) {
        unsigned pending = offer->records->recorded[stream] - offer->records->passed[stream];
        struct operation operation = { .kind = OPERATION_FINISH, .stream = stream };
        if (pending > 0)
            offer_operation(offer, operation);
        operation.all = true;
        if (pending > 1)
            offer_operation(offer, operation);
    }
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static bool granules_finished(const struct records *records, const struct chunk *chunk)
{
    for (unsigned i = 0; i < GRANULES; i++) {
        if (!records_finished(records, chunk->granules[i].stamp))
            return false;
    }
    return true;
}

static void offer_transfers(const struct offer *offer)
{
    const bool *off = offer->rules->off;
    for (uint8_t i = 0; i < CHUNKS; i++) {
        const struct chunk *chunk = &offer->records->chunks[i];
        bool is_allowed =
            chunk->exists && (!chunk->retained || off[RULE_RETAINED_TRANSFER]) &&
            (chunk_is_idle(chunk) || off[RULE_TRANSFER_WHOLE]) &&
            (granules_finished(offer->records, chunk) || off[RULE_FINISHED_BEFORE_TRANSFER]);
        for (uint8_t stream = 0; is_allowed && stream < STREAMS; stream++) {
            if (stream != chunk->owner)
                offer_operation(
                    offer,
                    (struct operation){ .kind = OPERATION_TRANSFER, .chunk = i, .stream = stream });
        }
    }
}

/* The stamps of the home granules cover the use of every place: see rule STAMP_HOME. */
static void offer_trims(const struct offer *offer)
{
    const bool *off = offer->rules->off;
    for (uint8_t i = 0; i < CHUNKS; i++) {
        const struct chunk *chunk = &offer->records->chunks[i];
        bool is_finished = granules_finished(offer->records, chunk);
        if (chunk->exists && chunk_is_idle(chunk) &&
            (!chunk->retained || off[RULE_RETAINED_TRIM]) &&
            (is_finished || off[RULE_FINISHED_BEFORE_TRIM]))
            offer_operation(offer, (struct operation){ .kind = OPERATION_TRIM, .chunk = i });
    }
}

static bool view_finished(const struct records *records, const struct view *view)
{
    for (unsigned i = 0; i < view->count; i++) {
        if (!records_finished(records, view->row[i].stamp))
            return false;
    }
    return true;
}

static void offer_evicts(const struct offer *offer)
{
    const struct records *records = offer->records;
    for (uint8_t v = 0; v < VIEWS; v++) {
        const struct view *view = &records->views[v];
        bool is_retained = records->graph.exists && records->graph.range.view == v;
        if (view->count == 0 || view->is_half || view_is_in_use(records, v))
            continue;
        if ((!is_retained || offer->rules->off[RULE_RETAINED_EVICT]) &&
            (view_finished(records, view) || offer->rules->off[RULE_FINISHED_BEFORE_EVICT]))
            offer_operation(offer, (struct operation){ .kind = OPERATION_EVICT, .view = v });
    }
}

static void offer_creates(const struct offer *offer)
{
    for (uint8_t chunk = 0; chunk < CHUNKS; chunk++) {
        for (uint8_t stream = 0; stream < STREAMS; stream++) {
            if (!offer->records->chunks[chunk].exists)
                offer_operation(offer, (struct operation){ .kind = OPERATION_CREATE,
                                                           .chunk = chunk,
                                                           .stream = stream });
        }
    }
}

/* What needs the grow lock. A thread that makes a view holds it until the view has access. */
static void offer_slow(const struct offer *offer)
{
    bool is_half = half_exists(offer->records);
    if (!is_half) {
        offer_views(offer);
        offer_extends(offer);
        offer_transfers(offer);
        offer_creates(offer);
    }
    if (!is_half || offer->rules->off[RULE_MAP_ORDER]) {
        offer_trims(offer);
        offer_evicts(offer);
    }
}

void rules_allowed(const struct records *records, const struct rules *rules, operation_fn each,
                   void *context)
{
    struct offer offer = { records, rules, each, context };
    offer_home_allocs(&offer);
    offer_view_allocs(&offer);
    for (uint8_t i = 0; i < BLOCKS; i++)
        offer_block(&offer, i);
    offer_misuses(&offer);
    if (records->graph.exists)
        offer_operation(&offer, (struct operation){ .kind = OPERATION_LAUNCH });
    offer_finishes(&offer);
    offer_half(&offer);
    offer_slow(&offer);
}
