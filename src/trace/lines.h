/*
 * A file of lines. It can be read at any moment, also after the program was killed: no line crosses a boundary of
 * LINES_PAGE bytes, so a write that is cut short, which happens at the boundary of a page, ends with a whole line.
 * Empty lines fill the rest of a page. A file whose name ends with ".gz" is packed: each flush is a member, of whole
 * lines, and a write that is cut short leaves the members before it.
 *
 * Owns: the file and a buffer. Invariants:
 *  1. the file has `end` bytes, of `offset` bytes of text, and ends with a whole line;
 *  2. `failure` is the first error of a write; from then on lines are dropped.
 * May be called by: trace. Locks: the caller's.
 */
#ifndef VMM_TRACE_LINES_H
#define VMM_TRACE_LINES_H

#include "base/error.h"
#include "trace/gzip.h"

#include <stdint.h>

enum { LINES_PAGE = 4096, LINES_BYTES = 16 * LINES_PAGE, LINE_MOST = 256 };

struct lines {
    int file; /* -1: closed */
    int failure;
    struct gzip *gzip; /* NULL: the file is not packed */
    uint64_t offset;
    uint64_t end;
    uint64_t last; /* where the last write, or member, begins */
    uint64_t used; /* bytes in the buffer */
    char buffer[LINES_BYTES];
};

/* Opens a file for one writer, and empties it. VMM__IN_USE: another recording writes it. ERR_INVALID_ARGUMENT: it
 * cannot be written; the line says why. ERR_UNSUPPORTED, ERR_HOST_OOM: it cannot be packed. */
vmm_status vmm__lines_open(struct lines *lines, const char *path);

/* Passes all lines to the system. */
void vmm__lines_flush(struct lines *lines);

/* Makes room for a line in the buffer and in its page. */
void vmm__lines_make_room(struct lines *lines);

/* Where the next line, of up to LINE_MOST bytes, goes; and its end, after the newline. */
static inline char *vmm__lines_begin(struct lines *lines)
{
    uint64_t rest = LINES_PAGE - (lines->offset + lines->used) % LINES_PAGE;
    if (lines->used + LINES_PAGE > LINES_BYTES || rest < LINE_MOST)
        vmm__lines_make_room(lines);
    return lines->buffer + lines->used;
}

static inline void vmm__lines_end(struct lines *lines, const char *end)
{
    lines->used = (uint64_t)(end - lines->buffer);
}

/* Flushes and closes. */
void vmm__lines_close(struct lines *lines);

#endif
