/*
 * The world of the model: a sim driver, and the driver calls that each operation stands for.
 *
 * A sequence begins by releasing what the previous one used, so that one driver serves all of them:
 * new handles have new shadows, and a wait for the device makes all earlier work known.
 */
#include "model.h"

#include "driver/sim/sim.h"

#include <stdio.h>
#include <string.h>

#define GRANULE_BYTES (UINT64_C(2) << 20)
#define CHUNK_BYTES   (GRANULES * GRANULE_BYTES)
#define VIEW_BYTES    (SLOTS * CHUNK_BYTES)

/*
 * Calls the driver's table: the counters and clocks of vmm__driver_*() would take a third of the
 * time.
 */
#define DRIVER(world, name, ...)                                                                   \
    must(world, (world)->driver->ops->name((world)->driver, __VA_ARGS__))

/* ---- Failures -------------------------------------------------------------------------------- */

static void world_fail(struct world *world, const char *what, const char *text)
{
    if (world->failure[0] == '\0')
        (void)snprintf(world->failure, sizeof world->failure, "%s: %s", what, text);
}

/* A call that the driver must accept. */
static void must(struct world *world, vmm_status status)
{
    if (status != VMM_OK)
        world_fail(world, "the driver refuses a call", vmm_last_error());
}

/* ---- Addresses ------------------------------------------------------------------------------- */

static uint64_t home_address(const struct world *world, unsigned chunk)
{
    return world->homes + chunk * CHUNK_BYTES;
}

static uint64_t slot_address(const struct world *world, unsigned view, unsigned slot)
{
    return world->views[view] + slot * CHUNK_BYTES;
}

static uint64_t range_address(const struct world *world, struct range range)
{
    uint64_t base =
        range.view == HOME ? home_address(world, range.chunk) : slot_address(world, range.view, 0);
    return base + range.first * GRANULE_BYTES;
}

static uint64_t range_bytes(struct range range)
{
    return range.count * GRANULE_BYTES;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static void work_begin(struct world *world, struct range range, unsigned stream)
{
    for (unsigned i = 0; i < range.count && range_is_mapped(&world->records, range); i++)
        world->is_dirty[records_spot(&world->records, range, i).chunk] = true;
    world->submitted[stream]++;
}

static void work_fill(struct world *world, struct range range, unsigned stream, uint32_t word)
{
    work_begin(world, range, stream);
    DRIVER(world, fill, range_address(world, range), range_bytes(range), word,
           world->streams[stream]);
}

static void work_check(struct world *world, struct range range, unsigned stream, uint32_t word)
{
    work_begin(world, range, stream);
    DRIVER(world, check, range_address(world, range), range_bytes(range), word,
           world->streams[stream]);
}

/* Records the stream's next event. */
static struct stamp event_record(struct world *world, unsigned stream)
{
    uint8_t number = ++world->records.recorded[stream];
    void *event = world->events[stream][number];
    world->pieces[stream][number] = world->submitted[stream];
    DRIVER(world, event_record, event, world->streams[stream]);
    return (struct stamp){ (uint8_t)stream, number };
}

/* The program orders the later stream's next work after the earlier stream's work. */
static void stream_follow(struct world *world, unsigned later, unsigned earlier)
{
    DRIVER(world, event_record, world->event, world->streams[earlier]);
    DRIVER(world, stream_wait, world->streams[later], world->event);
}

/* Finishes work of world->stream, and of others only while it waits for them. */
static uint32_t choose_work(void *context, const struct sim_choice *choices, uint32_t count)
{
    struct world *world = context;
    uint32_t chosen = 0;
    if (world->finished[world->stream] >= world->wanted)
        return count;
    for (uint32_t i = 0; i < count; i++) {
        if (choices[i].stream == world->streams[world->stream])
            chosen = i;
    }
    for (unsigned stream = 0; stream < STREAMS; stream++)
        world->finished[stream] += world->streams[stream] == choices[chosen].stream;
    return chosen;
}

/* ---- Mappings -------------------------------------------------------------------------------- */

static void map_chunk(struct world *world, uint64_t address, unsigned chunk)
{
    world->is_dirty[chunk] = true;
    DRIVER(world, map, address, CHUNK_BYTES, world->handles[chunk]);
}

static void set_access(struct world *world, uint64_t address)
{
    DRIVER(world, access, address, CHUNK_BYTES);
}

static void unmap(struct world *world, uint64_t address)
{
    DRIVER(world, unmap, address, CHUNK_BYTES);
}

static void chunk_create(struct world *world, unsigned chunk, uint8_t owner)
{
    world->records.chunks[chunk] = (struct chunk){ .exists = true, .owner = owner };
    DRIVER(world, create, CHUNK_BYTES, false, &world->handles[chunk]);
    map_chunk(world, home_address(world, chunk), chunk);
    set_access(world, home_address(world, chunk));
    world->is_dirty[chunk] = false;
}

static void chunk_release(struct world *world, unsigned chunk)
{
    world->records.chunks[chunk] = (struct chunk){ 0 };
    DRIVER(world, release, world->handles[chunk], CHUNK_BYTES);
}

/* Newest mapping first. */
static void view_unmap(struct world *world, unsigned v)
{
    struct view *view = &world->records.views[v];
    for (unsigned i = view->count; i-- > 0;) {
        if (view->row[i].chunk != NONE)
            unmap(world, slot_address(world, v, view->base + i));
    }
    *view = (struct view){ 0 };
}

static void view_map(struct world *world, const struct operation *operation)
{
    struct view *view = &world->records.views[operation->view];
    *view = (struct view){ .base = SLOTS / 2, .is_half = true };
    for (unsigned i = 0; i < operation->count; i++) {
        map_chunk(world, slot_address(world, operation->view, view->base + i), operation->row[i]);
        view_place(view, (int)i, operation->row[i]);
    }
}

static void view_access(struct world *world, unsigned v)
{
    struct view *view = &world->records.views[v];
    for (unsigned i = 0; i < view->count; i++)
        set_access(world, slot_address(world, v, view->base + i));
    view->is_half = false;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* Makes a chunk as new, unless it is. */
static void chunk_renew(struct world *world, unsigned chunk)
{
    if (world->records.chunks[chunk].exists && !world->is_dirty[chunk])
        return;
    if (world->records.chunks[chunk].exists) {
        unmap(world, home_address(world, chunk));
        chunk_release(world, chunk);
    }
    chunk_create(world, chunk, 0);
}

static void perform_begin(struct world *world, const struct operation *operation)
{
    must(world, world->driver->ops->device_wait(world->driver));
    for (unsigned v = 0; v < VIEWS; v++)
        view_unmap(world, v);
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
        chunk_renew(world, chunk);
    memset(&world->records, 0, sizeof world->records);
    memset(world->submitted, 0, sizeof world->submitted);
    memset(world->finished, 0, sizeof world->finished);
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
        world->records.chunks[chunk] =
            (struct chunk){ .exists = true, .owner = operation->row[chunk] };
}

static void perform_alloc(struct world *world, const struct operation *operation)
{
    struct block *block = records_free_block(&world->records);
    *block = (struct block){ .state = BLOCK_LIVE,
                             .stream = operation->stream,
                             .last = operation->stream,
                             .range = operation->range,
                             .word = ++world->words };
    records_occupy(&world->records, &world->rules, block->range);
    work_fill(world, block->range, block->stream, block->word);
}

static void perform_extend(struct world *world, const struct operation *operation)
{
    struct view *view = &world->records.views[operation->view];
    uint64_t address =
        slot_address(world, operation->view, (unsigned)(view->base + operation->position));
    map_chunk(world, address, operation->chunk);
    set_access(world, address);
    view_place(view, operation->position, operation->chunk);
}

static void block_use(struct world *world, struct block *block, unsigned stream, bool reads)
{
    work_check(world, block->range, stream, block->word);
    if (reads)
        return;
    block->word = ++world->words;
    work_fill(world, block->range, stream, block->word);
    block->last = (uint8_t)stream;
}

static void perform_use(struct world *world, const struct operation *operation)
{
    struct block *block = &world->records.blocks[operation->block];
    stream_follow(world, operation->stream, block->last);
    block_use(world, block, operation->stream, operation->reads);
    block->users |= (uint8_t)(1U << operation->stream);
    block->is_read = block->is_read || operation->reads;
}

/* The block waits for the other streams that use it. */
static void block_wait(struct world *world, struct block *block)
{
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        if ((block->users & 1U << stream) != 0)
            block->waits[stream] = event_record(world, stream).number;
    }
    block->state = BLOCK_WAITS;
    if (world->rules.off[RULE_STAMP_WAITING])
        block->freed = (struct stamp){ 0 };
    if (!world->rules.off[RULE_WAIT_AS_ONE])
        return;
    records_vacate(&world->records, &world->rules, range_behind_first_chunk(block->range),
                   block->freed);
    block->range = range_first_chunk(block->range);
}

static void block_end(struct world *world, struct block *block)
{
    records_vacate(&world->records, &world->rules, block->range, block->freed);
    *block = (struct block){ 0 };
}

/* Its own stream's last use belongs to the free, unless another stream wrote the block. */
static void perform_free(struct world *world, const struct operation *operation)
{
    struct block *block = &world->records.blocks[operation->block];
    if (block->last == block->stream)
        block_use(world, block, block->stream, block->is_read);
    block->freed = event_record(world, block->stream);
    if (block->users != 0 && !world->rules.off[RULE_OTHER_STREAMS])
        block_wait(world, block);
    else
        block_end(world, block);
}

static void perform_misuse(struct world *world, const struct operation *operation)
{
    unsigned owner = world->records.chunks[operation->range.chunk].owner;
    records_vacate(&world->records, &world->rules, operation->range, event_record(world, owner));
}

static void perform_retain(struct world *world, const struct operation *operation)
{
    struct records *records = &world->records;
    struct block *block = &records->blocks[operation->block];
    for (unsigned i = 0; i < block->range.count; i++)
        records->chunks[records_spot(records, block->range, i).chunk].retained = true;
    records->graph = (struct graph){ true, block->stream, block->range };
    block->is_graph = true;
}

static void perform_launch(struct world *world)
{
    const struct graph *graph = &world->records.graph;
    struct block *block = records_block_of_graph(&world->records);
    uint32_t word = ++world->words;
    if (block != NULL) {
        work_check(world, block->range, graph->stream, block->word);
        block->word = word;
    }
    work_fill(world, graph->range, graph->stream, word);
    work_check(world, graph->range, graph->stream, word);
}

/* Frees the blocks that wait for nothing any longer. */
static void blocks_poll(struct world *world)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct block *block = &world->records.blocks[i];
        bool has_passed = block->state == BLOCK_WAITS;
        for (uint8_t stream = 0; stream < STREAMS; stream++)
            has_passed =
                has_passed &&
                records_finished(&world->records, (struct stamp){ stream, block->waits[stream] });
        if (has_passed)
            block_end(world, block);
    }
}

static void perform_finish(struct world *world, const struct operation *operation)
{
    struct records *records = &world->records;
    unsigned stream = operation->stream;
    uint8_t number =
        operation->all ? records->recorded[stream] : (uint8_t)(records->passed[stream] + 1);
    world->stream = stream;
    world->wanted = world->pieces[stream][number];
    DRIVER(world, event_query, world->events[stream][number]);
    world->wanted = 0;
    records->passed[stream] = number;
    blocks_poll(world);
}

/* The home first: that is the order in which CUDA could refuse later maps of the handle. */
static void perform_trim(struct world *world, const struct operation *operation)
{
    unsigned chunk = operation->chunk;
    unmap(world, home_address(world, chunk));
    for (unsigned v = 0; v < VIEWS; v++) {
        struct view *view = &world->records.views[v];
        unsigned position = view_position(view, chunk);
        if (position == view->count)
            continue;
        if (view->is_half) {
            view->row[position].is_orphan = true;
        } else if (!world->rules.off[RULE_EVERY_PLACE]) {
            unmap(world, slot_address(world, v, view->base + position));
            view_remove(view, position);
        }
    }
    chunk_release(world, chunk);
}

static void perform_view(struct world *world, const struct operation *operation)
{
    if (operation->kind == OPERATION_STITCH || operation->kind == OPERATION_HALF)
        view_map(world, operation);
    if (operation->kind == OPERATION_STITCH || operation->kind == OPERATION_WHOLE)
        view_access(world, operation->view);
    if (operation->kind == OPERATION_UNDO || operation->kind == OPERATION_EVICT)
        view_unmap(world, operation->view);
    if (operation->kind == OPERATION_STITCH)
        perform_alloc(world, operation);
}

void world_perform(struct world *world, const struct operation *operation)
{
    switch ((enum operation_kind)operation->kind) {
    case OPERATION_BEGIN:
        perform_begin(world, operation);
        break;
    case OPERATION_HOME_ALLOC:
    case OPERATION_VIEW_ALLOC:
        perform_alloc(world, operation);
        break;
    case OPERATION_STITCH:
    case OPERATION_HALF:
    case OPERATION_WHOLE:
    case OPERATION_UNDO:
    case OPERATION_EVICT:
        perform_view(world, operation);
        break;
    case OPERATION_EXTEND:
        perform_extend(world, operation);
        break;
    case OPERATION_USE:
        perform_use(world, operation);
        break;
    case OPERATION_FREE:
        perform_free(world, operation);
        break;
    case OPERATION_MISUSE:
        perform_misuse(world, operation);
        break;
    case OPERATION_RETAIN:
        perform_retain(world, operation);
        break;
    case OPERATION_LAUNCH:
        perform_launch(world);
        break;
    case OPERATION_FINISH:
        perform_finish(world, operation);
        break;
    case OPERATION_TRANSFER:
        world->records.chunks[operation->chunk].owner = operation->stream;
        world->records.chunks[operation->chunk].retained = false;
        break;
    case OPERATION_TRIM:
        perform_trim(world, operation);
        break;
    case OPERATION_CREATE:
        chunk_create(world, operation->chunk, operation->stream);
        break;
    case OPERATIONS:
        break;
    }
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

/* What the driver holds is what the records say. */
static void judge_census(struct world *world)
{
    const struct records *records = &world->records;
    struct sim_census census = vmm__sim_census(world->driver);
    uint64_t chunks = 0;
    uint64_t orphans = 0;
    uint64_t places = 0;
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks += records->chunks[i].exists;
    for (unsigned v = 0; v < VIEWS; v++) {
        for (unsigned i = 0; i < records->views[v].count; i++) {
            places += records->views[v].row[i].chunk != NONE;
            orphans += records->views[v].row[i].is_orphan;
        }
    }
    if (census.mappings != chunks + places)
        world_fail(world, "records", "the driver has other mappings");
    if (census.physical_bytes != (chunks + orphans) * CHUNK_BYTES)
        world_fail(world, "records", "a released chunk is still mapped");
}

static void judge_violations(struct world *world)
{
    const char *text;
    if (vmm__soft_violations(world->driver, &text) > 0)
        world_fail(world, "violation", text);
}

void world_judge(struct world *world)
{
    uint64_t places = 0;
    judge_census(world);
    judge_violations(world);
    if (world->records.graph.exists)
        perform_launch(world);
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *block = &world->records.blocks[i];
        if (block->state == BLOCK_LIVE)
            work_check(world, block->range, block->last, block->word);
    }
    judge_violations(world);
    DRIVER(world, mismatches, &places);
    if (places > 0)
        world_fail(world, "contents", vmm__sim_mismatch(world->driver));
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void world_make_events(struct world *world)
{
    DRIVER(world, event_create, &world->event);
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        DRIVER(world, stream_create, &world->streams[stream]);
        for (unsigned i = 0; i < EVENTS; i++)
            DRIVER(world, event_create, &world->events[stream][i]);
    }
}

bool world_open(struct world *world, const struct rules *rules)
{
    struct driver_options options = { 0 };
    *world = (struct world){ .rules = *rules };
    if (vmm__driver_sim_open(&options, &world->driver) != VMM_OK)
        return false;
    vmm__sim_order_set(world->driver, choose_work, world);
    world_make_events(world);
    DRIVER(world, reserve, CHUNKS * CHUNK_BYTES, 0, &world->homes);
    for (unsigned v = 0; v < VIEWS; v++)
        DRIVER(world, reserve, VIEW_BYTES, 0, &world->views[v]);
    if (world->failure[0] == '\0')
        return true;
    world_close(world);
    return false;
}

void world_print(const struct world *world)
{
    (void)printf("  streams A, B, C: %p, %p, %p; homes from %#llx, views from %#llx and %#llx\n",
                 (void *)world->streams[0], (void *)world->streams[1], (void *)world->streams[2],
                 (unsigned long long)world->homes,
                 (unsigned long long)slot_address(world, 0, SLOTS / 2),
                 (unsigned long long)slot_address(world, 1, SLOTS / 2));
}

void world_close(struct world *world)
{
    vmm__driver_close(world->driver);
}
