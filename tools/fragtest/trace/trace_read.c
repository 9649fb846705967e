/*
 * Reads traces, text or gzip. docs/trace-format.md describes the format.
 *
 * Every other line is refused with its number, so that a damaged file never becomes a shorter
 * workload in silence. Of packed files, those that the library records may end early, because the program was killed.
 * The limits in trace.h bound the memory.
 */
#include "fragtest/trace/trace.h"

#include "base/error.h"
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define LINE_BYTES    256
#define RECORDED_HEAD "# recorded by libvmmcache"

/* The id of a live block. It leaves when the block is freed, so the map follows what is live, not all ids seen. */
struct live_id {
    struct map_node node; /* first: the map hands it out */
    uint32_t block;
};

struct reader {
    const char *path;
    int file;
    bool is_packed;
    bool is_recorded; /* by the library */
    bool is_at_end;   /* of the packed data: more may follow, which begins anew */
    z_stream unpacker;
    uint64_t line;
    struct trace *trace;
    struct map ids;
    struct trace_error *error;
};

__attribute__((format(printf, 2, 3))) static bool reader_fail(struct reader *reader,
                                                              const char *format, ...)
{
    va_list arguments;
    char *text = reader->error->text;
    size_t capacity = sizeof(reader->error->text);
    int used = snprintf(text, capacity, "%.180s:%" PRIu64 ": ", reader->path, reader->line);

    va_start(arguments, format);
    (void)vsnprintf(text + used, capacity - (size_t)used, format, arguments);
    va_end(arguments);
    vmm__line_make(text); /* a file may have any name: this stays one line */
    return false;
}

/* Takes one decimal number and the blank (or the end) after it. */
static bool number_take(const char **text, uint64_t *out)
{
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    uint64_t value = strtoull(*text, &end, 10);
    if (errno != 0 || (*end != ' ' && *end != '\0'))
        return false;
    *text = end + (*end == ' ');
    *out = value;
    return true;
}

static bool line_alloc(struct reader *reader, const char *text)
{
    uint64_t id;
    uint64_t bytes;
    uint64_t stream;
    uint32_t block;

    if (!number_take(&text, &id) || !number_take(&text, &bytes) || !number_take(&text, &stream) ||
        *text != '\0')
        return reader_fail(reader, "not of the form \"+ ID BYTES STREAM\"");
    if (vmm__map_find(&reader->ids, id) != NULL)
        return reader_fail(reader, "id %" PRIu64 " is allocated while it is live", id);
    struct live_id *live = malloc(sizeof(*live));
    if (live == NULL)
        return reader_fail(reader, "out of host memory");
    *live = (struct live_id){ .node.key = id, .block = reader->trace->block_count };
    vmm__map_add(&reader->ids, &live->node);
    const char *refusal = trace_add_alloc(reader->trace, bytes, stream, &block);
    return refusal == NULL ? true : reader_fail(reader, "%s", refusal);
}

static bool line_free(struct reader *reader, const char *text)
{
    uint64_t id;

    if (!number_take(&text, &id) || *text != '\0')
        return reader_fail(reader, "not of the form \"- ID\"");
    struct live_id *live = (struct live_id *)vmm__map_find(&reader->ids, id);
    if (live == NULL)
        return reader_fail(reader, "id %" PRIu64 " is freed but not live: unknown or freed before",
                           id);
    const char *refusal = trace_add_free(reader->trace, live->block);
    vmm__map_remove(&reader->ids, &live->node);
    free(live);
    return refusal == NULL ? true : reader_fail(reader, "%s", refusal);
}

static bool line_parse(struct reader *reader, const char *line)
{
    if (line[0] == '\0' || line[0] == '#')
        return true;
    if (strncmp(line, "+ ", 2) == 0)
        return line_alloc(reader, line + 2);
    if (strncmp(line, "- ", 2) == 0)
        return line_free(reader, line + 2);
    return reader_fail(reader, "a line starts with \"+ \", \"- \" or \"#\"");
}

/* Puts the bytes read so far into lines; `line` keeps an unfinished one between calls. */
struct line {
    char text[LINE_BYTES];
    size_t length;
};

static bool line_end(struct reader *reader, struct line *line)
{
    while (line->length > 0 && strchr("\r\t ", line->text[line->length - 1]) != NULL)
        line->length--;
    line->text[line->length] = '\0';
    line->length = 0;
    if (reader->line == 1)
        reader->is_recorded = strncmp(line->text, RECORDED_HEAD, strlen(RECORDED_HEAD)) == 0;
    return line_parse(reader, line->text);
}

static bool line_feed(struct reader *reader, struct line *line, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n') {
            if (!line_end(reader, line))
                return false;
            reader->line++;
            continue;
        }
        if (bytes[i] == '\0')
            return reader_fail(reader, "a zero byte");
        if (line->length + 1 == LINE_BYTES)
            return reader_fail(reader, "a line of more than %d bytes", LINE_BYTES - 1);
        line->text[line->length++] = bytes[i];
    }
    return true;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

enum { PIECE_BYTES = 1 << 16, GZIP_WINDOW = 15 + 16, GZIP_FIRST = 0x1F, GZIP_SECOND = 0x8B };

/* Reads a piece, which is shorter only at the end. Negative: it cannot be read. */
static ssize_t piece_read(const struct reader *reader, unsigned char *piece)
{
    size_t used = 0;
    ssize_t count = 1;
    while (used < PIECE_BYTES && count > 0) {
        count = read(reader->file, piece + used, PIECE_BYTES - used);
        if (count > 0)
            used += (size_t)count;
        else if (count < 0 && errno == EINTR)
            count = 1;
    }
    return count < 0 ? count : (ssize_t)used;
}

/* After its end gzip data may be filled up with zeros, or go on with more gzip data. */
static bool packed_begin(struct reader *reader)
{
    z_stream *unpacker = &reader->unpacker;
    while (unpacker->avail_in > 0 && *unpacker->next_in == 0) {
        unpacker->next_in++;
        unpacker->avail_in--;
    }
    if (unpacker->avail_in == 0)
        return true;
    if (*unpacker->next_in != GZIP_FIRST)
        return reader_fail(reader, "damaged gzip data (something else follows)");
    reader->is_at_end = false;
    return inflateReset(unpacker) == Z_OK || reader_fail(reader, "out of host memory");
}

static bool packed_feed(struct reader *reader, struct line *line, unsigned char *piece,
                        size_t count)
{
    static unsigned char text[PIECE_BYTES];
    z_stream *unpacker = &reader->unpacker;
    unpacker->next_in = piece;
    unpacker->avail_in = (unsigned)count;
    do {
        if (reader->is_at_end && !packed_begin(reader))
            return false;
        if (reader->is_at_end)
            return true;
        unpacker->next_out = text;
        unpacker->avail_out = sizeof text;
        int outcome = inflate(unpacker, Z_NO_FLUSH);
        if (!line_feed(reader, line, (char *)text, sizeof text - unpacker->avail_out))
            return false;
        if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR)
            return reader_fail(reader, "damaged gzip data (%s)",
                               unpacker->msg == NULL ? zError(outcome) : unpacker->msg);
        reader->is_at_end = outcome == Z_STREAM_END;
    } while (unpacker->avail_in > 0 || unpacker->avail_out == 0);
    return true;
}

/* Drops the line that a recording was cut in. A trace that was packed whole is refused. */
static bool packed_cut(struct reader *reader, struct line *line)
{
    if (!reader->is_recorded)
        return reader_fail(reader, "the gzip data ends too early");
    line->length = 0;
    reader->trace->is_cut = true;
    return true;
}

/* Finds out by the first piece whether the file is packed. */
static bool piece_begin(struct reader *reader, const unsigned char *piece, ssize_t count)
{
    reader->is_packed = count > 1 && piece[0] == GZIP_FIRST && piece[1] == GZIP_SECOND;
    return !reader->is_packed || inflateInit2(&reader->unpacker, GZIP_WINDOW) == Z_OK ||
           reader_fail(reader, "out of host memory");
}

static bool pieces_feed(struct reader *reader, struct line *line, unsigned char *piece)
{
    ssize_t count = piece_read(reader, piece);
    bool ok = count < 0 || piece_begin(reader, piece, count);
    while (ok && count > 0) {
        ok = reader->is_packed ? packed_feed(reader, line, piece, (size_t)count)
                               : line_feed(reader, line, (const char *)piece, (size_t)count);
        if (ok)
            count = piece_read(reader, piece);
    }
    if (ok && count < 0)
        return reader_fail(reader, "cannot read: %s", strerror(errno));
    if (ok && reader->is_packed && !reader->is_at_end)
        return packed_cut(reader, line);
    return ok;
}

static bool reader_run(struct reader *reader)
{
    struct line line = { .length = 0 };
    unsigned char *piece = malloc(PIECE_BYTES);
    bool ok = piece == NULL ? reader_fail(reader, "out of host memory")
                            : pieces_feed(reader, &line, piece);
    if (reader->is_packed)
        (void)inflateEnd(&reader->unpacker);
    free(piece);
    ok = ok && (line.length == 0 || line_end(reader, &line));
    if (ok && reader->trace->op_count == 0)
        return reader_fail(reader, "no operations");
    return ok;
}

/* "a/b/gnn.trace.gz" is called "gnn". */
static bool trace_init_named(struct trace *trace, const char *path)
{
    static const char *const endings[] = { ".gz", ".trace", ".txt" };
    const char *slash = strrchr(path, '/');
    char name[128];

    (void)snprintf(name, sizeof(name), "%.120s", slash == NULL ? path : slash + 1);
    vmm__line_make(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t length = strlen(name);
        size_t ending = strlen(endings[i]);
        if (length > ending && strcmp(name + length - ending, endings[i]) == 0)
            name[length - ending] = '\0';
    }
    return trace_init(trace, name);
}

static void live_id_drop(struct map_node *node)
{
    free(node);
}

bool trace_read(const char *path, struct trace *trace, struct trace_error *error)
{
    struct reader reader = { .path = path, .line = 1, .trace = trace, .error = error };

    if (strcmp(path, TRACE_STDIN) == 0) {
        reader.path = "stdin";
        reader.file = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    } else {
        reader.file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (reader.file < 0)
        return reader_fail(&reader, "cannot open: %s", strerror(errno));
    bool ok = trace_init_named(trace, reader.path) || reader_fail(&reader, "out of host memory");
    ok = ok && reader_run(&reader);
    vmm__map_clear(&reader.ids, live_id_drop);
    (void)close(reader.file);
    if (!ok)
        trace_free(trace);
    return ok;
}
