/*
 * The peak of apart memory: see apart.h.
 *
 * For each stream a queue of highs: what was live before a free, and the free that ended it, falling
 * from the front to the back. A high that live bytes reach again is dropped from the back, one that
 * the lag has passed from the front; so the front, or else what is live now, is what the stream
 * keeps apart. A stream never has more highs than frees, so its queue is a part of one array.
 */
#include "apart.h"

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

struct apart {
    const struct trace *trace;
    struct high *highs;
    struct stream *streams;
    uint64_t bytes; /* of all streams */
};

static uint64_t stream_bytes(const struct stream *stream)
{
    return stream->first < stream->end ? stream->first->bytes : stream->live_bytes;
}

static const struct trace_block *op_block(const struct apart *apart, uint32_t op)
{
    return &apart->trace->blocks[trace_op_block(apart->trace->ops[op])];
}

static struct stream *op_stream(const struct apart *apart, uint32_t op)
{
    return &apart->streams[op_block(apart, op)->stream];
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

static void op_apply(struct apart *apart, uint32_t op)
{
    struct stream *stream = op_stream(apart, op);
    uint64_t bytes = op_block(apart, op)->bytes;

    apart->bytes -= stream_bytes(stream);
    if (trace_op_frees(apart->trace->ops[op]))
        stream_free(stream, bytes, op);
    else
        stream_alloc(stream, bytes);
    apart->bytes += stream_bytes(stream);
}

/* The work of an operation has finished. */
static void op_finish(struct apart *apart, uint32_t op)
{
    struct stream *stream = op_stream(apart, op);

    if (stream->first == stream->end || stream->first->ended_by != op)
        return;
    apart->bytes -= stream_bytes(stream);
    stream->first++;
    apart->bytes += stream_bytes(stream);
}

/* Gives each stream its part of the array. */
static bool streams_begin(struct apart *apart)
{
    const struct trace *trace = apart->trace;
    struct high *next;

    apart->streams = calloc(trace->stream_count, sizeof(*apart->streams));
    apart->highs = malloc((trace->op_count / 2 + 1) * sizeof(*apart->highs));
    if (apart->streams == NULL || apart->highs == NULL)
        return false;
    for (uint32_t i = 0; i < trace->op_count; i++)
        op_stream(apart, i)->frees += trace_op_frees(trace->ops[i]);
    next = apart->highs;
    for (uint32_t i = 0; i < trace->stream_count; i++) {
        apart->streams[i].first = next;
        apart->streams[i].end = next;
        next += apart->streams[i].frees;
    }
    return true;
}

bool apart_peak(const struct trace *trace, uint64_t lag, uint64_t *peak_bytes)
{
    struct apart apart = { .trace = trace };
    uint64_t most_bytes = 0;
    bool ok = streams_begin(&apart);

    for (uint32_t i = 0; ok && i < trace->op_count; i++) {
        if (i > lag)
            op_finish(&apart, i - 1 - (uint32_t)lag);
        op_apply(&apart, i);
        if (apart.bytes > most_bytes)
            most_bytes = apart.bytes;
    }
    free(apart.highs);
    free(apart.streams);
    if (ok)
        *peak_bytes = most_bytes;
    return ok;
}
