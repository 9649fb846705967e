/*
 * The peak of busy memory: see busy.h.
 *
 * For each stream a queue of highs: what was live before a free, and the free that ended it, falling
 * from the front to the back. A high that live bytes reach again is dropped from the back, one that
 * the lag has passed from the front; so the front, or else what is live now, is what the stream
 * keeps busy. A stream never has more highs than frees, so its queue is a part of one array.
 */
#include "busy.h"

#include <stdlib.h>

struct high {
    uint64_t bytes;
    uint32_t ended_by; /* the operation */
};

struct stream {
    uint64_t live_bytes;
    uint32_t frees; /* in the whole trace */
    struct high *first;
    struct high *end;
};

struct busy {
    const struct trace *trace;
    struct high *highs;
    struct stream *streams;
    uint64_t bytes; /* of all streams */
};

static uint64_t stream_bytes(const struct stream *stream)
{
    return stream->first < stream->end ? stream->first->bytes : stream->live_bytes;
}

static const struct trace_block *op_block(const struct busy *busy, uint32_t op)
{
    return &busy->trace->blocks[trace_op_block(busy->trace->ops[op])];
}

static struct stream *op_stream(const struct busy *busy, uint32_t op)
{
    return &busy->streams[op_block(busy, op)->stream];
}

static void stream_alloc(struct stream *stream, uint64_t bytes)
{
    stream->live_bytes += bytes;
    while (stream->first < stream->end && stream->end[-1].bytes <= stream->live_bytes)
        stream->end--;
}

static void stream_free(struct stream *stream, uint64_t bytes, uint32_t op)
{
    *stream->end++ = (struct high){ .bytes = stream->live_bytes, .ended_by = op };
    stream->live_bytes -= bytes;
}

static void op_apply(struct busy *busy, uint32_t op)
{
    struct stream *stream = op_stream(busy, op);
    uint64_t bytes = op_block(busy, op)->bytes;

    busy->bytes -= stream_bytes(stream);
    if (trace_op_frees(busy->trace->ops[op]))
        stream_free(stream, bytes, op);
    else
        stream_alloc(stream, bytes);
    busy->bytes += stream_bytes(stream);
}

/* The work of an operation has finished. */
static void op_finish(struct busy *busy, uint32_t op)
{
    struct stream *stream = op_stream(busy, op);

    if (stream->first == stream->end || stream->first->ended_by != op)
        return;
    busy->bytes -= stream_bytes(stream);
    stream->first++;
    busy->bytes += stream_bytes(stream);
}

/* Gives each stream its part of the array. */
static bool streams_begin(struct busy *busy)
{
    const struct trace *trace = busy->trace;
    struct high *next;

    busy->streams = calloc(trace->stream_count, sizeof(*busy->streams));
    busy->highs = malloc((trace->op_count / 2 + 1) * sizeof(*busy->highs));
    if (busy->streams == NULL || busy->highs == NULL)
        return false;
    for (uint32_t i = 0; i < trace->op_count; i++)
        op_stream(busy, i)->frees += trace_op_frees(trace->ops[i]);
    next = busy->highs;
    for (uint32_t i = 0; i < trace->stream_count; i++) {
        busy->streams[i].first = next;
        busy->streams[i].end = next;
        next += busy->streams[i].frees;
    }
    return true;
}

bool busy_peak(const struct trace *trace, uint64_t lag, uint64_t *peak_bytes)
{
    struct busy busy = { .trace = trace };
    uint64_t most_bytes = 0;
    bool ok = streams_begin(&busy);

    for (uint32_t i = 0; ok && i < trace->op_count; i++) {
        if (i > lag)
            op_finish(&busy, i - 1 - (uint32_t)lag);
        op_apply(&busy, i);
        if (busy.bytes > most_bytes)
            most_bytes = busy.bytes;
    }
    free(busy.highs);
    free(busy.streams);
    if (ok)
        *peak_bytes = most_bytes;
    return ok;
}
