/*
 * A trace: what a program asked of its allocator, as a list of operations over numbered blocks.
 *
 * Owns: its arrays and its name.
 * Invariants:
 *  T1. an operation that frees names a block that an earlier operation allocated and none freed;
 *  T2. every block is allocated by exactly one operation; its bytes are in 1..TRACE_MAX_BYTES;
 *  T3. stream_count streams are numbered from 0 without gaps, in order of their first use;
 *  T4. peak_live_bytes is the most bytes that were live at once.
 * May be called by: everything in fragtest. Locks: none; read-only once it is built.
 */
#ifndef FRAGTEST_TRACE_H
#define FRAGTEST_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define TRACE_STDIN "-"

#define TRACE_MAX_BYTES      (1ULL << 46) /* of one block: beyond any device's address space */
#define TRACE_MAX_LIVE_BYTES (1ULL << 60)
#define TRACE_MAX_OPS        (1U << 26)
#define TRACE_MAX_LIVE       (1U << 22) /* blocks at once */
#define TRACE_MAX_STREAM     1023U      /* highest number a stream may have */

struct trace_block {
    uint64_t bytes;
    uint32_t stream;
    bool live; /* while the trace is built; afterwards: never freed by the trace */
};

struct trace {
    char *name;
    struct trace_block *blocks;
    uint32_t *ops; /* (block << 1) | frees */
    uint32_t block_count;
    uint32_t op_count;
    uint64_t block_capacity;
    uint64_t op_capacity;
    uint32_t stream_count;
    uint32_t stream_numbers[TRACE_MAX_STREAM + 1]; /* dense number + 1, 0: not seen */
    uint32_t live_count;
    uint64_t live_bytes; /* after the last operation */
    uint64_t peak_live_bytes;
    bool is_cut; /* the end of its file was missing */
};

static inline bool trace_op_frees(uint32_t op)
{
    return (op & 1U) != 0;
}

static inline uint32_t trace_op_block(uint32_t op)
{
    return op >> 1;
}

/* One line of text about what went wrong; the caller's. */
struct trace_error {
    char text[320];
};

/* Adds operations. On refusal: NULL becomes a few words on what is wrong; nothing is added. */
const char *trace_add_alloc(struct trace *trace, uint64_t bytes, uint64_t stream, uint32_t *block);
const char *trace_add_free(struct trace *trace, uint32_t block);

/* An empty trace called `name`; false: no host memory. */
bool trace_init(struct trace *trace, const char *name);
void trace_free(struct trace *trace);

/*
 * Reads a file, gzip or plain text; docs/trace-format.md describes it. TRACE_STDIN is standard input.
 * The trace is named after the file, or "stdin". A packed recording that ends too early, as that of a program that
 * was killed, is read up to its last whole line, and is_cut. On failure `error` holds
 * "FILE:LINE: what" and there is nothing to free.
 */
bool trace_read(const char *path, struct trace *trace, struct trace_error *error);

/*
 * The most bytes busy at once: live, or freed less than `lag` operations ago, so that work of the
 * stream may still be using them. Counts frees, not memory: what a stream uses again counts anew, and
 * lower_bound.h has a bound that does not. With lag 0 that is the peak of live bytes.
 */
uint64_t trace_peak_busy(const struct trace *trace, uint64_t lag);

#endif
