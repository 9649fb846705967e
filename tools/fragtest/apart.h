/*
 * What streams need that stay apart, none waiting for another: live bytes, and freed bytes that work
 * in flight may still use. A bound that no allocator can beat.
 *
 * A stream uses its own freed memory again at once, in stream order, so it is memory that counts and
 * not frees: what a stream ties up at a moment is the highest live bytes that it had since the
 * oldest of its work in flight was submitted. The bound of a moment is the sum over streams.
 * Owns nothing. May be called by: replayer, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_APART_H
#define FRAGTEST_APART_H

#include "trace.h"

/*
 * The most bytes needed at once in one pass of a trace whose work finishes `lag` operations after it was
 * submitted. Never less than the peak of live bytes; with lag 0, or one stream, exactly that. Takes
 * time in proportion to the operations. False: no host memory, and *peak_bytes as it was.
 */
bool apart_peak(const struct trace *trace, uint64_t lag, uint64_t *peak_bytes);

#endif
