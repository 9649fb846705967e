/*
 * Turns events into the lines of a trace: docs/trace-format.md.
 *
 * A trace must have no free of an unknown block and no second allocation of a live one, so the writer knows the live
 * blocks. It passes over a free of an unknown block, and frees a block in the trace when its address is allocated
 * again: both follow from calls that were under way when the recording began.
 *
 * Owns: the file, the live blocks, the numbers of streams, pools and frames. Invariant: the blocks in `live` are those
 * that the lines so far leave live.
 * May be called by: trace. Locks: the caller's.
 */
#ifndef VMM_TRACE_WRITER_H
#define VMM_TRACE_WRITER_H

#include "base/map.h"
#include "trace/lines.h"
#include "trace/ring.h"

enum { TRACE_TEXT_BYTES = 200 };

struct trace_text {
    char text[TRACE_TEXT_BYTES];
};

struct writer {
    struct lines lines;
    uint64_t begin_us;   /* times in the trace count from here */
    uint64_t written_us; /* the last time in the trace */
    uint64_t blocks;     /* ever allocated: their ids */
    struct map live;     /* by address */
    struct live_block *spare;
    struct live_batch *batches;
    struct map streams; /* numbers by handle */
    struct map pools;
    struct map frames; /* by parent and address */
    uint64_t lost;     /* events for which there was no host memory */
};

/* What the whole trace has in common. */
struct writer_origin {
    uint64_t begin_us;
    uint64_t chunk_bytes; /* the least memory that can be returned */
    uint64_t pool;        /* the handle of the default pool */
};

/* As vmm__lines_open(); ERR_HOST_OOM. */
vmm_status vmm__writer_open(struct writer *writer, const char *path,
                            const struct writer_origin *origin);

/* Writes an event. */
void vmm__writer_take(struct writer *writer, const struct trace_event *event);

/* Frees what is attached to an event. */
void vmm__trace_event_drop(const struct trace_event *event);

/* Closes the file and forgets everything but `lines.failure` and `lost`. */
void vmm__writer_close(struct writer *writer);

#endif
