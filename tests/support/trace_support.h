/*
 * A recorded trace, read back: see docs/trace-format.md. Any line that is not one of a trace fails the test, and so
 * does a free of a block that is not live.
 */
#ifndef VMM_TRACE_SUPPORT_H
#define VMM_TRACE_SUPPORT_H

#include "support/test_support.h"

enum { TRACE_IDS = 1 << 20, TRACE_WORD = 64, TRACE_LINE = 255 };

struct trace_sum {
    uint64_t allocations;
    uint64_t frees;
    uint64_t live_bytes;
    uint64_t peak_bytes;
    uint64_t mapped_bytes;
    uint64_t waits;
    uint64_t uses;
    uint64_t notes;
    uint64_t frames;
    uint64_t pools;        /* named */
    uint64_t last_address; /* of `#@ next`, as are the next three */
    uint64_t last_pool;
    uint64_t last_frame;
    uint64_t last_us;
    uint64_t last_stream; /* of an allocation */
    uint64_t last_bytes;
    char last_note[TRACE_LINE + 1];
    char last_name[TRACE_LINE + 1]; /* of a block, with its id */
};

/* A name for a file of this test, which is removed at the exit. Valid until the next call. The second is of a packed
 * file. */
const char *trace_path(void);
const char *trace_path_packed(void);

/* Opens a file; a packed one is unpacked by gzip, up to its last whole member. */
FILE *trace_open(const char *path);

/* Reads a file. */
struct trace_sum trace_sum_of(const char *path);
/* How many of its lines have a text. */
unsigned trace_count(const char *path, const char *text);

#endif
