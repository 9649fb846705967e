/*
 * Busy memory: live bytes, and freed bytes that work in flight may still use. Together they are the
 * least that streams can do with which do not wait for each other.
 *
 * A stream uses its own freed memory again at once, in stream order, so it is memory that counts and
 * not frees: what a stream keeps busy at a moment is the highest live bytes that it had since the
 * oldest of its work in flight was submitted. The busy bytes of a moment are the sum over streams.
 * Owns nothing. May be called by: replayer, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_BUSY_H
#define FRAGTEST_BUSY_H

#include "trace.h"

/*
 * The most bytes busy at once in one pass of a trace whose work finishes `lag` operations after it was
 * submitted. Never less than the peak of live bytes; with lag 0, or one stream, exactly that. Takes
 * time in proportion to the operations. False: no host memory, and *peak_bytes as it was.
 */
bool busy_peak(const struct trace *trace, uint64_t lag, uint64_t *peak_bytes);

#endif
