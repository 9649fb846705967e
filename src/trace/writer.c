/* Turns events into lines: see writer.h. */
#define _GNU_SOURCE
#include "trace/writer.h"
#include "base/arith.h"
#include "base/hostmem.h"
#include "base/stack.h"

#include <endian.h>
#include <string.h>
#include <time.h>

enum { BATCH_BLOCKS = 256, STREAM_MOST = 1023, FRAMES_MOST = 1 << 20 };

struct live_block {
    struct map_node node; /* its key is the address */
    uint64_t id;
    bool is_waiting;
};

/* Blocks are allocated in batches and used again, so that an event seldom needs host memory. */
struct live_batch {
    struct live_batch *next;
    struct live_block blocks[BATCH_BLOCKS];
};

/* A stream or pool. */
struct numbered {
    struct map_node node; /* its key is the handle */
    uint64_t number;
};

struct frame {
    struct map_node node; /* its key: see frame_key() */
    uint64_t parent;
    const void *address;
    uint64_t id;
};

/* ---- Lines ---------------------------------------------------------------------------------- */

static char *put_text(char *at, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(at, text, bytes);
    return at + bytes;
}

/* The digits of a number below 10^8, from its first byte on, without a step for each: in parallel, halves become pairs
 * and pairs become digits. */
static uint64_t digits_of(uint64_t number)
{
    uint64_t halves = number / 10000 | number % 10000 << 32;
    uint64_t hundreds = (halves * 10486 >> 20) & UINT64_C(0x7F0000007F); /* halves / 100 */
    uint64_t pairs = hundreds | (halves - hundreds * 100) << 16;
    uint64_t tens = (pairs * 103 >> 10) & UINT64_C(0xF000F000F000F); /* pairs / 10 */
    return tens | (pairs - tens * 10) << 8;
}

/* All 8 digits of a number below 10^8. */
static char *put_digits(char *at, uint64_t number)
{
    uint64_t text = htole64(digits_of(number) | UINT64_C(0x3030303030303030));
    memcpy(at, &text, sizeof text);
    return at + sizeof text;
}

static char *put_number(char *at, uint64_t number)
{
    if (number < 10) {
        *at = (char)('0' + number);
        return at + 1;
    }
    if (number >= 100000000)
        return put_digits(put_number(at, number / 100000000), number % 100000000);
    uint64_t digits = digits_of(number);
    unsigned zeros = (unsigned)__builtin_ctzll(digits) / 8;
    uint64_t text = htole64((digits | UINT64_C(0x3030303030303030)) >> zeros * 8);
    memcpy(at, &text, sizeof text);
    return at + sizeof text - zeros;
}

static void line_end(struct writer *writer, char *at)
{
    *at++ = '\n';
    vmm__lines_end(&writer->lines, at);
}

/* Numbers, each after a blank. */
#define LINE_PUT(writer, word, ...)                                                                \
    line_put(writer, word, (const uint64_t[]){ __VA_ARGS__ },                                      \
             sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t), NULL)

/* Writes a line: a word, numbers and a text (NULL: none), each after a blank. */
static void line_put(struct writer *writer, const char *word, const uint64_t *numbers, size_t count,
                     const char *text)
{
    char *at = put_text(vmm__lines_begin(&writer->lines), word);
    for (size_t i = 0; i < count; i++) {
        *at++ = ' ';
        at = put_number(at, numbers[i]);
    }
    if (text != NULL) {
        *at++ = ' ';
        at = put_text(at, text);
    }
    line_end(writer, at);
}

static char *field_put(char *at, const char *name, uint64_t value)
{
    return value == 0 ? at : put_number(put_text(at, name), value);
}

/* Writes the note before an operation: those of the arguments that are not 0, and the time if it has changed. */
static void next_put(struct writer *writer, const struct trace_event *event, uint64_t address,
                     uint64_t pool, uint64_t frame)
{
    uint64_t time_us = vmm__max(event->time_us, writer->begin_us) - writer->begin_us;
    bool is_later = time_us > writer->written_us;
    if (!is_later && address == 0 && pool == 0 && frame == 0)
        return;
    char *at = put_text(vmm__lines_begin(&writer->lines), "#@ next");
    at = field_put(at, " time=", is_later ? time_us : 0);
    at = field_put(at, " address=", address);
    at = field_put(at, " pool=", pool);
    at = field_put(at, " frame=", frame);
    line_end(writer, at);
    if (is_later)
        writer->written_us = time_us;
}

/* ---- Numbers of streams, pools and frames --------------------------------------------------- */

static void numbered_drop(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct numbered));
}

static struct numbered *number_add(struct map *map, uint64_t handle, uint64_t most)
{
    struct numbered *numbered = vmm__host_alloc(1, sizeof *numbered);
    if (numbered == NULL)
        return NULL;
    numbered->node.key = handle;
    numbered->number = vmm__min(map->count, most);
    vmm__map_add(map, &numbered->node);
    return numbered;
}

/* Further streams than a trace can number share the last number. */
static uint64_t stream_number(struct writer *writer, uint64_t handle)
{
    struct map_node *node = vmm__map_find(&writer->streams, handle);
    if (node != NULL)
        return VMM_MAP_RECORD(node, struct numbered, node)->number;
    const struct numbered *added = number_add(&writer->streams, handle, STREAM_MOST);
    if (added == NULL)
        return 0;
    char name[40];
    (void)snprintf(name, sizeof name, "stream 0x%llx", (unsigned long long)handle);
    line_put(writer, "#@ stream", &added->number, 1, name);
    return added->number;
}

/* A destroyed pool has no handle: the default pool has its blocks. */
static uint64_t pool_number(struct writer *writer, uint64_t handle)
{
    if (handle == 0)
        return 0;
    struct map_node *node = vmm__map_find(&writer->pools, handle);
    if (node != NULL)
        return VMM_MAP_RECORD(node, struct numbered, node)->number;
    const struct numbered *added = number_add(&writer->pools, handle, UINT64_MAX);
    return added == NULL ? 0 : added->number;
}

static void frame_drop(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct frame));
}

static uint64_t frame_key(uint64_t parent, const void *address)
{
    return (uint64_t)(uintptr_t)address * 31 + parent;
}

/* The number of a frame that a parent calls; the parent's, if there is no room for another. */
static uint64_t frame_number(struct writer *writer, uint64_t parent, const void *address)
{
    char name[LINE_MOST / 2];
    uint64_t key = frame_key(parent, address);
    for (struct map_node *node = vmm__map_find(&writer->frames, key); node != NULL;
         node = vmm__map_find_next(node)) {
        const struct frame *known = VMM_MAP_RECORD(node, struct frame, node);
        if (known->parent == parent && known->address == address)
            return known->id;
    }
    struct frame *frame = NULL;
    if (writer->frames.count < FRAMES_MOST)
        frame = vmm__host_alloc(1, sizeof *frame);
    if (frame == NULL)
        return parent;
    *frame = (struct frame){
        .node = { .key = key }, .parent = parent, .address = address, .id = writer->frames.count + 1
    };
    vmm__map_add(&writer->frames, &frame->node);
    vmm__stack_name(address, name, sizeof name);
    line_put(writer, "#@ frame", (const uint64_t[]){ frame->id, parent }, 2, name);
    return frame->id;
}

static uint64_t stack_number(struct writer *writer, const struct stack *stack)
{
    uint64_t frame = 0;
    for (int i = stack == NULL ? 0 : stack->count; i > 0; i--)
        frame = frame_number(writer, frame, stack->frames[i - 1]);
    return frame;
}

/* ---- Blocks --------------------------------------------------------------------------------- */

static struct live_block *block_find(const struct writer *writer, uint64_t address)
{
    return (struct live_block *)vmm__map_find(&writer->live, address);
}

static void block_spare(struct writer *writer, struct live_block *block)
{
    block->node.next = (struct map_node *)writer->spare;
    writer->spare = block;
}

static struct live_block *block_take(struct writer *writer)
{
    if (writer->spare == NULL) {
        struct live_batch *batch = vmm__host_alloc(1, sizeof *batch);
        if (batch == NULL)
            return NULL;
        batch->next = writer->batches;
        writer->batches = batch;
        for (unsigned i = 0; i < BATCH_BLOCKS; i++)
            block_spare(writer, &batch->blocks[i]);
    }
    struct live_block *block = writer->spare;
    writer->spare = (struct live_block *)block->node.next;
    return block;
}

static void block_end(struct writer *writer, const struct trace_event *event,
                      struct live_block *block)
{
    next_put(writer, event, 0, 0, 0);
    LINE_PUT(writer, "-", block->id);
    vmm__map_remove(&writer->live, &block->node);
    block_spare(writer, block);
}

static void alloc_write(struct writer *writer, const struct trace_event *event)
{
    struct live_block *block = block_find(writer, event->address);
    if (block != NULL && event->kind == TRACE_FOUND)
        return;
    if (block != NULL)
        block_end(writer, event, block);
    block = block_take(writer);
    if (block == NULL) {
        writer->lost++;
        return;
    }
    *block = (struct live_block){ .node = { .key = event->address }, .id = ++writer->blocks };
    vmm__map_add(&writer->live, &block->node);
    uint64_t stream = stream_number(writer, event->stream);
    uint64_t pool = pool_number(writer, event->pool);
    next_put(writer, event, event->address, pool, stack_number(writer, event->attached));
    LINE_PUT(writer, "+", block->id, vmm__max(event->bytes, 1), stream);
}

/* A waiting block ends when its wait does. */
static void block_write(struct writer *writer, const struct trace_event *event)
{
    struct live_block *block = block_find(writer, event->address);
    if (block == NULL)
        return;
    bool is_end = event->kind == TRACE_DONE || !block->is_waiting;
    if (event->kind == TRACE_WAIT) {
        block->is_waiting = true;
        next_put(writer, event, 0, 0, 0);
        LINE_PUT(writer, "#@ wait", block->id);
    } else if (event->kind == TRACE_USE) {
        uint64_t stream = stream_number(writer, event->stream);
        LINE_PUT(writer, "#@ use", block->id, stream);
    } else if (event->kind == TRACE_NAME && event->attached != NULL) {
        line_put(writer, "#@ name", &block->id, 1, event->attached);
    } else if (is_end && event->kind != TRACE_NAME) {
        block_end(writer, event, block);
    }
}

/* ---- Events --------------------------------------------------------------------------------- */

static void text_write(struct writer *writer, const struct trace_event *event)
{
    uint64_t pool;
    const char *text = event->attached;
    if (text == NULL) {
        writer->lost++;
    } else if (event->kind == TRACE_NOTE) {
        line_put(writer, "#@ note", NULL, 0, text);
    } else {
        pool = pool_number(writer, event->pool);
        line_put(writer, "#@ pool", &pool, 1, text);
    }
}

void vmm__trace_event_drop(const struct trace_event *event)
{
    bool is_stack = event->kind == TRACE_ALLOC;
    vmm__host_free(event->attached, is_stack ? sizeof(struct stack) : sizeof(struct trace_text));
}

static void range_write(struct writer *writer, const struct trace_event *event)
{
    if (event->kind == TRACE_UNMAP) {
        next_put(writer, event, 0, 0, 0);
        LINE_PUT(writer, "#@ unmap", event->address, event->bytes);
        return;
    }
    uint64_t stream = stream_number(writer, event->stream);
    uint64_t pool = pool_number(writer, event->pool);
    next_put(writer, event, 0, 0, 0);
    LINE_PUT(writer, "#@ map", event->address, event->bytes, stream, pool);
}

/* HOME, PLACE and GONE are no operations: they belong to the one before. With one call for all three, GCC still inlines
 * line_put() where operations are written. */
static void mapping_write(struct writer *writer, const struct trace_event *event)
{
    static const char *const words[] = {
        [TRACE_HOME] = "#@ home", [TRACE_PLACE] = "#@ place", [TRACE_GONE] = "#@ gone"
    };
    const uint64_t numbers[] = { event->stream, event->address, event->bytes };
    size_t first = event->kind == TRACE_GONE ? 1 : 0; /* no number of a chunk */
    size_t end = event->kind == TRACE_HOME ? 3 : 2;
    line_put(writer, words[event->kind], &numbers[first], end - first, NULL);
}

void vmm__writer_take(struct writer *writer, const struct trace_event *event)
{
    switch (event->kind) {
    case TRACE_ALLOC:
    case TRACE_FOUND:
        alloc_write(writer, event);
        break;
    case TRACE_MAP:
    case TRACE_UNMAP:
        range_write(writer, event);
        break;
    case TRACE_HOME:
    case TRACE_PLACE:
    case TRACE_GONE:
        mapping_write(writer, event);
        break;
    case TRACE_POOL:
    case TRACE_NOTE:
        text_write(writer, event);
        break;
    default:
        block_write(writer, event);
    }
}

/* ---- Life ----------------------------------------------------------------------------------- */

static void head_write(struct writer *writer, const struct writer_origin *origin)
{
    char text[LINE_MOST / 2];
    struct tm day;
    time_t now = time(NULL);
    size_t length =
        (size_t)snprintf(text, sizeof text, "recorded by libvmmcache %s, ", vmm_version());
    if (gmtime_r(&now, &day) != NULL)
        (void)strftime(text + length, sizeof text - length, "%Y-%m-%dT%H:%M:%SZ", &day);
    line_put(writer, "#", NULL, 0, text);
    LINE_PUT(writer, "#@ chunk", origin->chunk_bytes);
}

vmm_status vmm__writer_open(struct writer *writer, const char *path,
                            const struct writer_origin *origin)
{
    *writer = (struct writer){ .lines = { .file = -1 }, .begin_us = origin->begin_us };
    if (number_add(&writer->streams, 0, 0) == NULL ||
        number_add(&writer->pools, origin->pool, 0) == NULL) {
        vmm__writer_close(writer);
        return vmm__error(VMM_ERR_HOST_OOM, "trace: no host memory for its records");
    }
    vmm_status status = vmm__lines_open(&writer->lines, path);
    if (status != VMM_OK) {
        vmm__writer_close(writer);
        return status;
    }
    head_write(writer, origin);
    vmm__lines_flush(&writer->lines); /* so that vmmcache-report knows the file from now on */
    return VMM_OK;
}

void vmm__writer_close(struct writer *writer)
{
    vmm__lines_close(&writer->lines);
    vmm__map_clear(&writer->live, NULL);
    vmm__map_clear(&writer->streams, numbered_drop);
    vmm__map_clear(&writer->pools, numbered_drop);
    vmm__map_clear(&writer->frames, frame_drop);
    while (writer->batches != NULL) {
        struct live_batch *batch = writer->batches;
        writer->batches = batch->next;
        vmm__host_free(batch, sizeof *batch);
    }
    writer->spare = NULL;
}
