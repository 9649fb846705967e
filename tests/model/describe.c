/* Operations and rules in words: see model.h. */
#include "model.h"

#include <stdio.h>
#include <string.h>

const char *rule_name(enum rule rule)
{
    static const char *const names[RULES] = {
#define RULE_NAME(name, text) #name,
        RULE_MAP(RULE_NAME)
#undef RULE_NAME
    };
    return names[rule];
}

const char *rule_text(enum rule rule)
{
    static const char *const texts[RULES] = {
#define RULE_TEXT(name, text) text,
        RULE_MAP(RULE_TEXT)
#undef RULE_TEXT
    };
    return texts[rule];
}

const char *operation_name(enum operation_kind kind)
{
    static const char *const names[OPERATIONS] = {
#define OPERATION_NAME(name) #name,
        OPERATION_MAP(OPERATION_NAME)
#undef OPERATION_NAME
    };
    return names[kind];
}

/* The end of the text, and the bytes behind it. */
struct writer {
    char *at;
    size_t left;
};

static void write_text(struct writer *writer, const char *text)
{
    int written = snprintf(writer->at, writer->left, "%s", text);
    size_t moved = (size_t)written < writer->left ? (size_t)written : writer->left - 1;
    writer->at += moved;
    writer->left -= moved;
}

static void write_number(struct writer *writer, const char *before, unsigned number)
{
    char text[12];
    (void)snprintf(text, sizeof text, "%u", number);
    write_text(writer, before);
    write_text(writer, text);
}

static void write_stream(struct writer *writer, const char *before, unsigned stream)
{
    char name[2] = { (char)('A' + stream), '\0' };
    write_text(writer, before);
    write_text(writer, name);
}

/* "granule 1 of chunk 0, chunk 1, granule 0 of chunk 2" */
static void write_range(struct writer *writer, struct records *records, struct range range)
{
    for (unsigned i = 0; i < range.count; i++) {
        struct spot spot = records_spot(records, range, i);
        bool is_whole = spot.granule == 0 && i + GRANULES <= range.count;
        write_text(writer, i == 0 ? "" : ", ");
        if (!is_whole)
            write_number(writer, "granule ", spot.granule);
        write_number(writer, is_whole ? "chunk " : " of chunk ", spot.chunk);
        i += is_whole ? GRANULES - 1 : 0;
    }
    if (range.view == HOME)
        write_text(writer, " at home");
    else
        write_number(writer, " in view ", range.view);
}

static void write_row(struct writer *writer, const struct operation *operation)
{
    for (unsigned i = 0; i < operation->count; i++)
        write_number(writer, i == 0 ? "" : ", ", operation->row[i]);
}

static void write_alloc(struct writer *writer, const struct records *before,
                        const struct operation *operation)
{
    struct records records = *before;
    struct view *view = &records.views[operation->view];
    write_stream(writer, "stream ", operation->stream);
    if (operation->kind == OPERATION_STITCH) {
        *view = (struct view){ .base = SLOTS / 2 };
        for (unsigned i = 0; i < operation->count; i++)
            view_place(view, (int)i, operation->row[i]);
        write_number(writer, " makes view ", operation->view);
        write_text(writer, " of chunks ");
        write_row(writer, operation);
        write_text(writer, " and");
    }
    write_text(writer, " allocates ");
    write_range(writer, &records, operation->range);
}

static void write_view(struct writer *writer, const struct operation *operation)
{
    switch ((enum operation_kind)operation->kind) {
    case OPERATION_HALF:
        write_text(writer, "the cache maps chunks ");
        write_row(writer, operation);
        write_number(writer, " as view ", operation->view);
        write_text(writer, ", without access yet");
        break;
    case OPERATION_WHOLE:
        write_number(writer, "the cache sets access of view ", operation->view);
        break;
    case OPERATION_UNDO:
        write_number(writer, "the cache undoes view ", operation->view);
        break;
    case OPERATION_EXTEND:
        write_number(writer, "the cache maps chunk ", operation->chunk);
        write_number(writer, " into view ", operation->view);
        break;
    default:
        write_number(writer, "the cache evicts view ", operation->view);
        break;
    }
}

static void write_block(struct writer *writer, const struct records *before,
                        const struct operation *operation)
{
    struct records records = *before;
    const struct block *block = &records.blocks[operation->block];
    if (operation->kind == OPERATION_USE)
        write_stream(writer, "stream ", operation->stream);
    write_text(writer, operation->kind == OPERATION_USE ? operation->reads ? " reads " : " writes "
                       : operation->kind == OPERATION_RETAIN ? "a graph captures "
                                                             : "the program frees ");
    write_range(writer, &records, block->range);
    write_stream(writer, ", of stream ", block->stream);
}

static void write_chunk(struct writer *writer, const struct operation *operation)
{
    write_text(writer, operation->kind == OPERATION_TRIM       ? "the cache trims"
                       : operation->kind == OPERATION_TRANSFER ? "the cache transfers"
                                                               : "the cache creates");
    write_number(writer, " chunk ", operation->chunk);
    if (operation->kind != OPERATION_TRIM)
        write_stream(writer, operation->kind == OPERATION_TRANSFER ? " to stream " : " for stream ",
                     operation->stream);
}

static void write_other(struct writer *writer, const struct records *before,
                        const struct operation *operation)
{
    struct records records = *before;
    switch ((enum operation_kind)operation->kind) {
    case OPERATION_BEGIN:
        write_text(writer, "chunks 0, 1, 2 belong to streams ");
        for (unsigned i = 0; i < CHUNKS; i++)
            write_stream(writer, i == 0 ? "" : ", ", operation->row[i]);
        break;
    case OPERATION_MISUSE:
        write_text(writer, "the program frees ");
        write_range(writer, &records, operation->range);
        write_text(writer, ", which a view block occupies");
        break;
    case OPERATION_LAUNCH:
        write_text(writer, "the program launches the graph");
        break;
    default:
        write_stream(writer, "work of stream ", operation->stream);
        write_text(writer, operation->all ? " finishes, up to its last event"
                                          : " finishes, up to its next event");
        break;
    }
}

void operation_describe(const struct records *before, const struct operation *operation, char *text,
                        size_t bytes)
{
    struct writer writer = { text, bytes };
    switch ((enum operation_kind)operation->kind) {
    case OPERATION_HOME_ALLOC:
    case OPERATION_VIEW_ALLOC:
    case OPERATION_STITCH:
        write_alloc(&writer, before, operation);
        break;
    case OPERATION_HALF:
    case OPERATION_WHOLE:
    case OPERATION_UNDO:
    case OPERATION_EXTEND:
    case OPERATION_EVICT:
        write_view(&writer, operation);
        break;
    case OPERATION_USE:
    case OPERATION_FREE:
    case OPERATION_RETAIN:
        write_block(&writer, before, operation);
        break;
    case OPERATION_TRANSFER:
    case OPERATION_TRIM:
    case OPERATION_CREATE:
        write_chunk(&writer, operation);
        break;
    case OPERATION_BEGIN:
    case OPERATION_MISUSE:
    case OPERATION_LAUNCH:
    case OPERATION_FINISH:
    case OPERATIONS:
        write_other(&writer, before, operation);
        break;
    }
}
