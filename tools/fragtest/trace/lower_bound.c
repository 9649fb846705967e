/*
 * The least memory that streams need which never wait for each other: see lower_bound.h.
 *
 * For each stream a queue of highs: what was live before a free, and the free that ended it, falling
 * from the front to the back. A high that live bytes reach again is dropped from the back, one that
 * the lag has passed from the front; so the front, or else what is live now, is what the stream
 * keeps bound. A stream never has more highs than frees, so its queue is a part of one array.
 */
#include "fragtest/trace/lower_bound.h"

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

struct lower_bound {
    const struct trace *trace;
    struct high *highs;
    struct stream *streams;
    uint64_t bytes; /* of all streams */
};

static uint64_t stream_bytes(const struct stream *stream)
{
    return stream->first < stream->end ? stream->first->bytes : stream->live_bytes;
}

static const struct trace_block *op_block(const struct lower_bound *bound, uint32_t op)
{
    return &bound->trace->blocks[trace_op_block(bound->trace->ops[op])];
}

static struct stream *op_stream(const struct lower_bound *bound, uint32_t op)
{
    return &bound->streams[op_block(bound, op)->stream];
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

static void op_apply(struct lower_bound *bound, uint32_t op)
{
    struct stream *stream = op_stream(bound, op);
    uint64_t bytes = op_block(bound, op)->bytes;

    bound->bytes -= stream_bytes(stream);
    if (trace_op_frees(bound->trace->ops[op]))
        stream_free(stream, bytes, op);
    else
        stream_alloc(stream, bytes);
    bound->bytes += stream_bytes(stream);
}

/* The work of an operation has finished. */
static void op_finish(struct lower_bound *bound, uint32_t op)
{
    struct stream *stream = op_stream(bound, op);

    if (stream->first == stream->end || stream->first->ended_by != op)
        return;
    bound->bytes -= stream_bytes(stream);
    stream->first++;
    bound->bytes += stream_bytes(stream);
}

/* Gives each stream its part of the array. */
static bool streams_begin(struct lower_bound *bound)
{
    const struct trace *trace = bound->trace;
    struct high *next;

    bound->streams = calloc(trace->stream_count, sizeof(*bound->streams));
    bound->highs = malloc((trace->op_count / 2 + 1) * sizeof(*bound->highs));
    if (bound->streams == NULL || bound->highs == NULL)
        return false;
    for (uint32_t i = 0; i < trace->op_count; i++)
        op_stream(bound, i)->frees += trace_op_frees(trace->ops[i]);
    next = bound->highs;
    for (uint32_t i = 0; i < trace->stream_count; i++) {
        bound->streams[i].first = next;
        bound->streams[i].end = next;
        next += bound->streams[i].frees;
    }
    return true;
}

bool lower_bound_find(const struct trace *trace, uint64_t lag, uint64_t *peak_bytes)
{
    struct lower_bound bound = { .trace = trace };
    uint64_t most_bytes = 0;
    bool ok = streams_begin(&bound);

    for (uint32_t i = 0; ok && i < trace->op_count; i++) {
        if (i > lag)
            op_finish(&bound, i - 1 - (uint32_t)lag);
        op_apply(&bound, i);
        if (bound.bytes > most_bytes)
            most_bytes = bound.bytes;
    }
    free(bound.highs);
    free(bound.streams);
    if (ok)
        *peak_bytes = most_bytes;
    return ok;
}
