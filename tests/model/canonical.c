/*
 * One number for all states that differ in names only.
 *
 * A state is the records, and what the driver has to judge by: read from the driver itself, so that
 * two states with one number have one future. It depends on this alone: for each granule, who wrote
 * it last and who has read it since; for each mapping, who has used it; and for each stream, the
 * host and each event that has not passed, what they are ordered after (vector clocks). All of it
 * is only ever compared, epoch with clock, so that numbers of work become levels: an epoch is
 * covered by a clock if its level is not higher, and neighbours that no comparison tells apart
 * share a level.
 *
 * Names are those of streams, chunks and views. A state and its mirror image (last granule first,
 * rows reversed) are the same as well. The number is the least hash over all names. Two states that
 * differ have the same hash once in 2^64.
 */
#include "model.h"

#include "driver/sim/internal.h"

enum { PERMUTATIONS = 6, CLASSES = 64 };

static const uint8_t permutations[PERMUTATIONS][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                                       { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

/* Levels of the epochs of a set, by stream; 0: none, or known to have finished. */
struct levels {
    uint8_t of[STREAMS];
};

struct judgement {
    struct levels writers[CHUNKS][GRANULES];
    struct levels readers[CHUNKS][GRANULES];
    struct levels homes[CHUNKS]; /* users of the mapping */
    struct levels places[VIEWS][ROW];
    struct levels clocks[STREAMS];
    struct levels events[STREAMS][EVENTS];
};

/* ---- Levels ---------------------------------------------------------------------------------- */

/* Two passes over the driver's numbers: the first collects them, the second translates them. */
struct reader {
    struct sim *sim;
    unsigned slots[STREAMS];  /* of the driver, for each stream */
    uint64_t epochs[STREAMS]; /* bit n: an epoch of number observed + n */
    uint64_t clocks[STREAMS];
    uint8_t epoch_levels[STREAMS][CLASSES];
    uint8_t clock_levels[STREAMS][CLASSES];
    bool translates;
    bool overflows; /* more than CLASSES numbers: never with DEPTH_MOST operations */
};

static unsigned reader_offset(struct reader *reader, unsigned stream, uint64_t sequence)
{
    uint64_t observed = reader->sim->order.observed[reader->slots[stream]];
    uint64_t offset = sequence > observed ? sequence - observed : 0;
    if (offset >= CLASSES)
        reader->overflows = true;
    return offset < CLASSES ? (unsigned)offset : CLASSES - 1;
}

static void read_epoch(struct reader *reader, uint64_t epoch, struct levels *levels)
{
    if (epoch == 0)
        return;
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        if (reader->slots[stream] != sim_epoch_stream(epoch))
            continue;
        unsigned offset = reader_offset(reader, stream, sim_epoch_sequence(epoch));
        if (offset == 0)
            continue;
        reader->epochs[stream] |= UINT64_C(1) << offset;
        if (reader->translates)
            levels->of[stream] = reader->epoch_levels[stream][offset];
    }
}

static void read_users(struct reader *reader, const struct sim_users *users, struct levels *levels)
{
    read_epoch(reader, users->one, levels);
    for (uint32_t i = 0; users->many != NULL && i < users->many->count; i++)
        read_epoch(reader, users->many->epochs[i], levels);
}

static void read_clock(struct reader *reader, const uint64_t *clock, uint32_t count,
                       struct levels *levels)
{
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        unsigned slot = reader->slots[stream];
        unsigned offset = slot < count ? reader_offset(reader, stream, clock[slot]) : 0;
        reader->clocks[stream] |= UINT64_C(1) << offset;
        if (reader->translates)
            levels->of[stream] = reader->clock_levels[stream][offset];
    }
}

/* A new level begins where an epoch follows a clock. */
static void reader_number_levels(struct reader *reader)
{
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        uint8_t level = 0;
        bool was_clock = true;
        for (unsigned offset = 0; offset < CLASSES; offset++) {
            bool is_epoch = (reader->epochs[stream] >> offset & 1) != 0;
            bool is_clock = (reader->clocks[stream] >> offset & 1) != 0;
            level = (uint8_t)(level + (is_epoch && was_clock));
            was_clock = is_clock || (was_clock && !is_epoch);
            reader->epoch_levels[stream][offset] = level;
            reader->clock_levels[stream][offset] = level;
        }
    }
    reader->translates = true;
}

/* ---- The driver's state ---------------------------------------------------------------------- */

static void read_shadow(struct reader *reader, const struct sim_shadow *shadow, unsigned chunk,
                        struct judgement *out)
{
    uint64_t granule_bytes = reader->sim->soft.driver.granule_bytes;
    for (uint32_t i = 0; i < shadow->count; i++) {
        const struct sim_interval *item = &shadow->items[i];
        for (uint64_t at = item->offset; at < item->offset + item->bytes; at += granule_bytes) {
            read_epoch(reader, item->writer, &out->writers[chunk][at / granule_bytes]);
            read_users(reader, &item->readers, &out->readers[chunk][at / granule_bytes]);
        }
    }
}

static void read_mapping(struct reader *reader, uint64_t address, struct levels *levels)
{
    const struct soft_reservation *reservation =
        vmm__soft_reservation_at(&reader->sim->soft.space, address);
    const struct soft_mapping *mapping = *soft_granule(reservation, address);
    if (mapping != NULL)
        read_users(reader, &((const struct sim_mapping *)mapping)->users, levels);
}

static void read_memory(struct reader *reader, const struct world *world, struct judgement *out)
{
    uint64_t chunk_bytes = GRANULES * reader->sim->soft.driver.granule_bytes;
    for (unsigned i = 0; i < CHUNKS; i++) {
        const struct sim_handle *handle =
            (const struct sim_handle *)soft_handle_find(&reader->sim->soft, world->handles[i]);
        if (!world->records.chunks[i].exists || handle == NULL)
            continue;
        read_shadow(reader, &handle->shadow, i, out);
        read_mapping(reader, world->homes + i * chunk_bytes, &out->homes[i]);
    }
    for (unsigned v = 0; v < VIEWS; v++) {
        const struct view *view = &world->records.views[v];
        for (unsigned i = 0; i < view->count; i++)
            read_mapping(reader, world->views[v] + (view->base + i) * chunk_bytes,
                         &out->places[v][i]);
    }
}

/* What the stream's next work follows: it learns at its submission what the host has observed. */
static void read_streams(struct reader *reader, const struct world *world, struct judgement *out)
{
    const struct records *records = &world->records;
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        const struct sim_stream *found = (const struct sim_stream *)soft_stream_find(
            &reader->sim->soft.streams, world->streams[stream]);
        if (found != NULL)
            read_clock(reader, found->clock, SIM_STREAMS, &out->clocks[stream]);
        for (unsigned i = records->passed[stream] + 1U; i <= records->recorded[stream]; i++) {
            const struct soft_event *event = (const struct soft_event *)vmm__map_find(
                &reader->sim->soft.events, (uint64_t)(uintptr_t)world->events[stream][i]);
            read_clock(reader, event->positions, event->count, &out->events[stream][i]);
        }
    }
}

static bool judgement_read(struct world *world, struct judgement *out)
{
    struct reader reader = { .sim = (struct sim *)world->driver };
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        const struct sim_stream *found = (const struct sim_stream *)soft_stream_find(
            &reader.sim->soft.streams, world->streams[stream]);
        reader.slots[stream] = found != NULL ? found->index : SIM_STREAMS - 1;
    }
    read_memory(&reader, world, out);
    read_streams(&reader, world, out);
    reader_number_levels(&reader);
    *out = (struct judgement){ 0 };
    read_memory(&reader, world, out);
    read_streams(&reader, world, out);
    return !reader.overflows;
}

/* ---- Hashes under one choice of names -------------------------------------------------------- */

struct naming {
    const struct records *records;
    const struct judgement *judgement;
    const uint8_t *streams; /* old name to new */
    uint8_t old[STREAMS];   /* new name to old */
    const uint8_t *chunks;  /* old name to new */
    bool is_mirrored;
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t mix_levels(const struct naming *naming, uint64_t hash, const struct levels *levels)
{
    uint64_t value = 0;
    for (unsigned stream = 0; stream < STREAMS; stream++)
        value = value << 8 | levels->of[naming->old[stream]];
    return mix(hash, value);
}

static uint64_t mix_stamp(const struct naming *naming, uint64_t hash, struct stamp stamp)
{
    unsigned passed = naming->records->passed[stamp.stream];
    if (stamp.number <= passed)
        return mix(hash, 0);
    return mix(hash, (uint64_t)naming->streams[stamp.stream] << 8 | (stamp.number - passed));
}

/* `total`: granules of the row or chunk that the range lies in; `first` counts from its start. */
static uint64_t hash_range(const struct naming *naming, unsigned first, unsigned count,
                           unsigned total)
{
    return (uint64_t)(naming->is_mirrored ? total - first - count : first) << 8 | count;
}

static uint64_t hash_block(const struct naming *naming, const struct block *block, uint64_t range)
{
    uint64_t users = 0;
    uint64_t hash = mix(range, block->state);
    hash = mix(hash, (uint64_t)naming->streams[block->stream] << 16 |
                         (uint64_t)naming->streams[block->last] << 8 |
                         (uint64_t)block->is_read << 1 | block->is_graph);
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        unsigned old = naming->old[stream];
        uint8_t passed = naming->records->passed[old];
        uint64_t wait = block->waits[old] > passed ? block->waits[old] - passed : 0;
        users = users << 16 | wait << 1 | (block->users >> old & 1);
    }
    return mix_stamp(naming, mix(hash, users), block->freed);
}

/* All blocks and the graph in a view, or at home in a chunk; a sum, because order means nothing. */
static uint64_t hash_contents(const struct naming *naming, unsigned view, unsigned chunk,
                              unsigned base, unsigned total)
{
    uint64_t sum = 0;
    const struct graph *graph = &naming->records->graph;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *block = &naming->records->blocks[i];
        if (block->state == BLOCK_NONE || block->range.view != view || block->range.chunk != chunk)
            continue;
        sum += hash_block(naming, block,
                          hash_range(naming, block->range.first - base, block->range.count, total));
    }
    if (!graph->exists || graph->range.view != view || graph->range.chunk != chunk)
        return sum;
    return mix(mix(sum, naming->streams[graph->stream]),
               hash_range(naming, graph->range.first - base, graph->range.count, total));
}

static uint64_t hash_chunk(const struct naming *naming, unsigned index)
{
    const struct chunk *chunk = &naming->records->chunks[index];
    const struct judgement *judgement = naming->judgement;
    if (!chunk->exists)
        return 1;
    uint64_t hash = mix(2, (uint64_t)naming->streams[chunk->owner] << 1 | chunk->retained);
    for (unsigned i = 0; i < GRANULES; i++) {
        unsigned at = naming->is_mirrored ? GRANULES - 1 - i : i;
        hash = mix_stamp(naming, mix(hash, chunk->granules[at].used), chunk->granules[at].stamp);
        hash = mix_levels(naming, hash, &judgement->writers[index][at]);
        hash = mix_levels(naming, hash, &judgement->readers[index][at]);
    }
    hash = mix_levels(naming, hash, &judgement->homes[index]);
    return mix(hash, hash_contents(naming, HOME, index, 0, GRANULES));
}

static uint64_t hash_view(const struct naming *naming, unsigned index)
{
    const struct view *view = &naming->records->views[index];
    uint64_t hash = mix(3, (uint64_t)view->count << 1 | view->is_half);
    for (unsigned i = 0; i < view->count; i++) {
        unsigned at = naming->is_mirrored ? view->count - 1 - i : i;
        const struct place *place = &view->row[at];
        uint64_t chunk = place->chunk == NONE ? NONE : naming->chunks[place->chunk];
        hash = mix_stamp(naming, mix(hash, chunk << 1 | place->is_orphan), place->stamp);
        hash = mix_levels(naming, hash, &naming->judgement->places[index][at]);
    }
    return mix(hash, hash_contents(naming, index, 0, (unsigned)view->base * GRANULES,
                                   (unsigned)view->count * GRANULES));
}

static uint64_t hash_stream(const struct naming *naming, unsigned stream)
{
    const struct records *records = naming->records;
    uint64_t hash = mix_levels(naming, 4, &naming->judgement->clocks[stream]);
    for (unsigned i = records->passed[stream] + 1U; i <= records->recorded[stream]; i++)
        hash = mix_levels(naming, hash, &naming->judgement->events[stream][i]);
    return hash;
}

/* The views and streams, once the chunks have names. */
static uint64_t hash_rest(const struct naming *naming, uint64_t hash)
{
    uint64_t sum = 0;
    for (unsigned v = 0; v < VIEWS; v++)
        sum += hash_view(naming, v);
    hash = mix(hash, sum);
    for (unsigned stream = 0; stream < STREAMS; stream++)
        hash = mix(hash, hash_stream(naming, naming->old[stream]));
    return hash;
}

/* ---- The least ------------------------------------------------------------------------------- */

/* Names chunks so that their hashes ascend; tries every such naming. */
static uint64_t least_over_chunks(struct naming *naming)
{
    uint64_t hashes[CHUNKS];
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < CHUNKS; i++)
        hashes[i] = hash_chunk(naming, i);
    for (unsigned i = 0; i < PERMUTATIONS; i++) {
        uint64_t sorted[CHUNKS];
        naming->chunks = permutations[i];
        for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
            sorted[naming->chunks[chunk]] = hashes[chunk];
        if (sorted[0] > sorted[1] || sorted[1] > sorted[2])
            continue;
        uint64_t hash = hash_rest(naming, mix(mix(mix(5, sorted[0]), sorted[1]), sorted[2]));
        if (hash < least)
            least = hash;
    }
    return least;
}

/* Streams that own fewer chunks, and have fewer events, come first: other namings are left out. */
static bool naming_is_sorted(const struct naming *naming)
{
    const struct records *records = naming->records;
    unsigned ranks[STREAMS] = { 0 };
    for (unsigned i = 0; i < CHUNKS; i++)
        ranks[naming->streams[records->chunks[i].owner]] += records->chunks[i].exists ? EVENTS : 0;
    for (unsigned stream = 0; stream < STREAMS; stream++)
        ranks[naming->streams[stream]] +=
            (unsigned)records->recorded[stream] - records->passed[stream];
    return ranks[0] <= ranks[1] && ranks[1] <= ranks[2];
}

uint64_t world_canonical(struct world *world)
{
    struct judgement judgement = { 0 };
    uint64_t least = UINT64_MAX;
    if (!judgement_read(world, &judgement))
        return 0;
    for (unsigned i = 0; i < 2 * PERMUTATIONS; i++) {
        struct naming naming = { .records = &world->records,
                                 .judgement = &judgement,
                                 .streams = permutations[i / 2],
                                 .is_mirrored = i % 2 != 0 };
        for (uint8_t stream = 0; stream < STREAMS; stream++)
            naming.old[naming.streams[stream]] = stream;
        if (!naming_is_sorted(&naming))
            continue;
        uint64_t hash = least_over_chunks(&naming);
        if (hash < least)
            least = hash;
    }
    return least;
}
